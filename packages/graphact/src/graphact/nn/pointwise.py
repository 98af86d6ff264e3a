"""Pointwise activations, called like the others; they ignore the graph."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from graphact._checks import check_integer
from graphact.functional import pointwise
from graphact.graph.protocol import GraphLike
from graphact.nn.call import check_features
from graphact.nn.module import GraphModule
from graphact.spec import Layer, Pointwise


class PointwiseActivation(GraphModule):
    """A function of :func:`graphact.functional.pointwise` without parameters; subclasses name it.

    Shapes:
        x: ``(..., F)``; result: the same.
    """

    function: ClassVar[str]

    def forward(self, x: Tensor, graph: GraphLike | Tensor | None = None, edge_weight: Tensor | None = None) -> Tensor:
        return pointwise(x, self.function)

    def describe(self) -> tuple[Layer, ...]:
        return (Pointwise(self.function),)


class ReLU(PointwiseActivation):
    r"""Rectified linear unit.

    .. math:: \sigma(x) = \max(x, 0)

    Shapes:
        x: ``(..., F)``; result: the same.

    Example:
        >>> import torch, graphact
        >>> graphact.nn.ReLU()(torch.tensor([[-1.0], [0.0], [2.0]])).squeeze()
        tensor([0., 0., 2.])
    """

    function = "relu"


class LeakyReLU(PointwiseActivation):
    r"""ReLU with the slope 0.01 below 0.

    .. math:: \sigma(x) = \max(x, 0) + 0.01 \min(x, 0)

    Shapes:
        x: ``(..., F)``; result: the same.

    Example:
        >>> import torch, graphact
        >>> graphact.nn.LeakyReLU()(torch.tensor([[-1.0], [0.0], [2.0]])).squeeze()
        tensor([-0.0100,  0.0000,  2.0000])
    """

    function = "leaky-relu"


class ELU(PointwiseActivation):
    r"""The exponential linear unit.

    .. math:: \sigma(x) = x \;\text{above 0}, \quad e^x - 1 \;\text{below}

    Shapes:
        x: ``(..., F)``; result: the same.

    Example:
        >>> import torch, graphact
        >>> graphact.nn.ELU()(torch.tensor([[-1.0], [0.0], [2.0]])).squeeze()
        tensor([-0.6321,  0.0000,  2.0000])
    """

    function = "elu"


class GELU(PointwiseActivation):
    r"""The Gaussian error linear unit, with the distribution function :math:`\Phi` of the standard normal distribution.

    .. math:: \sigma(x) = x\,\Phi(x)

    Shapes:
        x: ``(..., F)``; result: the same.

    Example:
        >>> import torch, graphact
        >>> graphact.nn.GELU()(torch.tensor([[-1.0], [0.0], [2.0]])).squeeze()
        tensor([-0.1587,  0.0000,  1.9545])
    """

    function = "gelu"


class SiLU(PointwiseActivation):
    r"""The sigmoid linear unit, also called swish.

    .. math:: \sigma(x) = \frac{x}{1 + e^{-x}}

    Shapes:
        x: ``(..., F)``; result: the same.

    Example:
        >>> import torch, graphact
        >>> graphact.nn.SiLU()(torch.tensor([[-1.0], [0.0], [2.0]])).squeeze()
        tensor([-0.2689,  0.0000,  1.7616])
    """

    function = "silu"


class Tanh(PointwiseActivation):
    r"""The hyperbolic tangent.

    .. math:: \sigma(x) = \tanh x

    Shapes:
        x: ``(..., F)``; result: the same.

    Example:
        >>> import torch, graphact
        >>> graphact.nn.Tanh()(torch.tensor([[-1.0], [0.0], [2.0]])).squeeze()
        tensor([-0.7616,  0.0000,  0.9640])
    """

    function = "tanh"


class Abs(PointwiseActivation):
    r"""The absolute value.

    .. math:: \sigma(x) = |x|

    Shapes:
        x: ``(..., F)``; result: the same.

    Example:
        >>> import torch, graphact
        >>> graphact.nn.Abs()(torch.tensor([[-1.0], [0.0], [2.0]])).squeeze()
        tensor([1., 0., 2.])
    """

    function = "abs"


class Identity(GraphModule):
    r"""No activation: the network is linear.

    .. math:: \sigma(x) = x

    Shapes:
        x: ``(..., F)``; result: the same.

    Example:
        >>> import torch, graphact
        >>> graphact.nn.Identity()(torch.tensor([[-1.0], [0.0], [2.0]])).squeeze()
        tensor([-1.,  0.,  2.])
    """

    def forward(self, x: Tensor, graph: GraphLike | Tensor | None = None, edge_weight: Tensor | None = None) -> Tensor:
        return x

    def describe(self) -> tuple[Layer, ...]:
        return ()


class PReLU(GraphModule):
    r"""ReLU with a trained slope a below 0, which starts at 0.25.

    .. math:: \sigma(x) = \max(x, 0) + a \min(x, 0)

    Args:
        features: number F of features to give each its own slope; None shares one among all.

    Shapes:
        x: ``(..., F)``; result: the same.

    Example:
        >>> import torch, graphact
        >>> graphact.nn.PReLU()(torch.tensor([[-1.0], [0.0], [2.0]])).detach().squeeze()
        tensor([-0.2500,  0.0000,  2.0000])
    """

    def __init__(self, features: int | None = None) -> None:
        super().__init__()
        self.features = None if features is None else check_integer("features", features, minimum=1)
        self.slope = nn.Parameter(torch.empty(() if features is None else (features,)))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the slopes to 0.25."""
        nn.init.constant_(self.slope, 0.25)

    def forward(self, x: Tensor, graph: GraphLike | Tensor | None = None, edge_weight: Tensor | None = None) -> Tensor:
        return pointwise(check_features(x, "features", self.features), "prelu", self.slope)

    def describe(self) -> tuple[Layer, ...]:
        return (Pointwise("prelu", self.slope),)


