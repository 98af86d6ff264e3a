"""EdgeNet: edge-varying graph filters (Isufi, Gama and Ribeiro, 2021)."""

import hashlib
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from graphact._checks import check_integer
from graphact.functional import edge_varying
from graphact.graph import Graph
from graphact.graph.eager import outside_transforms
from graphact.graph.graph import check_graph
from graphact.graph.normalize import Normalization, check_normalize
from graphact.graph.protocol import GraphLike
from graphact.nn.call import check_features, resolve_graph
from graphact.nn.module import UniformModule
from graphact.spec import Convolution, Layer, UnsupportedModelError


class EdgeNet(UniformModule):
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
        normalize: without effect, as edge weights play no part.

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

    bias: Tensor | None
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
        super().__init__()
        self.in_features = check_integer("in_features", in_features, minimum=1)
        self.out_features = check_integer("out_features", out_features, minimum=1)
        self.normalize = check_normalize(normalize)
        self.add_bias(bias, self.in_features, self.out_features)
        if graph is not None:
            graph = check_graph("graph", graph)
            num_nodes, num_edges, pattern = graph.num_nodes, graph.num_edges, pattern_of(graph)
        if num_nodes is None or num_edges is None or not isinstance(pattern, str):
            raise TypeError("graph must be the Graph whose edges get coefficients, got None")
        self.order, self.pattern = check_integer("order", order, minimum=0), pattern
        self.num_nodes = check_integer("num_nodes", num_nodes, minimum=1)
        self.num_edges = check_integer("num_edges", num_edges, minimum=0)
        terms = in_features * (order + 1) * (1 + num_edges / num_nodes)
        self.add_uniform("own", terms, order + 1, num_nodes, in_features, out_features)
        self.add_uniform("edge", terms, order, num_edges, in_features, out_features)
        digest = torch.tensor([*pattern.encode()], dtype=torch.uint8, device="cpu")
        self.register_buffer("graph_digest", digest)
        self.reset_parameters()

    def forward(self, x: Tensor, graph: GraphLike | Tensor, edge_weight: Tensor | None = None) -> Tensor:
        x = check_features(x, "in_features", self.in_features)
        whole = resolve_graph(x, graph, edge_weight, self.normalize).whole
        if whole is None:
            raise UnsupportedModelError("", "an EdgeNet needs the whole graph: no part of it, and no edges of ONNX")
        self.check_pattern(whole)
        filtered = edge_varying(x, whole, self.own, self.edge)
        return filtered if self.bias is None else filtered + self.bias

    def check_pattern(self, graph: Graph) -> None:
        """Raise if a graph has other nodes or edges; compiled code compares only how many there are."""
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
        """Refuse the coefficients of another graph; a state without a digest is accepted."""
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
        """Return the same filter for ``graph.permute(perm)``, whose node i is node ``perm[i]`` of this graph."""
        self.check_pattern(graph)
        moved = graph.permute(perm)
        options: dict[str, Any] = {"order": self.order, "bias": self.bias is not None, "normalize": self.normalize}
        twin = EdgeNet(self.in_features, self.out_features, moved, **options).to(self.own)
        number, perm = graph.num_nodes, torch.as_tensor(perm, device=graph.device)
        keys = graph.incoming.rows * number + graph.incoming.col
        wanted = perm[moved.incoming.rows] * number + perm[moved.incoming.col]
        moved_state = {"own": self.own[:, perm], "edge": self.edge[:, torch.searchsorted(keys, wanted)]}
        twin.load_state_dict({**self.state_dict(), **moved_state, "graph_digest": twin.graph_digest})
        return twin

    def describe(self) -> tuple[Layer, ...]:
        parameters = dict(self.named_parameters())
        widths = self.in_features, self.out_features
        return (Convolution("EdgeNet", self.options(), self.order, parameters, *widths),)

    def options(self) -> dict[str, Any]:
        """Return the sizes and the pattern of the graph, and the order."""
        return {name: getattr(self, name) for name in ("order", "num_nodes", "num_edges", "pattern")}

    def config(self) -> dict[str, Any]:
        widths = {"in_features": self.in_features, "out_features": self.out_features}
        return {**widths, **self.options(), "bias": self.bias is not None, "normalize": self.normalize}


def pattern_of(graph: Graph) -> str:
    """Return the digest of the neighbour lists of a graph, computed once for each graph."""
    if graph not in _patterns:
        with outside_transforms(graph.incoming.rowptr, graph.incoming.col) as lists:
            _patterns[graph] = hashlib.sha256(torch.cat(lists).cpu().numpy().tobytes()).hexdigest()[:32]
    return _patterns[graph]


_patterns: WeakKeyDictionary[Graph, str] = WeakKeyDictionary()
