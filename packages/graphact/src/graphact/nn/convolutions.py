"""Convolutions besides the polynomial filter."""

import hashlib
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from graphact._checks import check_integer
from graphact.functional import arma, attention, chebyshev, edge_varying
from graphact.graph import Graph
from graphact.graph.eager import outside_transforms
from graphact.graph.graph import check_graph
from graphact.graph.normalize import Normalization, check_normalize
from graphact.graph.protocol import GraphLike
from graphact.nn.base import check_features, resolve_graph
from graphact.nn.drawn import DrawnModule
from graphact.spec import Convolution, Layer, UnsupportedModelError


class AnyConvolution(DrawnModule):
    """What these convolutions share: widths, a bias, and a description by name, settings and parameters."""

    settings: ClassVar[tuple[str, ...]]  # besides those of every convolution

    def __init__(self, in_features: int, out_features: int, bias: bool, normalize: Normalization | None) -> None:
        super().__init__()
        self.in_features = check_integer("in_features", in_features, minimum=1)
        self.out_features = check_integer("out_features", out_features, minimum=1)
        self.normalize = check_normalize(normalize)
        self.bias: Tensor | None
        self.register_parameter("bias", None)
        if bias:
            self.draw("bias", self.in_features, self.out_features)

    def check(self, x: Tensor, graph: GraphLike | Tensor, edge_weight: Tensor | None) -> GraphLike:
        """The graph of a call, whose signal has the right features."""
        return resolve_graph(check_features(x, "in_features", self.in_features), graph, edge_weight, self.normalize)

    def biased(self, x: Tensor) -> Tensor:
        return x if self.bias is None else x + self.bias

    def described(self, rounds: int) -> tuple[Layer, ...]:
        options = {name: getattr(self, name) for name in self.settings}
        parameters = dict(self.named_parameters())
        return (
            Convolution(type(self).__name__, options, rounds, parameters, self.in_features, self.out_features),
        )  # fmt: skip

    def config(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in self.settings}
        widths = {"in_features": self.in_features, "out_features": self.out_features}
        return {**widths, **own, "bias": self.bias is not None, "normalize": self.normalize}


class Chebyshev(AnyConvolution):
    """A filter bank in the basis of Chebyshev polynomials; see :func:`graphact.functional.chebyshev`.

    Args:
        in_features: features of the input.
        out_features: features of the output.
        order: the order K, which is the number of exchanges.
        bias: add a trained constant to each output feature.
        normalize: how the graph made from an edge_index is normalised; None takes the weights as they are.

    Shapes:
        x: ``(..., N, in_features)``; result: ``(..., N, out_features)``.
    """

    settings = ("order",)
    taps: Tensor

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        order: int = 2,
        bias: bool = False,
        normalize: Normalization | None = "symmetric",
    ) -> None:
        super().__init__(in_features, out_features, bias, normalize)
        self.order = check_integer("order", order, minimum=0)
        self.draw("taps", in_features * (order + 1), order + 1, in_features, out_features)
        self.reset_parameters()

    def forward(self, x: Tensor, graph: GraphLike | Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return self.biased(chebyshev(x, self.check(x, graph, edge_weight), self.taps))

    def describe(self) -> tuple[Layer, ...]:
        return self.described(self.order)


class ARMA(AnyConvolution):
    """A bank of rational filters by recursion; see :func:`graphact.functional.arma`.

    Args:
        in_features: features of the input.
        out_features: features of the output.
        order: steps T of the recursion, which is the number of exchanges.
        stacks: number P of recursions whose mean is the output.
        bias: add a trained constant to each output feature.
        normalize: how the graph made from an edge_index is normalised; None takes the weights as they are.

    Shapes:
        x: ``(..., N, in_features)``; result: ``(..., N, out_features)``.
    """

    settings = ("order", "stacks")
    first: Tensor
    recurrent: Tensor
    direct: Tensor

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        order: int = 2,
        stacks: int = 1,
        bias: bool = False,
        normalize: Normalization | None = "symmetric",
    ) -> None:
        super().__init__(in_features, out_features, bias, normalize)
        self.order = check_integer("order", order, minimum=1)
        self.stacks = check_integer("stacks", stacks, minimum=1)
        self.draw("first", 2 * in_features, stacks, in_features, out_features)
        self.draw("direct", 2 * in_features, stacks, in_features, out_features)
        self.draw("recurrent", 2 * out_features, stacks, out_features, out_features)
        self.reset_parameters()

    def forward(self, x: Tensor, graph: GraphLike | Tensor, edge_weight: Tensor | None = None) -> Tensor:
        graph = self.check(x, graph, edge_weight)
        return self.biased(arma(x, graph, self.first, self.recurrent, self.direct, self.order))

    def describe(self) -> tuple[Layer, ...]:
        return self.described(self.order)


