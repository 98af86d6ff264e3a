r"""What guarantees know about functions at one node: a rule for each pointwise function, and bounds of LayerNorm.

A pointwise function without an entry in ``POINTWISE`` (or, where it has trained arrays, in ``TRAINED``) is refused. The
proofs are in docs/guarantees.md.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from graphact.functional.elementwise import LEAK, pointwise
from graphact.spec import LayerNorm, Pointwise

SAMPLES = 16  # pieces of an interval in which a smooth function is enclosed
ROUNDING = 1e-14


@dataclass(frozen=True)
class PointwiseRule:
    r"""What is known about a function f of one value.

    ``slopes`` are the least and the largest of :math:`(f(a) - f(b)) / (a - b)`; ``band`` maps ends l, u to slope,
    offset and half height with :math:`|f(z) - (\lambda z + \mu)| \le \nu` for all z in [l, u].
    """

    slopes: tuple[float, float]
    band: Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]

    def apply(self, z: Tensor) -> Tensor:
        """The function itself, around which a band of a single point has no height."""
        slope, offset, _ = self.band(z, z)
        return slope * z + offset

    @property
    def steepest(self) -> float:
        return max(abs(slope) for slope in self.slopes)


def relu_band(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    r"""ReLU: exact where the sign is known, otherwise the band of least height around it.

    The ends are divided by the larger of both first: :math:`u - l` may overflow, or be too small to divide by.
    """
    crossing = (lower < 0) & (upper > 0)
    near, far = (torch.where(crossing, pick(upper, -lower), 1.0) for pick in (torch.minimum, torch.maximum))
    width = 1 + near / far  # (u - l) / far
    slope = torch.where(crossing, torch.where(upper >= -lower, 1.0, near / far) / width, (lower >= 0).to(lower))
    half = torch.where(crossing, near / width / 2, 0.0)
    return slope, half, half


def leaky_relu(slope: Tensor | float) -> PointwiseRule:
    """A part of the identity and the rest of ReLU; the slope below 0 may be one for each feature."""
    ends = [1.0, *torch.as_tensor(slope, dtype=torch.float64).detach().flatten().tolist()]

    def band(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        of_relu, offset, half = relu_band(lower, upper)
        rest = 1 - torch.as_tensor(slope, dtype=lower.dtype, device=lower.device)
        return 1 - rest + rest * of_relu, rest * offset, rest.abs() * half

    return PointwiseRule((min(ends), max(ends)), band)


def maxout(slope: Tensor, offset: Tensor) -> PointwiseRule:
    """The largest of some lines: around its chord, from its values at the ends and where two lines cross."""
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
    """A function whose slope lies in ``slopes`` and changes by at most ``curvature`` times the distance.

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
    """Slope, offset and half height of a band along the chord of the outer ones of the points.

    ``between`` is how far the function may leave the lines between its values at the points.
    """
    values, width = function(points), points[-1] - points[0]
    slope = torch.where(width > 0, (values[-1] - values[0]) / torch.where(width > 0, width, 1.0), 0.0)
    beside = values - slope * points
    low, high = beside.amin(0), beside.amax(0)
    half = (high - low) / 2 + torch.where(width > 0, between + ROUNDING * (1 + values.abs().amax(0)), 0.0)
    return slope, (low + high) / 2, half


def elu(alpha: float) -> PointwiseRule:
    """Its slope jumps from alpha to 1, unless they are equal."""
    slopes = min(0.0, alpha), max(1.0, alpha)
    function = lambda x: torch.where(x > 0, x, alpha * x.clamp_max(0).expm1())  # noqa: E731
    return smooth(function, slopes, 1.0 if alpha == 1 else math.inf)


class PointwiseRules(dict[str, PointwiseRule]):
    """Rules by name; a name may end with a parameter, as ``"leaky_relu(0.01)"``."""

    def __missing__(self, name: str) -> PointwiseRule:
        kind, _, value = name.removesuffix(")").partition("(")
        return PARAMETRIC[kind](float(value))

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or str(name).partition("(")[0] in PARAMETRIC


def layer_norm_slope(features: int, epsilon: float, least: Tensor | float | None = None) -> Tensor:
    r"""How far an output of a LayerNorm without weights can move when its inputs do by at most 1.

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
    """A LayerNorm at the centre of a box ``(..., F)``, and how far its outputs can be from that inside."""
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


def rule_of(layer: Pointwise) -> PointwiseRule:
    """What is known about the function of a layer, with the arrays that it was trained to."""
    if layer.function == "prelu":
        return leaky_relu(layer.slope)
    if layer.function == "maxout":
        return maxout(layer.slope, layer.offset)
    return POINTWISE[layer.function]


# The slope of GELU, Phi(x) + x phi(x), is extreme where its derivative phi(x) (2 - x^2) vanishes: at the square roots
# of 2, with the values s and 1 - s. That of SiLU is extreme where x tanh(x / 2) = 2, with s = 1.09983932... and 1 - s.
GELU_SLOPE = (1 + math.erf(1)) / 2 + math.exp(-1) / math.sqrt(math.pi) + 1e-12
SILU_SLOPE = 1.0998394
PARAMETRIC: dict[str, Callable[[float], PointwiseRule]] = {"leaky_relu": leaky_relu, "elu": elu}
POINTWISE = PointwiseRules(
    {
        "relu": PointwiseRule((0.0, 1.0), relu_band),
        "leaky-relu": leaky_relu(LEAK),
        "abs": leaky_relu(-1.0),
        "elu": elu(1.0),
        "tanh": smooth(torch.tanh, (0.0, 1.0), 4 / math.sqrt(27)),
        "sigmoid": smooth(torch.sigmoid, (0.0, 0.25), 1 / math.sqrt(108)),
        "silu": smooth(torch.nn.functional.silu, (1 - SILU_SLOPE, SILU_SLOPE), 0.5),
        "gelu": smooth(torch.nn.functional.gelu, (1 - GELU_SLOPE, GELU_SLOPE), 2 / math.sqrt(2 * math.pi)),
    }
)
TRAINED = ("prelu", "maxout")
"""Pointwise functions whose rules depend on the arrays of their layers."""
