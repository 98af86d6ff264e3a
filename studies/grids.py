"""Tables of the pages and of the paper, each computed from rows when it is asked for, in whatever markup."""

import json
import math
from statistics import fmean, stdev

from elsewhere import Elsewhere
from evidence import at
from exchanges import (
    best_not_tried,
    candidates_of,
    champion,
    champions_of,
    depth_first,
    heads,
    most_layers,
    networks,
    not_tried,
)
from exhibits import CONSTANT, NETWORKS, POINTWISE, RIDGE, agreeing, averaging, localizing, name, rating
from graphact_lab.experiments.recommendation.experiment import FILMS, TABLE_2
from graphact_lab.experiments.source_localization.experiment import TABLE_1
from graphact_lab.statistics import difference
from grid import Grid
from inputs import Inputs
from learned import lines_of
from quotes import NOT_RUN, bold, sure
from rivals import Rivals


class Grids(Elsewhere, Inputs, Rivals):
    """Tables of one evidence."""

    def table_1(self, study, with_paper=True):
        heads, lines = [""], []
        for features in (2, 4, 8):
            heads += [f"F = {features}", "paper"] if with_paper else [f"F = {features}"]
        for (method, _), line in TABLE_1.items():
            cells = [name(method) + {"max-ga": " (2)", "median-ga": " (2)", "kernel-ga": " (1)"}.get(method, "")]
            for features in (2, 4, 8):
                mean, std = line[features]
                cells += self._against(study, localizing(method, features), mean, std, 1)[: 2 if with_paper else 1]
            lines.append(cells)
        return Grid(heads, lines)

    def table_2(self, study, with_paper=True):
        heads, lines = [""], []
        for film in FILMS.values():
            heads += [film, "paper"] if with_paper else [film]
        for (method, _), line in TABLE_2.items():
            cells = [name(method)]
            for film in FILMS:
                cells += self._against(study, rating(method, film), *line[film], 3)[: 2 if with_paper else 1]
            lines.append(cells)
        for baseline, label in ((CONSTANT, "a constant"), (RIDGE, "ridge regression")):
            cells = [label]
            for film in FILMS:
                ours = self.cell(study, at(baseline, kind="baseline", condition={"film": film}))
                cells += [ours, ""] if with_paper else [ours]
            lines.append(cells)
        return Grid(heads, lines)

    def _against(self, study, where, mean, std, digits):
        ours = self.cell(study, where)
        if ours != NOT_RUN:
            away = self.evidence.mean(study, where) - mean
            ours += " ✓" if abs(away) <= std + 1e-9 else " ▲" if away > 0 else " ▼"
        return [ours, f"{mean:.{digits}f} ± {std:.{digits}f}"]

    def over_orders(self, study, make, orders, *, baseline="fir"):
        """Networks over the filter order: means, and paired differences from a baseline."""
        heads, lines = ["", *(f"K = {order}" for order in orders)], []
        for method in ("fir", *NETWORKS, *self.pointwise_run(study)):
            cells = [self.mean(study, make(method, order)) for order in orders]
            if method != baseline:
                gaps = [self.gap(study, make(method, order), make(baseline, order)) for order in orders]
                cells = [f"{mean} ({gap})" if gap != NOT_RUN else mean for mean, gap in zip(cells, gaps, strict=True)]
            lines.append([name(method), *cells])
        return Grid(heads, lines)

    def over_hops(self, study, hops=(1, 2, 3, 4)):
        """Localized and graph-adaptive activations of F = 8 over their hops."""
        lines = [
            [name(method), *(self.cell(study, localizing(method, 8, hop)) for hop in hops)]
            for method in ("max-l", "max-ga", "median-l", "median-ga")
        ]
        return Grid(["", *("1 hop" if hop == 1 else f"{hop} hops" for hop in hops)], lines)

    def over_filters(self, study, orders):
        """Activations of F = 8 over the order of the filters."""
        one_hop = {"max-l": 1, "median-l": 1, "max-ga": 1}
        lines = [
            [name(method), *(self.cell(study, localizing(method, 8, one_hop.get(method), order)) for order in orders)]
            for method in ("fir", "relu", "leaky-relu", "tanh", *one_hop)
        ]
        return Grid(["", *(f"K = {order}" for order in orders)], lines)

    def pointwise_table(self, study, make):
        """Every method at one setting: mean, and differences from ReLU and from Max G.A."""
        lines = []
        for method in ("relu", *self.pointwise_run(study), *NETWORKS[1:]):
            where = make(method)
            if self.evidence.has(study, where):
                gaps = [self.gap(study, where, make(other)) if method != other else "" for other in ("relu", "max-ga")]
                lines.append([name(method), self.cell(study, where), *gaps])
        return Grid(["", "mean ± std", "minus ReLU", "minus Max G.A."], lines)

    def losses(self, study, orders=None, probabilities=(0.0, 0.05, 0.1, 0.15)):
        """Errors with lost links, each method at its best order, or all at one, and those of averaging filters.

        Pointwise activations beside ReLU have a line where they were run with lost links.
        """

        def where(method, probability):
            loss = probability or None
            return (
                agreeing(method, loss=loss)
                if orders is None
                else at(method, order=orders, condition={"loss_probability": loss} if loss else {})
            )

        tested = [method for method in POINTWISE if self.has(study, where(method, probabilities[-1]))]
        methods = ("fir", *NETWORKS, *tested)
        lines = [[name(method), *(self.mean(study, where(method, p)) for p in probabilities)] for method in methods]
        for order, digits in ((5, None), (10, 6)):
            if self.has(study, averaging(order, probabilities[-1])):
                means = [self.mean(study, averaging(order, p or None), digits) for p in probabilities]
                lines.append([f"linear filter of order {order}, Metropolis weights", *means])
        return Grid(["", *(f"{100 * p:g} % lost" for p in probabilities)], lines)

    def exchanges(self, experiment, budgets):
        """Return the results of each family of activations with a budget of exchanges."""
        return Grid(heads(), list(champions_of(self.evidence, experiment, budgets)))

    def exchange_candidates(self, experiment):
        """The networks that were run, in words."""
        return " ".join(candidates_of(self.evidence, experiment))

    def exchanges_not_tried(self, experiment):
        """The pointwise activations that were not run at all orders at which others were, in words."""
        texts = {}
        for method, orders in not_tried(self.evidence, experiment).items():
            texts.setdefault(", ".join(map(str, orders)), []).append(name(method))
        words = "; ".join(f"{', '.join(names)} at K = {orders}" for orders, names in texts.items())
        best, orders = best_not_tried(self.evidence, experiment)
        among = (
            f" The activation of the pointwise network that validates best ({best.words}) is among them."
            if orders
            else ""
        )
        return f"Not run: {words}.{among}" if words else ""

    def best_network(self, experiment):
        """The network that validates best of all, with its test value, in words."""
        own = networks(self.evidence, experiment)
        measure = own[0].study.measure
        best = champion(own, math.inf, measure.higher_is_better)
        return f"{best.words}: {best.value:.{measure.digits}f}"

    def depth_first(self):
        """Return whether more layers do better for pointwise networks than longer filters, in every experiment."""
        return depth_first(self.evidence)

    def depth_limit(self):
        """Return the limits of the comparison at equal numbers of exchanges, for every page that quotes it."""
        return sure(
            most_layers(self.evidence) == 3,
            "Pointwise networks had at most three layers in this comparison, where r exchanges allow r layers of order "
            "1. Deeper ones were not among the rivals, so nothing follows about the deepest pointwise networks.",
        )

    def learned(self, study, wheres):
        """Median and quartiles of beta and |h| / |beta| by layer and hop, and the share of positive h."""
        lines, hops = [], 0
        for where in wheres:
            if not self.evidence.has(study, where):
                continue
            cell = self.evidence.cell(study, where)
            hops = max(hops, cell.hops)
            for layer, (numbers, signs) in enumerate(lines_of(self.evidence.rows(study, where))):
                lines.append((f"{name(cell.method)} ({cell.hops}), layer {layer + 1}", numbers, signs))
        heads = [
            "",
            "β",
            *(f"\\|h{hop}\\| / \\|β\\|" for hop in range(1, hops + 1)),
            *(f"h{hop} > 0" for hop in range(1, hops + 1)),
        ]
        filled = [
            [label, *numbers, *[""] * (1 + hops - len(numbers)), *signs, *[""] * (hops - len(signs))]
            for label, numbers, signs in lines
        ]
        return Grid(heads, filled)

    def choices(self):
        """One choice changed at a time (results/choices)."""
        stored = json.loads((self.evidence.directory / "choices" / "choices.json").read_text())
        rows = {(one["activation"], one["choice"]): one["rows"] for one in stored}
        lines = []
        for choice in dict.fromkeys(one["choice"] for one in stored):
            cells = [choice]
            for activation in ("relu", "max-ga (2)"):
                own = rows.get((activation, choice))
                cells.append(f"{fmean(row['value'] for row in own):.1f}" if own else "")
                cells.append(
                    bold(difference(own, rows[activation, "converged"]), 1) if own and choice != "converged" else ""
                )
            lines.append(cells)
        return Grid(["choice", "ReLU", "difference", "Max G.A. (2)", "difference"], lines)

    def unseen(self, experiment):
        """Sources or days that training never saw (results/unseen)."""
        rows = json.loads((self.evidence.directory / "unseen" / f"unseen-{experiment}.json").read_text())
        digits, what = (1, "sources") if experiment == "source-localization" else (3, "days")
        best = "preset `best`, max-ga"
        lines = []

        def of(kind, method):
            return [row for row in rows if (row["kind"], row["method"]) == (kind, method)]

        for method in dict.fromkeys(row["method"] for row in rows):
            cells = [method]
            for kind in ("unseen", "random"):
                own, values = of(kind, method), [row["value"] for row in of(kind, method)]
                cells.append(f"{fmean(values):.{digits}f} ± {stdev(values):.{digits}f}")
                gap = difference(of(kind, best), own, overlap=own[0]["overlap"])
                cells.append("" if method == best else bold(gap, digits))
            moved = difference(of("unseen", method), of("random", method), overlap=of("unseen", method)[0]["overlap"])
            lines.append([*cells, bold(moved, digits)])
        heads = ["", f"unseen {what}", "`best` minus it", "at random", "`best` minus it", "unseen minus random"]
        return Grid(heads, lines)
