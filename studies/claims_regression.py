"""Claims of the paper on consensus, denoising and recommendation, where methods are compared by their errors.

Each function takes the ``margin`` that counts as no difference; figures of tables are met within ``table_margin``.
"""

from itertools import pairwise

from evidence import Contrast, at, minus
from exhibits import (
    CONSTANT,
    LOCALIZED,
    NETWORKS,
    OTHERS,
    added,
    agreeing,
    denoising,
    for_each,
    less,
    name,
    over_films,
    rating,
)
from graphact_lab.experiments.recommendation.experiment import FILMS, TABLE_2
from verdicts import claims_of


def consensus_claims(margin):
    claim, orders, losses = claims_of("consensus", "Section 4.2, Figure 2a", margin), (20, 25, 30, 35), (0.05, 0.15)

    def at_order(first, second, order):
        words = f"{name(first)} - {name(second)}, K = {order}"
        return minus(words, agreeing(first, order), agreeing(second, order))

    yield claim(
        "beats-fir",
        "Every GCNN has a lower error than FIR, at every order",
        "below",
        for_each(NETWORKS, lambda method: [at_order(method, "fir", order) for order in orders]),
    )
    yield claim(
        "relu-worst",
        "At K = 20 ReLU is worse than the localized and graph-adaptive ones",
        "below",
        for_each(OTHERS, lambda method: [at_order(method, "relu", 20)]),
    )
    yield claim(
        "gain-shrinks",
        "With higher order the gain over ReLU is smaller (K = 20 against 35)",
        "above",
        for_each(
            OTHERS,
            lambda m: [
                Contrast(
                    f"gain of {name(m)} at K = 20 - at 35",
                    less(at_order("relu", m, 20).terms, at_order("relu", m, 35).terms),
                )
            ],
        ),
    )
    claim = claims_of("consensus", "Section 4.2, Figure 2b", margin)
    yield claim(
        "loss-hurts",
        "All deteriorate when links are lost",
        "above",
        for_each(
            (*NETWORKS, "fir"), lambda m: [Contrast(f"{name(m)}, {100 * p:g} % lost", added(p, m)) for p in losses]
        ),
    )
    yield claim(
        "ga-lose-least",
        "Links lost add less to the error of Max and Median G.A. than to others",
        "below",
        tuple(
            Contrast(f"added to {name(m)} - to {name(other)}, {100 * p:g} % lost", less(added(p, m), added(p, other)))
            for m in LOCALIZED
            for other in ("relu", "fir", LOCALIZED[m])
            for p in losses
        ),
    )
    yield claim(
        "ga-lowest-under-loss",
        "Max and Median G.A. have a lower error than others where links are lost",
        "below",
        tuple(
            minus(f"{name(m)} - {name(other)}, {100 * p:g} % lost", agreeing(m, loss=p), agreeing(other, loss=p))
            for m in LOCALIZED
            for other in ("relu", "fir", LOCALIZED[m])
            for p in losses
        ),
    )
    yield claim(
        "kernel-most-sensitive",
        "The kernel is the most sensitive of the graph-adaptive ones",
        "above",
        tuple(
            Contrast(
                f"added to Kernel G.A. - to {name(m)}, {100 * p:g} % lost", less(added(p, "kernel-ga"), added(p, m))
            )
            for m in LOCALIZED
            for p in losses
        ),
    )


