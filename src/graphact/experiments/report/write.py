"""Write the report."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from graphact.experiments.report.cells import gather
from graphact.experiments.report.figures.render import render
from graphact.experiments.report.page.page import page
from graphact.experiments.report.provenance import provenance
from graphact.experiments.report.rows import read_rows
from graphact.experiments.report.sections.all import sections_of
from graphact.experiments.report.sections.section import Block, Section
from graphact.experiments.report.tables.formats import to_csv, to_markdown
from graphact.files import write_atomically


def write_report(
    rows: Iterable[Mapping[str, Any]], directory: str | os.PathLike[str], *, command: str | None = None
) -> Path:
    """Write a report on results: a page, its tables as Markdown and CSV, its figures as PNG and SVG.

    The same rows, in whatever order, give the same files byte by byte. Each file is complete or, if writing was
    interrupted, as it was before; the page comes last.

    Args:
        rows: the results; :class:`~graphact.experiments.report.rows.Run` says what a row holds.
        directory: where to write ``report.html``, ``tables/`` and ``figures/``.
        command: the command that made the results, to be shown in the report.

    Returns:
        The path of the page.

    Raises:
        ValueError: there are no rows, a row is not as described, a run occurs twice, or two protocols share a name.
        TypeError: a value of a row has the wrong type.
        ModuleNotFoundError: matplotlib is not installed.
    """
    runs = read_rows(rows)
    sections = sections_of(gather(runs))
    check_names(sections)
    folder = Path(directory)
    contents: dict[str, bytes] = {}
    drawings: dict[str, str] = {}
    for block in (block for section in sections for block in section.blocks):
        for figure in block.figures:
            drawn = render(figure)
            drawings[figure.name] = drawn.inline
            contents[f"figures/{figure.name}.png"] = drawn.png
            contents[f"figures/{figure.name}.svg"] = drawn.svg.encode()
        for table in (*block.tables, *block.more_tables):
            contents[f"tables/{table.name}.md"] = to_markdown(table).encode()
            contents[f"tables/{table.name}.csv"] = to_csv(table).encode()
    contents["report.html"] = page(sections, drawings, provenance(runs), command).encode()
    for name, content in contents.items():
        write_atomically(folder / name, content)
    return folder / "report.html"


def check_names(sections: Iterable[Section]) -> None:
    """Refuse two blocks whose files would have the same names."""
    seen: dict[str, Block] = {}
    for block in (block for section in sections for block in section.blocks):
        for table in (*block.tables, *block.more_tables):
            other = seen.setdefault(table.name, block)
            if other is not block:
                raise ValueError(
                    "presets and protocols must differ in letters or digits, which name the files, got "
                    f"{(other.preset, other.protocol)} and {(block.preset, block.protocol)}"
                )
