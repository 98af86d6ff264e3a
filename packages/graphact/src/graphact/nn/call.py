"""Calls of modules: the graph of a call, given, built and cached, or that of the surrounding model."""

import inspect
from collections.abc import Callable, Mapping
from threading import local
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from graphact._checks import HALF_PRECISION, check_tensor
from graphact.graph import Graph
from graphact.graph.advice import how_to_build, kind_of
from graphact.graph.cache import BuildCache
from graphact.graph.eager import outside_compiled_code
from graphact.graph.edges import plain_edge_index
from graphact.graph.normalize import Normalization
from graphact.graph.protocol import GraphLike

BUILT: BuildCache[Any] = BuildCache()


def clear_graph_cache() -> None:
    """Forget the graphs that modules built from an edge_index, so that the next call builds them again.

    Only needed after changes of an edge_index, a batch or integer weights that torch does not count: through ``.data``,
    or through a NumPy array that shares their memory.

    Example:
        >>> import numpy, torch, graphact
        >>> edges = numpy.array([[1, 2], [0, 0]])  # edges from 1 and 2 to 0
        >>> edge_index, x = torch.from_numpy(edges), torch.tensor([[0.0], [1.0], [5.0]])
        >>> activation = graphact.nn.LocalizedMax(start="uniform")
        >>> before = activation(x, edge_index)[0]
        >>> edges[:, 1] = edges[:, 0]  # the array that edge_index was made from
        >>> graphact.nn.clear_graph_cache()
        >>> torch.equal(activation(x, edge_index)[0], before)
        False
    """
    BUILT.clear()


@outside_compiled_code("activations are called with x alone inside a PassGraph that is not compiled: compile that")
def current_backward_pass() -> int:
    """Return the number of the backward pass that this thread works on; -1 outside of one."""
    return torch._C._current_graph_task_id()