class GraphAttention(AnyConvolution):
    """Graph attention over the neighbours and the node itself; see :func:`graphact.functional.attention`.

    Args:
        in_features: features of the input.
        out_features: features of the output, those of all heads side by side.
        heads: number H of heads, which must divide out_features.
        slope: of the LeakyReLU below 0.
        bias: add a trained constant to each output feature.
        normalize: of no consequence, as edge weights play no part.

    Shapes:
        x: ``(..., N, in_features)``; result: ``(..., N, out_features)``.
    """

    settings = ("heads", "slope")
    weight: Tensor
    at_node: Tensor
    at_neighbor: Tensor

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        heads: int = 1,
        slope: float = 0.2,
        bias: bool = False,
        normalize: Normalization | None = "symmetric",
    ) -> None:
        super().__init__(in_features, out_features, bias, normalize)
        self.heads, self.slope = check_integer("heads", heads, minimum=1), float(slope)
        if out_features % heads:
            raise ValueError(f"heads must divide out_features, {out_features}, got {heads}")
        self.draw("weight", in_features, heads, in_features, out_features // heads)
        self.draw("at_node", out_features // heads, heads, out_features // heads)
        self.draw("at_neighbor", out_features // heads, heads, out_features // heads)
        self.reset_parameters()

    def forward(self, x: Tensor, graph: GraphLike | Tensor, edge_weight: Tensor | None = None) -> Tensor:
        graph = self.check(x, graph, edge_weight)
        return self.biased(attention(x, graph, self.weight, self.at_node, self.at_neighbor, self.slope).flatten(-2))

    def describe(self) -> tuple[Layer, ...]:
        return self.described(1)


class EdgeNet(AnyConvolution):
    """An edge-varying filter bank, which belongs to one graph; see :func:`graphact.functional.edge_varying`.

    Any number of signals on that graph may be given, and the graph in any order of its edges; another graph is refused,
    and so are the coefficients of another graph, by ``load_state_dict``. :meth:`permuted` moves the coefficients along
    when nodes get other numbers.

    Args:
        in_features: features of the input.
        out_features: features of the output.
        graph: the graph, whose edge weights play no part; where it is None, its sizes and pattern are given instead.
        order: the order K, which is the number of exchanges.
        bias: add a trained constant to each output feature.
        num_nodes: number of nodes of the graph.
        num_edges: number of its edges.
        pattern: digest of its neighbour lists.
        normalize: of no consequence, as edge weights play no part.

    Shapes:
        x: ``(..., N, in_features)``; result: ``(..., N, out_features)``; ``own``: ``(K + 1, N, in_features,
        out_features)``; ``edge``: ``(K, E, in_features, out_features)``.

    Example:
        >>> import torch, graphact
        >>> path = graphact.Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> net = graphact.nn.EdgeNet(2, 3, path, order=2)
        >>> net(torch.randn(5, 3, 2), path).shape
        torch.Size([5, 3, 3])
        >>> perm = torch.tensor([2, 0, 1])
        >>> x = torch.randn(3, 2)
        >>> moved = net.permuted(path, perm)(x[perm], path.permute(perm))
        >>> torch.allclose(moved, net(x, path)[perm], atol=1e-6)
        True
    """

    settings = ("order", "num_nodes", "num_edges", "pattern")
    own: Tensor
    edge: Tensor
    graph_digest: Tensor  # the pattern, so that a state_dict tells which graph its coefficients belong to

    def __init__(
        self,
        in_features: int,
        out_features: int,
        graph: Graph | None = None,
        *,
        order: int = 1,
        bias: bool = False,
        num_nodes: int | None = None,
        num_edges: int | None = None,
        pattern: str | None = None,
        normalize: Normalization | None = "symmetric",
    ) -> None:
        super().__init__(in_features, out_features, bias, normalize)
        if graph is not None:
            graph = check_graph("graph", graph)
            num_nodes, num_edges, pattern = graph.num_nodes, graph.num_edges, pattern_of(graph)
        if num_nodes is None or num_edges is None or not isinstance(pattern, str):
            raise TypeError("graph must be the Graph whose edges get coefficients, got None")
        self.order, self.pattern = check_integer("order", order, minimum=0), pattern
        self.num_nodes = check_integer("num_nodes", num_nodes, minimum=1)
        self.num_edges = check_integer("num_edges", num_edges, minimum=0)
        terms = in_features * (order + 1) * (1 + num_edges / num_nodes)
        self.draw("own", terms, order + 1, num_nodes, in_features, out_features)
        self.draw("edge", terms, order, num_edges, in_features, out_features)
        digest = torch.tensor([*pattern.encode()], dtype=torch.uint8, device="cpu")
        self.register_buffer("graph_digest", digest)
        self.reset_parameters()

    def forward(self, x: Tensor, graph: GraphLike | Tensor, edge_weight: Tensor | None = None) -> Tensor:
        whole = self.check(x, graph, edge_weight).whole
        if whole is None:
            raise UnsupportedModelError("", "an EdgeNet needs the whole graph: no part of it, and no edges of ONNX")
        self.check_pattern(whole)
        return self.biased(edge_varying(x, whole, self.own, self.edge))

    def check_pattern(self, graph: Graph) -> None:
        """Raise if a graph has other nodes or edges; compiled code compares their numbers alone."""
        same = (graph.num_nodes, graph.num_edges) == (self.num_nodes, self.num_edges)
        if same and (torch.compiler.is_compiling() or pattern_of(graph) == self.pattern):
            return
        raise ValueError(
            f"graph must be the one that the coefficients of this EdgeNet belong to, with {self.num_nodes} nodes and "
            f"{self.num_edges} edges, got {'other edges' if same else graph}"
        )

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool, missing_keys: list[str],
        unexpected_keys: list[str], error_msgs: list[str],
    ) -> None:  # fmt: skip
        """Refuse the coefficients of another graph; states of earlier versions do not tell their graph."""
        key = f"{prefix}graph_digest"
        given = state_dict.get(key)
        if given is not None and not given.is_meta and not torch.equal(given.cpu(), self.graph_digest.cpu()):
            sizes = f"{self.num_nodes} nodes and {self.num_edges} edges"
            error_msgs.append(
                f"{prefix or 'this '}EdgeNet belongs to a graph with {sizes}, and the state to another one: build it "
                "with that graph, or move the coefficients by permuted()"
            )
            return
        arguments = (prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        super()._load_from_state_dict(state_dict, *arguments)
        if key in missing_keys:
            missing_keys.remove(key)

    def permuted(self, graph: Graph, perm: Tensor) -> "EdgeNet":
        """The same filter for ``graph.permute(perm)``, whose node i is node ``perm[i]`` of the graph of this one."""
        self.check_pattern(graph)
        moved = graph.permute(perm)
        twin = EdgeNet(
            self.in_features, self.out_features, moved, order=self.order, bias=self.bias is not None,
            normalize=self.normalize,
        ).to(self.own)  # fmt: skip
        number, perm = graph.num_nodes, torch.as_tensor(perm, device=graph.device)
        keys = graph.incoming.rows * number + graph.incoming.col
        wanted = perm[moved.incoming.rows] * number + perm[moved.incoming.col]
        moved_state = {"own": self.own[:, perm], "edge": self.edge[:, torch.searchsorted(keys, wanted)]}
        twin.load_state_dict({**self.state_dict(), **moved_state, "graph_digest": twin.graph_digest})
        return twin

    def describe(self) -> tuple[Layer, ...]:
        return self.described(self.order)


def pattern_of(graph: Graph) -> str:
    """The digest of the neighbour lists of a graph, computed once for each graph."""
    if graph not in _patterns:
        with outside_transforms(graph.incoming.rowptr, graph.incoming.col) as lists:
            _patterns[graph] = hashlib.sha256(torch.cat(lists).cpu().numpy().tobytes()).hexdigest()[:32]
    return _patterns[graph]


_patterns: WeakKeyDictionary[Graph, str] = WeakKeyDictionary()
