"""What a section consists of."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from graphact.experiments.report.cells import Cell
from graphact.experiments.report.figures.charts import Figure
from graphact.experiments.report.sections.progress import Progress
from graphact.experiments.report.tables.table import Table


@dataclass(frozen=True)
class Block:
    """One preset and protocol of an experiment.

    Attributes:
        preset: how much was run.
        protocol: how it was trained.
        headlines: the results, each as a setting and a sentence.
        progress: how much of it is there.
        facts: the settings, as name and value.
        figures: the figures.
        tables: the tables beside them; the first is the main one.
        more_tables: tables for those who want to know more, folded away.
    """

    preset: str
    protocol: str
    headlines: tuple[tuple[str, str], ...]
    progress: Progress
    facts: tuple[tuple[str, str], ...]
    figures: tuple[Figure, ...]
    tables: tuple[Table, ...]
    more_tables: tuple[Table, ...]


@dataclass(frozen=True)
class Section:
    """One experiment.

    Attributes:
        experiment: its name.
        title: its heading.
        explanation: paragraphs on what is done and what is seen.
        blocks: its presets and protocols.
    """

    experiment: str
    title: str
    explanation: tuple[str, ...]
    blocks: tuple[Block, ...]


def by_block(cells: Iterable[Cell]) -> list[tuple[str, str, list[Cell]]]:
    """Cells by preset and protocol, the paper's first."""
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.preset, cell.protocol), []).append(cell)
    ordered = sorted(groups.items(), key=lambda item: [(name != "paper", name) for name in item[0]])
    return [(preset, protocol, group) for (preset, protocol), group in ordered]


def file_name(*parts: str) -> str:
    """Lower-case letters, digits and hyphens, whatever the parts hold.

    Example:
        >>> from graphact.experiments.report.sections.section import file_name
        >>> file_name("table-1", "../Quick & dirty")
        'table-1-quick-dirty'
    """
    return re.sub(r"[^a-z0-9]+", "-", " ".join(parts).lower()).strip("-")


def listed(values: Iterable[object]) -> str:
    """Values in words, each once, in order.

    Example:
        >>> from graphact.experiments.report.sections.section import listed
        >>> listed([4, 2, 4, None])
        '2, 4'
    """
    known: Sequence[object] = sorted(
        {value for value in values if value is not None},
        key=lambda value: (0, value, "") if isinstance(value, int | float) else (1, 0, str(value)),
    )
    return ", ".join(f"{value:g}" if isinstance(value, float) else str(value) for value in known)
