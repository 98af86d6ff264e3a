"""Facts that pages and papers quote: numbers, tables, and verdicts on the claims of the paper.

A template calls these and holds no result of its own. A number that no rows give is announced by ``stated``, with where
it comes from.
"""

import torch

from authors import measure
from claims import CLAIMS
from evidence import Study, at, minus
from exhibits import LINEAR, NETWORKS, RIDGE, WIENER, agreeing, averaging, denoising, localizing, name, rating
from graphact.registry import POINTWISE
from graphact_lab.experiments.recommendation.experiment import FILMS
from graphact_lab.splits import data_generator, eighty_ten_ten, random_split
from graphact_lab.statistics import bootstrap_interval
from grid import Grid
from grids import Grids
from quotes import NOT_RUN
from verdicts import judge, shown_interval, shown_p, units_of

HOURS = 744  # of January 2014
RATERS = {
    "toy-story": (452, 1),
    "contact": (509, 258),
    "return-of-the-jedi": (507, 181),
}  # users, and the film's number


def claims_of_paper(without=()):
    """The claims that are counted: those of the four experiments."""
    known = [claim for claim in CLAIMS if claim.where != "here" and claim.family == "claims" and not claim.preset]
    return [claim for claim in known if claim.experiment not in without]


class Facts(Grids):
    """Everything a template may ask for."""

    def __init__(self, evidence):
        super().__init__(evidence)
        self.verdicts = judge(evidence, CLAIMS)

    def names(self):
        """Return the names that templates know."""
        functions = {
            **{"at": at, "localizing": localizing, "agreeing": agreeing, "averaging": averaging},
            **{"denoising": denoising, "rating": rating},
            **{"minus": minus, "name": name, "films": FILMS, "networks": NETWORKS, "pointwise": tuple(POINTWISE)},
            **{"localizing_at_8": lambda method: localizing(method, 8)},
            **{"WIENER": WIENER, "RIDGE": RIDGE, "LINEAR": LINEAR},
        }
        own = [word for word in dir(Facts) if not word.startswith("_") and word != "names"]
        return functions | {word: getattr(self, word) for word in own}

    def verdict(self, experiment, key, protocol):
        """Return the verdict on a claim under a protocol, None where there is none."""
        study = self.study(experiment, protocol, "best" if protocol == "best" else "paper")
        found = [
            one for one in self.verdicts if (one.claim.experiment, one.claim.key, one.study) == (experiment, key, study)
        ]
        return found[0] if found else None

    def word(self, experiment, key, protocol):
        found = self.verdict(experiment, key, protocol)
        return found.word if found else NOT_RUN

    def counts(self, protocol, without=()):
        """Count the claims of the paper by verdict under a protocol."""
        words = [self.word(claim.experiment, claim.key, protocol) for claim in claims_of_paper(without)]
        order = (
            "supported",
            "supported so far",
            "not after Holm",
            "in part",
            "mixed",
            "no difference",
            "undecided",
            "contradicted",
            NOT_RUN,
        )
        return ", ".join(f"{words.count(word)} {word}" for word in order if word in words)

    def number_of_claims(self, without=()):
        return str(len(claims_of_paper(without)))

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

    def could_show(self, experiment):
        """The least and the most that claims of an experiment could have shown, with the protocol converged."""
        study = self.study(experiment, "converged")
        found = [
            each.detectable()
            for verdict in self.verdicts
            if verdict.study == study and verdict.claim.family == "claims"
            for each in verdict.estimates.values()
        ]
        digits = study.measure.digits
        return f"{min(found):.{digits}f} to {max(found):.{digits}f}"

    def seen_before(self, experiment, what="validated", film=None, protocol="best"):
        """Return the percentage of reported test samples that had a part in the search of the settings.

        Hours and users are one data set each, which every seed splits again.
        """
        if experiment == "denoising":  # five splits of seed 1000 chose; twenty of seed 0 are reported
            search = [eighty_ten_ten(HOURS, data_generator("denoising split", 1000, split)) for split in range(5)]
            tests = [eighty_ten_ten(HOURS, data_generator("denoising split", 0, split)).test for split in range(20)]
        else:  # the splits of some seeds chose, those of others are reported

            def deal(seed, split):
                count, item = RATERS[film]
                test = round(0.1 * count)
                generator = data_generator("recommendation split", seed, item, split)
                return random_split(count, validation=round(0.1 * (count - test)), test=test, generator=generator)

            chose, reported, splits = {"best": ((0,), (1,), 20), "converged": ((1000,), range(20), 5)}[protocol]
            search, tests = ([deal(s, split) for s in seeds for split in range(splits)] for seeds in (chose, reported))
            tests = [split.test for split in tests]
        parts = {"validated": ("validation",), "trained or validated": ("train", "validation")}[what]
        known = torch.cat([getattr(split, part) for split in search for part in parts]).unique()
        return f"{100 * torch.isin(torch.cat(tests), known).double().mean().item():.0f} %"

    def authors(self):
        """Return the results of the operators of the published code."""
        return measure()
