"""When does a graph-adaptive activation pay? docs/when-it-pays.md, its tables and its figures, from rows of benchmarks.

    python studies/when.py                    write the page and the figures again
    python studies/when.py --check            compare the page with the rows; exit status 1 where they differ
    python studies/when.py FOLDER --out DIR   from other rows, to another folder

A setting is an experiment, a protocol (backbone), a width and a data set. In each, the pointwise activation and the
activation of neighbourhoods that have the best mean validation score stand for their kind; the gain is the paired
difference of their test scores, with an interval that is corrected for the test samples that splits share.
"""

import argparse
import math
import sys
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from pkgutil import resolve_name
from statistics import fmean

import jinja2
from evidence import PROBLEMS, NotRunError
from page import ROOT, TEMPLATES

from graphact.experiments.pairing import difference
from graphact.experiments.registry import BENCHMARKS, find_experiment
from graphact.experiments.report.benchmark import NEIGHBORHOOD, POINTWISE_METHODS, title_of
from graphact.experiments.report.style import FAINT, GREY, INK, Variant, house_style, new_sheet, settle, to_png
from graphact.experiments.statistics import holm
from graphact.experiments.store import Store
from graphact.storage import write_atomically

RESULTS = ROOT / "results" / "benchmarks"
# GCN of DiGRAF's Table 1 (Mantri et al., NeurIPS 2024), in its own protocol: see the page for what differs
DIGRAF = {
    "relu": {"blogcatalog": 72.1, "flickr": 50.7, "citeseer": 67.7, "cora": 79.2, "pubmed": 77.6},
    "shiftless-max": {"blogcatalog": 72.0, "flickr": 47.5, "citeseer": 59.7, "cora": 76.0, "pubmed": 75.0},
    "shiftless-median": {"blogcatalog": 77.7, "flickr": 58.3, "citeseer": 61.3, "cora": 77.1, "pubmed": 75.7},
    "grelu": {"blogcatalog": 73.7, "flickr": 54.4, "citeseer": 68.5, "cora": 81.8, "pubmed": 78.9},
    "digraf": {"blogcatalog": 81.6, "flickr": 69.6, "citeseer": 69.5, "cora": 82.8, "pubmed": 79.3},
}


@dataclass(frozen=True, order=True)
class Setting:
    """Where activations are compared."""

    experiment: str
    protocol: str
    width: int
    level: str  # a data set, or a perturbation

    @property
    def overlap(self):
        """Test samples over all others; 0 where runs differ in their seeds alone."""
        module = f"graphact.experiments.{self.experiment.replace('-', '_')}.experiment"
        known = resolve_name(f"{module}:OVERLAP")
        alone = find_experiment(self.experiment).content.keywords.get("alone", ())
        return 0.0 if self.protocol in alone else known[self.level if self.level in known else self.protocol]

    def __str__(self):
        return f"{self.protocol}, F = {self.width}, {title_of(self.level)}"


def is_pointwise(variant):
    return variant[0] in POINTWISE_METHODS


def is_neighborhood(variant):
    return variant[0].endswith(NEIGHBORHOOD)


class Cell:
    """All activations in one setting, the rows of each by (method, hops)."""

    def __init__(self, setting, rows):
        self.setting, self.rows = setting, rows

    def mean(self, variant, name="value"):
        return fmean(row[name] for row in self.rows[variant])

    def best(self, chosen):
        """Of the variants for which ``chosen`` is true, the one with the best mean validation score."""
        known = [variant for variant in sorted(self.rows, key=str) if chosen(variant)]
        if not known:
            raise NotRunError(f"no activation of the kind was run: {self.setting}")
        return max(known, key=lambda variant: self.mean(variant, "validation"))

    @cached_property
    def pointwise(self):
        return self.best(is_pointwise)

    @cached_property
    def ours(self):
        return self.best(is_neighborhood)

    def gain(self, variant=None, reference=None):
        """The paired difference of test scores, of what validates best where nothing else is asked for."""
        pair = variant or self.ours, reference or self.pointwise
        return difference(*(self.rows[one] for one in pair), overlap=self.setting.overlap)