class Maxout(GraphModule):
    r"""The largest of a few lines with trained slopes and offsets: any convex function that is linear in pieces.

    .. math:: \sigma(x) = \max_{p = 1..P}\, (a_p x + b_p)

    That is Maxout for each feature on its own. It starts as a ReLU, of which any slope and kink can be learned. The
    original takes the maximum of several linear maps of all features, which a filter bank in front of it already is.

    Args:
        features: number F of features to give each its own lines; None shares them among all.
        pieces: number P of lines; their slopes start evenly spaced from 1 to 0.

    Shapes:
        x: ``(..., F)``; result: the same.

    Example:
        >>> import torch, graphact
        >>> graphact.nn.Maxout(pieces=3)(torch.tensor([[-1.0], [0.0], [2.0]])).detach().squeeze()
        tensor([0., 0., 2.])
    """

    def __init__(self, features: int | None = None, *, pieces: int = 2) -> None:
        super().__init__()
        self.features = None if features is None else check_integer("features", features, minimum=1)
        self.pieces = check_integer("pieces", pieces, minimum=2)
        shape = (self.pieces,) if features is None else (self.pieces, features)
        self.slope, self.offset = nn.Parameter(torch.empty(shape)), nn.Parameter(torch.empty(shape))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Spread the slopes from 1 to 0 and set the offsets to 0."""
        spread = torch.linspace(1.0, 0.0, self.pieces).to(self.slope)
        with torch.no_grad():
            self.slope.copy_(spread.view(-1, *[1] * (self.slope.dim() - 1)).expand_as(self.slope))
        nn.init.zeros_(self.offset)

    def forward(self, x: Tensor, graph: GraphLike | Tensor | None = None, edge_weight: Tensor | None = None) -> Tensor:
        return pointwise(check_features(x, "features", self.features), "maxout", self.slope, self.offset)

    def describe(self) -> tuple[Layer, ...]:
        return (Pointwise("maxout", self.slope, self.offset),)
