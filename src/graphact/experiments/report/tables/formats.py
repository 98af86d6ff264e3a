"""A table as Markdown, as CSV and as plain text."""

import csv
import io
import textwrap
from collections.abc import Sequence

from graphact.experiments.report.tables.table import SIGNS, Entry, Table
from graphact.experiments.report.words import uncapitalized

LABEL_LETTERS = 28
WORDS = {"inside": "in", "above": "over", "below": "under"}
CSV_HEADER = (
    "table",
    "line",
    "kind",
    "column",
    "measure",
    "mean",
    "std",
    "runs",
    "not_finite",
    "paper_mean",
    "paper_std",
    "against_paper",
)


def to_markdown(table: Table) -> str:
    """A pipe table under its title, the caption below."""
    header = [table.corner]
    for column in table.columns:
        header += [f"{column}, ours", f"{column}, paper"] if table.has_paper else [column]
    lines = [[line.label] for line in table.lines]
    for cells, line in zip(lines, table.lines, strict=True):
        for entry in line.entries:
            cells.append(markdown_entry(entry, table))
            if table.has_paper:
                cells.append(entry.paper_text(table.digits))
    return "\n".join(
        [
            f"**{markdown_text(table.title)}**, {markdown_text(uncapitalized(table.unit))}",
            "",
            markdown_line([markdown_text(text) for text in header]),
            markdown_line(["---", *["---:"] * (len(header) - 1)]),
            *(markdown_line([markdown_text(label), *cells]) for label, *cells in lines),
            "",
            markdown_text(table.caption),
            "",
        ]
    )


def markdown_entry(entry: Entry, table: Table) -> str:
    """Our result with its number of runs, the best in bold, and the sign of where it lies."""
    text = entry.ours_text(table.digits)
    if entry.ours is None:
        return text
    sign = f" {SIGNS[entry.against_paper]}" if entry.against_paper else ""
    return f"{f'**{text}**' if entry.best else text}{sign}{f' ({entry.runs_text})' if table.with_runs else ''}"


def markdown_line(cells: Sequence[str]) -> str:
    """One line of a pipe table."""
    return f"| {' | '.join(cells)} |"


def markdown_text(text: str) -> str:
    """Text that Markdown shows as it is."""
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "".join(f"\\{letter}" if letter in "\\`*_[]|" else letter for letter in escaped)


def to_csv(table: Table) -> str:
    """One line for each place of the table, numbers in full precision, empty where there is none."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(CSV_HEADER)
    for line in table.lines:
        for column, entry in zip(table.columns, line.entries, strict=True):
            ours = entry.ours
            writer.writerow(
                [
                    table.title,
                    line.label,
                    "baseline" if line.is_baseline else "model",
                    column,
                    table.unit,
                    *(("", "", 0, 0) if ours is None else (ours.mean, ours.std, ours.runs, ours.not_finite)),
                    *(entry.paper or ("", "")),
                    entry.against_paper,
                ]
            )
    return buffer.getvalue()


def to_text(table: Table) -> str:
    """Aligned columns for a terminal; the number of runs stands below where it is the same for all networks."""
    alike = same_runs(table)
    header = [table.corner]
    for column in table.columns:
        header += [column, "paper"] if table.has_paper else [column]
    lines = [header]
    for line in table.lines:
        first, *further = textwrap.wrap(line.label, LABEL_LETTERS)
        cells = [first]
        for entry in line.entries:
            cells.append(text_entry(entry, table.digits, with_runs=alike is None))
            if table.has_paper:
                cells.append(entry.paper_text(table.digits))
        lines += [cells, *([f"  {words}", *[""] * (len(header) - 1)] for words in further)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, ["-" * width for width in widths])
    body = ["  ".join([first.ljust(widths[0]), *map(str.rjust, rest, widths[1:])]).rstrip() for first, *rest in lines]
    runs = "mean ± standard deviation over the runs, (their number)"
    if alike is not None:
        runs = f"mean ± standard deviation, {alike} run{'' if alike == 1 else 's'} of each network"
    signs = "; in, over, under: inside, above, below the paper's mean ± standard deviation" if table.has_paper else ""
    return "\n".join([f"{table.title}, {uncapitalized(table.unit)}", "", *body, "", f"{runs}{signs}"])


def same_runs(table: Table) -> int | None:
    """The number of runs of every network, if they have the same number and none diverged."""
    ours = [entry.ours for line in table.lines if not line.is_baseline for entry in line.entries if entry.ours]
    counts = {summary.runs for summary in ours}
    return counts.pop() if len(counts) == 1 and not any(summary.not_finite for summary in ours) else None


def text_entry(entry: Entry, digits: int, *, with_runs: bool) -> str:
    """Our result and, in a word, where it lies."""
    if entry.ours is None:
        return entry.ours_text(digits)
    lost = f", {entry.ours.not_finite} not finite" if entry.ours.not_finite else ""
    runs = f" ({entry.ours.runs}{lost})" if with_runs else ""
    word = f" {WORDS[entry.against_paper]}" if entry.against_paper else ""
    return f"{entry.ours_text(digits)}{runs}{word}"
