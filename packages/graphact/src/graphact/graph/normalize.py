"""Rescaled shift operators. Every function maps (neighbour lists, weights, diagonal) to (weights, diagonal).

Sums and eigenvalues of weights near the ends of the floating-point range leave it. Then weights are first multiplied by
powers of two, which changes no digit of the result.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from graphact._checks import check_choice
from graphact.graph.eager import is_plain, outside_compiled_code
from graphact.graph.edges import check_finite, sum_by
from graphact.graph.neighborhoods import Neighborhoods
from graphact.graph.spectral_radius import spectral_radius

Normalization = Literal["spectral", "symmetric", "gcn", "random_walk", "laplacian"]
Weights = tuple[Tensor, Tensor | None]
SAFE_EXPONENT = {torch.float32: 100, torch.float64: 900}  # sums between 2^-e and 2^e, and what follows, are in range
POWERS = torch.tensor([2.0**power for power in range(-1022, 1023)], dtype=torch.float64)


@outside_compiled_code("eigenvalues are found in every call: normalise the graphact.Graph once and compile with it")
def spectral(incoming: Neighborhoods, weight: Tensor, diagonal: Tensor | None) -> Weights:
    """S divided by its largest eigenvalue magnitude; the zero operator is returned unchanged."""
    if not weight.any() and (diagonal is None or not diagonal.any()):
        return weight, diagonal
    radius, exponent = spectral_radius(incoming, weight, diagonal)
    if radius == 0:
        raise ValueError(
            'kind "spectral" needs an eigenvalue that is not zero, and this operator has none, as graphs without '
            "cycles have none"
        )
    scaled, loops = (None if part is None else power_of_two(part, -exponent) / radius for part in (weight, diagonal))
    for part in (scaled, loops):
        if part is not None:
            check_finite('weights of kind "spectral"', part.detach())
    return scaled, loops  # type: ignore[return-value]


def symmetric(incoming: Neighborhoods, weight: Tensor, diagonal: Tensor | None, is_undirected: bool = False) -> Weights:
    """S divided by the square roots of its row and column sums of magnitudes, which are equal if it is undirected."""
    rows = incoming.rows
    across = inverse_sums(rows, weight, diagonal, incoming.num_nodes).sqrt()
    down = across if is_undirected else inverse_sums(incoming.col, weight, diagonal, incoming.num_nodes).sqrt()
    scaled = across.at(rows).times(down.at(incoming.col)).multiply(weight)
    return scaled, None if diagonal is None else across.times(down).multiply(diagonal)


def gcn(incoming: Neighborhoods, weight: Tensor, diagonal: Tensor | None) -> Weights:
    """S with self-loops of weight 1 where a node has none, divided by the square roots of its row sums at both ends."""
    rows, dtype = incoming.rows, torch.promote_types(weight.dtype, torch.float32)
    loops = weight.new_ones(incoming.num_nodes) if diagonal is None else torch.where(diagonal == 0, 1.0, diagonal)
    sums = sum_by(rows, weight.to(dtype), incoming.num_nodes) + loops
    across = torch.where(sums > 0, torch.where(sums > 0, sums, 1.0).rsqrt(), 0.0)
    scaled = weight * (across[rows] * across[incoming.col])
    return scaled.to(weight.dtype), (loops * across.square()).to(weight.dtype)


def random_walk(incoming: Neighborhoods, weight: Tensor, diagonal: Tensor | None) -> Weights:
    """S with each row divided by its sum of magnitudes."""
    rows = incoming.rows
    across = inverse_sums(rows, weight, diagonal, incoming.num_nodes)
    return across.at(rows).multiply(weight), None if diagonal is None else across.multiply(diagonal)


def laplacian(incoming: Neighborhoods, weight: Tensor, diagonal: Tensor | None) -> Weights:
    """Row sums on the diagonal minus S; self-loops cancel."""
    del diagonal
    sums = sum_by(incoming.rows, weight, incoming.num_nodes)
    return -weight, check_finite('row sums of kind "laplacian"', sums) if is_plain(sums) else sums


KINDS: dict[str, Callable[[Neighborhoods, Tensor, Tensor | None], Weights]] = {
    "spectral": spectral,
    "symmetric": symmetric,
    "gcn": gcn,
    "random_walk": random_walk,
    "laplacian": laplacian,
}


def check_normalize(normalize: Any) -> Normalization | None:
    """Return the kind by which a graph made from an edge_index is normalised; None leaves its weights unchanged."""
    return None if normalize is None else check_choice("normalize", normalize, tuple(KINDS))  # type: ignore[return-value]


class Factors(NamedTuple):
    """Numbers ``value * 2^exponent``; without exponents, where ``value`` alone stays in the floating-point range."""

    value: Tensor
    exponent: Tensor | None = None

    def sqrt(self) -> "Factors":
        """Return the square roots; exponents are even, and the derivative at 0 is 0."""
        empty = self.value == 0
        root = torch.where(empty, 0.0, torch.where(empty, 1.0, self.value).sqrt())
        return Factors(root, None if self.exponent is None else self.exponent // 2)

    def at(self, index: Tensor) -> "Factors":
        return Factors(self.value[index], None if self.exponent is None else self.exponent[index])

    def times(self, other: "Factors") -> "Factors":
        exponents = [each for each in (self.exponent, other.exponent) if each is not None]
        return Factors(self.value * other.value, sum(exponents[1:], exponents[0]) if exponents else None)

    def multiply(self, weight: Tensor) -> Tensor:
        """The weights times these numbers."""
        if self.exponent is None:
            return (weight * self.value).to(weight.dtype)
        return (power_of_two(weight.to(self.value.dtype), self.exponent) * self.value).to(weight.dtype)


def inverse_sums(index: Tensor, weight: Tensor, diagonal: Tensor | None, num_nodes: int) -> Factors:
    """Return 1 over the sum of |S| over the entries that share an index, and 0 where a node has no weight."""
    dtype = torch.promote_types(weight.dtype, torch.float32)
    is_wide = weight.is_cuda and dtype == torch.float32
    if is_wide:
        dtype = torch.float64  # whose range no sum leaves, so that nothing waits for the device
    weight, diagonal = weight.abs().to(dtype), None if diagonal is None else diagonal.abs()
    sums = sum_by(index, weight, num_nodes)
    sums = sums if diagonal is None else sums + diagonal
    empty, exponent = sums == 0, None
    if not is_wide and is_out_of_range(sums):
        largest = weight.detach().new_zeros(num_nodes).scatter_reduce(0, index, weight.detach(), "amax")
        largest = largest if diagonal is None else torch.maximum(largest, diagonal.detach())
        exponent = -(torch.frexp(largest).exponent + 1) // 2 * 2  # even, and no sum of magnitudes overflows
        sums = sum_by(index, power_of_two(weight, exponent[index]), num_nodes)
        sums = sums if diagonal is None else sums + power_of_two(diagonal.to(dtype), exponent)
    return Factors(torch.where(empty, 0.0, 1.0 / torch.where(empty, 1.0, sums)), exponent)


def is_out_of_range(sums: Tensor) -> bool:
    """Return true if sums of magnitudes, or their inverses, leave the floating-point range."""
    if not is_plain(sums) or sums.numel() == 0:
        return False
    bound = 2.0 ** SAFE_EXPONENT[sums.dtype]
    known = sums.detach()
    return not bool((known.max() < bound) & (torch.where(known == 0, 1.0, known).min() > 1 / bound))


def power_of_two(values: Tensor, exponent: "Tensor | int") -> Tensor:
    """``values * 2^exponent`` in two steps: one factor alone may leave the range where the product does not."""
    if isinstance(exponent, int):
        return values if exponent == 0 else values * 2.0 ** (exponent // 2) * 2.0 ** (exponent - exponent // 2)
    powers = POWERS.to(values.device)
    first = exponent // 2
    return values * powers[first + 1022].to(values.dtype) * powers[exponent - first + 1022].to(values.dtype)
