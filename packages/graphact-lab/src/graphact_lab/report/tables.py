"""Tables of means: what stands in them, whatever they are rendered as, and how they read as CSV and plain text."""

import math
import textwrap
from collections import namedtuple
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pandas as pd

from graphact_lab.descriptions import Measure
from graphact_lab.statistics import Summary, summarize
from graphact_lab.style import Variant, spread

MISSING = "\N{EN DASH}"
SIGNS = {"inside": "✓", "above": "▲", "below": "▼"}
SIGNS_EXPLAINED = "✓ inside, ▲ above, ▼ below the paper's mean ± standard deviation."
CSV = ["table", "line", "kind", "column", "measure", *Summary._fields, "paper_mean", "paper_std", "against_paper"]
EMPTY = {
    **{"line_index": 0, "line": "", "column_index": 0, "column": "", "key": None, "constant": False, "best": False},
    **{"kind": "model", "method": None, "hops": None, "value": (), "replica": (), "paper": None},
    **{"mean": math.nan, "std": math.nan, "runs": 0, "not_finite": 0},
}
TYPES = {key: type(value) for key, value in EMPTY.items() if isinstance(value, int | float)}
Line = namedtuple("Line", "label is_baseline entries")
# Mean and standard deviation as printed, by (activation, hops) and column; None where the paper does not state the hops
PublishedTable = Mapping[tuple[str, int | None], Mapping[Hashable, tuple[float, float]]]


@dataclass(frozen=True)
class Table:
    """A table with everything its renderings need.

    The frame ``entries`` holds its entries line by line, networks first, then baselines. An entry has the labels
    ``line`` and ``column`` with their positions ``line_index`` and ``column_index``, the ``key`` of the column,
    ``kind``, ``method``, ``hops``, the summary of its runs (``runs`` is 0 where there are none), their ``value`` and
    ``replica``, ``paper_mean`` and ``paper_std``; ``against_paper`` ("inside" the paper's mean ± standard deviation,
    "above" or "below" it), whether it is the ``best`` network of its column, and whether the line is ``constant``, one
    result for all columns.
    """

    name: str  # of its files, without ending
    title: str
    measure: Measure
    columns: list[str]
    entries: pd.DataFrame
    caption: str
    with_runs: bool = True  # whether every entry shows how many runs it stands for

    @cached_property
    def lines(self) -> list[Line]:
        groups = (list(group.itertuples()) for _, group in self.entries.groupby("line_index"))
        return [Line(group[0].line, group[0].kind == "baseline", group) for group in groups]

    @cached_property
    def networks(self) -> pd.DataFrame:
        """The entries of networks that have runs."""
        return self.entries[(self.entries.kind == "model") & (self.entries.runs > 0)]

    @cached_property
    def keys(self) -> list[Any]:
        """The key of each column."""
        return list(self.entries.drop_duplicates("column_index").sort_values("column_index").key)

    @cached_property
    def has_paper(self) -> bool:
        return bool(self.entries.paper_mean.notna().any())

    @cached_property
    def common_runs(self) -> int:
        """The number of runs of every network with a result, none of them diverged; 0 where numbers differ."""
        alike = self.networks.runs.nunique() == 1 and not self.networks.not_finite.any()
        return int(self.networks.runs.iloc[0]) if alike else 0

    def is_marked(self, entry: Any) -> bool:
        """Return whether an entry is the best network of a column that has several."""
        column = self.entries[self.entries.column_index == entry.column_index] if entry.best else self.entries[:0]
        return int(((column.kind == "model") & (column.runs > column.not_finite)).sum()) > 1

    def shown(self, entry: Any) -> str:
        """Mean and standard deviation, small numbers in scientific notation instead of as 0."""
        return spread(entry.mean, entry.std, self.measure.digits, small=True) if entry.runs else MISSING

    def shown_runs(self, entry: Any, noun: str = " run") -> str:
        """Return the number of runs of an entry, in words; empty where it is the common one."""
        told = self.common_runs and entry.runs == self.common_runs and not entry.not_finite
        return "" if told or not self.with_runs else self.runs(entry, noun)

    def paper(self, entry: Any) -> str:
        known = entry.paper_mean == entry.paper_mean
        return spread(entry.paper_mean, entry.paper_std, self.measure.digits) if known else MISSING

    @staticmethod
    def runs(entry: Any, noun: str = " run") -> str:
        """Return the number of runs of an entry, and how many of them diverged, in words."""
        lost = f", {entry.not_finite} not finite" if entry.not_finite else ""
        return f"{entry.runs}{noun}{'s' if noun and entry.runs > 1 else ''}{lost}" if entry.runs else ""


