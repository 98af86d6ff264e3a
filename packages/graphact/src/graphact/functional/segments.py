"""Means of neighbourhoods by operations over all edges.

A user's own function runs once for each distinct degree; the functions here take the same number of operations on
every graph, and memory proportional to the edges. Torch differentiates them, in any order.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from graphact.graph import Neighborhoods
from graphact.kernels.reference import accumulation_dtype
from graphact.spec.reductions import (
    LOG_MEAN_EXP,
    MEAN,
    OPERATIONS,
    STD,
    TRIMMED_MEAN,
    WEIGHTED_MEAN,
    Operation,
    count_trimmed,
)


class Segments(NamedTuple):
    """The edges by target: targets and sources, ``(E,)``, and the in-degree of each node, ``(N,)``."""

    rows: Tensor
    cols: Tensor
    degree: Tensor

    @classmethod
    def of(cls, lists: Neighborhoods, closed: bool) -> "Segments":
        """Return the segments of neighbour lists; closed neighbourhoods add the nodes themselves after all edges."""
        if not closed:
            return cls(lists.rows, lists.col, lists.degree)
        nodes = torch.arange(lists.num_nodes, device=lists.col.device)
        return cls(torch.cat([lists.rows, nodes]), torch.cat([lists.col, nodes]), lists.degree + 1)

    def at_rows(self, x: Tensor) -> Tensor:
        return x.index_select(-2, self.rows)

    def at_cols(self, x: Tensor) -> Tensor:
        return x.index_select(-2, self.cols)

    def sum(self, values: Tensor) -> Tensor:
        """Sum values ``(..., E, F)`` of edges to ``(..., N, F)``."""
        zeros = values.new_zeros(*values.shape[:-2], self.degree.numel(), values.size(-1))
        return zeros.index_add(-2, self.rows, values)

    def extreme(self, values: Tensor, which: str) -> Tensor:
        """Return the largest ("amax") or smallest value of each segment, 0 for an empty one; without gradients."""
        zeros = values.new_zeros(*values.shape[:-2], self.degree.numel(), values.size(-1))
        index = self.rows.unsqueeze(-1).expand_as(values)
        return zeros.scatter_reduce(-2, index, values, which, include_self=False)

    def divisor(self, x: Tensor) -> Tensor:
        """Return the degrees to divide by, 1 for an empty neighbourhood."""
        return self.degree.clamp_min(1).to(x.dtype).unsqueeze(-1)

    @property
    def is_empty(self) -> Tensor:
        return self.degree.unsqueeze(-1) == 0


def mean(x: Tensor, lists: Neighborhoods, closed: bool) -> Tensor:
    """Mean; 0 for an empty neighbourhood."""
    segments = Segments.of(lists, closed)
    return segments.sum(segments.at_cols(x)) / segments.divisor(x)


def std(x: Tensor, lists: Neighborhoods, closed: bool) -> Tensor:
    """Population standard deviation, of differences to one of the neighbours; 0 for an empty neighbourhood."""
    segments = Segments.of(lists, closed)
    first = segments.cols.new_zeros(lists.num_nodes).scatter(0, segments.rows, segments.cols)  # any one of them
    values = segments.at_cols(x)
    apart = values - segments.at_rows(x.index_select(-2, first))
    apart = apart - segments.at_rows(segments.sum(apart) / segments.divisor(x))
    variance = segments.sum(apart.square()) / segments.divisor(x)
    is_zero = variance == 0
    return torch.where(is_zero, 0.0, torch.where(is_zero, 1.0, variance).sqrt())


def log_mean_exp(x: Tensor, lists: Neighborhoods, closed: bool, temperature: float | Tensor) -> Tensor:
    """Soft maximum; the maximum is subtracted first, so that nothing overflows, and gets no gradient."""
    segments = Segments.of(lists, closed)
    values = segments.at_cols(x)
    top = segments.extreme(values.detach(), "amax")
    top = torch.where(top.isfinite(), top, 0.0)
    total = segments.sum(((values - segments.at_rows(top)) / temperature).exp())
    mean = torch.where(segments.is_empty, 1.0, total / segments.divisor(x))
    return top + temperature * mean.log()


def trimmed_mean(x: Tensor, lists: Neighborhoods, closed: bool, trim: float) -> Tensor:
    """Mean without the values at both ends: nodes are ranked once, then edges sorted by (node, rank)."""
    segments, nodes = Segments.of(lists, closed), lists.num_nodes
    ascending, order = x.sort(dim=-2, stable=True)
    places = torch.arange(nodes, device=x.device).unsqueeze(-1).expand_as(order)
    rank = torch.zeros_like(order).scatter(-2, order, places)
    keys = (segments.rows.unsqueeze(-1) * nodes + segments.at_cols(rank)).sort(dim=-2).values
    values, rows = ascending.gather(-2, keys % nodes), segments.rows.sort().values
    first = segments.degree.cumsum(0) - segments.degree
    slot = torch.arange(rows.numel(), device=x.device) - first[rows]
    cut = count_trimmed(segments.degree, trim)
    is_left = (slot >= cut[rows]) & (slot < (segments.degree - cut)[rows])
    kept = torch.where(is_left.unsqueeze(-1) | values.isnan(), values, 0.0)  # NaN in, NaN out
    total = kept.new_zeros(x.shape).index_add(-2, rows, kept)
    return total / (segments.degree - 2 * cut).clamp_min(1).to(x.dtype).unsqueeze(-1)


def weighted_mean(x: Tensor, lists: Neighborhoods, closed: bool, width: float | Tensor) -> Tensor:
    """Mean with Gaussian weights; the nearest neighbour has the weight 1 before normalisation."""
    segments = Segments.of(lists, closed)
    values = segments.at_cols(x)
    apart = segments.at_rows(x) - values
    squares = apart.square()
    nearest = segments.extreme(squares.detach(), "amin")
    weight = ((segments.at_rows(nearest) - squares) / (2 * width**2)).exp()
    total = torch.where(segments.is_empty, 1.0, segments.sum(weight))
    return segments.sum(weight * values) / total


def has_segments(op: Operation, x: Tensor) -> bool:
    """Return whether an operation is evaluated here; a CPU sorts many short lists faster than all edges."""
    known = op.name in BY_SEGMENTS and OPERATIONS[op.name] is op
    return known and not (op is TRIMMED_MEAN and x.device.type == "cpu")


BY_SEGMENTS: dict[str, Callable[..., Tensor]] = {  # torch.compile cannot look operations up by identity
    MEAN.name: mean,
    STD.name: std,
    LOG_MEAN_EXP.name: log_mean_exp,
    TRIMMED_MEAN.name: trimmed_mean,
    WEIGHTED_MEAN.name: weighted_mean,
}


def evaluate_segments(
    x: Tensor, lists: Neighborhoods, op: Operation, parameters: Mapping[str, float | Tensor], closed: bool
) -> Tensor:
    """Evaluate one of these operations; in half precision, sums are computed in float32."""
    wide = accumulation_dtype(x.dtype)
    values = {name: value.to(wide) if isinstance(value, Tensor) else value for name, value in parameters.items()}
    return BY_SEGMENTS[op.name](x.to(wide), lists, closed, **values).to(x.dtype)
