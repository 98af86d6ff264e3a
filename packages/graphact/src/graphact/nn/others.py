"""Activations of other authors, called like graphact's own."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from graphact._checks import HALF_PRECISION, check_choice, check_integer, check_positive
from graphact.functional import cpab, grelu, max_k
from graphact.functional.neighborhood import neighborhood, shift, shift_pass
from graphact.graph.graph import check_batch, check_signal
from graphact.graph.normalize import Normalization, check_normalize
from graphact.graph.protocol import GraphLike
from graphact.graph.union import number_below
from graphact.kernels.reference import accumulation_dtype
from graphact.nn.activation import STARTS, Start
from graphact.nn.base import check_features, resolve_graph
from graphact.nn.drawn import DrawnModule
from graphact.spec import Activation, Layer, UnsupportedModelError

Edges = GraphLike | Tensor | None


class NamedActivation(DrawnModule):
    """What these activations share: they are described by their name, settings and parameters."""

    name: ClassVar[str]
    features: int | None = None

    def described(self, rounds: int, *, pools: bool = False) -> tuple[Layer, ...]:
        """The description, with the number of exchanges, and whether means over all nodes are read."""
        options = {key: value for key, value in self.config().items() if key not in ("features", "normalize", "start")}
        return (Activation(self.name, options, rounds, dict(self.named_parameters()), self.features, pools),)


class MaxK(NamedActivation):
    r"""Keep the k largest features of each node and set the others to 0 (MaxK-GNN).

    .. math:: [\sigma(x)]_{if} = x_{if} \;\text{if}\; x_{if} \;\text{is among the}\; k \;\text{largest of}\; x_i,
        \quad \text{else}\; 0

    Args:
        k: how many features are kept; None for a quarter of them, rounded up.

    Shapes:
        x: ``(..., N, F)``; result: the same.

    Example:
        >>> import torch, graphact
        >>> graphact.nn.MaxK(k=2)(torch.tensor([[1.0, -2.0, 4.0, 3.0]]))
        tensor([[0., 0., 4., 3.]])
    """

    name = "max-k"

    def __init__(self, k: int | None = None) -> None:
        super().__init__()
        self.k = None if k is None else check_integer("k", k, minimum=1)

    def forward(self, x: Tensor, graph: Edges = None, edge_weight: Tensor | None = None) -> Tensor:
        return max_k(x, max(1, -(-x.size(-1) // 4)) if self.k is None else self.k)

    def describe(self) -> tuple[Layer, ...]:
        return self.described(0)

    def config(self) -> dict[str, Any]:
        return {"k": self.k}


class Shiftless(NamedActivation):
    r"""What DiGRAF's comparison calls "Max" and "Median": no shift, and a dense map for each term; an ablation.

    .. math:: [\sigma(x)]_i = \beta\,\mathrm{ReLU}(x_i)
        + \sum_{k=1}^{K} \big(H_k f(\{x_j : j \in \mathcal{N}_i\}) + b_k\big)

    All K terms read the same values, so that they are one dense map in K pieces; the graph-adaptive activations read
    shifted signals and weight each feature on its own. As in that code, beta starts at 0.5, and the median counts a
    node among its neighbours.

    Args:
        features: number F of features.
        hops: number K of terms.
        normalize: of no consequence, as only the pattern of the graph is read.

    Shapes:
        x: ``(..., N, F)``; result: the same.
    """

    op: ClassVar[str]
    weight: Tensor
    bias: Tensor

    def __init__(
        self, features: int, *, hops: int = 1, normalize: Normalization | None = "symmetric"
    ) -> None:  # fmt: skip
        super().__init__()
        self.features = check_width(self.name, features)
        self.hops, self.normalize = check_integer("hops", hops, minimum=1), check_normalize(normalize)
        self.draw("weight", features, self.hops, features, features)
        self.draw("bias", features, self.hops, features)
        self.beta = nn.Parameter(torch.empty(()))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the maps as :class:`torch.nn.Linear` does, and set beta to 0.5."""
        super().reset_parameters()
        nn.init.constant_(self.beta, 0.5)

    def forward(self, x: Tensor, graph: Edges = None, edge_weight: Tensor | None = None) -> Tensor:
        graph = resolve_graph(check_features(x, "features", self.features), graph, edge_weight, self.normalize)
        read = neighborhood(x, graph, self.op, closed=self.op == "median")
        weight, bias = self.weight.sum(0).to(x.dtype), self.bias.sum(0).to(x.dtype)  # float32 meets half precision
        return self.beta * torch.relu(x) + nn.functional.linear(read, weight, bias)

    def describe(self) -> tuple[Layer, ...]:
        return self.described(1)

    def config(self) -> dict[str, Any]:
        return {"features": self.features, "hops": self.hops, "normalize": self.normalize}


