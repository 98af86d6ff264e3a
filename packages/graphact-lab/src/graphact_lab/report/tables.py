"""Tables of means: methods down, settings across, as Markdown and CSV; and a sentence on a column."""

import math
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pandas as pd

from graphact_lab.descriptions import Measure
from graphact_lab.statistics import MIN_UNITS, Summary, common_difference, summarize
from graphact_lab.style import Variant, spread

MISSING = "\N{EN DASH}"
SIGNS = {"inside": "✓", "above": "▲", "below": "▼"}
SIGNS_EXPLAINED = "✓ inside, ▲ above, ▼ below the paper's mean ± standard deviation."
CSV = ["table", "line", "kind", "column", "measure", *Summary._fields, "note", "paper_mean", "paper_std"]
CSV += ["against_paper"]
NUMBERS = {"mean": math.nan, "std": math.nan, "runs": 0, "not_finite": 0, "paper_mean": math.nan, "paper_std": math.nan}
TYPES = {"line_index": int, "column_index": int, **{name: type(value) for name, value in NUMBERS.items()}}
EMPTY: dict[str, Any] = {**NUMBERS, "value": (), "replica": (), "note": ""}
# Mean and standard deviation as printed, by (activation, hops) and column; None where the paper does not state the hops
PublishedTable = Mapping[tuple[str, int | None], Mapping[Hashable, tuple[float, float]]]