class Benchmarks:
    """Rows of all folders below one, by setting."""

    def __init__(self, directory):
        found = defaultdict(lambda: defaultdict(list))
        for folder in sorted(path.parent for path in Path(directory).glob("**/rows") if path.is_dir()):
            for row in Store(folder).rows():
                if row["experiment"] in BENCHMARKS and row["preset"] == "full" and row["validation"] is not None:
                    level = next(iter(row["condition"].values()))
                    setting = Setting(row["experiment"], row["protocol"], row["features"], level)
                    found[setting][row["method"], row["hops"]].append(row)
        if not found:
            raise NotRunError(f"no rows of benchmarks, preset full, below {directory}")
        self.cells = {setting: Cell(setting, dict(rows)) for setting, rows in sorted(found.items())}

    def of(self, experiment, protocol=None):
        """The cells of an experiment, and of one of its protocols."""
        chosen = [cell for at, cell in self.cells.items() if at.experiment == experiment]
        return [cell for cell in chosen if protocol in (None, cell.setting.protocol)]

    def comparable(self, experiment):
        """Cells in which both kinds were run."""
        found = []
        for cell in self.of(experiment):
            if any(map(is_pointwise, cell.rows)) and any(map(is_neighborhood, cell.rows)):
                found.append(cell)
        return found


def ranks_of(values, higher_is_better=True):
    """Ranks from 1, the best first, ties by their mean.

    >>> ranks_of([70.0, 80.0, 80.0])
    [3.0, 1.5, 1.5]
    """
    worth = [value if higher_is_better else -value for value in values]
    return [1 + sum(b > a for b in worth) + (sum(b == a for b in worth) - 1) / 2 for a in worth]


@dataclass(frozen=True)
class Ranking:
    """Mean ranks of activations over data sets, Friedman's test, and Nemenyi's critical difference."""

    variants: list
    ranks: list
    levels: list  # the data sets
    p: float
    critical: float

    def cliques(self):
        """Maximal groups of neighbouring ranks, best first, that do not differ by the critical difference."""
        order = sorted(range(len(self.ranks)), key=self.ranks.__getitem__)
        groups = []
        for first in range(len(order)):
            last = first
            while last + 1 < len(order) and self.ranks[order[last + 1]] - self.ranks[order[first]] < self.critical:
                last += 1
            if last > first and not (groups and groups[-1][1] >= last):
                groups.append((first, last))
        return [[self.variants[order[place]] for place in range(first, last + 1)] for first, last in groups]


def common_to(cells):
    """The activations that were run in all cells."""
    return set.intersection(*(set(cell.rows) for cell in cells))


def ranking_of(cells, alpha=0.05):
    """The ranking of activations that were run in all of at least three cells; None where there are none.

    Of several choices of cells, the one with most results is taken: a data set on which few activations were run is
    left out.
    """
    from scipy.stats import friedmanchisquare, studentized_range

    choices = [some for size in range(3, len(cells) + 1) for some in combinations(cells, size)]
    cells = max(choices, key=lambda some: len(some) * len(common_to(some)), default=())
    common = sorted(common_to(cells), key=str) if cells else []
    if len(common) < 3:
        return None
    means = [[cell.mean(variant) for variant in common] for cell in cells]
    each = [ranks_of(row) for row in means]
    ranks = [fmean(column) for column in zip(*each, strict=True)]
    count, blocks = len(common), len(cells)
    quantile = float(studentized_range.ppf(1 - alpha, count, math.inf)) / math.sqrt(2)
    critical = quantile * math.sqrt(count * (count + 1) / (6 * blocks))
    p = float(friedmanchisquare(*zip(*means, strict=True)).pvalue)
    return Ranking(common, ranks, [cell.setting.level for cell in cells], p, critical)


def label(variant):
    """As tables of Markdown show it."""
    return Variant(*variant).label.replace("|", "\\|")