def make_table(
    cells: pd.DataFrame,
    measure: Measure,
    *,
    name: str,
    title: str,
    column_label: Callable[[Any], str],
    paper: PublishedTable | None = None,
    column_order: Sequence[Hashable] = (),
) -> Table:
    """Arrange cells: methods down, settings across.

    A cell has the key of its ``column``; a baseline without one holds for all columns that it has no other cell for.
    Methods of the paper have a line even where we have no result. The columns of ``column_order`` come first; they are
    the columns where there is no network at all.
    """
    paper = paper or {}
    lines: dict[tuple[Variant | None, str], dict[Hashable, Any]] = {}
    for cell in cells.to_dict("records"):
        variant = Variant(cell["method"], cell["hops"]) if cell["kind"] == "model" else None
        lines.setdefault((variant, cell["line"]), {})[None if pd.isna(cell["column"]) else cell["column"]] = cell
    ours = [variant for variant, _ in lines if variant]
    for variant in (Variant(*names) for names in paper):
        if not any(one.method == variant.method and variant.hops in (None, one.hops) for one in ours):
            lines[variant, variant.label] = {}
    network_keys = {key for (variant, _), found in lines.items() if variant for key in found}
    all_keys = {key for found in lines.values() for key in found if key is not None}
    ranks = {key: rank for rank, key in enumerate(column_order)}
    keys = network_keys or set(column_order) or all_keys or {None}
    columns = sorted(keys, key=lambda key: (ranks.get(key, len(ranks)), isinstance(key, str), key))

    def rank(line: Any) -> tuple[Any, ...]:
        """Networks in the paper's order, then baselines from worst to best."""
        (variant, label), found = line
        mean = summarize(cell["mean"] for key in columns if (cell := found.get(key, found.get(None)))).mean
        worth = -math.inf if math.isnan(mean) else mean if measure.higher_is_better else -mean
        return (0, variant.rank, label) if variant else (1, worth, label)

    labels = ["any setting" if key is None else column_label(key) for key in columns]
    records = [
        found.get(key, found.get(None, {}))
        | {"line_index": line_index, "line": label, "constant": set(found) == {None}}
        | {"kind": "model" if variant else "baseline"}
        | {"column_index": column_index, "key": key, "column": labels[column_index]}
        | (vars(variant) | {"paper": published(paper, variant).get(key)} if variant else {})
        for line_index, ((variant, label), found) in enumerate(sorted(lines.items(), key=rank))
        for column_index, key in enumerate(columns)
    ]
    entries = mark_best(entries_of(records), measure)
    counts = entries.against_paper.value_counts()
    compared = entries[entries.against_paper.notna()].itertuples()
    numbers = {(one.method, one.hops if (one.method, one.hops) in paper else None, one.key) for one in compared}
    inside = f"Inside: {counts.get('inside', 0)} of {counts.sum()} cells that the paper has, too."
    if len(numbers) < counts.sum():
        inside = (
            f"Inside: {counts.get('inside', 0)} of {counts.sum()} cells beside {len(numbers)} numbers of the paper: "
            "one whose hops it does not state stands beside every number of hops."
        )
    captions = [SIGNS_EXPLAINED, inside] if counts.sum() else []
    table = Table(name, title, measure, labels, entries, " ".join(captions))
    if not any(table.is_marked(entry) for entry in entries.itertuples()):
        return table
    return replace(table, caption=" ".join([*captions, "The best network of a column is in bold."]))


def published(table: PublishedTable, variant: Variant) -> Mapping[Hashable, tuple[float, float]]:
    """The published line of a network; one whose hops are not stated stands beside every number of hops."""
    return table.get((variant.method, variant.hops)) or table.get((variant.method, None)) or {}


def entries_of(records: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """The frame of a table from its entries; what an entry lacks is empty."""
    filled = [{name: record.get(name, empty) for name, empty in EMPTY.items()} for record in records]
    frame = pd.DataFrame(filled, columns=list(EMPTY), dtype=object).astype(TYPES)
    papers = [paper or (math.nan, math.nan) for paper in frame.pop("paper")]
    frame[["paper_mean", "paper_std"]] = pd.DataFrame(papers, columns=["mean", "std"], dtype=float)
    difference, tolerance = frame["mean"] - frame.paper_mean, frame.paper_std + 1e-9
    signs = {"inside": difference.abs() <= tolerance, "above": difference > tolerance, "below": difference < -tolerance}
    found = [next((sign for sign in signs if signs[sign][index]), None) for index in frame.index]
    frame["against_paper"] = pd.Series(found, dtype=object)
    return frame


def mark_best(entries: pd.DataFrame, measure: Measure) -> pd.DataFrame:
    """Entries with the best network of each column marked as such."""
    cost = entries["mean"][entries.kind == "model"].dropna() * (-1 if measure.higher_is_better else 1)
    return entries.assign(best=entries.index.isin(cost.groupby(entries.column_index).idxmin()))


def to_csv(table: Table) -> str:
    """One line for each entry of the table, numbers in full precision, empty where there is none."""
    entries = table.entries.assign(table=table.title, measure=table.measure.axis)
    return str(entries.to_csv(columns=CSV, index=False, lineterminator="\n"))


def to_text(table: Table) -> str:
    """Aligned columns for a terminal; the number of runs stands below where it is the same for all networks."""
    pair = 2 if table.has_paper else 1
    lines = [["Activation", *(text for column in table.columns for text in (column, "paper")[:pair])]]
    for line in table.lines:
        first, *further = textwrap.wrap(line.label, 28)
        cells = [first]
        for entry in line.entries:
            runs = table.shown_runs(entry, noun="")
            sign = f" {SIGNS.get(entry.against_paper, ' ')}" if table.has_paper else ""
            cells += [f"{table.shown(entry)}{f' ({runs})' if runs else ''}{sign}", table.paper(entry)][:pair]
        lines += [cells, *([f"  {words}", *[""] * (len(cells) - 1)] for words in further)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, ["-" * width for width in widths])
    body = ["  ".join([first.ljust(widths[0]), *map(str.rjust, rest, widths[1:])]).rstrip() for first, *rest in lines]
    number = f"{table.common_runs} run{'s' if table.common_runs > 1 else ''}"
    runs = f", {number} of each network" if table.common_runs else " over the runs, (their number)"
    signs = f"; {SIGNS_EXPLAINED[:-1]}" if table.has_paper else ""
    heading = f"{table.title}, {uncapitalized(table.measure.axis)}"
    return "\n".join([heading, "", *body, "", f"mean ± standard deviation{runs}{signs}"])


def uncapitalized(text: str) -> str:
    """Text that goes on within a sentence."""
    return text[:1].lower() + text[1:]