class ModelCall:
    """A forward pass of a model, or its description: the graph, and how often each ``PerLayer`` was used."""

    def __init__(self, graph: GraphLike, uses: Mapping[int, int] = MappingProxyType({})) -> None:
        self.graph = graph
        self.uses = dict(uses)
        self.is_over = False
        self.is_traced = torch.compiler.is_compiling()
        self.backward_pass = -1 if self.is_traced else current_backward_pass()

    def run(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call a function whose activations take the graph of this call, and end the call."""
        try:
            return self.run_part(function, *arguments, **options)
        finally:
            self.is_over = True

    def run_part(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call a function whose activations take the graph of this call."""
        if CURRENT.call is self:  # compiled code may not assign inside a checkpoint
            return function(*arguments, **options)
        around, CURRENT.call = CURRENT.call, self
        try:
            return function(*arguments, **options)
        finally:
            CURRENT.call = around

    def describe(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function that describes a model on the graph of this call."""
        around, CURRENT.described = CURRENT.described, self
        try:
            return function(*arguments)
        finally:
            CURRENT.described = around

    def count_use(self, module: nn.Module) -> int:
        """Count a use of a module in this call; return how often it was used before."""
        used = self.uses.get(id(module), 0)
        self.uses[id(module)] = used + 1
        return used

    def is_of_this_pass(self) -> bool:
        """Return whether the current code belongs to the same pass, not to a backward pass that began during the call.

        What a backward pass recomputes, as ``torch.utils.checkpoint`` does, may be a part of any earlier call.
        """
        if self.is_traced and torch.compiler.is_compiling():
            return True  # traced together with its activations
        return self.backward_pass == current_backward_pass()


class Current(local):
    """The current call of each thread; not a ContextVar, which torch.compile cannot trace."""

    call: ModelCall | None = None
    described: ModelCall | None = None  # a description, with the edges that it is for


CURRENT = Current()
SEVERAL_WIDTHS = (
    "a model that calls one act on several widths, as GIN does inside its layers, takes one with features=None, or "
    "pointwise ones there: for conv in model.convs: conv.nn.act = torch.nn.ReLU()"
)


def current_call() -> ModelCall | None:
    """Return the call that this thread is in; None outside of one, and in a recomputation that is not bound to one."""
    call = CURRENT.call
    return call if call is not None and call.is_of_this_pass() else None


def remedy() -> str:
    """Return what to do about an activation that is called with x alone where no graph is known."""
    if current_backward_pass() >= 0:
        return (
            "this is computed again in a backward pass, which does not know the graph of the call: bind it in the "
            "forward pass, as in torch.utils.checkpoint.checkpoint(graphact.pyg.bind_graph(function), ...)"
        )
    return (
        "call the activation as module(x, graph), or the model that calls it with x alone through "
        "graphact.pyg.PassGraph(model)"
    )


def resolve_graph(
    x: Any,
    graph: GraphLike | Tensor | None,
    edge_weight: Tensor | None,
    normalize: Normalization | None = None,
    batch: Tensor | None = None,
) -> GraphLike:
    """Return the graph of a module call: given, of the surrounding call, or built from a sparse tensor or an edge list.

    Only a graph from an edge list is normalised. With ``batch``, it is several graphs side by side.
    """
    if graph is None:
        call = current_call()
        if call is None:
            raise TypeError(f"graph must be a graphact.Graph or an edge_index tensor, got NoneType: {remedy()}")
        graph = call.graph
    if not isinstance(graph, Tensor) and hasattr(graph, "one_hop"):
        if edge_weight is not None:
            raise TypeError("edge_weight goes with an edge_index; a Graph holds its own weights")
        return with_batch(graph, batch)
    if isinstance(x, (tuple, list)):
        raise TypeError(
            f"x must be one tensor on the nodes of one graph, got {len(x)} of them: the edges of a bipartite pair "
            "(source, target) lead from one set of nodes to another and are no shift operator"
        )
    if isinstance(graph, Tensor) and graph.layout == torch.strided:
        return _build_graph(check_tensor("x", x), graph, edge_weight, normalize, batch)
    if not isinstance(graph, Tensor) and not hasattr(graph, "sparse_sizes"):
        advice = how_to_build(graph)
        raise TypeError(f"graph must be a graphact.Graph or an edge_index tensor, got {kind_of(graph)}{advice}")
    if edge_weight is not None:
        raise TypeError("edge_weight goes with an edge_index; a sparse tensor holds its own weights")
    return with_batch(Graph.from_sparse(graph), batch)


def with_batch(graph: GraphLike, batch: Tensor | None) -> GraphLike:
    """Return the graph with the ``batch`` of its nodes; ignored for partitioned graphs, which have no means."""
    return graph.with_batch(batch) if batch is not None and isinstance(graph, Graph) else graph


def accepts_batch(module: nn.Module, *, with_any: bool = False) -> bool:
    """Return whether a call of a module takes ``batch`` by name or, ``with_any``, keywords of any name."""
    original = getattr(module, "_orig_mod", module)  # of torch.compile
    try:
        parameters = inspect.signature(original.forward).parameters
    except (TypeError, ValueError):  # compiled code has none
        return False
    return "batch" in parameters or (with_any and any(p.kind is p.VAR_KEYWORD for p in parameters.values()))


def check_features(x: Tensor, name: str, features: int | None) -> Tensor:
    """Return a signal; raise if it has the wrong number of features, None standing for any."""
    if features is not None and isinstance(x, Tensor) and x.dim() >= 2 and x.size(-1) != features:
        several = "" if CURRENT.call is None else f"; {SEVERAL_WIDTHS}"
        raise ValueError(
            f"x must have the shape (..., N, F) with F = {features}, the {name} of this module, got "
            f"{tuple(x.shape)}{several}"
        )
    return x


@outside_compiled_code("an edge_index is sorted in every call: build a graphact.Graph once and compile with it")
def _build_graph(
    x: Tensor,
    edge_index: Tensor,
    edge_weight: Tensor | None,
    normalize: Normalization | None,
    batch: Tensor | None,
) -> Graph:
    if x.dim() < 2:
        raise ValueError(f"x must have the shape (..., N, F), got {tuple(x.shape)}")
    num_nodes, dtype = x.size(-2), None
    if edge_weight is None:
        dtype = torch.float32 if x.dtype in HALF_PRECISION or not x.is_floating_point() else x.dtype
    elif not check_tensor("edge_weight", edge_weight).is_floating_point():
        dtype = torch.get_default_dtype()  # which integers become

    def build() -> Graph:
        ones = torch.ones(edge_index.shape[-1:], dtype=dtype, device=edge_index.device)
        graph = Graph.from_edge_index(edge_index, ones if edge_weight is None else edge_weight, num_nodes)
        graph = graph if batch is None else graph.with_batch(batch)
        return graph if normalize is None else graph.normalize(normalize)

    return BUILT.get((plain_edge_index(edge_index)[0], edge_weight, batch), (num_nodes, dtype, normalize), build)
