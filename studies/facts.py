"""What pages and papers say of the results: numbers, differences and tables, each computed from rows when asked for.

A template calls these and holds no result of its own. A number that no rows give is announced by ``stated``, with where
it comes from.
"""

import json
import math
from dataclasses import dataclass
from statistics import fmean, stdev

import torch
from authors import measure
from claims import (
    CLAIMS,
    NETWORKS,
    POINTWISE,
    agreeing,
    denoising,
    judge,
    localizing,
    name,
    rating,
    shown_interval,
    shown_p,
    units_of,
)
from evidence import Contrast, NotRunError, Study, at, minus
from exchanges import best_not_tried, candidates_of, champions_of, heads, not_tried, pays
from learned import lines_of

from graphact.data.splits import data_generator, eighty_ten_ten, random_split
from graphact.experiments.pairing import difference
from graphact.experiments.recommendation.experiment import FILMS, TABLE_2
from graphact.experiments.source_localization.experiment import TABLE_1
from graphact.experiments.statistics import ALPHA, bootstrap_interval, holm, published
from graphact.experiments.store import Store

HOURS = 744  # of January 2014
RATERS = {
    "toy-story": (452, 1),
    "contact": (509, 258),
    "return-of-the-jedi": (507, 181),
}  # users, and the film's number
SOURCES = ("the paper", "the protocol", "the data", "rows not kept", "measured once", "a definition")
NOT_RUN, STALE = "not run", "rows no longer say:"
WIENER, RIDGE = "centralised Wiener filter", "ridge regression on the user's centred ratings"
LINEAR = "centralised linear least squares on all stations"


@dataclass(frozen=True)
class Grid:
    """A table in whatever markup."""

    heads: list
    lines: list  # of lists of texts

    def markdown(self):
        lines = [f"| {' | '.join(self.heads)} |", "|---" * len(self.heads) + "|"]
        rows = ([text.replace("|x|", r"\|x\|") for text in line] for line in self.lines)
        return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def claims_of_paper(without=()):
    """The claims that are counted: those of the four experiments."""
    known = [claim for claim in CLAIMS if claim.where != "here" and claim.family == "claims" and not claim.preset]
    return [claim for claim in known if claim.experiment not in without]


