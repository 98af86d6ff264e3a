"""Reports on results: a page, tables and figures from rows, beside the paper's numbers and honest baselines.

A report needs jinja2, matplotlib and pandas, which are imported when one is written, not before.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from graphact._extras import require

__all__ = ["REPORT_PACKAGES", "terminal_table", "write_report"]

REPORT_PACKAGES = ("jinja2", "matplotlib", "pandas")


def write_report(
    rows: Iterable[Mapping[str, Any]], directory: str | os.PathLike[str], *, command: str | None = None
) -> Path:
    """Write ``report.html``, ``tables/`` as Markdown and CSV, ``figures/`` as PNG and SVG; return the page's path.

    The same rows, in whatever order, give the same files byte by byte. The page is written last.

    Args:
        rows: the results; :mod:`graphact_lab.report.rows` describes what a row holds.
        directory: where to write.
        command: the command that made the results, to be shown in the report.

    Raises:
        ValueError: there are no rows, a row is not as described, a run occurs twice, or two protocols share a name.
        TypeError: a value of a row has the wrong type.
        ModuleNotFoundError: jinja2, matplotlib or pandas is not installed.
    """
    require("reports need", *REPORT_PACKAGES)
    from graphact_lab.report.page import write_files

    return write_files(rows, Path(directory), command)


def terminal_table(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return the main table of each experiment, preset and protocol as aligned Markdown; raises as a report does."""
    require("reports need", "pandas")
    from graphact_lab.report.page import main_tables

    return main_tables(rows)
