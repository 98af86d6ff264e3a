"""Measured rows as a table."""

from collections.abc import Sequence
from typing import Any

HEAD = (
    "activation",
    "forward ms",
    "with backward ms",
    "of gather floor",
    "of compulsory",
    "PyG forward ms",
    "with backward ms",
    "ratio",
)


def cells(row: dict[str, Any]) -> list[str]:
    """What a row says: median (fastest to slowest) milliseconds, shares of the limit, and the peer."""
    measured = [row["name"], _times(row["forward"]), _times(row["training"])]
    measured += [f"{row['share_of_gather_floor']:.0%}", f"{row['share_of_compulsory']:.0%}"]
    if "ratio_forward" in row:
        ratio = f"{row['ratio_forward']:.1f}x / {row['ratio_training']:.1f}x"
        return [*measured, _times(row["peer_forward"]), _times(row["peer_training"]), ratio]
    return [*measured, row["peer"] or "-", "-", "-"]


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """A Markdown table, columns aligned so that it reads well in a terminal, too."""
    lines = [list(HEAD), *(cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    )


def _times(times: dict[str, float]) -> str:
    median, fastest, slowest = (1e3 * times[name] for name in ("median", "fastest", "slowest"))
    if times["calls"] == 1:
        return f"{median:.4g} (once)"
    return f"{median:.4g} ({fastest:.3g}..{slowest:.3g})"
