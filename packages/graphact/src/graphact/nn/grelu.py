"""GReLU: a piecewise linear function for each node and channel (Zhang et al., WWW 2022)."""

import torch
from torch import Tensor, nn

from graphact._checks import check_choice, check_integer, check_positive
from graphact.functional import grelu
from graphact.graph.graph import check_signal
from graphact.graph.normalize import Normalization, check_normalize
from graphact.kernels.reference import accumulation_dtype
from graphact.nn.call import check_features, resolve_graph
from graphact.nn.module import STARTS, Start
from graphact.nn.named_activation import (
    GraphInput,
    NamedActivation,
    batch_of,
    check_width,
    in_full_precision,
    mean_of_graph,
    softmax_of_graph,
    wide_shift,
)
from graphact.spec import Layer


class GReLU(NamedActivation):
    r"""A piecewise linear function for each node and channel, computed from signal and graph (GReLU).

    See :func:`graphact.functional.grelu` for the function. With a diffusion of ``hops`` steps,
    :math:`z \leftarrow (1 - a) S z + a x`, its coefficients are

    .. math:: \gamma = N\,\mathrm{softmax}(\mathrm{MLP}(z)) \;\text{over the nodes}, \qquad
        (a^p_c, b^p_c) = \tanh \mathrm{MLP}(\mathrm{mean}_n z_n)

    The paper publishes no code. Where it leaves a choice, a new activation is the ReLU that it replaces (the last map
    starts at 0), and the factors of the nodes have the mean 1 on graphs of any size.

    Args:
        features: number F of features.
        hops: steps of the diffusion.
        pieces: number P of affine functions.
        teleport: the share a of the signal itself in each step.
        normalize: normalization of a graph built from an edge_index, see :meth:`graphact.Graph.normalize`.
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
            self.add_uniform(f"{part}_hidden", features, features, features)
            self.add_uniform(f"{part}_bias", features, features)
            self.add_uniform(f"{part}_out", features, out, features, start="uniform" if part == "node" else self.start)
        self.add_uniform("channel_offset", features, 2 * pieces * features, start=self.start)
        self.reset_parameters()

    def forward(
        self, x: Tensor, graph: GraphInput = None, edge_weight: Tensor | None = None, batch: Tensor | None = None
    ) -> Tensor:
        graph = resolve_graph(check_features(x, "features", self.features), graph, edge_weight, self.normalize)
        batch = batch_of(graph, batch, self.name)
        own = z = check_signal(x, graph).to(accumulation_dtype(x.dtype))
        with in_full_precision(x):  # an exponential multiplies what bfloat16 loses
            for _ in range(self.hops):
                z = (1 - self.teleport) * wide_shift(z, graph) + self.teleport * own
            return grelu(own, *self.coefficients(z, batch)).to(x.dtype)

    def coefficients(self, z: Tensor, batch: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return factors of the nodes, slopes and offsets, from the diffused signal, which is at least in float32."""
        values = {name: getattr(self, name).to(z.dtype) for name in self.initial}

        def network(part: str, x: Tensor) -> Tensor:
            hidden = nn.functional.linear(x, values[f"{part}_hidden"], values[f"{part}_bias"]).relu()
            return nn.functional.linear(hidden, values[f"{part}_out"])

        made = torch.tanh(network("channel", mean_of_graph(z, batch)) + values["channel_offset"])
        slopes, offsets = made.unflatten(-1, (2, self.pieces, z.size(-1))).unbind(-3)
        return softmax_of_graph(network("node", z), batch), slopes, offsets

    def describe(self) -> tuple[Layer, ...]:
        return self.described(self.hops, pools=True)