@dataclass(frozen=True)
class Table:
    """A table, and what is needed to draw it.

    The frame ``entries`` holds its entries line by line, networks first, then baselines. An entry has the labels
    ``line`` and ``column`` with their positions ``line_index`` and ``column_index``, the ``key`` of the column,
    ``kind``, ``method``, ``hops``, the summary of its runs (``runs`` is 0 where there are none), their ``value`` and
    ``replica``, a ``note`` to stand behind its mean, ``paper_mean`` and ``paper_std``, ``against_paper``, a key of
    :data:`SIGNS`, and whether it is the ``best`` of several networks in its column.
    """

    name: str  # of its files, without ending
    title: str
    measure: Measure
    columns: list[str]
    entries: pd.DataFrame
    caption: str = ""
    axis: str | None = None  # label of the axis on which its columns are numbers
    headlines: tuple[tuple[str, str], ...] = ()  # each a column and a sentence on it
    is_result: bool = True  # whether runs are missing where it has no entry

    @cached_property
    def networks(self) -> pd.DataFrame:
        """The entries of networks that have runs."""
        return self.entries[(self.entries.kind == "model") & (self.entries.runs > 0)]

    @cached_property
    def has_paper(self) -> bool:
        return bool(self.entries.paper_mean.notna().any())

    @property
    def lines(self) -> list[tuple[str, bool, list[str]]]:
        """Label, whether it is a baseline, and cells of each line as text, each before that of the paper."""
        found = []
        for _, line in self.entries.groupby("line_index"):
            cells = []
            for entry in line.itertuples():
                cells.append(self.shown(entry))
                if self.has_paper:
                    known = not math.isnan(entry.paper_mean)
                    cells.append(spread(entry.paper_mean, entry.paper_std, self.measure.digits) if known else MISSING)
            found.append((line.line.iloc[0], line.kind.iloc[0] == "baseline", cells))
        return found

    @property
    def header(self) -> list[str]:
        """Labels of the columns of cells."""
        return [text for label in self.columns for text in (label, f"{label}, paper")[: 1 + self.has_paper]]

    def shown(self, entry: Any) -> str:
        """Return mean and standard deviation, in bold if it is the best, with its sign and note."""
        if not entry.runs:
            return MISSING
        text = spread(entry.mean, entry.std, self.measure.digits, small=True)
        text = f"**{text}**" if entry.best else text
        return " ".join(filter(None, [text, SIGNS.get(entry.against_paper), entry.note and f"({entry.note})"]))

    def to_csv(self) -> str:
        """Return a line for each entry, numbers in full precision, empty where there is none."""
        entries = self.entries.assign(table=self.title, measure=self.measure.axis)
        return str(entries.to_csv(columns=CSV, index=False, lineterminator="\n"))

    def to_markdown(self) -> str:
        """Return the table in Markdown, with aligned columns for a terminal."""
        lines = [["Activation", *self.header], *([label, *cells] for label, _, cells in self.lines)]
        lines = [[cell.replace("|", r"\|") for cell in line] for line in lines]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        lines.insert(1, ["-" * widths[0], *(f"{'-' * (width - 1)}:" for width in widths[1:])])
        body = [" | ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]) for line in lines]
        text = [f"{self.title}, {uncapitalized(self.measure.axis)}", "", *(f"| {line} |" for line in body)]
        return "\n".join([*text, "", self.caption]).strip() + "\n"


def make_table(
    cells: pd.DataFrame,
    measure: Measure,
    *,
    name: str,
    title: str,
    column_label: Callable[[Any], str],
    paper: PublishedTable | None = None,
    column_order: Sequence[Hashable] = (),
    axis: str | None = None,
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
    every_key = {key for found in lines.values() for key in found if key is not None}
    ranks = {key: rank for rank, key in enumerate(column_order)}
    keys = network_keys or set(column_order) or every_key or {None}
    columns = sorted(keys, key=lambda key: (ranks.get(key, len(ranks)), isinstance(key, str), key))
    labels = ["any setting" if key is None else column_label(key) for key in columns]

    def rank(line: Any) -> tuple[Any, ...]:
        """Networks in the paper's order, then baselines from worst to best."""
        (variant, label), found = line
        mean = summarize(cell["mean"] for key in columns if (cell := found.get(key, found.get(None)))).mean
        worth = -math.inf if math.isnan(mean) else mean if measure.higher_is_better else -mean
        return (0, variant.rank, label) if variant else (1, worth, label)

    records = []
    for line_index, ((variant, label), found) in enumerate(sorted(lines.items(), key=rank)):
        shared = {"line_index": line_index, "line": label, "kind": "model" if variant else "baseline"}
        shared |= {"method": variant and variant.method, "hops": variant and variant.hops}
        for column_index, key in enumerate(columns):
            cell = found.get(key, found.get(None, {}))
            place = {"column_index": column_index, "key": key, "column": labels[column_index]}
            mean, std = published(paper, variant).get(key, (math.nan, math.nan)) if variant else (math.nan, math.nan)
            records.append(cell | shared | place | {"paper_mean": mean, "paper_std": std})
    entries = entries_of(records, measure)
    networks = entries[(entries.kind == "model") & (entries.runs > 0)]
    is_alike = networks.runs.nunique() == 1 and not entries.not_finite.any()
    usual = int(networks.runs.iloc[0]) if is_alike else 0
    entries["note"] = ["" if entry.runs == usual else runs_in_words(entry) for entry in entries.itertuples()]
    texts = [f"Each network stands for {usual} run{'s'[: usual > 1]}."] if usual else []
    if compared := int(entries.against_paper.notna().sum()):
        texts += [SIGNS_EXPLAINED, f"Inside: {(entries.against_paper == 'inside').sum()} of {compared} cells."]
    texts += ["The best network of a column is in bold."] if entries.best.any() else []
    return Table(name, title, measure, labels, entries, " ".join(texts), axis)


def published(table: PublishedTable, variant: Variant) -> Mapping[Hashable, tuple[float, float]]:
    """Return the published line of a network; one whose hops are not stated stands beside every number of hops."""
    return table.get((variant.method, variant.hops)) or table.get((variant.method, None)) or {}


def entries_of(records: Sequence[Mapping[str, Any]], measure: Measure) -> pd.DataFrame:
    """Return the frame of a table from its entries, compared with the paper and the best of each column marked."""
    frame = pd.DataFrame([{**EMPTY, **record} for record in records], dtype=object).astype(TYPES)
    difference, tolerance = frame["mean"] - frame.paper_mean, frame.paper_std + 1e-9
    frame["against_paper"] = None
    for sign, holds in (("inside", abs(difference) <= tolerance), ("above", difference > tolerance)):
        frame.loc[holds, "against_paper"] = sign
    frame.loc[difference < -tolerance, "against_paper"] = "below"
    cost = frame["mean"][frame.kind == "model"].dropna() * (-1 if measure.higher_is_better else 1)
    columns = cost.groupby(frame.column_index)
    frame["best"] = frame.index.isin(columns.idxmin()[columns.size() > 1])
    return frame


def runs_in_words(entry: Any) -> str:
    """Return how many runs an entry has, and how many of them diverged; empty where there is none."""
    lost = f", {entry.not_finite} not finite" if entry.not_finite else ""
    return f"{entry.runs} run{'s' if entry.runs > 1 else ''}{lost}" if entry.runs else ""


def headline(table: Table, column_index: int, chosen: Sequence[Any] = (), overlap: float | None = None) -> str:
    """Return a sentence on a column: its best graph-adaptive network, beside others with their paired differences.

    Others are ReLU, FIR, the best network, and the best baseline; with ``chosen``, a network and its rival that were
    chosen otherwise, it is these and the best network.

    It reads like "graph-adaptive max (2 hops) 73.1 ± 7.0 %, beside ReLU 47.5 ± 13.0 % (+25.6 ± 3.1)".
    """
    measure, entries = table.measure, table.entries
    known = entries[(entries.column_index == column_index) & entries["mean"].notna()]
    ranked = known.sort_values("mean", ascending=not measure.higher_is_better, kind="stable")
    networks, simple = (list(ranked[ranked.kind == kind].itertuples()) for kind in ("model", "baseline"))

    def words(entry: Any) -> str:
        name = entry.line if entry.kind == "baseline" else Variant(entry.method, entry.hops).long_label
        return f"{name} {spread(entry.mean, entry.std, measure.digits, small=True)}{measure.unit}"

    if not networks:
        return "No network has a result yet."
    first = chosen[0] if chosen else next((one for one in networks if one.method.endswith("-ga")), networks[0])
    others = list(chosen[1:]) or [one for name in ("relu", "fir") for one in networks if one.method == name]
    texts = []
    for other in {one.line: one for one in (*others, networks[0], *simple[:1]) if one.line != first.line}.values():
        gap = common_difference(first, other, measure.overlap if overlap is None else overlap)
        texts.append(words(other))
        if gap is not None and gap.units >= MIN_UNITS:
            texts[-1] += f" ({gap.mean:+.{measure.digits}f} ± {gap.margin:.{measure.digits}f})"
    return f"{words(first)}{', beside ' if texts else ''}{', '.join(texts)}."


def difference_table(
    table: Table, gaps: Mapping[int, Any], notes: Mapping[int, str], *, title: str, axis: str, caption: str
) -> Table:
    """Return differences and half of their intervals, in the places of the entries with these indices."""
    measure = table.measure._replace(axis=axis, limits=(-math.inf, math.inf), unit="")
    lines = set(table.entries.line_index[list(gaps)])
    records = []
    for entry in table.entries[table.entries.line_index.isin(lines)].itertuples():
        kept = ("line_index", "line", "kind", "method", "hops", "column_index", "column", "key")
        record = {name: getattr(entry, name) for name in kept}
        if gap := gaps.get(entry.Index):
            record |= {"mean": gap.mean, "std": gap.margin, "runs": gap.runs, "note": notes[entry.Index]}
        records.append(record)
    made = replace(table, name=f"{table.name}-differences", title=title, measure=measure, caption=caption)
    return replace(made, entries=entries_of(records, measure), headlines=(), is_result=False)


def file_name(*parts: str) -> str:
    """Return lower-case letters, digits and hyphens, whatever the parts hold.

    Example:
        >>> file_name("table-1", "../Quick & dirty")
        'table-1-quick-dirty'
    """
    return re.sub(r"[^a-z0-9]+", "-", " ".join(parts).lower()).strip("-")


def uncapitalized(text: str) -> str:
    """Return text that goes on within a sentence."""
    return text[:1].lower() + text[1:]
