"""DiGRAF: a diffeomorphism of an interval for each graph (Mantri et al., NeurIPS 2024)."""

import torch
from torch import Tensor, nn

from graphact._checks import check_choice, check_integer, check_positive
from graphact.functional import cpab
from graphact.graph.graph import check_signal
from graphact.graph.normalize import Normalization, check_normalize
from graphact.graph.protocol import GraphLike
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
    wide_shift,
)
from graphact.spec import Layer


class DiGRAF(NamedActivation):
    r"""A diffeomorphism of an interval, computed by a network for each graph (Mantri et al., NeurIPS 2024).

    See :func:`graphact.functional.cpab` for the function T. Its velocities are

    .. math:: \theta = \tanh\big(V\, \mathrm{mean}_n\, z_n + c\big), \qquad
        z = \mathrm{ReLU}(z H_0 + S z H_1 + b) \;\text{in each of}\; L \;\text{layers, from}\; z = x

    or, without ``adaptive``, trained themselves (the paper's DiGRAF W/O ADAP.), one function for all graphs. V and c
    start at 0, so that a new activation is the identity.

    Args:
        features: number F of features; None only without ``adaptive``.
        cells: number of cells of the interval.
        radius: half the length of the interval, outside of which the activation is the identity.
        adaptive: compute the function by a network on the graph.
        hops: layers L of that network, each of which takes one exchange.
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
                self.add_uniform(f"taps_{layer}", 2 * width, 2, width, width)
                self.add_uniform(f"bias_{layer}", 2 * width, width)
            self.add_uniform("theta_map", width, self.cells - 1, width, start=self.start)
        self.add_uniform("theta", self.cells, self.cells - 1, start=self.start)
        self.reset_parameters()

    def forward(
        self, x: Tensor, graph: GraphInput = None, edge_weight: Tensor | None = None, batch: Tensor | None = None
    ) -> Tensor:
        check_features(x, "features", self.features)
        wide = x.to(accumulation_dtype(x.dtype))
        with in_full_precision(x):  # the flow is exponential in the velocities
            theta = self.theta.to(wide.dtype)
            if self.adaptive:
                graph = resolve_graph(x, graph, edge_weight, self.normalize)
                check_signal(x, graph)
                batch = batch_of(graph, batch, self.name)
                theta = self.velocities(wide, graph, batch)
            return cpab(wide, torch.tanh(theta), self.radius).to(x.dtype)

    def velocities(self, z: Tensor, graph: GraphLike, batch: Tensor | None) -> Tensor:
        """Return the output of the network for a signal in at least float32, before the hyperbolic tangent."""
        values = {name: getattr(self, name).to(z.dtype) for name in self.initial}
        for layer in range(self.hops):
            both = torch.cat([z, wide_shift(z, graph)], -1)
            z = torch.relu(both @ values[f"taps_{layer}"].flatten(0, 1) + values[f"bias_{layer}"])
        return nn.functional.linear(mean_of_graph(z, batch), values["theta_map"], values["theta"]).unsqueeze(-2)

    def describe(self) -> tuple[Layer, ...]:
        return self.described(self.hops if self.adaptive else 0, pools=self.adaptive)
