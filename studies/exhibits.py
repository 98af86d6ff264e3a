"""Networks in the settings of the paper's exhibits, and contrasts of them that several claims consist of."""

from evidence import Contrast, at, minus
from graphact.registry import POINTWISE as EVERY_POINTWISE
from graphact_lab.experiments.recommendation.experiment import FILMS
from graphact_lab.style import Variant

OTHERS = ("max-l", "max-ga", "median-l", "median-ga", "kernel-ga")
NETWORKS = ("relu", *OTHERS)
POINTWISE = tuple(method for method in EVERY_POINTWISE if method != "identity")  # the identity is FIR
LOCALIZED = {"max-ga": "max-l", "median-ga": "median-l"}
# Baselines, as rows name them
CONSTANT, RIDGE = "mean of the training ratings", "ridge regression on the user's centred ratings"
WIENER, LINEAR = "centralised Wiener filter", "centralised linear least squares on all stations"


def name(method):
    return Variant(method, None).style.short


def localizing(method, features, hops=None, order=4):
    usual = {"max-ga": 2, "median-ga": 2, "kernel-ga": 1, "max-l": 1, "median-l": 1}.get(method)
    return at(method, hops=hops or usual, features=features, order=order)


def agreeing(method, order=None, loss=None):
    """Consensus at an order or, where none is given, at the best of those at which all were run with lost links."""
    where = {"hops": 1 if method in OTHERS else None, "condition": {} if loss is None else {"loss_probability": loss}}
    if order is None:
        return at(method, best=("order",), peers=("fir", *NETWORKS), **where)
    return at(method, order=order, **where)


def averaging(order, loss=None):
    """The linear filter with Metropolis weights of the links that are left."""
    condition = {} if loss is None else {"loss_probability": loss}
    return at(f"least-squares filter of order {order} with Metropolis weights", kind="baseline", condition=condition)


def denoising(method, order=1, features=4, snr=3.0):
    hops = 1 if method in OTHERS else None
    return at(method, hops=hops, features=features, order=order, condition={"snr_db": snr})


def rating(method, film):
    return at(method, hops=1 if method in OTHERS else None, condition={"film": film})


def added(loss, method):
    """The terms of what lost links add to the error, each method at its best order, the same with and without."""
    return ((1.0, agreeing(method, loss=loss)), (-1.0, agreeing(method)))


def less(first, second):
    """The terms of a difference of sums."""
    return (*first, *((-weight, where) for weight, where in second))


def over_films(first, second):
    """The mean over the three films of a difference."""
    terms = [((1 / 3, rating(first, film)), (-1 / 3, rating(second, film))) for film in FILMS]
    return Contrast(f"{name(first)} - {name(second)}, three films", sum(terms, ()), across_nodes=True)


def at_widths(first, second, widths=(2, 4, 8), first_hops=None, second_hops=None):
    words = [name(m) + (f" ({h})" if h else "") for m, h in ((first, first_hops), (second, second_hops))]
    return tuple(
        minus(f"{words[0]} - {words[1]}, F = {f}", localizing(first, f, first_hops), localizing(second, f, second_hops))
        for f in widths
    )


def for_each(methods, make):
    return sum((tuple(make(method)) for method in methods), ())