def verdicts(cells, alpha=0.05):
    """Settings in which the gain is certain after Holm, those in which the loss is, and the others."""
    gaps = [cell.gain() for cell in cells]
    found = {"gains": [], "losses": [], "open": []}
    for cell, gap, p in zip(cells, gaps, holm([gap.p_unlike() for gap in gaps]), strict=True):
        found["open" if p >= alpha else "gains" if gap.mean > 0 else "losses"].append(cell)
    return found


def gains_table(cells):
    """Lines of Markdown: in each setting the two that validate best, their scores, the gain and adjusted p-value."""
    gaps = [cell.gain() for cell in cells]
    adjusted = holm([gap.p_unlike() for gap in gaps])
    lines = [
        "| backbone | F | data set | best pointwise | | best of neighbourhoods | | gain | adjusted p | exchanges |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for cell, gap, p in zip(cells, gaps, adjusted, strict=True):
        counts = (sum(map(is_pointwise, cell.rows)), sum(map(is_neighborhood, cell.rows)))
        chosen = zip((cell.pointwise, cell.ours), counts, strict=True)
        sides = [f"{label(one)} (of {count}) | {cell.mean(one):.1f}" for one, count in chosen]
        exchanges = " / ".join(str(cell.rows[one][0]["exchanges"]) for one in (cell.pointwise, cell.ours))
        size = f"{gap.mean:+.1f} ± {gap.margin:.1f}"
        shown = f"**{size}**" if p < 0.05 else size
        where = f"{cell.setting.protocol} | {cell.setting.width} | {title_of(cell.setting.level)}"
        lines.append(f"| {where} | {' | '.join(sides)} | {shown} | {max(p, 0.001):.3f} | {exchanges} |")
    return "\n".join(lines)


def scores_table(cells, published=None):
    """Lines of Markdown: mean test scores, activations down, settings across, published figures in brackets."""
    variants = sorted({variant for cell in cells for variant in cell.rows}, key=lambda one: Variant(*one).rank)
    titles = [title_of(cell.setting.level) for cell in cells]
    lines = [f"| | {' | '.join(titles)} | exchanges |", "|---" * (len(cells) + 2) + "|"]
    for variant in variants:
        entries = []
        for cell in cells:
            text = f"{cell.mean(variant):.1f}" if variant in cell.rows else "not run"
            known = (published or {}).get(variant[0], {}).get(cell.setting.level)
            entries.append(text + (f" ({known})" if known else ""))
        exchanges = next(cell.rows[variant][0]["exchanges"] for cell in cells if variant in cell.rows)
        lines.append(f"| {label(variant)} | {' | '.join(entries)} | {exchanges} |")
    return "\n".join(lines)


def draw_gains(cells, file):
    """The gain in every setting with its interval, one dot each."""
    with house_style():
        sheet = new_sheet(0.6 + 0.19 * len(cells))
        axes = sheet.subplots()
        for row, cell in enumerate(cells):
            gap, style = cell.gain(), Variant(*cell.ours).style
            look = {"color": style.color, "marker": style.marker, "markersize": 4.5 * style.size}
            axes.errorbar(gap.mean, row, xerr=min(gap.margin, 1e3), elinewidth=0.8, **look)
        axes.axvline(0, color=INK, linewidth=0.7)
        axes.set_yticks(range(len(cells)), [str(cell.setting) for cell in cells])
        axes.set_ylim(len(cells) - 0.4, -0.6)
        sheet.supxlabel("Gain over the best pointwise activation (points)", fontsize=8.5)
        axes.grid(axis="x")
        finish(sheet, file)


def draw_ranking(ranking, file):
    """The critical-difference diagram: activations at their mean ranks; bars join those that do not differ."""
    order = sorted(range(len(ranking.ranks)), key=ranking.ranks.__getitem__)
    groups = ranking.cliques()
    with house_style():
        sheet = new_sheet(0.8 + 0.17 * len(order))
        axes = sheet.subplots()
        for row, number in enumerate(order):
            style = Variant(*ranking.variants[number]).style
            axes.plot([0.5, ranking.ranks[number]], [row, row], color=FAINT, linewidth=0.7)
            axes.plot(ranking.ranks[number], row, color=style.color, marker=style.marker, markersize=4.5 * style.size)
        place = {ranking.variants[number]: row for row, number in enumerate(order)}
        right = len(order) + 0.6
        for number, group in enumerate(groups):
            x = right + 0.5 * number
            axes.plot([x, x], [place[group[0]] - 0.25, place[group[-1]] + 0.25], color=INK, linewidth=2)
        axes.plot([1, 1 + ranking.critical], [-1.4, -1.4], color=INK, linewidth=2)
        axes.annotate("critical difference", (1, -1.7), fontsize=7.5, color=GREY)
        axes.set_yticks(range(len(order)), [Variant(*ranking.variants[number]).label for number in order])
        axes.set_ylim(len(order) - 0.4, -2.6)
        axes.set_xlim(0.5, right + 0.5 * len(groups))
        axes.set_xlabel(f"Mean rank over {len(ranking.levels)} data sets")
        finish(sheet, file)


def draw_cost(cells, file):
    """The mean score over data sets beside exchanges for an answer."""
    common = sorted(common_to(cells), key=lambda one: Variant(*one).rank)
    with house_style():
        sheet = new_sheet(3.2)
        axes = sheet.subplots()
        scores = {variant: fmean(cell.mean(variant) for cell in cells) for variant in common}
        costs = {variant: cells[0].rows[variant][0]["exchanges"] for variant in common}
        best = {max((one for one in common if costs[one] == cost), key=scores.get) for cost in set(costs.values())}
        for variant in common:
            style, place = Variant(*variant).style, (costs[variant], scores[variant])
            axes.plot(*place, color=style.color, marker=style.marker, markersize=4.5 * style.size)
            if variant in best or variant[0] == "relu":  # the others are in the table
                axes.annotate(Variant(*variant).label, place, xytext=(6, -2), textcoords="offset points", fontsize=7.5)
        axes.set_xticks(sorted(set(costs.values())))
        axes.set_xlim(min(costs.values()) - 0.4, max(costs.values()) + 1)
        axes.set_xlabel("Exchanges between neighbours for an answer")
        axes.set_ylabel(f"Mean test score over {len(cells)} data sets (%)")
        axes.grid(axis="y")
        finish(sheet, file)


def finish(sheet, file):
    settle(sheet)
    write_atomically(file, to_png(sheet))


def render(benchmarks):
    """The text of the page."""
    blanks = {"trim_blocks": True, "lstrip_blocks": True, "keep_trailing_newline": True}
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), undefined=jinja2.StrictUndefined, **blanks
    )
    minutes = (
        sum(row["seconds"] for cell in benchmarks.cells.values() for own in cell.rows.values() for row in own) / 60
    )
    devices = sorted({own[0]["device"] for cell in benchmarks.cells.values() for own in cell.rows.values()})
    environment.filters["title_of"] = title_of
    environment.globals |= {
        "of": benchmarks.of,
        "comparable": benchmarks.comparable,
        "gains_table": gains_table,
        "verdicts": verdicts,
        "scores_table": scores_table,
        "ranking_of": ranking_of,
        "label": label,
        "title_of": title_of,
        "holm": holm,
        "digraf": DIGRAF,
        "minutes": minutes,
        "devices": devices,
    }
    return environment.get_template("when-it-pays.md.j2").render()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", nargs="?", type=Path, default=RESULTS)
    parser.add_argument("--out", type=Path, default=ROOT / "docs", help="folder of the page (default: docs)")
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args()
    try:
        benchmarks = Benchmarks(options.directory)
        text = render(benchmarks)
    except PROBLEMS as problem:
        sys.exit(str(problem))
    page = options.out / "when-it-pays.md"
    if options.check:
        return int(not page.exists() or page.read_text() != text)
    figures = options.out / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    if cells := benchmarks.comparable("node-classification"):
        draw_gains(cells, figures / "when-gains.png")
    if ranking := ranking_of(benchmarks.of("node-classification", "gcn")):
        draw_ranking(ranking, figures / "when-ranks.png")
        cells = [cell for cell in benchmarks.of("node-classification", "gcn") if cell.setting.level in ranking.levels]
        draw_cost(cells, figures / "when-cost.png")
    write_atomically(page, text.encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