def denoising_claims(margin):
    claim, orders, decibels = (
        claims_of("denoising", "Section 4.3, Figure 2c", margin),
        (1, 2, 4, 8),
        (0.0, 3.0, 6.0, 9.0, 12.0, 15.0),
    )

    def against(first, second, **setting):
        words = ", ".join(
            f"{ {'order': 'K', 'snr': 'SNR', 'features': 'F'}[key] } = {value:g}" for key, value in setting.items()
        )
        return minus(
            f"{name(first)} - {name(second)}, {words}", denoising(first, **setting), denoising(second, **setting)
        )

    yield claim(
        "beats-fir",
        "Every GCNN has a lower error than FIR, at every order (F = 4)",
        "below",
        for_each(NETWORKS, lambda method: [against(method, "fir", order=order) for order in orders]),
    )
    yield claim(
        "most-at-one",
        "The difference from FIR is largest at K = 1 (against 8)",
        "above",
        for_each(
            NETWORKS,
            lambda m: [
                Contrast(
                    f"gain of {name(m)} at K = 1 - at 8",
                    less(against("fir", m, order=1).terms, against("fir", m, order=8).terms),
                )
            ],
        ),
    )
    yield claim(
        "ga-gain-most",
        "especially for Max and Median G.A. (K = 1)",
        "below",
        tuple(against(m, other, order=1) for m in LOCALIZED for other in ("relu", LOCALIZED[m])),
    )
    yield claim(
        "four-features",
        "Four features are the best",
        "below",
        for_each(
            NETWORKS,
            lambda m: [
                minus(f"{name(m)}, F = 4 - F = {f}, K = 1", denoising(m), denoising(m, features=f)) for f in (1, 2)
            ],
        ),
    )
    claim = claims_of("denoising", "Section 4.3, Figure 2d", margin)
    yield claim(
        "not-worse-than-relu",
        "Localized and graph-adaptive ones outperform ReLU or are comparable (K = 1)",
        "below",
        for_each(OTHERS[:-1], lambda m: [against(m, "relu", snr=snr) for snr in decibels]),
        bound=margin,
    )
    yield claim(
        "falls-with-snr",
        "The error falls as the SNR rises",
        "below",
        for_each(
            (*NETWORKS, "fir"),
            lambda m: [
                minus(f"{name(m)}, {high:g} dB - {low:g} dB", denoising(m, snr=high), denoising(m, snr=low))
                for low, high in pairwise(decibels)
            ],
        ),
    )
    yield claim(
        "ga-fall-most",
        "and falls most for Max and Median G.A. (0 to 15 dB)",
        "above",
        tuple(
            Contrast(
                f"gain of {name(m)} - of {name(other)} from 0 to 15 dB",
                less(
                    ((1.0, denoising(m, snr=0.0)), (-1.0, denoising(m, snr=15.0))),
                    ((1.0, denoising(other, snr=0.0)), (-1.0, denoising(other, snr=15.0))),
                ),
            )
            for m in LOCALIZED
            for other in ("relu", LOCALIZED[m])
        ),
    )
    yield claim(
        "kernel-suffers",
        "The kernel suffers at K = 1",
        "above",
        for_each(OTHERS[:-1], lambda m: [against("kernel-ga", m, order=1)]),
    )


def recommendation_claims(margin, table_margin):
    claim = claims_of("recommendation", "Section 4.4, Table 2", margin)

    def on(first, second, film):
        return minus(f"{name(first)} - {name(second)}, {FILMS[film]}", rating(first, film), rating(second, film))

    yield claim(
        "best-is-max-ga",
        "Max G.A. outperforms all others on every film",
        "below",
        tuple(on("max-ga", m, film) for m in NETWORKS if m != "max-ga" for film in FILMS),
    )
    yield claim(
        "max-ga-over-films",
        "Max G.A. outperforms ReLU and Max L., over the three films",
        "below",
        (over_films("max-ga", "relu"), over_films("max-ga", "max-l")),
    )
    yield claim(
        "median-on-contact",
        "Median G.A. outperforms Median L. on Contact",
        "below",
        (on("median-ga", "median-l", "contact"),),
    )
    yield claim(
        "median-alike",
        "and is comparable on the other films",
        "within",
        tuple(on("median-ga", "median-l", film) for film in FILMS if film != "contact"),
    )
    yield claim(
        "kernel-alike",
        "Kernel G.A. performs like ReLU",
        "within",
        tuple(on("kernel-ga", "relu", film) for film in FILMS),
    )
    yield claim(
        "table-2",
        "The means of Table 2 (within 0.1 stars)",
        "within",
        tuple(
            Contrast(f"{name(method)}, {FILMS[film]}, minus the paper's", ((1.0, rating(method, film)),), number)
            for (method, _), line in TABLE_2.items()
            for film, number in line.items()
        ),
        margin=table_margin,
        family="table",
    )
    yield claim(
        "beats-constant",
        "Every network outperforms a constant on every film",
        "below",
        tuple(
            minus(
                f"{name(method)} - a constant, {FILMS[film]}",
                rating(method, film),
                at(CONSTANT, kind="baseline", condition={"film": film}),
            )
            for method in NETWORKS
            for film in FILMS
        ),
        where="here",
        family="questions",
    )
