"""Mean ranks of activations over data sets with their critical difference, and the diagram that shows them."""

import math
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean

from benchmark_rows import common_to
from graphact.storage import write_atomically
from graphact_lab.figures import house_style, new_sheet, settle, to_png
from graphact_lab.style import FAINT, GREY, INK, Variant


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


def finish(sheet, file):
    settle(sheet)
    write_atomically(file, to_png(sheet))
