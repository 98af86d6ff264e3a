"""Quality for each exchange: which network should one build where communication is the cost?

    python studies/exchanges.py [results]                    tables, as Markdown
    python studies/exchanges.py [results] --figure FILE      and the fronts, as a figure

An exchange is one message from every node to each of its neighbours. Networks are of three families: pointwise
activations, localized ones, graph-adaptive ones. With a budget of exchanges, a family sends the network that validates
best among those that were run and that the budget allows; test values of two families are then compared run by run.
All networks of an experiment are restricted to the graphs, splits and nodes that all of them were run on, before any is
chosen, averaged or compared. A budget of r exchanges allows r layers of order 1, and networks were run with a few
layers alone: a difference of two families is one of the networks that were run, and tells nothing of deeper ones.
"""

import argparse
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from evidence import PROBLEMS, RESULTS, Cell, Evidence, NotRunError, Study
from exhibits import POINTWISE, name
from graphact_lab.statistics import ALPHA, difference, holm, place_of

FAMILIES = {
    "pointwise": ("Pointwise", "#6e7781", "o"),
    "localized": ("Localized", "#0072b2", "s"),
    "adaptive": ("Graph-adaptive", "#d55e00", "^"),
}
# One width of each experiment, so that networks differ in order, hops, depth and activation alone
WIDTHS = {"source-localization": 8, "consensus": 32, "denoising": 4}
TITLES = {
    "source-localization": "Source localization, accuracy (%)",
    "consensus": "Consensus, RMSE",
    "denoising": "Denoising, RMSE (K)",
}
USUAL = {"denoising": (("snr_db", 3.0),)}


def in_layers(count):
    return "1 layer" if count == 1 else f"{count} layers"


def family_of(method):
    return {"l": "localized", "ga": "adaptive"}.get(method.rpartition("-")[2], "pointwise")


@dataclass(frozen=True, eq=False)
class Network:
    """A network that was run: how many exchanges it takes, and what it reached on the runs that all networks have."""

    study: Study
    cell: Cell
    exchanges: int
    rows: tuple
    layers: int

    @property
    def validation(self):
        return fmean(row["validation"] for row in self.rows)

    @property
    def value(self):
        return fmean(row["value"] for row in self.rows)

    @property
    def family(self):
        return family_of(self.cell.method)

    @property
    def values(self):
        """Return the number of values that a link carries for one answer; infinity where that depends on the degrees.

        An exchange of the first filter carries one, as signals have one feature, any other as many as there are
        features. A localized median over several hops needs all values of the nodes there.
        """
        if self.cell.method == "median-l" and self.cell.hops > 1:
            return math.inf
        return self.cell.order + (self.exchanges - self.cell.order) * self.cell.features

    @property
    def label(self):
        return name(self.cell.method) + (f" ({self.cell.hops})" if self.cell.hops else "")

    @property
    def words(self):
        depth = f", {in_layers(self.layers)}" if "layers" in self.study.protocol else ""
        return f"{self.label}, K = {self.cell.order}{depth}"


def networks(evidence, experiment):
    """Every network of the experiment's width, trained by one protocol with whatever depth.

    Each has the rows of the graphs, splits and nodes that all were run on.
    """
    found, protocol = [], "converged"
    for study in evidence.studies():
        usual, *changes = study.protocol.split(", ")
        if study.experiment != experiment or usual != protocol or study.preset != "paper":
            continue
        if any(not change.startswith("layers ") for change in changes):
            continue
        for cell, rows in evidence.cells[study].items():
            if cell.kind != "model" or cell.features != WIDTHS[experiment]:
                continue
            if cell.condition != USUAL.get(experiment, ()):
                continue
            found.append((study, cell, {place_of(row): row for row in rows}))
    if not found:
        raise NotRunError(f"no network of {experiment} was run with the protocol {protocol}")
    common = sorted(set.intersection(*(set(rows) for *_, rows in found)), key=str)
    if not common:
        raise NotRunError(f"networks of {experiment} have no graph, split and node in common")
    made = []
    for study, cell, rows in found:
        own = tuple(rows[place] for place in common)
        made.append(Network(study, cell, own[0]["exchanges"], own, own[0]["settings"]["layers"]))
    return made