class ShiftlessMax(Shiftless):
    r"""The maximum of the neighbours without a shift, what DiGRAF's comparison calls "Max": an ablation.

    .. math:: [\sigma(x)]_i = \beta\,\mathrm{ReLU}(x_i)
        + \sum_{k=1}^{K} \big(H_k \max_{j \in \mathcal{N}_i} x_j + b_k\big)

    All K terms read the same values; beta starts at 0.5.

    Args:
        features: number F of features.
        hops: number K of terms.
        normalize: of no consequence, as only the pattern of the graph is read.

    Shapes:
        x: ``(..., N, F)``; result: the same.

    Example:
        >>> import torch, graphact
        >>> path = graphact.Graph.from_edge_index([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
        >>> x, activation = torch.tensor([[1.0], [-2.0], [4.0], [3.0]]), graphact.nn.ShiftlessMax(1)
        >>> _ = activation.weight.data.fill_(1.0), activation.bias.data.zero_()
        >>> activation(x, path).detach().squeeze()
        tensor([-1.5000,  4.0000,  5.0000,  5.5000])
    """

    name, op = "shiftless-max", "max"


class ShiftlessMedian(Shiftless):
    r"""The lower median of the neighbours and the node, what DiGRAF's comparison calls "Median": an ablation.

    .. math:: [\sigma(x)]_i = \beta\,\mathrm{ReLU}(x_i)
        + \sum_{k=1}^{K} \big(H_k \operatorname*{med}_{j \in \mathcal{N}_i \cup \{i\}} x_j + b_k\big)

    All K terms read the same values; beta starts at 0.5.

    Args:
        features: number F of features.
        hops: number K of terms.
        normalize: of no consequence, as only the pattern of the graph is read.

    Shapes:
        x: ``(..., N, F)``; result: the same.

    Example:
        >>> import torch, graphact
        >>> path = graphact.Graph.from_edge_index([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
        >>> x, activation = torch.tensor([[1.0], [-2.0], [4.0], [3.0]]), graphact.nn.ShiftlessMedian(1)
        >>> _ = activation.weight.data.fill_(1.0), activation.bias.data.zero_()
        >>> activation(x, path).detach().squeeze()
        tensor([-1.5000,  1.0000,  5.0000,  4.5000])
    """

    name, op = "shiftless-median", "median"


