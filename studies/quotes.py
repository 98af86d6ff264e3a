"""Numbers that sentences quote: means, differences and shares, each computed from rows when it is asked for."""

import math
from statistics import fmean

from evidence import Contrast, NotRunError, Study, at, minus
from exhibits import NETWORKS, localizing, rating
from graphact.registry import POINTWISE
from graphact_lab.experiments.recommendation.experiment import FILMS, TABLE_2
from graphact_lab.experiments.source_localization.experiment import TABLE_1
from graphact_lab.statistics import ALPHA, holm, published

SOURCES = ("the paper", "the protocol", "the data", "rows not kept", "measured once", "a definition")
NOT_RUN, STALE = "not run", "rows no longer say:"


def sure(holds, words):
    """Words that rest on rows; where these no longer say so, a mark that tests find."""
    return words if holds else f"[{STALE} {words}]"


def bold(found, digits):
    """A difference with its 95 % interval, bold where that leaves out 0."""
    text = f"{found.mean:+.{digits}f} ± {found.margin:.{digits}f}"
    return f"**{text}**" if found.is_certain else text


class Quotes:
    """Numbers of one evidence; a method in a setting that was not run gives the words "not run"."""

    def __init__(self, evidence):
        self.evidence = evidence

    @staticmethod
    def stated(text, source):
        """A number that is no result of rows; a reader of the template sees where it comes from."""
        if source not in SOURCES:
            raise ValueError(f"source must be one of {SOURCES}, got {source!r}")
        return text

    sure = staticmethod(sure)

    def study(self, experiment, protocol, preset="paper"):
        """Return the study of a protocol."""
        return Study(experiment, preset, protocol)

    def letter(self, experiment):
        """The study of the text to the letter."""
        return Study(experiment, "paper", "paper")

    def search_gap(self):
        """Return how much better weights for each feature validate in the search than shared ones, in percent.

        Of source localization, at the rate that won; both are how much worse than its own best trial a method is.
        """
        worse = self.search("worse than a method's best trial, %")
        shared, own = (worse[f"learning_rate 0.02, per_feature {each}"] for each in ("false", "true"))
        return f"{shared - own:.1f}"

    def search(self, line):
        """A line of the table of source localization's search: its numbers by trial."""
        text = (self.evidence.directory / "search" / "source-localization" / "table.md").read_text()
        lines = {cells[0]: cells[1:] for cells in (line.strip("| ").split(" | ") for line in text.splitlines())}
        return dict(zip(lines["method"], map(float, lines[line]), strict=True))

    def ran(self, study, *methods):
        """Return whether every one of the methods was run in a study, in whatever setting."""
        run = {cell.method for cell in self.evidence.cells.get(study, {})}
        return set(methods) <= run and bool(run)

    def has(self, study, where):
        return self.evidence.has(study, where)

    def runs(self, study, where):
        return str(len(self.evidence.values(study, where))) if self.evidence.has(study, where) else NOT_RUN

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
            return bold(self.evidence.estimate(study, contrast), study.measure.digits if digits is None else digits)
        except NotRunError:
            return NOT_RUN

    def certainly(self, study, first, second, sign):
        """Return whether the difference of two methods is certain and of a sign."""
        try:
            found = self.evidence.estimate(study, minus("", first, second))
        except NotRunError:
            return False
        return found.is_certain and found.mean * sign > 0

    def none_certain(self, study, contrasts):
        """Return whether no contrast is certain, adjusted for their number."""
        found = [self.evidence.estimate(study, one).p_unlike() for one in contrasts if self._has_all(study, one)]
        return bool(found) and min(holm(found)) >= ALPHA

    def _has_all(self, study, contrast):
        return all(self.evidence.has(study, where) for _, where in contrast.terms)

    def relu_gaps_on_films(self):
        return [minus("", rating(m, film), rating("relu", film)) for m in NETWORKS[1:] for film in FILMS]

    def over_films(self, study, first, second=None, kind="model"):
        """The mean over the films, or the difference of two methods there."""
        wheres = [at(first, condition={"film": film}) for film in FILMS]
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
        """Return the percentage of runs that validate best in the last quarter of their epochs."""
        if not self.evidence.has(study, where):
            return NOT_RUN
        rows = self.evidence.rows(study, where)
        return f"{100 * sum(row['best_epoch'] > 0.75 * row['epochs'] for row in rows) / len(rows):.0f} %"

    def share_below(self, study, where, limit):
        """Return the percentage of runs that end below a limit."""
        return self._share(study, where, lambda value: value < limit)

    def share_above(self, study, where, limit):
        return self._share(study, where, lambda value: value > limit)

    def no_other_above(self, study, where, limit):
        """Return whether no network of another method in the same setting ends above an error."""
        own = self.evidence.cell(study, where)
        return not any(
            row["value"] > limit
            for cell, rows in self.evidence.cells[study].items()
            if cell.kind == own.kind and (cell.order, cell.condition) == (own.order, own.condition)
            for row in rows
            if cell.method != own.method
        )

    def _share(self, study, where, holds):
        if not self.evidence.has(study, where):
            return NOT_RUN
        values = self.evidence.values(study, where)
        return f"{100 * sum(map(holds, values)) / len(values):.0f} %"

    def error_of_table_2(self):
        """The largest half width of a 95 % interval of the paper's means of five splits."""
        share = math.sqrt(1 / 5 + Study("recommendation", "paper", "paper").measure.overlap)
        numbers = [pair for line in TABLE_2.values() for pair in line.values()]
        return f"{max(published(*pair, share=share, units=5).margin for pair in numbers):.2f}"

    def inside(self, study, table):
        """Count the means of Table 1 or 2 inside the paper's mean ± standard deviation, of those that were run."""
        numbers, make = {1: (TABLE_1, localizing), 2: (TABLE_2, rating)}[table]
        found = [
            abs(self.evidence.mean(study, make(method, column)) - mean) <= std + 1e-9
            for (method, _), line in numbers.items()
            for column, (mean, std) in line.items()
            if self.evidence.has(study, make(method, column))
        ]
        return f"{sum(found)} of {len(found)}"

    def inside_with_every_hop(self, study):
        """The same of Table 1 in the report, where a number whose hops the paper does not state stands beside all."""
        known = {(method, hops) for method, hops in TABLE_1}
        cells = [cell for cell in self.evidence.cells[study] if cell.order == 4 and (cell.hops or 0) <= 2]
        found = [
            abs(fmean(row["value"] for row in self.evidence.cells[study][cell]) - line[cell.features][0])
            <= line[cell.features][1] + 1e-9
            for cell in cells
            for (method, hops), line in TABLE_1.items()
            if cell.method == method and cell.features in line
            if cell.hops == hops or (hops is None and (method, cell.hops) not in known)
        ]
        return f"{sum(found)} of {len(found)}"

    def lowest_of_table_2(self, study):
        """The network with the lowest mean error on every film; None where that is not the same one."""
        methods = [method for method, _ in TABLE_2]
        lowest = {min(methods, key=lambda one: self.evidence.mean(study, rating(one, film))) for film in FILMS}
        return lowest.pop() if len(lowest) == 1 else None

    def shift_from_paper(self, study, features):
        """By how much the mean of the six networks differs from the paper's at one width."""
        pairs = [
            (self.evidence.mean(study, localizing(m, features)), line[features][0]) for (m, _), line in TABLE_1.items()
        ]
        return f"{fmean(ours - theirs for ours, theirs in pairs):+.1f}"

    def pointwise_run(self, study):
        """The pointwise activations beside ReLU that were run."""
        return [method for method in POINTWISE if self.ran(study, method)]
