"""The mathematics: pure functions of a signal, a graph and coefficients."""

from graphact.functional.activation import graph_adaptive, localized
from graphact.functional.elementwise import pointwise
from graphact.functional.filter import graph_filter
from graphact.functional.neighborhood import (
    neighborhood_apply,
    neighborhood_kernel,
    neighborhood_max,
    neighborhood_median,
    neighborhood_min,
    shift,
)

__all__ = [
    "graph_adaptive",
    "graph_filter",
    "localized",
    "neighborhood_apply",
    "neighborhood_kernel",
    "neighborhood_max",
    "neighborhood_median",
    "neighborhood_min",
    "pointwise",
    "shift",
]
