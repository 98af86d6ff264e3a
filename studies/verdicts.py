"""A claim, and what rows say of it: an estimate of each of its contrasts, p-values, and a verdict in words."""

from dataclasses import dataclass, field

from evidence import NotRunError, Study
from graphact_lab.descriptions import EXPERIMENTS
from graphact_lab.statistics import ALPHA, holm


@dataclass(frozen=True)
class Claim:
    """A claim: its words, its place in the paper, and the contrast that decides it."""

    key: str
    text: str
    where: str  # in the paper; "here" for questions of our own
    experiment: str
    contrasts: tuple
    says: str  # every contrast is "above" the bound, "below" it, or "within" the margin around 0
    margin: float  # what counts as no difference
    bound: float = 0.0
    preset: str | None = None  # the only one that it is judged by
    family: str = "claims"  # claims are adjusted together with those of the same family, experiment and protocol

    @property
    def is_literal(self):
        """True for claims about numbers of the paper, which other inputs than the paper's do not concern."""
        return self.family == "table" or bool(self.bound)

    def p(self, estimate):
        """The p-value of a contrast: two-sided, and 1 on the wrong side; of equivalence, two one-sided tests."""
        if self.says == "within":
            return estimate.p_within(self.margin)
        right = estimate.mean > self.bound if self.says == "above" else estimate.mean < self.bound
        return estimate.p_unlike(self.bound) if right else 1.0

    def p_contrary(self, estimate):
        """The p-value of the opposite of a contrast."""
        if self.says == "within":
            return estimate.p_outside(self.margin)
        return estimate.p_unlike(self.bound) if self.p(estimate) == 1.0 else 1.0


def claims_of(experiment, place, margin):
    """A function that makes the claims of an experiment; ``margin`` is theirs where they name no other."""

    def claim(key, text, says, contrasts, *, where=place, margin=margin, **options):
        return Claim(key, text, where, experiment, contrasts, says, margin, **options)

    return claim


@dataclass
class Verdict:
    """Return the verdict of the rows of a study on a claim."""

    claim: Claim
    study: Study
    estimates: dict = field(default_factory=dict)  # by contrast
    missing: list = field(default_factory=list)  # contrasts without rows, with the reason
    p: float = 1.0
    adjusted: float = 1.0

    @property
    def holding(self):
        """The contrasts that hold, adjusted for the number of contrasts."""
        adjusted = holm([self.claim.p(estimate) for estimate in self.estimates.values()])
        return [contrast for contrast, p in zip(self.estimates, adjusted, strict=True) if p < ALPHA]

    @property
    def contrary(self):
        adjusted = holm([self.claim.p_contrary(estimate) for estimate in self.estimates.values()])
        return [contrast for contrast, p in zip(self.estimates, adjusted, strict=True) if p < ALPHA]

    @property
    def word(self):
        if not self.estimates:
            return "not run"
        if self.adjusted < ALPHA:
            return "supported so far" if self.missing else "supported"
        if self.p < ALPHA:
            return "not after Holm"
        if self.holding:
            return "mixed" if self.contrary else "in part"
        if self.contrary:
            return "contradicted"
        alike = all(one.p_within(self.claim.margin) < ALPHA for one in self.estimates.values())
        return "no difference" if alike and self.claim.says != "within" and not self.claim.bound else "undecided"

    @property
    def weakest(self):
        """The contrast that stands most in the way of the claim, with its estimate."""
        return max(self.estimates.items(), key=lambda pair: (self.claim.p(pair[1]), -self.claim.p_contrary(pair[1])))

    @property
    def num_holding(self):
        """Count the contrasts that were run and hold."""
        return len(self.estimates) if self.p < ALPHA else len(self.holding)


def judge(evidence, claims, presets=("paper", "best", "robustness")):
    """The verdict on every claim under every protocol that was run, p-values adjusted within each family."""
    verdicts = []
    for experiment in EXPERIMENTS:
        for study in studies_of(evidence, experiment, presets):
            is_paper = study.preset == "paper"
            asked = [claim for claim in claims if claim.experiment == experiment and (is_paper or not claim.is_literal)]
            asked = [claim for claim in asked if claim.preset == {"robustness": "robustness"}.get(study.preset)]
            own = [verdict_on(claim, study, evidence) for claim in asked]
            own = [verdict for verdict in own if verdict.estimates or study.protocol in ("paper", "converged")]
            for family in dict.fromkeys(verdict.claim.family for verdict in own):
                judged = [verdict for verdict in own if verdict.claim.family == family and verdict.estimates]
                for verdict, adjusted in zip(judged, holm([verdict.p for verdict in judged]), strict=True):
                    verdict.adjusted = adjusted
            verdicts += own
    return verdicts


def studies_of(evidence, experiment, presets):
    """The studies of an experiment that were run, and those of the preset `paper` that were not."""
    run = [study for study in evidence.studies() if study.experiment == experiment and study.preset in presets]
    run = [study for study in run if "," not in study.protocol]  # with all settings of the protocol
    known = [Study(experiment, "paper", name) for name in ("converged", "paper")]
    rank = {"converged": 0, "paper": 1}
    return sorted({*run, *known}, key=lambda study: (study.preset == "best", rank.get(study.protocol, 2), study))


def verdict_on(claim, study, evidence):
    verdict = Verdict(claim, study)
    for contrast in claim.contrasts:
        try:
            verdict.estimates[contrast] = evidence.estimate(study, contrast)
        except NotRunError as reason:
            verdict.missing.append((contrast, str(reason)))
    if verdict.estimates:
        verdict.p = max(claim.p(estimate) for estimate in verdict.estimates.values())
    return verdict
