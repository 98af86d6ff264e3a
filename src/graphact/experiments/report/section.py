"""What the section of an experiment in the report consists of."""

import re
from dataclasses import dataclass, field, fields

from graphact.experiments.report.tables import Table, number, uncapitalized


@dataclass(frozen=True)
class Figure:
    """A table as a figure: lines over an axis on which its columns are numbers, or dots where there is no such axis."""

    name: str  # of its files, without ending
    title: str
    caption: str
    table: Table
    axis: str | None = None

    @property
    def alt(self) -> str:
        entries, unit, digits = self.table.entries, uncapitalized(self.table.measure.axis), self.table.measure.digits
        kind, over = ("Dot", "by activation") if self.axis is None else ("Line", f"over the {uncapitalized(self.axis)}")
        methods = sum(not line.is_baseline for line in self.table.lines)
        best = entries[entries.best].sort_values("place").itertuples()
        each = [f"{entry.column}: best is {entry.line}, {number(entry.mean, digits)}." for entry in best]
        last = f"All values are in the table “{self.table.title}”."
        return " ".join([f"{kind} chart of {unit} {over}, {methods} methods.", *each, last])


@dataclass(frozen=True)
class Content:
    """What a section shows of one preset and protocol; contents can be added."""

    headlines: list[tuple[str, str]] = field(default_factory=list)  # each a setting and a sentence
    figures: list[Figure] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)  # the first is the main one
    more_tables: list[Table] = field(default_factory=list)  # folded away

    def __add__(self, other: "Content") -> "Content":
        return Content(*(getattr(self, part.name) + getattr(other, part.name) for part in fields(Content)))


def file_name(*parts: str) -> str:
    """Lower-case letters, digits and hyphens, whatever the parts hold.

    Example:
        >>> file_name("table-1", "../Quick & dirty")
        'table-1-quick-dirty'
    """
    return re.sub(r"[^a-z0-9]+", "-", " ".join(parts).lower()).strip("-")