def champion(candidates, budget, higher, cost="exchanges"):
    """Return the network that validates best within a budget of a cost; None where there is none."""
    allowed = [one for one in candidates if getattr(one, cost) <= budget]
    return (max if higher else min)(allowed, key=lambda one: one.validation, default=None)


def front(candidates, higher):
    """The champions of growing budgets, each once."""
    budgets = sorted({one.exchanges for one in candidates})
    return list(dict.fromkeys(champion(candidates, budget, higher) for budget in budgets))


def compare(first, second):
    """The difference of two networks' test values, run by run."""
    return difference(first.rows, second.rows, overlap=first.study.measure.overlap)


@dataclass(frozen=True)
class Line:
    """Return the results of each family with a budget of exchanges."""

    budget: int
    best: dict  # by family, the network that it sends; None where the budget allows none
    chosen: Network | None  # of the better of the families that see the graph
    gain: object  # of that one over the pointwise network
    adaptive_gain: object  # of the graph-adaptive one
    candidates: dict  # by family, the networks that the budget allows


def gains(evidence, experiment, budgets, cost="exchanges"):
    """For each budget the champion of every family, and what the better of the last two gains over the first."""
    own = networks(evidence, experiment)
    higher = own[0].study.measure.higher_is_better
    for budget in budgets:
        allowed = {key: [one for one in own if one.family == key and getattr(one, cost) <= budget] for key in FAMILIES}
        best = {key: champion(some, budget, higher, cost) for key, some in allowed.items()}
        rivals = [one for key, one in best.items() if one and key != "pointwise"]
        chosen = champion(rivals, budget, higher, cost) if best["pointwise"] else None
        gain, adaptive = (
            compare(one, best["pointwise"]) if one and best["pointwise"] else None for one in (chosen, best["adaptive"])
        )
        yield Line(budget, best, chosen, gain, adaptive, allowed)


def certain(found):
    """Return which of several estimates are certain, adjusted for their number (Holm)."""
    return [p < ALPHA for p in holm([one.p_unlike() for one in found])]


def champions_of(evidence, experiment, budgets, cost="exchanges"):
    """The gains as lines of text, bold where certain, with how many networks each was chosen from."""
    digits = Study(experiment, "paper", "converged").measure.digits
    lines = list(gains(evidence, experiment, budgets, cost))
    sure = iter(certain([line.gain for line in lines if line.gain]))
    also = iter(certain([line.adaptive_gain for line in lines if line.adaptive_gain]))

    def shown(gain, sure):
        size = f"{gain.mean:+.{digits}f} ± {gain.margin:.{digits}f}"
        return f"**{size}**" if next(sure) else size

    for line in lines:
        cells = [
            f"{one.words}: {one.value:.{digits}f} (of {len(line.candidates[key])})" if one else ""
            for key, one in line.best.items()
        ]
        gain = f"{line.chosen.words}: {shown(line.gain, sure)}" if line.gain else ""
        yield [str(line.budget), *cells, gain, shown(line.adaptive_gain, also) if line.adaptive_gain else ""]


def listed(some):
    """Networks in words: activations, and the orders of each."""
    orders, grouped = {}, {}
    for one in some:
        depth = f" in {in_layers(one.layers)}" if "layers" in one.study.protocol else ""
        orders.setdefault(one.label + depth, set()).add(one.cell.order)
    for words, own in orders.items():
        grouped.setdefault(tuple(sorted(own)), []).append(words)
    return "; ".join(
        f"{', '.join(sorted(words, key=str.lower))} (K = {', '.join(map(str, own))})"
        for own, words in sorted(grouped.items(), key=lambda pair: (-len(pair[0]), pair))
    )


def candidates_of(evidence, experiment, families=tuple(FAMILIES)):
    """Of some families, the activations that were run and at which orders, in words."""
    own = networks(evidence, experiment)
    for key in families:
        if some := [one for one in own if one.family == key]:
            yield f"{FAMILIES[key][0]}: {listed(some)}."


def not_tried(evidence, experiment):
    """The pointwise activations, each with the orders at which others of the family were run and it was not."""
    own = [one for one in networks(evidence, experiment) if one.family == "pointwise" and one.cell.method != "fir"]
    orders = {one.cell.order for one in own}
    ran = {}
    for one in own:
        ran.setdefault(one.cell.method, set()).add(one.cell.order)
    every = ("relu", *POINTWISE)
    return {method: sorted(orders - ran.get(method, set())) for method in every if orders - ran.get(method, set())}


