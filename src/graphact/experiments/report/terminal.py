"""Results as plain text, for the end of a run."""

from collections.abc import Iterable, Mapping
from typing import Any

from graphact.experiments.report.cells import gather
from graphact.experiments.report.rows import read_rows
from graphact.experiments.report.sections.all import sections_of
from graphact.experiments.report.tables.formats import to_text


def terminal_table(rows: Iterable[Mapping[str, Any]]) -> str:
    """The main table of each experiment, preset and protocol, aligned for a terminal.

    Raises:
        ValueError: there are no rows, a row is not as :class:`~graphact.experiments.report.rows.Run` describes, or a
            run occurs twice.
        TypeError: a value of a row has the wrong type.
    """
    parts = []
    for section in sections_of(gather(read_rows(rows))):
        for block in section.blocks:
            heading = f"{section.title}, protocol {block.protocol}, preset {block.preset}"
            parts.append(f"{heading}\n{to_text(block.tables[0])}\n{block.progress.sentence}")
    return "\n\n".join(parts)
