"""Gain of the activation itself: every method on raw and on prepared inputs, and its cost."""

from statistics import fmean, median

from evidence import Contrast, NotRunError, at
from exhibits import NETWORKS, POINTWISE, agreeing, denoising, localizing, name, rating
from graphact_lab.experiments.recommendation.experiment import FILMS
from graphact_lab.statistics import place_of
from grid import Grid
from quotes import NOT_RUN, Quotes

METHODS = ("fir", *NETWORKS, *POINTWISE)
# Where every method is compared: its experiment, and what to average there with raw and with prepared inputs
PLACES = {
    "source localization (%)": (
        "source-localization",
        lambda method: ((1.0, localizing(method, 8)),),
        lambda method: ((1.0, at(method)),),
    ),
    "consensus": (
        "consensus",
        lambda method: ((1.0, agreeing(method, 20)),),
        lambda method: ((1.0, at(method, condition={})),),
    ),
    "denoising (K)": (
        "denoising",
        lambda method: ((1.0, denoising(method)),),
        lambda method: ((1.0, at(method, condition={"snr_db": 3.0})),),
    ),
    "recommendation, three films": (
        "recommendation",
        lambda method: tuple((1 / 3, rating(method, film)) for film in FILMS),
        lambda method: tuple((1 / 3, rating(method, film)) for film in FILMS),
    ),
}


class Inputs(Quotes):
    """Every method in one setting of each experiment."""

    def inputs(self):
        """Every method on raw and on prepared inputs: means, and differences from ReLU on the same inputs."""
        heads = [f"{title}, {inputs}" for title in PLACES for inputs in ("raw", "prepared")]
        lines = [
            [name(method), *(text for place in PLACES.values() for text in self._on_inputs(place, method))]
            for method in METHODS
        ]
        return Grid(["", *heads], lines)

    def _on_inputs(self, place, method):
        """A method of an experiment on raw and on prepared inputs."""
        experiment, raw, prepared = place
        for study, make in (
            (self.study(experiment, "converged"), raw),
            (self.study(experiment, "best", "best"), prepared),
        ):
            try:
                sums = [make(each) for each in (method, "relu")]
                digits = study.measure.digits
                mean = sum(weight * self.evidence.mean(study, where) for weight, where in sums[0])
                terms = (*sums[0], *((-weight, where) for weight, where in sums[1]))
                gap = self.shown(study, Contrast("", terms, across_nodes=len(sums[0]) > 1))
                yield f"{mean:.{digits}f}" + ("" if method == "relu" else f" ({gap})")
            except NotRunError:
                yield NOT_RUN

    def over_pointwise(self, experiment):
        """Return the gain of Max G.A. on prepared inputs over the pointwise network that validates best, in words.

        It is chosen on the graphs and splits that all pointwise networks were run on.
        """
        study = self.study(experiment, "best", "best")
        make = next(prepared for name_, _, prepared in PLACES.values() if name_ == experiment)
        wheres = [make(method)[0][1] for method in ("fir", "relu", *POINTWISE)]
        run = {
            where: {place_of(row): row for row in self.evidence.rows(study, where)}
            for where in wheres
            if self.has(study, where)
        }
        common = set.intersection(*map(set, run.values()))
        sign = 1 if study.measure.higher_is_better else -1
        best = max(run, key=lambda where: sign * fmean(run[where][place]["validation"] for place in common))
        return f"{name(best.method)}: {self.gap(study, make('max-ga')[0][1], best)}"

    def costs(self):
        """Parameters, exchanges for one answer, and seconds of training of every method on raw inputs."""
        lines = []
        for method in METHODS:
            cells = [name(method)]
            for experiment, raw, _ in PLACES.values():
                study, (_, where) = self.study(experiment, "converged"), raw(method)[0]
                if not self.has(study, where):
                    cells.append(NOT_RUN)
                    continue
                rows = self.evidence.rows(study, where)
                seconds = median(row["seconds"] for row in rows)
                cells.append(f"{rows[0]['parameters']:,} / {rows[0]['exchanges']} / {seconds:.2g} s")
            lines.append(cells)
        return Grid(["", *PLACES], lines)
