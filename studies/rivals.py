"""Numbers that a sceptical reader asks for: against the strongest rival, without dead runs, with one choice changed."""

import json
from statistics import fmean

from evidence import at
from exhibits import POINTWISE, name
from graphact_lab.statistics import difference, place_of
from quotes import NOT_RUN, Quotes, bold

LOCAL_WIENER = "Wiener filter of each neighbourhood"  # one exchange, no centre


class Rivals(Quotes):
    """Comparisons with what is strongest, or in other settings than those of the tables."""

    def strongest_pointwise(self, study, make):
        """The pointwise network that validates best in a setting; None where none was run."""
        run = [make(method) for method in ("relu", *POINTWISE) if self.has(study, make(method))]
        costs = {one: self.evidence.cost_on_validation(study, self.evidence.cell(study, one)) for one in run}
        return min(run, key=costs.get, default=None)

    def over_strongest(self, study, make, method="max-ga"):
        """Return the gain of a method over that network, in words."""
        best = self.strongest_pointwise(study, make)
        return f"{name(best.method)}: {self.gap(study, make(method), best)}" if best else NOT_RUN

    def gap_where_alive(self, study, first, second, limit):
        """The difference of two methods on the runs in which the second does not end below a limit."""
        other = {place_of(row): row for row in self.evidence.rows(study, second) if row["value"] >= limit}
        own = [row for row in self.evidence.rows(study, first) if place_of(row) in other]
        return bold(difference(own, list(other.values()), overlap=study.measure.overlap), study.measure.digits)

    def gap_with_choice(self, choice):
        """Max G.A. (2) minus ReLU in source localization, F = 8, where one choice is another (results/choices)."""
        stored = json.loads((self.evidence.directory / "choices" / "choices.json").read_text())
        rows = {one["activation"]: one["rows"] for one in stored if one["choice"] == choice}
        return bold(difference(rows["max-ga (2)"], rows["relu"]), 1)

    def best_trial(self, method, rate):
        """Return the validation score of a method with a rate in the search, the better trial."""
        found = [value for trial, value in self.search(method).items() if trial.startswith(f"learning_rate {rate},")]
        return f"{max(found):.1f}"

    def unseen_gap(self, first, second, kind="unseen"):
        """The difference of two methods on sources that training never saw, or on as many at random."""
        rows = json.loads((self.evidence.directory / "unseen" / "unseen-source-localization.json").read_text())
        own, other = ([row for row in rows if (row["kind"], row["method"]) == (kind, one)] for one in (first, second))
        return bold(difference(own, other, overlap=own[0]["overlap"]), 1) if own and other else NOT_RUN

    def unseen_mean(self, method, kind="unseen"):
        rows = json.loads((self.evidence.directory / "unseen" / "unseen-source-localization.json").read_text())
        values = [row["value"] for row in rows if (row["kind"], row["method"]) == (kind, method)]
        return f"{fmean(values):.1f}" if values else NOT_RUN

    def local_wiener(self, snr=3.0):
        return at(LOCAL_WIENER, kind="baseline", condition={"snr_db": snr})
