r"""What guarantees know about operations of a neighbourhood: one rule for each.

An operation without an entry in ``OPERATIONS`` is refused, so a new one needs a rule here and nothing else. The rule of
an operation f gets the activation, values at all nodes, and the neighbours ``(n, d)`` of the nodes ``(n,)``, where d
may be 0:

- ``constants``: what a hop adds to the Lipschitz constants of the activation, ``(n, F)``; ``rows`` are those of S^k.
- ``differences``: forms ``(M, n, F)`` of differences of f, and how far the actual ones are from these, ``(n, F)``.
- ``enclose``: centre, generators and slack of f of forms without slack.
- ``move``: how far f can move when values do by at most the errors ``(..., N, F)``.
- ``loss``: how far f can move when up to ``lost`` of the neighbours vanish and values stay.

The proofs are in docs/guarantees.md.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from graphact.spec import HopMixture
from graphact.spec.operations import KERNEL, LOG_MEAN_EXP, MAX, MEAN, MEDIAN, MIN, TRIMMED_MEAN, Operation

if TYPE_CHECKING:
    from graphact.guarantees.powers import PowerRows

MOST_ENTRIES = 20_000_000  # of a table of values in memory at once, 160 MB
MOST_GRAM_COLUMNS = 512
STEEPEST_GAUSSIAN = math.exp(-0.5)  # the largest slope of exp(-t^2 / 2)
GREATEST_CURVATURE = 2 * math.exp(-1.5)  # of the same, above; below it is -1


def gather(x: Tensor, table: Tensor) -> Tensor:
    """The values of a table of nodes: ``(..., N, F)`` to ``(..., n, d, F)``."""
    return x[..., table, :]


def safe_sqrt(x: Tensor) -> Tensor:
    """The square root, with gradient 0 at 0."""
    return torch.where(x > 0, torch.where(x > 0, x, 1.0).sqrt(), 0.0)


@dataclass(frozen=True)
class OrderStatistic:
    """Max, min, lower median: the value at some place in ascending order, which depends on how many there are."""

    operation: Operation
    place: Callable[[int], int]

    def constants(self, layer: HopMixture, hop: int, rows: "PowerRows", nodes: Tensor, table: Tensor) -> Tensor:
        """The largest row among the neighbours; in the first hop together with the pointwise term."""
        weight, norms = layer.weights[hop].abs(), rows.norms[table]
        if table.size(-1) == 0:
            return weight * norms.sum(1)
        if hop > 0:
            return weight * norms.amax(1)
        # beta e_i + h S_j while the ReLU is on, h S_j while it is off; less beta, which the sum has already
        own = rows.entries(table, nodes.unsqueeze(-1)).unsqueeze(-1)
        on = weight * (norms - own.abs()) + (layer.beta + layer.weights[hop] * own).abs()
        return torch.maximum(on, weight * norms).amax(1) - layer.beta.abs()

    def differences(
        self, _layer: HopMixture, forms: Tensor, _thorough: bool, _nodes: Tensor, table: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The middle of the forms among which a node selects, and the farthest of them; without any, zeros."""
        near = gather(forms, table)
        if table.size(-1) == 0:
            return near.sum(2), near.sum(2)[0]
        middle = near.mean(2)
        return middle, (near - middle.unsqueeze(2)).abs().sum(0).amax(1)

    def largest(self, layer: HopMixture, errors: Tensor, nodes: Tensor, table: Tensor) -> Tensor:
        """How far f can move, without what limits it."""
        return self.move(layer, errors, nodes, table)

    def enclose(
        self, layer: HopMixture, centre: Tensor, generators: Tensor, _nodes: Tensor, table: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """With the mean m of all forms that may be the selected one, f(y) = m + f(y - m); f is monotone.

        So it lies between f of the lower and f of the upper ends of y - m.
        """
        centre, generators = gather(centre, table), gather(generators, table)
        if table.size(-1) == 0:
            empty = centre.sum(-2)
            return empty, generators.sum(-2), empty.clone()
        share = self.shares(layer, centre, generators.abs().sum(1))
        middle, shared = (share * centre).sum(-2), (share.unsqueeze(1) * generators).sum(-2)
        apart = (generators - shared.unsqueeze(-2)).abs().sum(1)
        offset = centre - middle.unsqueeze(-2)
        lower, upper = self.select(layer, offset - apart), self.select(layer, offset + apart)
        return middle + (lower + upper) / 2, shared, (upper - lower) / 2

    def shares(self, layer: HopMixture, centre: Tensor, radius: Tensor) -> Tensor:
        """Equal ones for those that may be the selected one."""
        least, most = self.select(layer, centre - radius), self.select(layer, centre + radius)
        possible = (centre + radius >= least.unsqueeze(-2)) & (centre - radius <= most.unsqueeze(-2))
        return possible / possible.sum(-2, keepdim=True)

    def select(self, layer: HopMixture, values: Tensor) -> Tensor:
        """The operation over the second last dimension, which is not empty."""
        return self.operation(values[..., :1, :], values, layer.parameters)

    def move(self, _layer: HopMixture, errors: Tensor, _nodes: Tensor, table: Tensor) -> Tensor:
        """By the largest move of a neighbour."""
        near = gather(errors, table)
        return near.amax(-2) if table.size(-1) else near.sum(-2)

    def loss(
        self, layer: HopMixture, centre: Tensor, radius: Tensor, _nodes: Tensor, table: Tensor, lost: int
    ) -> Tensor:
        """By the difference of values at near places; a closed neighbourhood keeps at least the node itself."""
        low, high = gather(centre - radius, table), gather(centre + radius, table)
        return self.largest_change(low, high, lost, may_be_empty=not layer.closed)

    def largest_change(self, low: Tensor, high: Tensor, lost: int, *, may_be_empty: bool) -> Tensor:
        """The largest change when up to ``lost`` of d members between low and high ``(..., d, F)`` are lost.

        The value of the neighbourhood without members, where it may be empty, is 0.
        """
        if lost == 0:
            return torch.zeros_like(low.sum(-2))
        low, high = low.sort(-2).values, high.sort(-2).values
        count = low.size(-2)
        place = self.place(count)
        before_low, before_high = low[..., place, :], high[..., place, :]
        change = torch.zeros_like(before_low)
        for fewer in range(1, min(lost, count - 1) + 1):
            # what stands at a place of the members left stood there before, or up to `fewer` places above
            left = self.place(count - fewer)
            after_low, after_high = low[..., left, :], high[..., left + fewer, :]
            change = torch.maximum(change, torch.maximum(after_high - before_low, before_high - after_low))
        if lost == count and may_be_empty:
            change = torch.maximum(change, torch.maximum(before_low.abs(), before_high.abs()))
        return change


class MonotoneMean(OrderStatistic):
    """A function that is monotone in every value and moves with them by a constant, whatever their order.

    All that is known about order statistics holds for it, but for what lost neighbours change.
    """

    def __init__(self, operation: Operation) -> None:
        super().__init__(operation, lambda _: 0)

    def shares(self, _layer: HopMixture, centre: Tensor, _radius: Tensor) -> Tensor:
        """Equal ones for all; whatever they are, what is certified holds."""
        return torch.full_like(centre, 1 / centre.size(-2))

    def loss(
        self, layer: HopMixture, centre: Tensor, radius: Tensor, _nodes: Tensor, table: Tensor, lost: int
    ) -> Tensor:
        """By the difference to the function of those left, which is largest when the lowest (highest) are lost."""
        low, high = (gather(values, table).sort(-2).values for values in (centre - radius, centre + radius))
        change = torch.zeros_like(low.sum(-2))
        if lost == 0:
            return change
        before_low, before_high = self.select(layer, low), self.select(layer, high)
        count = low.size(-2)
        for fewer in range(1, min(lost, count - 1) + 1):
            after_low = self.select(layer, low[..., : count - fewer, :])
            after_high = self.select(layer, high[..., fewer:, :])
            change = torch.maximum(change, torch.maximum(after_high - before_low, before_high - after_low))
        if lost == count and not layer.closed:
            change = torch.maximum(change, torch.maximum(before_low.abs(), before_high.abs()))
        return change


class LinearMean(MonotoneMean):
    """The plain mean, whose differences and values are known exactly."""

    def differences(
        self, layer: HopMixture, forms: Tensor, thorough: bool, nodes: Tensor, table: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The middle of the forms, and nothing beside it."""
        middle, apart = super().differences(layer, forms, thorough, nodes, table)
        return middle, torch.zeros_like(apart)

    def enclose(
        self, _layer: HopMixture, centre: Tensor, generators: Tensor, _nodes: Tensor, table: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The mean of the forms."""
        divisor = max(1, table.size(-1))
        middle, shared = (gather(part, table).sum(-2) / divisor for part in (centre, generators))
        return middle, shared, torch.zeros_like(middle)


class GaussianKernel:
    """The kernel of the distances between a node and its neighbours, of width ``gamma``."""

    def constants(self, layer: HopMixture, hop: int, rows: "PowerRows", nodes: Tensor, table: Tensor) -> Tensor:
        """The slope of the Gaussian times the largest differences of rows."""
        return layer.weights[hop].abs() * STEEPEST_GAUSSIAN / gamma_of(layer) * rows.longest(nodes, table)

    def differences(
        self, layer: HopMixture, forms: Tensor, thorough: bool, nodes: Tensor, table: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Nothing is known of the direction; the size is that of the slope and the differences of forms."""
        own = gather(forms, nodes)
        differences = gather(forms, table) - own.unsqueeze(-2)
        return torch.zeros_like(own), STEEPEST_GAUSSIAN / gamma_of(layer) * longest(differences, thorough)

    def enclose(
        self, layer: HopMixture, centre: Tensor, generators: Tensor, nodes: Tensor, table: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """By its range or by its tangent plane, whichever is narrower."""
        gamma = gamma_of(layer)
        offset = gather(centre, table) - centre[..., nodes, None, :]
        apart = gather(generators, table) - generators[..., nodes, None, :]
        radius = apart.abs().sum(1)
        nearest = (offset.abs() - radius).clamp_min(0).square().sum(-2)
        farthest = (offset.abs() + radius).square().sum(-2)
        least, most = (torch.exp(-spread / (2 * gamma**2)) for spread in (farthest, nearest))
        half = (most - least) / 2

        value = torch.exp(-offset.square().sum(-2) / (2 * gamma**2))
        tangent = -(apart * (offset * value.unsqueeze(-2)).unsqueeze(1)).sum(-2) / gamma**2
        bend = radius.square().sum(-2) / (2 * gamma**2)
        bent_half = bend * (1 + GREATEST_CURVATURE) / 2
        bent_value = value + bend * (GREATEST_CURVATURE - 1) / 2

        straight = tangent.abs().sum(1) + bent_half < half
        return (
            torch.where(straight, bent_value, least + half),
            torch.where(straight.unsqueeze(1), tangent, 0.0),
            torch.where(straight, bent_half, half),
        )

    def move(self, layer: HopMixture, errors: Tensor, nodes: Tensor, table: Tensor) -> Tensor:
        """By the slope times the moves of the offsets, and never by more than 1."""
        return self.largest(layer, errors, nodes, table).clamp_max(1.0)

    def largest(self, layer: HopMixture, errors: Tensor, nodes: Tensor, table: Tensor) -> Tensor:
        """How far f can move, without what limits it."""
        apart = gather(errors, table) + gather(errors, nodes).unsqueeze(-2)
        return STEEPEST_GAUSSIAN / gamma_of(layer) * safe_sqrt(apart.square().sum(-2))

    def loss(
        self, layer: HopMixture, centre: Tensor, radius: Tensor, nodes: Tensor, table: Tensor, lost: int
    ) -> Tensor:
        """By the factor that the farthest of the lost ones had."""
        offset = (gather(centre, table) - gather(centre, nodes).unsqueeze(-2)).abs()
        loose = gather(radius, table) + gather(radius, nodes).unsqueeze(-2)
        near, far = (offset - loose).clamp_min(0).square(), (offset + loose).square()
        least_left = near.topk(near.size(-2) - lost, -2, largest=False).values.sum(-2)
        most_lost = far.topk(lost, -2).values.sum(-2)
        width = 2 * gamma_of(layer) ** 2
        return torch.exp(-least_left / width) * -torch.expm1(-most_lost / width)


def gamma_of(layer: HopMixture) -> Tensor:
    """The width of the Gaussian as a float64 scalar; gradients flow to a trained one."""
    return torch.as_tensor(layer.parameters["gamma"], dtype=torch.float64)


def longest(differences: Tensor, thorough: bool = True) -> Tensor:
    r"""A bound on :math:`\max_{\|q\|_2 \le 1} \|q^\top D\|_1` for every node and feature of ``(M, n, d, F)``.

    With the signs s of the result it is :math:`\max_s \|D s\|_2 \le (\sum_{ab} |D^\top D|_{ab})^{1/2}
    \le (\sum_j \|D_j\|_1^2)^{1/2}`; the first is computed where it is asked for and M is small.
    """
    columns, nodes, _, features = differences.shape
    if columns > MOST_GRAM_COLUMNS or not thorough:
        return safe_sqrt(differences.abs().sum(0).square().sum(1))
    rows = differences.permute(1, 3, 2, 0).flatten(0, 1)
    step = max(1, MOST_ENTRIES // (columns * columns))
    norms = [(part.mT @ part).abs().sum((-2, -1)) for part in rows.split(step)]
    return safe_sqrt(torch.cat(norms)).view(nodes, features)


OPERATIONS: dict[Operation, OrderStatistic | GaussianKernel] = {
    MAX: OrderStatistic(MAX, lambda count: count - 1),
    MIN: OrderStatistic(MIN, lambda _: 0),
    MEDIAN: OrderStatistic(MEDIAN, lambda count: (count - 1) // 2),
    KERNEL: GaussianKernel(),
    MEAN: LinearMean(MEAN),
    **{operation: MonotoneMean(operation) for operation in (LOG_MEAN_EXP, TRIMMED_MEAN)},
}
