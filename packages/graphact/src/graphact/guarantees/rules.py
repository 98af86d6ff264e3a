r"""Rules of the guarantees: one for each operation on a neighbourhood and for each pointwise function.

A function without a rule is refused. A new operation needs a rule here, its rounding terms (``size_at_zero`` and
``propagate_rounding_error`` in layers.py, ``propagate_change`` in topology.py) and, unless it is a MonotoneMean,
``max_change``. Losses of links are tried only if it is in ``ENUMERATED`` of link_loss.py. The rule of an operation f
gets the activation, values at all nodes, and the neighbours ``(n, d)`` of the nodes ``(n,)``, where d may be 0:

- ``constants``: the Lipschitz constants that a hop adds, ``(n, F)``; ``rows`` are those of S^k.
- ``differences``: forms ``(M, n, F)`` of differences of f, and the largest deviation from them, ``(n, F)``.
- ``enclose``: centre, generators and slack of f of forms without slack.
- ``move``: the largest change of f when values change by at most ``(..., N, F)``; never above ``max_change``.
- ``loss``: the largest change of f when up to ``num_lost`` neighbours vanish and values stay.

The proofs are in docs/guarantees.md.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from graphact.functional.elementwise import LEAK, pointwise
from graphact.spec import HopMixture, LayerNorm, Pointwise
from graphact.spec.reductions import KERNEL, LOG_MEAN_EXP, MAX, MEAN, MEDIAN, MIN, STD, TRIMMED_MEAN, Operation

if TYPE_CHECKING:
    from graphact.guarantees.lipschitz import PowerRows

MAX_ENTRIES = 20_000_000  # of a table of values in memory at once, 160 MB
MAX_GRAM_COLUMNS = 512
MAX_GAUSSIAN_SLOPE = math.exp(-0.5)  # the largest slope of exp(-t^2 / 2)
MAX_CURVATURE = 2 * math.exp(-1.5)  # of the same, above; below it is -1


def gather(x: Tensor, table: Tensor) -> Tensor:
    """Return the values of a table of nodes: ``(..., N, F)`` to ``(..., n, d, F)``."""
    return x[..., table, :]


def safe_sqrt(x: Tensor) -> Tensor:
    """Return the square root, with gradient 0 at 0."""
    return torch.where(x > 0, torch.where(x > 0, x, 1.0).sqrt(), 0.0)


def largest(near: Tensor) -> Tensor:
    """Return the largest value of each table ``(..., n, d, F)``; 0 without neighbours."""
    return near.amax(-2) if near.size(-2) else near.sum(-2)


class NonExpansive:
    """A function of the neighbours that moves by no more than the value that moves most."""

    max_change = math.inf

    def differences(
        self, _layer: HopMixture, forms: Tensor, _thorough: bool, _nodes: Tensor, table: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the mean of the forms, and the largest deviation from it."""
        near = gather(forms, table)
        middle = near.mean(2) if table.size(-1) else near.sum(2)
        return middle, largest((near - middle.unsqueeze(2)).abs().sum(0))

    def move(self, _layer: HopMixture, changes: Tensor, _nodes: Tensor, table: Tensor) -> Tensor:
        """Return the largest change of a neighbour."""
        return largest(gather(changes, table))