class Facts:
    """Everything a template may ask for."""

    def __init__(self, evidence):
        self.evidence, self.verdicts, self.said = evidence, judge(evidence), []

    def names(self):
        """What templates know by name."""
        functions = {
            **{"at": at, "localizing": localizing, "agreeing": agreeing, "denoising": denoising, "rating": rating},
            **{"minus": minus, "name": name, "films": FILMS, "networks": NETWORKS, "pointwise": POINTWISE},
            **{"localizing_at_8": lambda method: localizing(method, 8)},
            **{"WIENER": WIENER, "RIDGE": RIDGE, "LINEAR": LINEAR},
        }
        own = [word for word in vars(Facts) if not word.startswith("_") and word != "names"]
        return functions | {word: getattr(self, word) for word in own}

    def stated(self, text, source):
        """A number that is no result of rows, and where it comes from."""
        if source not in SOURCES:
            raise ValueError(f"source must be one of {SOURCES}, got {source!r}")
        self.said.append((text, source))
        return text

    def sure(self, holds, words):
        """Words that rest on rows; where these no longer say so, a mark that tests find."""
        return words if holds else f"[{STALE} {words}]"

    def none_certain(self, study, contrasts):
        """Whether no contrast is certain, adjusted for their number."""
        found = [self.evidence.estimate(study, one).p_unlike() for one in contrasts if self.has_all(study, one)]
        return bool(found) and min(holm(found)) >= ALPHA

    def relu_gaps_on_films(self):
        return [minus("", rating(m, film), rating("relu", film)) for m in NETWORKS[1:] for film in FILMS]

    def has_all(self, study, contrast):
        return all(self.evidence.has(study, where) for _, where in contrast.terms)

    def certainly(self, study, first, second, sign):
        """Whether the difference of two methods is certain and of a sign."""
        try:
            found = self.evidence.estimate(study, minus("", first, second))
        except NotRunError:
            return False
        return found.is_certain and found.mean * sign > 0

    def error_of_table_2(self):
        """The largest half width of a 95 % interval of the paper's means of five splits."""
        share = math.sqrt(1 / 5 + Study("recommendation", "paper", "paper").measure.overlap)
        numbers = [pair for line in TABLE_2.values() for pair in line.values()]
        return f"{max(published(*pair, share=share, units=5).margin for pair in numbers):.2f}"

    def study(self, experiment, protocol, preset="paper"):
        """The study of a protocol; where it was not run, that of the first round."""
        wanted, first = (Study(experiment, preset, words) for words in (protocol, f"first-round-{protocol}"))
        return first if first in self.evidence.studies() and wanted not in self.evidence.studies() else wanted

    def ran(self, study, *methods):
        """Whether every one of the methods was run in a study, in whatever setting."""
        run = {cell.method for cell in self.evidence.cells.get(study, {})}
        return set(methods) <= run and bool(run)

    def has(self, study, where):
        return self.evidence.has(study, where)

    def mean(self, study, where, digits=None):
        try:
            return f"{self.evidence.mean(study, where):.{study.measure.digits if digits is None else digits}f}"
        except NotRunError:
            return NOT_RUN

    def cell(self, study, where):
        """Mean and standard deviation of the runs."""
        if not self.evidence.has(study, where):
            return NOT_RUN
        digits = study.measure.digits
        return f"{self.evidence.mean(study, where):.{digits}f} ± {self.evidence.std(study, where):.{digits}f}"

    def estimate(self, study, contrast):
        return self.evidence.estimate(study, contrast)

    def gap(self, study, first, second, digits=None):
        """A paired difference with its 95 % interval, bold where that leaves out 0."""
        return self.shown(study, minus("", first, second), digits)

    def shown(self, study, contrast, digits=None):
        """A contrast with its 95 % interval, bold where that leaves out 0."""
        try:
            found = self.evidence.estimate(study, contrast)
        except NotRunError:
            return NOT_RUN
        digits = study.measure.digits if digits is None else digits
        text = f"{found.mean:+.{digits}f} ± {found.margin:.{digits}f}"
        return f"**{text}**" if found.is_certain else text

    def over_films(self, study, first, second=None, kind="model"):
        """The mean over the films, or the difference of two methods there."""
        wheres = [at(method, kind=k, condition={"film": film}) for film in FILMS for method, k in [(first, "model")]]
        if second is None:
            return f"{fmean(self.evidence.mean(study, where) for where in wheres):.{study.measure.digits}f}"
        others = [at(second, kind=kind, condition={"film": film}) for film in FILMS]
        terms = [(1 / 3, where) for where in wheres] + [(-1 / 3, where) for where in others]
        return self.shown(study, Contrast("", tuple(terms), across_nodes=True))

    def span_over_seeds(self, study, where):
        """The lowest and the highest mean of a method over seeds."""
        by_seed = {}
        for row in self.evidence.rows(study, where):
            by_seed.setdefault(row["seed"], []).append(row["value"])
        means, digits = [fmean(values) for values in by_seed.values()], study.measure.digits
        return f"{min(means):.{digits}f} to {max(means):.{digits}f} over {len(means)} seeds"

    def share_late(self, study, where):
        """How many runs in a hundred validate best in the last quarter of their epochs."""
        if not self.evidence.has(study, where):
            return NOT_RUN
        rows = self.evidence.rows(study, where)
        return f"{100 * sum(row['best_epoch'] > 0.75 * row['epochs'] for row in rows) / len(rows):.0f} %"

    def share_below(self, study, where, limit):
        """How many runs in a hundred end below a limit."""
        return self._share(study, where, lambda value: value < limit)

    def share_above(self, study, where, limit):
        return self._share(study, where, lambda value: value > limit)

    def _share(self, study, where, holds):
        if not self.evidence.has(study, where):
            return NOT_RUN
        values = self.evidence.values(study, where)
        return f"{100 * sum(map(holds, values)) / len(values):.0f} %"

    def runs(self, study, where):
        return str(len(self.evidence.values(study, where))) if self.evidence.has(study, where) else NOT_RUN

    def verdict(self, experiment, key, protocol):
        """The verdict on a claim under a protocol, the first round's where there is no other."""
        study = self.study(experiment, protocol, "best" if protocol == "best" else "paper")
        found = [
            one for one in self.verdicts if (one.claim.experiment, one.claim.key, one.study) == (experiment, key, study)
        ]
        return found[0] if found else None

    def word(self, experiment, key, protocol):
        found = self.verdict(experiment, key, protocol)
        return found.word if found else NOT_RUN

    def bootstrap_agreement(self):
        """In how many contrasts over graphs bootstrap and Student's interval both hold 0, or both do not."""
        found = [
            (low <= 0 <= high) != estimate.is_certain
            for verdict in self.verdicts
            if verdict.study.measure.overlap is None
            for estimate in verdict.estimates.values()
            if len(getattr(estimate, "values", ())) > 2
            for low, high in [bootstrap_interval(estimate.values)]
        ]
        return f"{sum(found)} of {len(found)}"

    def inside(self, study, table):
        """How many means lie inside the paper's mean ± standard deviation, of how many that were run."""
        found = [abs(ours - mean) <= std + 1e-9 for ours, mean, std in self._beside_paper(study, table)]
        return f"{sum(found)} of {len(found)}"

    def _beside_paper(self, study, table):
        wheres = (
            {(m, f): localizing(m, f) for m, _ in TABLE_1 for f in (2, 4, 8)}
            if table is TABLE_1 or table == 1
            else {(m, film): rating(m, film) for m, _ in TABLE_2 for film in FILMS}
        )
        numbers = {
            (m, column): pair
            for (m, _), line in (TABLE_1 if table == 1 else TABLE_2).items()
            for column, pair in line.items()
        }
        return [
            (self.evidence.mean(study, where), *numbers[key])
            for key, where in wheres.items()
            if self.evidence.has(study, where)
        ]

    def shift_from_paper(self, study, features):
        """By how much the mean of the six networks differs from the paper's at one width."""
        pairs = [
            (self.evidence.mean(study, localizing(m, features)), line[features][0]) for (m, _), line in TABLE_1.items()
        ]
        return f"{fmean(ours - theirs for ours, theirs in pairs):+.1f}"

    # tables

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
        for baseline, label in (("mean of the training ratings", "a constant"), (RIDGE, "ridge regression")):
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

    def exchanges(self, experiment, budgets):
        """What each family of activations reaches with a budget of exchanges."""
        return Grid(heads(), list(champions_of(self.evidence, experiment, budgets)))

    def exchange_candidates(self, experiment):
        """The networks that see the graph and were run, in words."""
        return " ".join(candidates_of(self.evidence, experiment, ("localized", "adaptive")))

    def exchanges_not_tried(self, experiment):
        """The pointwise activations that were not run at all orders at which others were, in words."""
        texts = {}
        for method, orders in not_tried(self.evidence, experiment).items():
            texts.setdefault(", ".join(map(str, orders)), []).append(name(method))
        words = "; ".join(f"{', '.join(names)} at K = {orders}" for orders, names in texts.items())
        best, orders = best_not_tried(self.evidence, experiment)
        among = f" Among them is the pointwise activation that validates best, {best.words}." if orders else ""
        return f"Not run: {words}.{among}" if words else ""

    def exchanges_pay(self):
        """Whether neighbourhood activations gain, with certainty, at all budgets of all experiments."""
        return pays(self.evidence)

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

    def pointwise_run(self, study):
        """The pointwise activations beside ReLU that were run."""
        return [method for method in POINTWISE if self.ran(study, method)]

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
        """Errors with lost links, each method at its best order, or all at one."""

        def where(method, probability):
            loss = probability or None
            return (
                agreeing(method, loss=loss)
                if orders is None
                else at(method, order=orders, condition={"loss_probability": loss} if loss else {})
            )

        lines = [[name(m), *(self.mean(study, where(m, p)) for p in probabilities)] for m in ("fir", *NETWORKS)]
        return Grid(["", *(f"{100 * p:g} % lost" for p in probabilities)], lines)

    def claims_table(self, experiments, *, family="claims", full=False):
        """A line for each claim: verdicts by protocol, and the weakest contrast under the first that was run."""
        lines = []
        for claim in CLAIMS:
            if claim.experiment not in experiments or claim.family != family or claim.preset:
                continue
            own = [self.verdict(claim.experiment, claim.key, protocol) for protocol in ("converged", "paper")]
            words = [self._verdict_words(one) for one in own]
            shown = next((one for one in own if one and one.estimates), None)
            line = [claim.text, *words]
            if shown is None:
                lines.append([*line, "", "", ""])
                continue
            contrast, found = shown.weakest
            digits = shown.study.measure.digits
            text = f"{contrast.label}: {shown_interval(found, digits)}"
            if full:
                effect = f"{found.effect:+.1f}" if found.effect == found.effect else ""
                line += [text, shown_p(shown.adjusted), effect, f"{found.detectable():.{digits}f}"]
            else:
                line += [text, shown_p(shown.adjusted)]
            lines.append([*line, units_of(shown.study, found)])
        heads = ["claim", "converged", "paper", "weakest contrast, 95 % interval", "p (Holm)"]
        return Grid([*heads, *(["d", "could show"] if full else []), "units"], lines)

    @staticmethod
    def _verdict_words(verdict):
        if verdict is None or not verdict.estimates:
            return NOT_RUN
        return f"**{verdict.word}**" + (f" ({verdict.count})" if len(verdict.estimates) > 1 else "")

    def counts(self, protocol, without=()):
        """How many claims of the paper have which verdict under a protocol."""
        words = [self.word(claim.experiment, claim.key, protocol) for claim in claims_of_paper(without)]
        order = (
            "supported",
            "supported so far",
            "not after Holm",
            "in part",
            "no difference",
            "undecided",
            "contradicted",
            NOT_RUN,
        )
        return ", ".join(f"{words.count(word)} {word}" for word in order if word in words)

    def number_of_claims(self, without=()):
        return str(len(claims_of_paper(without)))

    def robustness(self, family="claims"):
        """A line for each claim on perturbed inputs and task; empty where nothing was run."""
        lines = []
        for verdict in self.verdicts:
            if verdict.study.preset == "robustness" and verdict.estimates and verdict.claim.family == family:
                contrast, found = verdict.weakest
                text = f"{contrast.label}: {shown_interval(found, 1)}"
                words = [verdict.claim.text, verdict.study.protocol, self._verdict_words(verdict), text]
                lines.append([*words, shown_p(verdict.adjusted), units_of(verdict.study, found)])
        first = "claim" if family == "claims" else "question"
        return Grid([first, "task", "verdict", "weakest contrast, 95 % interval", "p (Holm)", "units"], lines)

    def perturbed_word(self, task, key):
        """The verdict on a claim on perturbed inputs."""
        study = Study("source-localization", "robustness", task)
        found = [one for one in self.verdicts if (one.claim.key, one.study) == (key, study)]
        return found[0].word if found else NOT_RUN

    def better_in_search(self, experiment, order, **settings):
        """How many methods validate better in a trial of the search than in the protocol ``converged``."""
        trial, study = {}, Study(experiment, "paper", "converged")
        folder = self.evidence.directory / "search" / experiment
        for row in Store(folder).rows() if folder.is_dir() else ():
            same = all(row["settings"].get(key) == value for key, value in settings.items())
            if same and row["order"] == order and row["kind"] == "model":
                trial.setdefault(row["method"], []).append(row["validation"])
        usual = {
            cell.method: fmean(row["validation"] for row in rows)
            for cell, rows in self.evidence.cells.get(study, {}).items()
            if cell.kind == "model" and cell.order == order and not cell.condition and cell.hops in (None, 1)
        }
        both = trial.keys() & usual.keys()
        better = sum(fmean(trial[method]) < usual[method] for method in both)
        return f"{better} of {len(both)}"

    def seen_before(self, experiment, what="validated", film=None):
        """How many percent of the test samples that are reported had a part in the search of the settings.

        Hours and users are one data set each, which every seed deals anew.
        """
        if experiment == "denoising":  # five splits of seed 1000 chose; twenty of seed 0 are reported
            search = [eighty_ten_ten(HOURS, data_generator("denoising split", 1000, split)) for split in range(5)]
            tests = [eighty_ten_ten(HOURS, data_generator("denoising split", 0, split)).test for split in range(20)]
        else:  # the preset best: twenty splits of seed 0 chose, those of seed 1 are reported

            def deal(seed, split):
                count, item = RATERS[film]
                test = round(0.1 * count)
                generator = data_generator("recommendation split", seed, item, split)
                return random_split(count, validation=round(0.1 * (count - test)), test=test, generator=generator)

            search, tests = ([deal(seed, split) for split in range(20)] for seed in (0, 1))
            tests = [split.test for split in tests]
        parts = {"validated": ("validation",), "trained or validated": ("train", "validation")}[what]
        known = torch.cat([getattr(split, part) for split in search for part in parts]).unique()
        return f"{100 * torch.isin(torch.cat(tests), known).double().mean().item():.0f} %"

    def contrasts_table(self, experiment, protocol):
        """Every contrast of every claim of an experiment."""
        lines = []
        for verdict in self.verdicts:
            study = self.study(experiment, protocol, "best" if protocol == "best" else "paper")
            if verdict.study != study:
                continue
            for contrast, found in verdict.estimates.items():
                p = shown_p(verdict.claim.p(found))
                lines.append([verdict.claim.key, contrast.label, shown_interval(found, study.measure.digits), p])
        return Grid(["claim", "contrast", "difference, 95 % interval", "p"], lines)

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

    def authors(self):
        """What the operators of the published code compute."""
        return measure()

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
        digits, what, best = (
            (1, "sources", "preset `best`, max-ga")
            if experiment == "source-localization"
            else (3, "days", "preset `best`, max-ga")
        )
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
        heads = ["", f"unseen {what}", "`best` minus it", "dealt at random", "`best` minus it", "unseen minus random"]
        return Grid(heads, lines)


def bold(found, digits):
    text = f"{found.mean:+.{digits}f} ± {found.margin:.{digits}f}"
    return f"**{text}**" if found.is_certain else text
