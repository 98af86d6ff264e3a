"""Reports on results: a page, tables and figures from rows, beside the paper's numbers and honest baselines."""

from graphact.experiments.report.terminal import terminal_table
from graphact.experiments.report.write import write_report

__all__ = ["terminal_table", "write_report"]
