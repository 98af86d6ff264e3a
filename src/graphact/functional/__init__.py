"""The mathematics: pure functions of a signal, a graph and coefficients."""

from graphact.functional.filter import graph_filter
from graphact.functional.graph_adaptive import graph_adaptive
from graphact.functional.localized import localized
from graphact.functional.neighborhood import (
    neighborhood_apply,
    neighborhood_kernel,
    neighborhood_max,
    neighborhood_median,
    neighborhood_min,
)
from graphact.functional.shift import shift

__all__ = [
    "graph_adaptive",
    "graph_filter",
    "localized",
    "neighborhood_apply",
    "neighborhood_kernel",
    "neighborhood_max",
    "neighborhood_median",
    "neighborhood_min",
    "shift",
]