class GReLU(NamedActivation):
    r"""A piecewise linear function for each node and channel, made by a function of signal and graph (GReLU).

    See :func:`graphact.functional.grelu` for the function. With a diffusion of ``hops`` steps,
    :math:`z \leftarrow (1 - a) S z + a x`, its coefficients are

    .. math:: \gamma = N\,\mathrm{softmax}(\mathrm{MLP}(z)) \;\text{over the nodes}, \qquad
        (a^p_c, b^p_c) = \tanh \mathrm{MLP}(\mathrm{mean}_n z_n)

    The paper publishes no code. Where it leaves a choice, it is taken so that a new activation is the ReLU that it
    replaces (the last map starts at 0), and so that the factors of the nodes have the mean 1 on graphs of any size.

    Args:
        features: number F of features.
        hops: steps of the diffusion.
        pieces: number P of affine functions.
        teleport: the share a of the signal itself in each step.
        normalize: how the graph made from an edge_index is normalised, as in :meth:`graphact.Graph.normalize`; None
            takes the weights as they are. A ``Graph`` is never changed.
        start: where the last map of that network starts: ``"zero"``, ``"small"`` or ``"uniform"``.

    Means are taken over each graph of a :meth:`graphact.Graph.union`, of ``Graph.from_pyg(batch)`` and of the graph of
    a loader with :class:`graphact.pyg.AttachGraph`. An edge_index is one graph: call as ``module(x, edge_index,
    batch=batch)`` on several side by side, with the graph of each node, as in PyG.

    Shapes:
        x: ``(..., N, F)``; batch: ``(N,)``; result: that of x.

    Example:
        >>> import torch, graphact
        >>> path = graphact.Graph.from_edge_index([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
        >>> activation = graphact.nn.GReLU(features=3)
        >>> activation(torch.randn(4, 3), path).shape
        torch.Size([4, 3])
    """

    name = "grelu"

    def __init__(
        self,
        features: int,
        *,
        hops: int = 1,
        pieces: int = 2,
        teleport: float = 0.1,
        normalize: Normalization | None = "symmetric",
        start: Start = "zero",
    ) -> None:
        super().__init__()
        self.start = check_choice("start", start, tuple(STARTS))
        self.features, self.normalize = check_width(self.name, features), check_normalize(normalize)
        self.hops = check_integer("hops", hops, minimum=1)
        self.pieces, self.teleport = check_integer("pieces", pieces, minimum=2), check_positive("teleport", teleport)
        for part, out in (("node", 1), ("channel", 2 * pieces * features)):
            self.draw(f"{part}_hidden", features, features, features)
            self.draw(f"{part}_bias", features, features)
            self.draw(f"{part}_out", features, out, features, start="uniform" if part == "node" else self.start)
        self.draw("channel_offset", features, 2 * pieces * features, start=self.start)
        self.reset_parameters()

    def forward(
        self, x: Tensor, graph: Edges = None, edge_weight: Tensor | None = None, batch: Tensor | None = None
    ) -> Tensor:
        graph = resolve_graph(check_features(x, "features", self.features), graph, edge_weight, self.normalize)
        batch = batch_of(graph, batch, self.name)
        own = z = check_signal(x, graph).to(accumulation_dtype(x.dtype))
        with in_full_precision(x):  # an exponential multiplies what bfloat16 loses
            for _ in range(self.hops):
                z = (1 - self.teleport) * wide_shift(z, graph) + self.teleport * own
            return grelu(own, *self.coefficients(z, batch)).to(x.dtype)

    def coefficients(self, z: Tensor, batch: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """The factors of the nodes, slopes and offsets, from the diffused signal, which is at least in float32."""
        values = {name: getattr(self, name).to(z.dtype) for name in self.drawn}

        def network(part: str, x: Tensor) -> Tensor:
            hidden = nn.functional.linear(x, values[f"{part}_hidden"], values[f"{part}_bias"]).relu()
            return nn.functional.linear(hidden, values[f"{part}_out"])

        made = torch.tanh(network("channel", mean_of_graph(z, batch)) + values["channel_offset"])
        slopes, offsets = made.unflatten(-1, (2, self.pieces, z.size(-1))).unbind(-3)
        return softmax_of_graph(network("node", z), batch), slopes, offsets

    def describe(self) -> tuple[Layer, ...]:
        return self.described(self.hops, pools=True)

    def config(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("features", "hops", "pieces", "teleport", "normalize", "start")}


class DiGRAF(NamedActivation):
    r"""A diffeomorphism of an interval, made by a network for each graph (DiGRAF, Mantri et al., NeurIPS 2024).

    See :func:`graphact.functional.cpab` for the function T. Its velocities are

    .. math:: \theta = \tanh\big(V\, \mathrm{mean}_n\, z_n + c\big), \qquad
        z = \mathrm{ReLU}(z H_0 + S z H_1 + b) \;\text{in each of}\; L \;\text{layers, from}\; z = x

    or, without ``adaptive``, trained themselves (the paper's DiGRAF W/O ADAP.), one function for all graphs. V and c
    start at 0, so that a new activation is the identity.

    Args:
        features: number F of features; None only without ``adaptive``.
        cells: number of cells of the interval.
        radius: half the length of the interval, outside of which the activation is the identity.
        adaptive: make the function by a network of the graph.
        hops: layers L of that network, each of which takes one exchange.
        normalize: how the graph made from an edge_index is normalised, as in :meth:`graphact.Graph.normalize`; None
            takes the weights as they are. A ``Graph`` is never changed.
        start: where the last map of that network starts: ``"zero"``, ``"small"`` or ``"uniform"``.

    Means are taken over each graph of a :meth:`graphact.Graph.union`, of ``Graph.from_pyg(batch)`` and of the graph of
    a loader with :class:`graphact.pyg.AttachGraph`. An edge_index is one graph: call as ``module(x, edge_index,
    batch=batch)`` on several side by side, with the graph of each node, as in PyG.

    Shapes:
        x: ``(..., N, F)``; batch: ``(N,)``; result: that of x.

    Example:
        >>> import torch, graphact
        >>> path = graphact.Graph.from_edge_index([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
        >>> activation = graphact.nn.DiGRAF(features=3)
        >>> activation(torch.randn(4, 3), path).shape
        torch.Size([4, 3])
    """

    name = "digraf"
    theta: Tensor
    theta_map: Tensor

    def __init__(
        self,
        features: int | None = None,
        *,
        cells: int = 16,
        radius: float = 5.0,
        adaptive: bool = True,
        hops: int = 1,
        normalize: Normalization | None = "symmetric",
        start: Start = "zero",
    ) -> None:
        super().__init__()
        self.start = check_choice("start", start, tuple(STARTS))
        self.adaptive, self.normalize = bool(adaptive), check_normalize(normalize)
        self.features = check_width(self.name, features) if adaptive or features is not None else None
        self.cells, self.radius = check_integer("cells", cells, minimum=2), check_positive("radius", radius)
        self.hops = check_integer("hops", hops, minimum=1)
        if self.adaptive:
            width = check_width(self.name, features)
            for layer in range(self.hops):
                self.draw(f"taps_{layer}", 2 * width, 2, width, width)
                self.draw(f"bias_{layer}", 2 * width, width)
            self.draw("theta_map", width, self.cells - 1, width, start=self.start)
        self.draw("theta", self.cells, self.cells - 1, start=self.start)
        self.reset_parameters()

    def forward(
        self, x: Tensor, graph: Edges = None, edge_weight: Tensor | None = None, batch: Tensor | None = None
    ) -> Tensor:
        check_features(x, "features", self.features)
        wide = x.to(accumulation_dtype(x.dtype))
        with in_full_precision(x):  # of the velocities as of the flow, which is exponential in them
            theta = self.theta.to(wide.dtype)
            if self.adaptive:
                graph = resolve_graph(x, graph, edge_weight, self.normalize)
                check_signal(x, graph)
                batch = batch_of(graph, batch, self.name)
                theta = self.velocities(wide, graph, batch)
            return cpab(wide, torch.tanh(theta), self.radius).to(x.dtype)

    def velocities(self, z: Tensor, graph: GraphLike, batch: Tensor | None) -> Tensor:
        """What the network makes of a signal, which is at least in float32, before the hyperbolic tangent."""
        values = {name: getattr(self, name).to(z.dtype) for name in self.drawn}
        for layer in range(self.hops):
            both = torch.cat([z, wide_shift(z, graph)], -1)
            z = torch.relu(both @ values[f"taps_{layer}"].flatten(0, 1) + values[f"bias_{layer}"])
        return nn.functional.linear(mean_of_graph(z, batch), values["theta_map"], values["theta"]).unsqueeze(-2)

    def describe(self) -> tuple[Layer, ...]:
        return self.described(self.hops if self.adaptive else 0, pools=self.adaptive)

    def config(self) -> dict[str, Any]:
        names = ("features", "cells", "radius", "adaptive", "hops", "normalize", "start")
        return {name: getattr(self, name) for name in names}


def check_width(name: str, features: int | None) -> int:
    """Raise if no number of features is given to an activation that has maps between them."""
    if features is None:
        raise TypeError(f"features must be the number of features of the signal for {name!r}, got None")
    return check_integer("features", features, minimum=1)


def batch_of(graph: GraphLike, batch: Tensor | None, name: str) -> Tensor | None:
    """The graph of each node, as given or as a union remembers it, by a number below that of the nodes.

    Raise if this process holds a part of a graph, of which an activation reads means, or if the numbers do not fit.
    """
    whole = graph.whole
    if whole is None and not getattr(graph, "holds_every_node", False):
        raise UnsupportedModelError("", f"{name!r} reads means over all nodes, and this process holds a part of them")
    batch = (None if whole is None else whole.batch) if batch is None else check_batch(batch, graph)
    return None if batch is None else number_below(batch)


def in_full_precision(x: Tensor) -> AbstractContextManager[object]:
    """Without autocast, on devices that have it."""
    return torch.autocast(x.device.type, enabled=False) if x.device.type in ("cpu", "cuda") else nullcontext()


def wide_shift(z: Tensor, graph: GraphLike) -> Tensor:
    """``S z`` in the dtype of z, which is at least float32, on a graph of any dtype; only its weights are rounded."""
    if graph.dtype in HALF_PRECISION:  # such a graph takes signals in half precision, but a pass computes in z's dtype
        return graph.one_hop(z, shift_pass)[0]
    return shift(z.to(graph.dtype), graph).to(z.dtype)


def mean_of_graph(x: Tensor, batch: Tensor | None) -> Tensor:
    """The mean over the nodes, ``(..., 1, F)``, or over those of each node's own graph, ``(..., N, F)``."""
    if batch is None:
        return x.mean(-2, keepdim=True)
    values = x.to(accumulation_dtype(x.dtype))
    ones = torch.ones(batch.numel(), 1, dtype=values.dtype, device=x.device)
    count = torch.zeros_like(ones).index_add(0, batch, ones)  # see batch_of
    total = torch.zeros_like(values).index_add(-2, batch, values) / count.clamp_min(1)
    return total.index_select(-2, batch).to(x.dtype)


def softmax_of_graph(score: Tensor, batch: Tensor | None) -> Tensor:
    """The softmax over the nodes, or over those of each graph, times their number: its mean is 1."""
    if batch is None:
        return torch.softmax(score, -2) * score.size(-2)
    index = batch.unsqueeze(-1).expand_as(score)
    top = torch.zeros_like(score).scatter_reduce(-2, index, score.detach(), "amax", include_self=False)
    powers = (score - top.index_select(-2, batch)).exp()
    return powers / mean_of_graph(powers, batch)
