"""Scaling as part of a network, so that inputs and outputs are in the units of its user wherever it runs."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from graphact._checks import check_choice, check_companion, check_integer
from graphact.graph.protocol import GraphLike
from graphact.nn.call import check_features
from graphact.nn.gcnn import FIR, GCNN
from graphact.nn.graph_network import GraphNetwork
from graphact.nn.module import GraphModule, describe
from graphact.spec import InputScaling, Layer, OutputScaling

MAX_WINDOW = 2**16  # as a model file allows
NETWORKS: dict[str, type[GraphModule]] = {kind.__name__: kind for kind in (GCNN, FIR, GraphNetwork)}


class ScalingModule(GraphModule):
    """The base of both ends: means and standard deviations, which training does not change.

    Args:
        features: the number F of features.
        nodes: names of the nodes, for values of their own; None for values that all nodes share.
    """

    def __init__(self, features: int, nodes: Sequence[str] | None = None) -> None:
        super().__init__()
        self.features = check_integer("features", features, minimum=1)
        self.nodes = None if nodes is None else tuple(map(str, nodes))
        if self.nodes is not None and len({*self.nodes}) < len(self.nodes):
            twice = next(name for name in self.nodes if self.nodes.count(name) > 1)
            raise ValueError(f"nodes must have different names, got {twice!r} more than once")
        shape = (self.features,) if self.nodes is None else (len(self.nodes), self.features)
        self.mean = nn.Parameter(torch.zeros(shape), requires_grad=False)
        self.std = nn.Parameter(torch.ones(shape), requires_grad=False)

    @torch.no_grad()
    def set(self, mean: Any, std: Any) -> None:
        """Set means and standard deviations, of the shape of :attr:`mean` or one for all."""
        for name, parameter, values in (("mean", self.mean, mean), ("std", self.std, std)):
            given = torch.as_tensor(values, dtype=torch.float64).to(parameter.dtype)
            if not given.isfinite().all() or (name == "std" and (given <= 0).any()):
                kind = "positive numbers" if name == "std" else "finite numbers"
                raise ValueError(f"{name} must hold {kind}, got {given.flatten().tolist()!s:.60}")
            parameter.copy_(given.expand(parameter.shape))

    def check_nodes(self, x: Tensor) -> Tensor:
        """Return a signal; raise if the scaling is of other nodes."""
        if self.nodes is not None and x.size(-2) != len(self.nodes):
            raise ValueError(
                f"x must have a row for each of the {len(self.nodes)} nodes of the scaling, got {x.size(-2)}"
            )
        return x


class Standardize(ScalingModule):
    r"""Readings less their mean, divided by their standard deviation, in front of a network.

    .. math:: z = (x - \text{mean}) / \text{std}

    With ``mask=True``, NaN stands for a missing reading: it becomes 0, and a feature for each of the input follows that
    is 1 where it is present and 0 where it is missing.

    Args:
        features: the number F of features of a reading.
        window: the number W of readings in the input, the newest first.
        mask: take missing readings.
        nodes: names of the nodes, for values of their own; None for values that all nodes share. With values of its
            own for each node a network is not equivariant, and a node that is added needs values.

    Shapes:
        x: ``(..., N, W F)``; result: ``(..., N, W F)``, or ``(..., N, 2 W F)`` with the mask; ``mean`` and ``std``:
        ``(F,)``, or ``(N, F)`` with values for each node.

    Example:
        >>> import torch, graphact
        >>> scaling = graphact.nn.Standardize(1, mask=True)
        >>> scaling.set(mean=280.0, std=4.0)
        >>> scaling(torch.tensor([[288.0], [float("nan")]]))
        tensor([[2., 1.],
                [0., 0.]])
    """

    def __init__(
        self, features: int, *, window: int = 1, mask: bool = False, nodes: Sequence[str] | None = None
    ) -> None:
        super().__init__(features, nodes)
        self.window, self.mask = check_integer("window", window, minimum=1), bool(mask)
        if self.window > MAX_WINDOW:
            raise ValueError(f"window must be at most {MAX_WINDOW}, got {self.window}")

    def forward(self, x: Tensor, graph: GraphLike | Tensor | None = None) -> Tensor:
        x = self.check_nodes(check_features(x, "features", self.window * self.features))
        mean, std = (check_companion(name, getattr(self, name), x) for name in ("mean", "std"))
        scaled = (x.unflatten(-1, (self.window, self.features)) - mean.unsqueeze(-2)) / std.unsqueeze(-2)
        scaled = scaled.flatten(-2)
        if not self.mask:
            return scaled
        is_missing = x.isnan()
        return torch.cat([scaled.masked_fill(is_missing, 0.0), (~is_missing).to(x.dtype)], dim=-1)

    def describe(self) -> tuple[Layer, ...]:
        return (InputScaling(self.nodes, self.mean, self.std, self.window, self.mask),)

    def config(self) -> dict[str, Any]:
        nodes = None if self.nodes is None else list(self.nodes)
        return {"features": self.features, "window": self.window, "mask": self.mask, "nodes": nodes}


class Rescale(ScalingModule):
    r"""Outputs of a network in the units of the targets.

    .. math:: y = z \cdot \text{std} + \text{mean}

    Args:
        features: the number F of features.
        nodes: names of the nodes, for values of their own; None for values that all nodes share.

    Shapes:
        x: ``(..., N, F)``; result: the same.
    """

    def forward(self, x: Tensor, graph: GraphLike | Tensor | None = None) -> Tensor:
        x = self.check_nodes(check_features(x, "features", self.features))
        return x * check_companion("std", self.std, x) + check_companion("mean", self.mean, x)

    def describe(self) -> tuple[Layer, ...]:
        return (OutputScaling(self.nodes, self.mean, self.std),)

    def config(self) -> dict[str, Any]:
        return {"features": self.features, "nodes": None if self.nodes is None else list(self.nodes)}


class ScaledNetwork(GraphModule):
    """A network between :class:`Standardize` and :class:`Rescale`: readings in, answers out, both in the user's units.

    Args:
        network: a :class:`GCNN`, :class:`FIR` or :class:`GraphNetwork` for standardized readings, or a mapping of
            ``"module"``, the name of its class, and the arguments of its constructor.
        features: the number F of features of a reading.
        out_features: features of the answers to scale; None leaves the answers as they are, such as scores of classes.
        window: the number W of readings in the input, the newest first.
        mask: take missing readings, which are NaN; the network then gets 2 W F features instead of W F.
        nodes: names of the nodes, for values of their own; None for values that all nodes share.

    Shapes:
        x: ``(..., N, W F)``; result: what the network gives.

    Example:
        >>> import torch, graphact
        >>> network = graphact.nn.GCNN([2, 8], bank="adaptive", order=1, ops=["median"], out_features=1)
        >>> model = graphact.nn.ScaledNetwork(network, 1, out_features=1, mask=True)
        >>> model.input.set(mean=280.0, std=4.0)
        >>> model.output.set(mean=280.0, std=4.0)
        >>> graph = graphact.Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]]).normalize("symmetric")
        >>> model(torch.tensor([[281.0], [float("nan")], [283.0]]), graph).isfinite().all()
        tensor(True)
    """

    def __init__(
        self,
        network: GraphModule | Mapping[str, Any],
        features: int,
        *,
        out_features: int | None = None,
        window: int = 1,
        mask: bool = False,
        nodes: Sequence[str] | None = None,
    ) -> None:
        super().__init__()
        if isinstance(network, Mapping):
            options = dict(network)
            kind = check_choice("module", options.pop("module", None), tuple(NETWORKS))
            network = NETWORKS[kind](**options)
        self.input = Standardize(features, window=window, mask=mask, nodes=nodes)
        self.network: GraphModule = network
        self.output = None if out_features is None else Rescale(out_features, nodes)
        self.normalize = network.normalize

    def reset_parameters(self) -> None:
        """Initialize the network again; the scaling stays."""
        self.network.reset_parameters()

    def forward(self, x: Tensor, graph: GraphLike | Tensor, edge_weight: Tensor | None = None) -> Tensor:
        out: Tensor = self.network(self.input(x), graph, edge_weight)
        return out if self.output is None else self.output(out)

    def describe(self) -> tuple[Layer, ...]:
        ends = () if self.output is None else describe(self.output, "output")
        return (*describe(self.input, "input"), *describe(self.network, "network"), *ends)

    def config(self) -> dict[str, Any]:
        network = {"module": type(self.network).__name__, **self.network.config()}
        out_features = None if self.output is None else self.output.features
        return {"network": network, "out_features": out_features, **self.input.config()}