def best_not_tried(evidence, experiment):
    """The pointwise network that validates best of all, and the orders at which it was not run."""
    own = [one for one in networks(evidence, experiment) if one.family == "pointwise"]
    best = champion(own, max(one.exchanges for one in own), own[0].study.measure.higher_is_better)
    return best, not_tried(evidence, experiment).get(best.cell.method, [])


def most_layers(evidence, experiments=tuple(WIDTHS), family="pointwise"):
    """Return the number of layers of the deepest network of a family, over all experiments."""
    return max(one.layers for each in experiments for one in networks(evidence, each) if one.family == family)


def depth_first(evidence, experiments=tuple(WIDTHS)):
    """Return whether the pointwise network that validates best has more layers than usual, and not the longest filters.

    The longest of those that pointwise networks of the usual depth have.
    """
    found = []
    for experiment in experiments:
        own = [one for one in networks(evidence, experiment) if one.family == "pointwise"]
        usual = [one for one in own if "layers" not in one.study.protocol]
        best = champion(own, math.inf, own[0].study.measure.higher_is_better)
        longest = max(one.cell.order for one in usual)
        found.append(best.layers > usual[0].layers and best.cell.order < longest)
    return all(found)


def heads():
    own = (label.lower() for label, *_ in FAMILIES.values())
    return ["exchanges", *own, "better of both minus pointwise", "graph-adaptive minus pointwise"]


def draw(evidence, experiments):
    """One panel an experiment: every network, and the front of each family."""
    from graphact_lab import style

    with style.house_style():
        sheet = style.new_sheet(2.9)
        sheet.set_size_inches(7.6, 2.9)
        for axes, experiment in zip(sheet.subplots(1, len(experiments), squeeze=False)[0], experiments, strict=True):
            own = networks(evidence, experiment)
            higher = own[0].study.measure.higher_is_better
            for key, (label, color, marker) in FAMILIES.items():
                family = [one for one in own if one.family == key]
                if not family:
                    continue
                axes.scatter(
                    [one.exchanges for one in family], [one.value for one in family],
                    color=color, marker=marker, s=11, alpha=0.35, linewidths=0,
                )  # fmt: skip
                line = front(family, higher)
                last = max(one.exchanges for one in own)
                axes.step(
                    [*(one.exchanges for one in line), last], [*(one.value for one in line), line[-1].value],
                    where="post", color=color, linewidth=1.3, marker=marker, markersize=4, label=label,
                )  # fmt: skip
            axes.set_xscale("log", base=2)
            ticks = [2**n for n in range(7) if min(o.exchanges for o in own) <= 2**n <= last]
            axes.set_xticks(ticks, [str(tick) for tick in ticks])
            axes.minorticks_off()
            axes.set_title(TITLES[experiment], fontsize=8.5, loc="left")
            axes.grid(axis="y")
        sheet.legend(*axes.get_legend_handles_labels(), frameon=False, fontsize=8, loc="outside upper center", ncols=3)
        sheet.supxlabel("Exchanges with all neighbours for one answer", fontsize=8.5)
        return sheet


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", nargs="?", type=Path, default=RESULTS)
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--cost", choices=("exchanges", "values"), default="exchanges", help="what budgets count")
    options = parser.parse_args()
    try:
        evidence = Evidence(options.directory)
        for experiment in WIDTHS:
            costs = {getattr(one, options.cost) for one in networks(evidence, experiment)}
            titles = [options.cost, *heads()[1:]]
            sys.stdout.write(f"\n{TITLES[experiment]}\n\n| {' | '.join(titles)} |\n{'|---' * len(titles)}|\n")
            for line in champions_of(evidence, experiment, sorted(costs - {math.inf}), options.cost):
                sys.stdout.write(f"| {' | '.join(line)} |\n")
        if options.figure:
            draw(evidence, WIDTHS).savefig(options.figure, dpi=200, metadata={"Software": None})
    except PROBLEMS as problem:
        sys.exit(str(problem))


if __name__ == "__main__":
    main()