@dataclass(frozen=True)
class MonotoneMean(NonExpansive):
    """A function that is monotone in every value and commutes with adding a constant to all: an affine combination."""

    operation: Operation

    def constants(self, layer: HopMixture, hop: int, rows: "PowerRows", nodes: Tensor, table: Tensor) -> Tensor:
        """Return the largest row norm among the neighbours; in the first hop together with the pointwise term."""
        weight, norms = layer.weights[hop].abs(), rows.norms[table]
        if hop > 0 or table.size(-1) == 0:
            return weight * largest(norms)
        # beta e_i + h S_j while the ReLU is on, h S_j while it is off; less beta, which the sum has already
        own = rows.entries(table, nodes.unsqueeze(-1)).unsqueeze(-1)
        on = weight * (norms - own.abs()) + (layer.beta + layer.weights[hop] * own).abs()
        return torch.maximum(on, weight * norms).amax(1) - layer.beta.abs()

    def enclose(
        self, layer: HopMixture, centre: Tensor, generators: Tensor, _nodes: Tensor, table: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Use f(y) = m + f(y - m) with a mean m of the forms, and that f lies between f of the ends of y - m."""
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

    def shares(self, _layer: HopMixture, centre: Tensor, _radius: Tensor) -> Tensor:
        """Return the weights of the mean; any weights give a valid bound."""
        return torch.full_like(centre, 1 / centre.size(-2))

    def select(self, layer: HopMixture, values: Tensor) -> Tensor:
        """Apply the operation over the second last dimension, which is not empty."""
        return self.operation(values[..., :1, :], values, layer.parameters)

    def loss(
        self, layer: HopMixture, centre: Tensor, radius: Tensor, _nodes: Tensor, table: Tensor, num_lost: int
    ) -> Tensor:
        """Compare with f of what remains: at worst the lowest or the highest values are lost.

        A closed neighbourhood keeps at least the node itself; the value of one without members is 0.
        """
        low, high = (gather(values, table).sort(-2).values for values in (centre - radius, centre + radius))
        change, count = torch.zeros_like(low.sum(-2)), low.size(-2)
        if num_lost == 0:
            return change
        before_low, before_high = self.select(layer, low), self.select(layer, high)
        for fewer in range(1, min(num_lost, count - 1) + 1):
            after_low = self.select(layer, low[..., : count - fewer, :])
            after_high = self.select(layer, high[..., fewer:, :])
            change = torch.maximum(change, torch.maximum(after_high - before_low, before_high - after_low))
        if num_lost == count and not layer.closed:
            change = torch.maximum(change, torch.maximum(before_low.abs(), before_high.abs()))
        return change


class OrderStatistic(MonotoneMean):
    """Max, min, lower median: one of the values."""

    def shares(self, layer: HopMixture, centre: Tensor, radius: Tensor) -> Tensor:
        """Return equal weights for the values that can be selected."""
        least, most = self.select(layer, centre - radius), self.select(layer, centre + radius)
        possible = (centre + radius >= least.unsqueeze(-2)) & (centre - radius <= most.unsqueeze(-2))
        return possible / possible.sum(-2, keepdim=True)


class LinearMean(MonotoneMean):
    """The plain mean, whose differences and values are known exactly."""

    def differences(
        self, layer: HopMixture, forms: Tensor, thorough: bool, nodes: Tensor, table: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the mean of the forms, without deviation."""
        middle, apart = super().differences(layer, forms, thorough, nodes, table)
        return middle, torch.zeros_like(apart)

    def enclose(
        self, _layer: HopMixture, centre: Tensor, generators: Tensor, _nodes: Tensor, table: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the mean of the forms."""
        divisor = max(1, table.size(-1))
        middle, shared = (gather(part, table).sum(-2) / divisor for part in (centre, generators))
        return middle, shared, torch.zeros_like(middle)


class StandardDeviation(NonExpansive):
    """The population standard deviation, whose gradient has a 1-norm of at most 1 and the sum 0."""

    def constants(self, layer: HopMixture, hop: int, rows: "PowerRows", _nodes: Tensor, table: Tensor) -> Tensor:
        """Return the largest row norm among the neighbours."""
        return layer.weights[hop].abs() * largest(rows.norms[table])

    def differences(
        self, layer: HopMixture, forms: Tensor, thorough: bool, nodes: Tensor, table: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the largest deviation alone: the direction is unknown."""
        middle, apart = super().differences(layer, forms, thorough, nodes, table)
        return torch.zeros_like(middle), apart

    def enclose(
        self, layer: HopMixture, centre: Tensor, generators: Tensor, _nodes: Tensor, table: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Enclose by the value at the centre and the largest change, from 0 on."""
        centre, generators = gather(centre, table), gather(generators, table)
        unknown = torch.zeros_like(generators.sum(-2))
        if table.size(-1) == 0:
            return centre.sum(-2), unknown, centre.sum(-2)
        change = (generators - generators.mean(-2, keepdim=True)).abs().sum(1).amax(-2)
        value = STD(centre[..., :1, :], centre, layer.parameters)
        low, high = (value - change).clamp_min(0), value + change
        return (low + high) / 2, unknown, (high - low) / 2

    def loss(
        self, _layer: HopMixture, centre: Tensor, radius: Tensor, _nodes: Tensor, table: Tensor, num_lost: int
    ) -> Tensor:
        """Use that it is at most half the range of the values, with or without the lost ones."""
        low, high = (gather(values, table) for values in (centre - radius, centre + radius))
        if num_lost == 0 or table.size(-1) == 0:
            return torch.zeros_like(low.sum(-2))
        return (high.amax(-2) - low.amin(-2)) / 2


class GaussianKernel:
    """The Gaussian of the distances between a node and its neighbours, of width ``gamma``."""

    max_change = 1.0

    def constants(self, layer: HopMixture, hop: int, rows: "PowerRows", nodes: Tensor, table: Tensor) -> Tensor:
        """Return the slope of the Gaussian times the largest differences of rows."""
        return layer.weights[hop].abs() * MAX_GAUSSIAN_SLOPE / get_gamma(layer) * rows.longest(nodes, table)

    def differences(
        self, layer: HopMixture, forms: Tensor, thorough: bool, nodes: Tensor, table: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Bound the size by the slope times the differences of forms; the direction is unknown."""
        own = gather(forms, nodes)
        differences = gather(forms, table) - own.unsqueeze(-2)
        return torch.zeros_like(own), MAX_GAUSSIAN_SLOPE / get_gamma(layer) * longest(differences, thorough)

    def enclose(
        self, layer: HopMixture, centre: Tensor, generators: Tensor, nodes: Tensor, table: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Enclose by the range or by the tangent plane, whichever is narrower."""
        gamma = get_gamma(layer)
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
        bent_half = bend * (1 + MAX_CURVATURE) / 2
        bent_value = value + bend * (MAX_CURVATURE - 1) / 2

        straight = tangent.abs().sum(1) + bent_half < half
        return (
            torch.where(straight, bent_value, least + half),
            torch.where(straight.unsqueeze(1), tangent, 0.0),
            torch.where(straight, bent_half, half),
        )

    def move(self, layer: HopMixture, changes: Tensor, nodes: Tensor, table: Tensor) -> Tensor:
        """Return the slope times the change of the offsets."""
        apart = gather(changes, table) + gather(changes, nodes).unsqueeze(-2)
        return MAX_GAUSSIAN_SLOPE / get_gamma(layer) * safe_sqrt(apart.square().sum(-2))

    def loss(
        self, layer: HopMixture, centre: Tensor, radius: Tensor, nodes: Tensor, table: Tensor, num_lost: int
    ) -> Tensor:
        """Use the largest factor that the lost neighbours can have contributed."""
        offset = (gather(centre, table) - gather(centre, nodes).unsqueeze(-2)).abs()
        loose = gather(radius, table) + gather(radius, nodes).unsqueeze(-2)
        near, far = (offset - loose).clamp_min(0).square(), (offset + loose).square()
        least_left = near.topk(near.size(-2) - num_lost, -2, largest=False).values.sum(-2)
        most_lost = far.topk(num_lost, -2).values.sum(-2)
        width = 2 * get_gamma(layer) ** 2
        return torch.exp(-least_left / width) * -torch.expm1(-most_lost / width)


def get_gamma(layer: HopMixture) -> Tensor:
    """Return the width of the Gaussian as a float64 scalar; gradients flow to a trained one."""
    return torch.as_tensor(layer.parameters["gamma"], dtype=torch.float64)


def longest(differences: Tensor, thorough: bool = True) -> Tensor:
    r"""Bound :math:`\max_{\|q\|_2 \le 1} \|q^\top D\|_1` for every node and feature of ``(M, n, d, F)``.

    With the signs s of the result it is :math:`\max_s \|D s\|_2 \le (\sum_{ab} |D^\top D|_{ab})^{1/2}
    \le (\sum_j \|D_j\|_1^2)^{1/2}`; the first is computed where it is asked for and M is small.
    """
    columns, nodes, _, features = differences.shape
    if columns > MAX_GRAM_COLUMNS or not thorough:
        return safe_sqrt(differences.abs().sum(0).square().sum(1))
    rows = differences.permute(1, 3, 2, 0).flatten(0, 1)
    step = max(1, MAX_ENTRIES // (columns * columns))
    norms = [(part.mT @ part).abs().sum((-2, -1)) for part in rows.split(step)]
    return safe_sqrt(torch.cat(norms)).view(nodes, features)


OPERATIONS: dict[Operation, MonotoneMean | StandardDeviation | GaussianKernel] = {
    MAX: OrderStatistic(MAX),
    MIN: OrderStatistic(MIN),
    MEDIAN: OrderStatistic(MEDIAN),
    KERNEL: GaussianKernel(),
    MEAN: LinearMean(MEAN),
    STD: StandardDeviation(),
    **{operation: MonotoneMean(operation) for operation in (LOG_MEAN_EXP, TRIMMED_MEAN)},
}


SAMPLES = 16  # pieces of an interval in which a smooth function is enclosed
ROUNDING = 1e-14


@dataclass(frozen=True)
class PointwiseRule:
    r"""Slopes and linear enclosures of a function f of one value.

    ``slopes`` are the least and the largest of :math:`(f(a) - f(b)) / (a - b)`; ``band`` maps ends l, u to slope,
    offset and half height with :math:`|f(z) - (\lambda z + \mu)| \le \nu` for all z in [l, u].
    """

    slopes: tuple[float, float]
    band: Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]

    def apply(self, z: Tensor) -> Tensor:
        """Evaluate the function: around a single point the band has no height."""
        slope, offset, _ = self.band(z, z)
        return slope * z + offset

    @property
    def steepest(self) -> float:
        return max(abs(slope) for slope in self.slopes)


def relu_band(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Enclose ReLU: exactly if the sign is known, otherwise by the band of least height.

    The ends are divided by the larger of both first: :math:`u - l` may overflow, or be too small to divide by.
    """
    crossing = (lower < 0) & (upper > 0)
    near, far = (torch.where(crossing, pick(upper, -lower), 1.0) for pick in (torch.minimum, torch.maximum))
    width = 1 + near / far  # (u - l) / far
    slope = torch.where(crossing, torch.where(upper >= -lower, 1.0, near / far) / width, (lower >= 0).to(lower))
    half = torch.where(crossing, near / width / 2, 0.0)
    return slope, half, half


def leaky_relu(slope: Tensor | float) -> PointwiseRule:
    """Return the rule of x for x > 0 and slope * x otherwise; the slope may differ between features."""
    ends = [1.0, *torch.as_tensor(slope, dtype=torch.float64).detach().flatten().tolist()]

    def band(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        relu_slope, offset, half = relu_band(lower, upper)
        rest = 1 - torch.as_tensor(slope, dtype=lower.dtype, device=lower.device)
        return 1 - rest + rest * relu_slope, rest * offset, rest.abs() * half

    return PointwiseRule((min(ends), max(ends)), band)


def maxout(slope: Tensor, offset: Tensor) -> PointwiseRule:
    """Return the rule of the maximum of lines: a band along its chord, from the ends and where two lines cross."""
    pairs = [(i, j) for i in range(len(slope)) for j in range(i)]
    apart = [torch.where(slope[i] == slope[j], 1.0, slope[i] - slope[j]) for i, j in pairs]
    kinks = [(offset[j] - offset[i]) / each for (i, j), each in zip(pairs, apart, strict=True)]

    def band(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        inner = [torch.minimum(torch.maximum(kink.to(lower), lower), upper) for kink in kinks]
        function = partial(pointwise, function="maxout", slope=slope, offset=offset)
        return around_chord(function, torch.stack([lower, *inner, upper]))

    ends = slope.detach().flatten().tolist()
    return PointwiseRule((min(ends), max(ends)), band)


def smooth(function: Callable[[Tensor], Tensor], slopes: tuple[float, float], curvature: float) -> PointwiseRule:
    """Return the rule of a function with derivative in ``slopes``, whose Lipschitz constant is ``curvature``.

    Between two points h apart it leaves its chord by at most h (s_1 - s_0) / 4 and by at most curvature h^2 / 8; its
    values at a few points between l and u say the rest.
    """

    def band(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        share = torch.linspace(0, 1, SAMPLES + 1, dtype=lower.dtype).view(-1, *[1] * lower.dim())
        step = (upper - lower) / SAMPLES
        between = torch.minimum(step * (slopes[1] - slopes[0]) / 4, curvature * step.square() / 8)
        return around_chord(function, lower + share * (upper - lower), between)

    return PointwiseRule(slopes, band)


def around_chord(
    function: Callable[[Tensor], Tensor], points: Tensor, between: Tensor | float = 0.0
) -> tuple[Tensor, Tensor, Tensor]:
    """Return slope, offset and half height of a band along the chord of the outer points.

    ``between`` is how far the function may leave the lines between its values at the points.
    """
    values, width = function(points), points[-1] - points[0]
    slope = torch.where(width > 0, (values[-1] - values[0]) / torch.where(width > 0, width, 1.0), 0.0)
    beside = values - slope * points
    low, high = beside.amin(0), beside.amax(0)
    half = (high - low) / 2 + torch.where(width > 0, between + ROUNDING * (1 + values.abs().amax(0)), 0.0)
    return slope, (low + high) / 2, half


def elu(alpha: float) -> PointwiseRule:
    """Return the rule of ELU; its slope jumps from alpha to 1 unless they are equal."""
    slopes = min(0.0, alpha), max(1.0, alpha)
    function = lambda x: torch.where(x > 0, x, alpha * x.clamp_max(0).expm1())  # noqa: E731
    return smooth(function, slopes, 1.0 if alpha == 1 else math.inf)


def layer_norm_slope(features: int, epsilon: float, least: Tensor | float | None = None) -> Tensor:
    r"""Bound the change of an output of a LayerNorm without weights when its inputs change by at most 1.

    With :math:`s^2` the variance plus epsilon, at least ``least`` squared, a row of the Jacobian has the 1-norm of at
    most :math:`\sqrt{F-1}/s` and of at most :math:`(a + b)/s - b\,\epsilon/s^3`; see docs/guarantees.md.
    """
    least = torch.as_tensor(math.sqrt(epsilon) if least is None else least, dtype=torch.float64)
    if features < 2:
        return torch.zeros_like(least)
    ends, along = 2 * (1 - 1 / features), math.sqrt(features - 1)
    worst = least.clamp_min(math.sqrt(3 * along * epsilon / (ends + along)))
    return torch.minimum(along / least, (ends + along) / worst - along * epsilon / worst**3)


def layer_norm_box(layer: LayerNorm, centre: Tensor, radius: Tensor) -> tuple[Tensor, Tensor]:
    """Return a LayerNorm at the centre of a box ``(..., F)``, and the largest deviation from that inside."""
    apart = centre - centre.mean(-1, keepdim=True)
    unit = torch.maximum(apart.abs(), radius).amax(-1, keepdim=True).clamp_min(1)  # so that no square overflows
    apart, near, epsilon = apart / unit, radius / unit, layer.epsilon / unit**2
    length = (apart.norm(dim=-1, keepdim=True) - near.norm(dim=-1, keepdim=True)).clamp_min(0)
    slope = layer_norm_slope(layer.features, layer.epsilon, unit * (length**2 / layer.features + epsilon).sqrt())
    value = apart / (apart.square().mean(-1, keepdim=True) + epsilon).sqrt()
    slack = (slope * radius.amax(-1, keepdim=True)).expand_as(value)
    if layer.weight is not None:
        value, slack = value * layer.weight, slack * layer.weight.abs()
    return (value if layer.bias is None else value + layer.bias), slack


# The slope of GELU, Phi(x) + x phi(x), is extreme where its derivative phi(x) (2 - x^2) vanishes: at the square roots
# of 2, with the values s and 1 - s. That of SiLU is extreme where x tanh(x / 2) = 2, with s = 1.09983932... and 1 - s.
GELU_SLOPE = (1 + math.erf(1)) / 2 + math.exp(-1) / math.sqrt(math.pi) + 1e-12
SILU_SLOPE = 1.0998394
PARAMETRIC: dict[str, Callable[[float], PointwiseRule]] = {"leaky_relu": leaky_relu, "elu": elu}
POINTWISE: dict[str, PointwiseRule] = {
    "relu": PointwiseRule((0.0, 1.0), relu_band),
    "leaky-relu": leaky_relu(LEAK),
    "abs": leaky_relu(-1.0),
    "elu": elu(1.0),
    "tanh": smooth(torch.tanh, (0.0, 1.0), 4 / math.sqrt(27)),
    "sigmoid": smooth(torch.sigmoid, (0.0, 0.25), 1 / math.sqrt(108)),
    "silu": smooth(torch.nn.functional.silu, (1 - SILU_SLOPE, SILU_SLOPE), 0.5),
    "gelu": smooth(torch.nn.functional.gelu, (1 - GELU_SLOPE, GELU_SLOPE), 2 / math.sqrt(2 * math.pi)),
}
TRAINED: dict[str, Callable[[Pointwise], PointwiseRule]] = {  # rules that depend on the arrays of their layers
    "prelu": lambda layer: leaky_relu(layer.slope),
    "maxout": lambda layer: maxout(layer.slope, layer.offset),
}


def find_rule(layer: Pointwise) -> PointwiseRule:
    """Return the rule of a layer's function, which may end with a number, as ``"leaky_relu(0.01)"``."""
    if layer.function in POINTWISE:
        return POINTWISE[layer.function]
    if layer.function in TRAINED:
        return TRAINED[layer.function](layer)
    kind, _, value = layer.function.removesuffix(")").partition("(")
    return PARAMETRIC[kind](float(value))
