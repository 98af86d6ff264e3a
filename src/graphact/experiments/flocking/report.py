"""The report on flocking."""

from collections.abc import Sequence
from pathlib import Path

from graphact.experiments.store import Row


def write_page(rows: Sequence[Row], folder: Path, commands: Sequence[str]) -> Path:
    """Write the report."""
    raise NotImplementedError
