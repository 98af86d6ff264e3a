"""The published numbers that ours are set beside."""

from collections.abc import Hashable, Mapping
from typing import NamedTuple

CITATION = (
    "B. Iancu, L. Ruiz, A. Ribeiro and E. Isufi, “Graph-Adaptive Activation Functions for Graph Neural Networks”, "
    "IEEE International Workshop on Machine Learning for Signal Processing (MLSP), 2020"
)


class Published(NamedTuple):
    """A mean and standard deviation as printed."""

    mean: float
    std: float


PublishedTable = Mapping[tuple[str, int | None], Mapping[Hashable, Published]]

# Test accuracy in percent by (activation, hops) and number of features F. None: the paper does not state the hops.
TABLE_1: PublishedTable = {
    ("relu", None): {2: Published(47.9, 12.1), 4: Published(44.9, 15.6), 8: Published(47.2, 15.5)},
    ("max-l", None): {2: Published(64.5, 8.0), 4: Published(69.7, 8.6), 8: Published(72.2, 7.7)},
    ("max-ga", 2): {2: Published(64.9, 7.6), 4: Published(69.2, 7.0), 8: Published(73.9, 6.8)},
    ("median-l", None): {2: Published(61.6, 7.4), 4: Published(65.1, 8.3), 8: Published(69.6, 7.2)},
    ("median-ga", 2): {2: Published(65.4, 7.5), 4: Published(65.6, 7.6), 8: Published(71.3, 7.1)},
    ("kernel-ga", 1): {2: Published(58.6, 9.5), 4: Published(57.4, 10.2), 8: Published(61.9, 10.7)},
}


def by_film(toy_story: Published, contact: Published, jedi: Published) -> Mapping[Hashable, Published]:
    """One row of Table 2, in its order of columns."""
    return {"toy-story": toy_story, "contact": contact, "return-of-the-jedi": jedi}


# Test RMSE by (activation, hops) and film
TABLE_2: PublishedTable = {
    ("relu", None): by_film(Published(0.976, 0.158), Published(1.022, 0.042), Published(1.018, 0.177)),
    ("max-l", 1): by_film(Published(0.999, 0.166), Published(1.028, 0.029), Published(1.001, 0.162)),
    ("max-ga", 1): by_film(Published(0.968, 0.168), Published(1.018, 0.038), Published(0.998, 0.172)),
    ("median-l", 1): by_film(Published(0.987, 0.156), Published(1.039, 0.055), Published(1.020, 0.177)),
    ("median-ga", 1): by_film(Published(0.989, 0.160), Published(1.020, 0.038), Published(1.021, 0.181)),
    ("kernel-ga", 1): by_film(Published(0.977, 0.152), Published(1.021, 0.037), Published(1.014, 0.177)),
}


def published(table: PublishedTable, method: str, hops: int | None) -> Mapping[Hashable, Published]:
    """The row of a table for a method; a row whose hops are not stated stands beside every number of hops.

    Example:
        >>> from graphact.experiments.report.paper import TABLE_1, published
        >>> published(TABLE_1, "max-ga", 2)[8], published(TABLE_1, "max-ga", 1)
        (Published(mean=73.9, std=6.8), {})
    """
    return table.get((method, hops)) or table.get((method, None)) or {}
