"""Quality for each exchange: which network should one build where communication is the cost?

    python studies/exchanges.py [results]                    tables, as Markdown
    python studies/exchanges.py [results] --figure FILE      and the fronts, as a figure

An exchange is one message from every node to each of its neighbours. Networks are of three families: pointwise
activations, localized ones, graph-adaptive ones. With a budget of exchanges, a family sends the network that validates
best among those that the budget allows; test values of two families are then compared run by run.
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from claims import name
from evidence import PROBLEMS, RESULTS, At, Cell, Contrast, Evidence, NotRunError, Study

from graphact.experiments.statistics import ALPHA, holm

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


def family_of(method):
    return {"l": "localized", "ga": "adaptive"}.get(method.rpartition("-")[2], "pointwise")


@dataclass(frozen=True)
class Network:
    """A network that was run: how many exchanges it takes, and what it reached."""

    study: Study
    cell: Cell
    exchanges: int
    validation: float
    value: float
    layers: int

    @property
    def family(self):
        return family_of(self.cell.method)

    @property
    def words(self):
        hops = f" ({self.cell.hops})" if self.cell.hops else ""
        depth = f", {self.layers} layers" if "layers" in self.study.protocol else ""
        return f"{name(self.cell.method)}{hops}, K = {self.cell.order}{depth}"


def networks(evidence, experiment):
    """Every network of the experiment's width, trained by the protocol ``converged`` with whatever depth."""
    found = []
    for study in evidence.studies():
        usual, *changes = study.protocol.split(", ")
        if study.experiment != experiment or usual != "converged" or study.preset != "paper":
            continue
        if any(not change.startswith("layers ") for change in changes):
            continue
        for cell, rows in evidence.cells[study].items():
            if cell.kind != "model" or cell.features != WIDTHS[experiment]:
                continue
            if cell.condition != USUAL.get(experiment, ()):
                continue
            validation, value = (fmean(row[key] for row in rows) for key in ("validation", "value"))
            layers = rows[0]["settings"]["layers"]
            found.append(Network(study, cell, rows[0]["exchanges"], validation, value, layers))
    if not found:
        raise NotRunError(f"no network of {experiment} was run with the protocol converged")
    return found


def champion(candidates, budget, higher):
    """What validates best among the networks that a budget allows; None where there is none."""
    allowed = [one for one in candidates if one.exchanges <= budget]
    return (max if higher else min)(allowed, key=lambda one: one.validation, default=None)


def front(candidates, higher):
    """The champions of growing budgets, each once."""
    budgets = sorted({one.exchanges for one in candidates})
    return list(dict.fromkeys(champion(candidates, budget, higher) for budget in budgets))


def compare(evidence, first, second):
    """The difference of two networks' test values, over the runs that both have."""
    terms = []
    for weight, one in ((1.0, first), (-1.0, second)):
        setting = tuple((key, getattr(one.cell, key)) for key in ("hops", "features", "order", "condition"))
        terms.append((weight, At(one.cell.method, setting)))
    if first.study == second.study:
        return evidence.estimate(first.study, Contrast("", tuple(terms)))
    both = Evidence.__new__(Evidence)  # networks of different depth lie in different studies
    both.cells = {
        first.study: {
            one.cell._replace(kind=kind): evidence.cells[one.study][one.cell]
            for kind, one in (("model", first), ("other", second))
        }
    }
    (plus, one), (minus, two) = terms
    return both.estimate(first.study, Contrast("", ((plus, one), (minus, At(two.method, two.setting, kind="other")))))


def gains(evidence, experiment, budgets):
    """For each budget the champion of every family, and what the better of the last two gains over the first."""
    own = networks(evidence, experiment)
    higher = own[0].study.measure.higher_is_better
    for budget in budgets:
        best = {key: champion([one for one in own if one.family == key], budget, higher) for key in FAMILIES}
        rivals = [one for key, one in best.items() if one and key != "pointwise"]
        gain = None
        if best["pointwise"] and rivals:
            chosen = (max if higher else min)(rivals, key=lambda one: one.validation)
            gain = compare(evidence, chosen, best["pointwise"])
        yield budget, best, gain


def certain(found):
    """Which of several estimates are certain, adjusted for their number (Holm)."""
    return [p < ALPHA for p in holm([one.p_unlike() for one in found])]


def champions_of(evidence, experiment, budgets):
    """The gains as lines of text, bold where certain."""
    digits = Study(experiment, "paper", "converged").measure.digits
    lines = list(gains(evidence, experiment, budgets))
    sure = iter(certain([gain for *_, gain in lines if gain]))
    for budget, best, gain in lines:
        cells = [f"{one.words}: {one.value:.{digits}f}" if one else "" for one in best.values()]
        text = f"{gain.mean:+.{digits}f} ± {gain.margin:.{digits}f}" if gain else ""
        yield [str(budget), *cells, f"**{text}**" if gain and next(sure) else text]


def heads():
    return ["exchanges", *(label.lower() for label, *_ in FAMILIES.values()), "neighbourhood minus pointwise"]


def draw(evidence, experiments):
    """One panel an experiment: every network, and the front of each family."""
    from graphact.experiments.report import style

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
    options = parser.parse_args()
    try:
        evidence = Evidence(options.directory)
        for experiment in WIDTHS:
            budgets = sorted({one.exchanges for one in networks(evidence, experiment)})
            sys.stdout.write(f"\n{TITLES[experiment]}\n\n| {' | '.join(heads())} |\n{'|---' * 5}|\n")
            for line in champions_of(evidence, experiment, budgets):
                sys.stdout.write(f"| {' | '.join(line)} |\n")
        if options.figure:
            draw(evidence, WIDTHS).savefig(options.figure, dpi=200, metadata={"Software": None})
    except PROBLEMS as problem:
        sys.exit(str(problem))


if __name__ == "__main__":
    main()
