"""Claims of the paper on source localization, and its theory of perturbed signals.

Each function takes the ``margin`` that counts as no difference; figures of tables are met within ``table_margin``.
"""

import math

from evidence import Contrast, at, minus
from exhibits import LOCALIZED, NETWORKS, OTHERS, at_widths, for_each, localizing, name
from graphact_lab.experiments.source_localization.experiment import TABLE_1
from verdicts import claims_of


def source_localization_claims(margin, table_margin):
    claim = claims_of("source-localization", "Section 4.1, Table 1", margin)
    yield claim(
        "beats-relu",
        "Localized and graph-adaptive activations outperform ReLU, at every width",
        "above",
        for_each(OTHERS, lambda method: at_widths(method, "relu")),
    )

    def at_best(method):
        best = {"best": ("features",), "among": ((2,), (4,), (8,)), "order": 4}  # the paper's widths
        ours = at(method, hops=localizing(method, 8).setting[0][1], **best)
        return [minus(f"{name(method)} - ReLU, each at its best F", ours, at("relu", **best))]

    yield claim(
        "14-points",
        "by at least 14 points, each at its best width",
        "above",
        for_each(OTHERS, at_best),
        bound=14.0,
    )
    yield claim("best-is-max-ga", "Max G.A. (2) is the best at F = 8", "above", best_at_eight())
    yield claim("max-ga-beats-l", "Max G.A. (2) outperforms Max L.", "above", at_widths("max-ga", "max-l"))
    yield claim(
        "median-ga-beats-l", "Median G.A. (2) outperforms Median L.", "above", at_widths("median-ga", "median-l")
    )
    yield claim(
        "max-beats-median",
        "Max outperforms median, localized and graph-adaptive",
        "above",
        at_widths("max-l", "median-l") + at_widths("max-ga", "median-ga"),
    )
    yield claim(
        "kernel-below-localized",
        "Kernel G.A. stays below the localized activations",
        "below",
        at_widths("kernel-ga", "max-l") + at_widths("kernel-ga", "median-l"),
    )
    yield claim(
        "one-hop-alike",
        "Graph-adaptive with one hop is comparable to localized",
        "within",
        for_each(LOCALIZED, lambda method: at_widths(method, LOCALIZED[method], first_hops=1)),
    )
    yield claim(
        "table-1",
        "The means of Table 1 (within 7 points)",
        "within",
        tuple(
            Contrast(f"{name(method)}, F = {f}, minus the paper's", ((1.0, localizing(method, f)),), number)
            for (method, _), line in TABLE_1.items()
            for f, number in line.items()
        ),
        margin=table_margin,
        family="table",
    )
    yield claim(
        "table-1-slope",
        "Accuracy grows with the width as in Table 1 (F = 2 to 8, within 7 points)",
        "within",
        tuple(
            Contrast(
                f"{name(method)}, from F = 2 to 8, minus the paper's",
                ((1.0, localizing(method, 8)), (-1.0, localizing(method, 2))),
                (line[8][0] - line[2][0], math.hypot(line[8][1], line[2][1])),
            )
            for (method, _), line in TABLE_1.items()
        ),
        margin=table_margin,
        family="table",
    )
    yield claim(
        "equal-hops",
        "Graph-adaptive outperforms localized with as many hops (2)",
        "above",
        for_each(LOCALIZED, lambda method: at_widths(method, LOCALIZED[method], first_hops=2, second_hops=2)),
        where="here",
        family="questions",
    )


def best_at_eight():
    return for_each([m for m in NETWORKS if m != "max-ga"], lambda method: at_widths("max-ga", method, widths=(8,)))


def robustness_claims(margin):
    """The paper speaks of how many perturbed signals are classified correctly."""
    claim = claims_of("source-localization", "Section 3.3", margin)
    kinds = (("gaussian", "noise"), ("attack", "attack"))

    def perturbed(method, kind):
        return at(method, condition={"perturbed": kind})

    def accuracies(others):
        return tuple(
            minus(f"Max G.A. - {name(other)}, {words}", perturbed("max-ga", kind), perturbed(other, kind))
            for other in others
            for kind, words in kinds
        )

    yield claim(
        "lipschitz-is-robust",
        "Max G.A. classifies more perturbed signals correctly than activations that are not Lipschitz",
        "above",
        accuracies(("square", "root")),
        preset="robustness",
    )
