"""When does a graph-adaptive activation pay? docs/when-it-pays.md, its tables and its figures, from rows of benchmarks.

    python studies/when.py                    write the page and the figures again
    python studies/when.py --check            compare the page with the rows; exit status 1 where they differ
    python studies/when.py FOLDER --out DIR   from other rows, to another folder

A setting is an experiment, a protocol (backbone), a width and a data set. In each, one pointwise activation and one
activation of neighbourhoods stand for their kind: those with the best mean validation score, on splits that are not
reported where the protocol has some. The gain is the paired difference of their test scores, with an interval that is
corrected for the test samples that splits share.
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
from evidence import PROBLEMS, Evidence, NotRunError, finished, protocol_of
from exchanges import pays
from facts import STALE
from page import ROOT, TEMPLATES

from graphact.experiments.flocking.experiment import ORDER
from graphact.experiments.node_classification.networks import GAMMA
from graphact.experiments.pairing import difference
from graphact.experiments.protocol import CONTROLS, POOLING, is_neighborhood, jobs_of
from graphact.experiments.protocol import is_pointwise as is_pointwise_method
from graphact.experiments.registry import BENCHMARKS, find_experiment
from graphact.experiments.selection import tuning_score
from graphact.experiments.statistics import ALPHA, holm
from graphact.experiments.store import Store
from graphact.experiments.style import FAINT, GREY, INK, Variant, house_style, new_sheet, settle, title_of, to_png
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
# GCN of Luo et al. (NeurIPS 2024, Datasets and Benchmarks), whose recipes the tuned protocols are
TUNED = {"relu": {"squirrel_filtered": 45.0, "chameleon_filtered": 46.3}}


@dataclass(frozen=True, order=True)
class Setting:
    """Where activations are compared."""

    experiment: str
    protocol: str  # with what was changed, where it is none of those that commands know
    width: int
    level: str  # a data set, or a perturbation

    @property
    def name(self):
        """The protocol, as commands know it."""
        return self.protocol.partition(", ")[0]

    @property
    def is_known(self):
        return self.protocol == self.name

    @property
    def on_one_split(self):
        """Whether runs differ in their seeds alone."""
        return self.name in find_experiment(self.experiment).content.keywords.get("alone", ())

    @property
    def overlap(self):
        """Test samples over all others; 0 where runs differ in their seeds alone."""
        module = f"graphact.experiments.{self.experiment.replace('-', '_')}.experiment"
        known = resolve_name(f"{module}:OVERLAP")
        return 0.0 if self.on_one_split else known[self.level if self.level in known else self.name]

    def __str__(self):
        return f"{self.protocol}, F = {self.width}, {title_of(self.level)}"


def is_pointwise(variant):
    return is_pointwise_method(variant[0])


def is_ours(variant):
    return is_neighborhood(variant[0])


class Cell:
    """All activations in one setting, the rows of each by (method, hops)."""

    def __init__(self, setting, rows):
        self.setting, self.rows = setting, rows

    def mean(self, variant, name="value"):
        return fmean(row[name] for row in self.rows[variant])

    def has_diverged(self, variant):
        """Whether a run did not end in finite numbers."""
        return any(
            not math.isfinite(math.nan if row[name] is None else row[name])
            for row in self.rows[variant]
            for name in ("value", "validation")
        )

    @cached_property
    def tuned(self):
        """The scores of activations on splits that choose and are not reported; None where not all have some."""
        scores = {variant: tuning_score(rows) for variant, rows in self.rows.items()}
        return None if None in scores.values() else scores

    def score(self, variant):
        """What activations are chosen by: the mean validation score, on splits that are not reported if there are."""
        return self.tuned[variant] if self.tuned else self.mean(variant, "validation")

    def best(self, chosen):
        """Of the variants for which ``chosen`` is true, the one with the best score; none of which a run diverged."""
        known = [one for one in sorted(self.rows, key=str) if chosen(one) and not self.has_diverged(one)]
        if not known:
            raise NotRunError(f"no activation of the kind was run: {self.setting}")
        return max(known, key=self.score)

    @cached_property
    def pointwise(self):
        return self.best(is_pointwise)

    @cached_property
    def ours(self):
        return self.best(is_ours)

    @cached_property
    def controls(self):
        """The controls that were run, mean of neighbours last."""
        known = [one for one in self.rows if one[0] in CONTROLS and not self.has_diverged(one)]
        return sorted(known, key=lambda one: (CONTROLS.index(one[0]), one[1] or 0))

    def gain(self, variant=None, reference=None):
        """The paired difference of test scores, of what validates best where nothing else is asked for."""
        pair = variant or self.ours, reference or self.pointwise
        try:
            return difference(*(self.rows[one] for one in pair), overlap=self.setting.overlap)
        except ValueError as problem:
            raise NotRunError(f"{self.setting}: {problem}") from problem

    @property
    def has_one_pointwise(self):
        return sum(map(is_pointwise, self.rows)) == 1

    @property
    def effective(self):
        """As how many independent splits those of the rows count, with the correction for their overlap."""
        runs = len(self.rows[self.pointwise])
        return 1 / (1 / runs + self.setting.overlap)


class Benchmarks:
    """Rows of all folders below one, by setting.

    Rows of other settings than those of a protocol belong to a setting of their own; where two folders hold a cell with
    the same seed, the more, then the newer rows count, as in :class:`evidence.Evidence`.
    """

    def __init__(self, directory):
        found = defaultdict(lambda: defaultdict(dict))
        for folder in sorted(path.parent for path in Path(directory).glob("**/rows") if path.is_dir()):
            own, protocols = defaultdict(list), {}
            for row in Store(folder).rows():
                if row["experiment"] not in BENCHMARKS or row["preset"] != "full" or row["validation"] is None:
                    continue
                level, variant = next(iter(row["condition"].values())), (row["method"], row["hops"])
                job = (row["experiment"], row["protocol"], *variant, row["features"], level, row.get("seed"))
                if job not in protocols:
                    protocols[job] = protocol_of(row)
                setting = Setting(row["experiment"], protocols[job], row["features"], level)
                own[setting, variant, row.get("seed")].append(row)
            for (setting, variant, seed), rows in own.items():
                before = found[setting][variant].get(seed)
                if before is None or (len(before), finished(before)) <= (len(rows), finished(rows)):
                    found[setting][variant][seed] = rows
        if not found:
            raise NotRunError(f"no rows of benchmarks, preset full, below {directory}")
        self.cells = {
            setting: Cell(
                setting, {one: [row for rows in seeds.values() for row in rows] for one, seeds in own.items()}
            )
            for setting, own in sorted(found.items())
        }

    def of(self, experiment, protocol=None):
        """The cells of an experiment, and of one of its protocols."""
        chosen = [cell for at, cell in self.cells.items() if at.experiment == experiment]
        return [cell for cell in chosen if protocol in (None, cell.setting.protocol)]

    def comparable(self, experiment):
        """Cells of known protocols in which both kinds were run."""
        found = []
        for cell in self.of(experiment):
            known = [one for one in cell.rows if not cell.has_diverged(one)]
            if cell.setting.is_known and any(map(is_pointwise, known)) and any(map(is_ours, known)):
                found.append(cell)
        return found

    def of_no_protocol(self):
        """Settings that are none of a protocol, which no table shows."""
        return [setting for setting in self.cells if not setting.is_known]

    def missing(self):
        """Lines of Markdown: of every protocol, how many cells were run, and which were not."""
        lines = ["| experiment | protocol | cells run | not run |", "|---|---|---|---|"]
        for experiment in BENCHMARKS:
            described = find_experiment(experiment)
            for name, protocol in described.protocols_at("full").items():
                levels = defaultdict(list)
                for job in jobs_of(protocol, 0):
                    levels[next(iter(job.condition.values())), job.features].append((job.method, job.hops))
                texts, count, every = [], 0, sum(map(len, levels.values()))
                for (level, width), variants in levels.items():
                    setting = Setting(experiment, name, width, level)
                    own = self.cells[setting].rows if setting in self.cells else {}
                    left = [one for one in variants if one not in own]
                    count += len(variants) - len(left)
                    where = title_of(level) if experiment != "robustness" else ""
                    where += f" F = {width}" if len(protocol.features) > 1 else ""
                    if left and len(left) == len(variants):
                        texts.append(where or "all of it")
                    elif left:
                        texts.append(f"{where}: {', '.join(map(label, left))}".removeprefix(": "))
                whole = [text for text in texts if ":" not in text]
                parts = [text for text in texts if ":" in text]
                words = "; ".join([*([", ".join(whole)] if whole else []), *parts])
                lines.append(f"| {experiment} | `{name}` | {count} of {every} | {words} |")
        return "\n".join(lines)


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
    """The activations that were run in all cells, and of which no run diverged."""
    return set.intersection(*({one for one in cell.rows if not cell.has_diverged(one)} for cell in cells))


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
    """Lines of Markdown: in each setting the two that stand for their kind, their scores, and the gain."""
    gaps = [cell.gain() for cell in cells]
    adjusted = holm([gap.p_unlike() for gap in gaps])
    lines = [
        "| backbone | F | data set | best pointwise | | best of neighbourhoods | | chosen on | gain | could show "
        "| adjusted p | exchanges |",
        "|---" * 12 + "|",
    ]
    for cell, gap, p in zip(cells, gaps, adjusted, strict=True):
        counts = (sum(map(is_pointwise, cell.rows)), sum(map(is_ours, cell.rows)))
        chosen = zip((cell.pointwise, cell.ours), counts, strict=True)
        sides = [f"{label(one)} (of {count}) | {cell.mean(one):.1f}" for one, count in chosen]
        basis = "other splits" if cell.tuned else "reported splits"
        exchanges = " / ".join(exchanges_of(cell, one) for one in (cell.pointwise, cell.ours))
        size = f"{gap.mean:+.1f} ± {gap.margin:.1f}"
        shown = f"**{size}**" if p < ALPHA else size
        where = f"{cell.setting.protocol} | {cell.setting.width} | {title_of(cell.setting.level)}"
        numbers = f"{shown} | {gap.detectable():.1f} | {max(p, 0.001):.3f} | {exchanges}"
        lines.append(f"| {where} | {' | '.join(sides)} | {basis} | {numbers} |")
    return "\n".join(lines)


def controls_table(cells):
    """Lines of Markdown: each control minus the best pointwise activation, and the best of neighbourhoods minus it."""
    lines = [
        "| backbone | F | data set | control | exchanges | minus the best pointwise | best of ours minus it |",
        "|---" * 7 + "|",
    ]
    for cell in cells:
        where = f"{cell.setting.protocol} | {cell.setting.width} | {title_of(cell.setting.level)}"
        for control in cell.controls:
            over, under = cell.gain(control), cell.gain(reference=control)
            texts = [f"{gap.mean:+.2f} ± {gap.margin:.2f}" for gap in (over, under)]
            lines.append(
                f"| {where} | {label(control)} | {exchanges_of(cell, control)} | {label(cell.pointwise)}: {texts[0]} "
                f"| {label(cell.ours)}: {texts[1]} |"
            )
    return "\n".join(lines)


def exchanges_of(cell, variant):
    """How often neighbours exchange; with a star where a mean over all nodes is read besides."""
    return f"{cell.rows[variant][0]['exchanges']}{'*' if variant[0] in POOLING else ''}"


def scores_table(cells, published=None):
    """Lines of Markdown: mean test scores, activations down, settings across, published figures in brackets."""
    variants = sorted({variant for cell in cells for variant in cell.rows}, key=lambda one: Variant(*one).rank)
    widths = len({cell.setting.width for cell in cells}) > 1
    titles = [title_of(cell.setting.level) + (f", F = {cell.setting.width}" if widths else "") for cell in cells]
    lines = [f"| | {' | '.join(titles)} | exchanges |", "|---" * (len(cells) + 2) + "|"]
    for variant in variants:
        entries = []
        for cell in cells:
            text = "not run"
            if variant in cell.rows:
                text = "diverged" if cell.has_diverged(variant) else f"{cell.mean(variant):.1f}"
            known = (published or {}).get(variant[0], {}).get(cell.setting.level)
            entries.append(text + (f" ({known})" if known else ""))
        exchanges = next(exchanges_of(cell, variant) for cell in cells if variant in cell.rows)
        lines.append(f"| {label(variant)} | {' | '.join(entries)} | {exchanges} |")
    return "\n".join(lines)


def furthest_from(cells, published, method):
    """By how much the means of a method differ from published ones at most, and on which data set."""
    known = {
        cell.setting.level: cell.mean((method, None)) - published[method][cell.setting.level]
        for cell in cells
        if (method, None) in cell.rows and cell.setting.level in published[method]
    }
    level = max(known, key=lambda one: abs(known[one]), default=None)
    return (0.0, None) if level is None else (known[level], level)


def highest(cell):
    """Of our activations the one with the highest test mean, which chooses nothing."""
    return max((one for one in cell.rows if is_ours(one) and not cell.has_diverged(one)), key=cell.mean)


def more_parameters(cells):
    """By how many percent activations of neighbourhoods enlarge a network at most."""
    shares = [0.0]
    for cell in cells:
        if ("relu", None) in cell.rows:
            relu = cell.rows["relu", None][0]["parameters"]
            shares += [100 * (cell.rows[one][0]["parameters"] / relu - 1) for one in cell.rows if is_ours(one)]
    return max(shares)


def explained_by_a_hop(cell):
    """Whether most of a gain is there with a mean of neighbours, which is linear."""
    mean = ("mean-ga", None)
    return mean in cell.rows and cell.gain(mean).mean > abs(cell.gain(reference=mean).mean)


def leads_in_flocking(method, folder=ROOT / "results" / "flocking" / "full"):
    """Whether a method has the lowest mean cost of all policies as trained, with fewer exchanges than ours.

    Of those with filters of the usual order, whose messages take no time.
    """
    rows = [row for row in Store(folder).rows() if row["kind"] == "model" and not row["condition"]]
    costs, exchanges = defaultdict(list), {}
    for row in rows:
        if row["order"] == ORDER and not row["delayed"]:
            variant = row["method"], row["hops"]
            costs[variant].append(row["value"])
            exchanges[variant] = row["exchanges"]
    means = {variant: fmean(values) for variant, values in costs.items()}
    ours = [exchanges[variant] for variant in means if is_ours(variant)]
    lowest = min(means, key=means.get)
    return lowest[0] == method and bool(ours) and exchanges[lowest] < min(ours)


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


def sure(holds, words):
    """Words that rest on rows; where these no longer say so, a mark that tests find."""
    return words if holds else f"[{STALE} {words}]"


def render(benchmarks, evidence=None):
    """The text of the page; sentences on the four experiments are checked where their evidence is given."""
    blanks = {"trim_blocks": True, "lstrip_blocks": True, "keep_trailing_newline": True}
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), undefined=jinja2.StrictUndefined, **blanks
    )
    minutes = (
        sum(row["seconds"] for cell in benchmarks.cells.values() for own in cell.rows.values() for row in own) / 60
    )
    devices = sorted({own[0]["device"] for cell in benchmarks.cells.values() for own in cell.rows.values()})
    environment.filters |= {"title_of": title_of, "margin": lambda cell: cell.gain().margin}
    environment.globals |= {
        "of": benchmarks.of,
        "comparable": benchmarks.comparable,
        "of_no_protocol": benchmarks.of_no_protocol,
        "missing": benchmarks.missing,
        "gains_table": gains_table,
        "controls_table": controls_table,
        "verdicts": verdicts,
        "scores_table": scores_table,
        "ranking_of": ranking_of,
        "furthest_from": furthest_from,
        "more_parameters": more_parameters,
        "highest": highest,
        "explained_by_a_hop": explained_by_a_hop,
        "exchanges_pay": evidence is None or pays(evidence),
        "tanh_leads_in_flocking": evidence is None or leads_in_flocking("tanh"),
        "sure": sure,
        "protocols": lambda experiment: find_experiment(experiment).protocols_at("full"),
        "label": label,
        "title_of": title_of,
        "digraf": DIGRAF,
        "tuned": TUNED,
        "gamma": GAMMA,
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
        text = render(benchmarks, Evidence() if options.directory == RESULTS else None)
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
