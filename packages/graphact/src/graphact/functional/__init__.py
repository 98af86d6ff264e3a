"""The mathematics: pure functions of a signal, a graph and coefficients."""

from graphact.functional.activation import graph_adaptive, graph_adaptive_mixture, localized
from graphact.functional.adaptive_filter import adaptive_filter
from graphact.functional.convolution import edge_varying
from graphact.functional.cpab import cpab
from graphact.functional.elementwise import pointwise
from graphact.functional.filter import graph_filter
from graphact.functional.gated import grelu, max_k
from graphact.functional.neighborhood import (
    neighborhood_apply,
    neighborhood_kernel,
    neighborhood_max,
    neighborhood_median,
    neighborhood_min,
    shift,
)

__all__ = [
    "adaptive_filter",
    "cpab",
    "edge_varying",
    "graph_adaptive",
    "graph_adaptive_mixture",
    "graph_filter",
    "grelu",
    "localized",
    "max_k",
    "neighborhood_apply",
    "neighborhood_kernel",
    "neighborhood_max",
    "neighborhood_median",
    "neighborhood_min",
    "pointwise",
    "shift",
]
