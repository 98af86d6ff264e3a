"""Export to ONNX: the passes over neighbours as gather, scatter and sort, which every ONNX runtime knows."""

import inspect
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from graphact._checks import check_choice, check_tensor
from graphact._extras import require
from graphact.functional.neighborhood import (
    Parameters,
    evaluate_function,
    fused_neighbor_pass,
    gaussian,
    neighborhood_pass,
    several_functions_pass,
    shift_pass,
)
from graphact.graph import Graph, Neighborhoods
from graphact.graph.graph import check_graph, check_values
from graphact.graph.protocol import Pass
from graphact.kernels.reference import own_term
from graphact.layers import UnsupportedModelError
from graphact.nn.base import GraphModule
from graphact.nn.parts import is_of_pyg
from graphact.operations import Operation

Edges = Literal["constant", "input"]
OPSET = 18  # the first that scatters maxima
WAY_OUT = (
    "model must be called as model(x, graph) with a graphact.Graph, and this one takes an edge_index: call it in a "
    "module with forward(self, x, graph), which gets edge_index, edge_weight = graph.to_edge_index(), "
    "as conv(x, edge_index), act(x, graph) or, for PassGraph, model(x, edge_index, graph=graph)"
)


def export_onnx(
    model: nn.Module, x: Tensor, graph: Graph, path: str | os.PathLike[str], *, edges: Edges = "constant"
) -> None:
    """Write a model that is called as ``model(x, graph)`` to an ONNX file.

    The file has the output ``out``. Empty neighbourhoods, ties and NaN give what they give in torch. Leading dimensions
    of ``x`` may have any size when the file is run. Needs the extra ``onnx``.

    Args:
        model: any module; it is exported in evaluation mode. PyG's modules take an edge_index: in a ``forward`` of your
            own, ``edge_index, edge_weight = graph.to_edge_index()`` gives one for ``conv(x, edge_index)``, beside
            ``act(x, graph)``, or for a ``PassGraph``, called as ``model(x, edge_index, graph=graph)``.
        x: an example of its signal, ``(..., N, F)``.
        graph: the graph.
        path: where to write.
        edges: ``"constant"`` puts the graph into the file, whose only input is ``x``. With ``"input"`` the file has the
            inputs ``x``, ``edge_index`` ``(2, E)`` and ``edge_weight`` ``(E,)``, of any number of nodes and edges;
            :meth:`Graph.to_edge_index <graphact.Graph.to_edge_index>` gives the last two. Weights are used as they are
            (normalise the graph first), and no edge may be there twice.

    Raises:
        ModuleNotFoundError: onnx or onnxscript is missing.
        UnsupportedModelError: the model takes an edge_index; with ``edges="input"``, it has localized medians or
            kernels over several hops or a user's own function of neighbours; torch cannot translate a part of it; or
            the exported steps do not compute what it computes.

    Example:
        >>> import torch, graphact
        >>> graph = graphact.Graph.stochastic_block_model([5, 5], p=0.8, q=0.1)
        >>> model = graphact.nn.GCNN([1, 4], order=2, activation="max-ga", out_features=2)
        >>> graphact.export_onnx(model, torch.randn(3, 10, 1), graph, "out/model.onnx")  # doctest: +SKIP
        >>> session = onnxruntime.InferenceSession("out/model.onnx")  # doctest: +SKIP
        >>> (scores,) = session.run(["out"], {"x": signals})  # doctest: +SKIP
    """
    require("export_onnx needs", "onnx", "onnxscript")
    check_choice("edges", edges, ("constant", "input"))
    if takes_edges(model) and not hasattr(graph, "one_hop"):
        raise UnsupportedModelError("", WAY_OUT)
    x = check_values(check_tensor("x", x), check_graph("graph", graph)).detach()
    fewest = 1 if edges == "constant" else 2  # torch takes sizes below 2 for constants
    if graph.num_nodes < fewest or (edges == "input" and graph.num_edges < fewest):
        raise ValueError(
            f'with edges="{edges}" graph must have at least {fewest} nodes and {2 * fewest - 2} edges, '
            f"got {graph.num_nodes} and {graph.num_edges}"
        )
    x = x.expand(*(max(size, 2) for size in x.shape[:-2]), *x.shape[-2:])
    edge_index, edge_weight = (part.detach() for part in graph.to_edge_index())
    with torch.no_grad(), evaluation_mode(model):
        expected = answer_of(model, x, graph)
        if not isinstance(expected, Tensor):
            raise UnsupportedModelError("", f"it must return a tensor, got {type(expected).__name__}")
        if edges == "constant":
            whole: nn.Module = OnConstantGraph(model, graph, edge_index, edge_weight)
            inputs: dict[str, Tensor] = {"x": x}
        else:
            whole = OnGivenEdges(model)
            inputs = {"x": x, "edge_index": edge_index, "edge_weight": edge_weight}
        whole.eval()
        found = whole(**inputs)  # also finds the neighbours of several hops, before anything is traced
        if not torch.allclose(found, expected, rtol=1e-3, atol=1e-3, equal_nan=True):
            raise UnsupportedModelError("", "its results differ when neighbours are gathered and scattered by torch")
        leading = dict.fromkeys(range(x.dim() - 2), torch.export.Dim.DYNAMIC)
        shapes: dict[str, Any] = {"x": leading}
        if edges == "input":
            any_size = torch.export.Dim.DYNAMIC
            shapes = {
                "x": {**leading, x.dim() - 2: any_size},
                "edge_index": {1: any_size},
                "edge_weight": {0: any_size},
            }
        write(whole, inputs, shapes, Path(path))


def answer_of(model: nn.Module, x: Tensor, graph: Graph) -> Any:
    """What the model answers, which must take a graph."""
    try:
        return model(x, graph)
    except (TypeError, ValueError, AttributeError) as error:
        if takes_edges(model):
            raise UnsupportedModelError("", WAY_OUT) from error
        raise


def takes_edges(model: nn.Module) -> bool:
    """Whether a model is called with an edge_index, as those of PyG and ``PassGraph`` are, rather than with a graph."""
    if isinstance(model, GraphModule):
        return False
    return "edge_index" in inspect.signature(model.forward).parameters or any(map(is_of_pyg, model.modules()))


def write(model: nn.Module, inputs: dict[str, Tensor], shapes: dict[str, Any], path: Path) -> None:
    """Let torch write the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with warnings.catch_warnings():
            for category in (DeprecationWarning, FutureWarning):  # of torch about its own code
                warnings.simplefilter("ignore", category)
            torch.onnx.export(
                model,
                kwargs=inputs,
                f=path,
                input_names=list(inputs),
                output_names=["out"],
                dynamic_shapes=shapes,
                opset_version=OPSET,
                dynamo=True,
                verbose=False,
            )
    except torch.onnx.OnnxExporterError as error:
        cause = str(error.__cause__ or error).strip().splitlines()[0]
        raise UnsupportedModelError("", f"torch cannot translate it to ONNX: {cause}") from error


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode, and each of its parts back into the mode it had."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


class OnConstantGraph(nn.Module):
    """A model with its graph; the edges of the graph are buffers."""

    edge_index: Tensor
    edge_weight: Tensor

    def __init__(self, model: nn.Module, graph: Graph, edge_index: Tensor, edge_weight: Tensor) -> None:
        super().__init__()
        self.model, self.graph = model, graph
        self.register_buffer("edge_index", edge_index)
        self.register_buffer("edge_weight", edge_weight)

    def forward(self, x: Tensor) -> Any:
        given = EdgeGraph(self.edge_index, self.edge_weight, self.graph.num_nodes, self._edges_of_pattern, self._lists)
        return self.model(x, given)

    def _lists(self, hops: int, closed: bool) -> Neighborhoods:
        is_pattern = closed or hops > 1
        return self.graph.hop_pattern(hops, closed=closed) if is_pattern else self.graph.incoming

    def _edges_of_pattern(self, hops: int, closed: bool) -> Tensor:
        name = f"edge_index_{hops}_{closed}"
        if not hasattr(self, name):
            lists = self._lists(hops, closed)
            self.register_buffer(name, torch.stack([lists.col, lists.rows]))
        return getattr(self, name)


class OnGivenEdges(nn.Module):
    """A model that is called with the edges of its graph."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Any:
        return self.model(x, EdgeGraph(edge_index, edge_weight, x.size(-2)))


class EdgeGraph:
    """A graph as its edges, evaluated edge by edge; answers :class:`~graphact.graph.protocol.GraphLike`.

    One edge that leads to no node is added, so that there is always one; loops count as such where neighbours are
    meant.

    Args:
        edge_index: ``(2, E)``, sources and targets, loops among them.
        edge_weight: ``(E,)``.
        num_nodes: the number N of nodes.
        edges_of: gives the edges of several hops, where they are known.
        lists_of: gives their neighbour lists, for users' functions.
    """

    whole = None
    holds_every_node = True

    def __init__(
        self, edge_index: Tensor, edge_weight: Tensor, num_nodes: int,
        edges_of: Callable[[int, bool], Tensor] | None = None,
        lists_of: Callable[[int, bool], Neighborhoods] | None = None,
    ) -> None:  # fmt: skip
        self.edge_index, self.edge_weight, self.num_nodes = edge_index, edge_weight, num_nodes
        self.edges_of, self.lists_of = edges_of, lists_of
        self.device, self.dtype = edge_weight.device, edge_weight.dtype

    def check_signal(self, x: Any) -> Tensor:
        return check_values(x, self)

    def to_edge_index(self) -> tuple[Tensor, Tensor]:
        """PyG's ``(edge_index, edge_weight)``, for convolutions that take these."""
        return self.edge_index, self.edge_weight

    def one_hop(self, x: Tensor, pass_: Pass, *arguments: Any) -> tuple[Tensor, ...]:
        """See :meth:`GraphLike.one_hop <graphact.graph.protocol.GraphLike.one_hop>`."""
        if pass_ is shift_pass:
            return (self.shift(x),)
        if pass_ is several_functions_pass:
            functions, closed, shifting = arguments
            values = tuple(Walks(self, 1).evaluate(x, op, parameters, closed) for op, parameters in functions)
            return *values, self.shift(x) if shifting else x
        if pass_ not in (neighborhood_pass, fused_neighbor_pass):
            raise UnsupportedModelError("", f"{pass_.__name__} over neighbours is not written for ONNX")
        op, parameters, closed, *shifting = arguments
        value = Walks(self, 1).evaluate(x, op, parameters, closed)
        return (value, self.shift(x)) if shifting and shifting[0] else (value,)

    def k_hop(
        self, x: Tensor, hops: int, closed: bool, term: Callable[[Tensor, Any], Tensor], _: Any = None
    ) -> Sequence[Tensor]:
        """See :meth:`GraphLike.k_hop <graphact.graph.protocol.GraphLike.k_hop>`."""
        return [term(x, Walks(self, k, closed)) for k in range(1, hops + 1)]

    def shift(self, x: Tensor) -> Tensor:
        """``S x``; as in a :class:`~graphact.Graph`, where a node has no loop its own value takes no part."""
        source, target = self.edge_index
        is_loop = source == target
        weight = torch.cat([self.edge_weight, self.edge_weight.new_zeros(1)]).to(x.dtype).unsqueeze(-1)
        source, hearer = self.neighbors(closed=False)
        shifted = scattered(weight * x.index_select(-2, source), hearer, self.num_nodes, "sum")
        of_loops = torch.where(is_loop, self.edge_weight, 0.0).to(x.dtype).unsqueeze(-1)
        diagonal = scattered(of_loops, target, self.num_nodes, "sum")
        return shifted + own_term(diagonal, x)

    def neighbors(self, closed: bool) -> tuple[Tensor, Tensor]:
        """The edges between a node and its neighbours."""
        source, target = self.edge_index
        target = torch.where(source == target, self.num_nodes, target)
        if closed:
            nodes = torch.arange(self.num_nodes, device=self.device)
            source, target = torch.cat([source, nodes]), torch.cat([target, nodes])
        return with_nobody(source, target, self.num_nodes)


class Walks:
    """The neighbours that walks of k edges lead to, which evaluate an operation by themselves."""

    def __init__(self, graph: EdgeGraph, hops: int, closed: bool = False) -> None:
        self.graph, self.hops, self.closed = graph, hops, closed

    def evaluate(self, x: Tensor, op: Operation, parameters: Parameters, closed: bool = False) -> Tensor:
        """See :func:`graphact.functional.neighborhood.evaluate`."""
        graph = self.graph
        if not op.is_built_in:
            if graph.lists_of is None:
                raise UnsupportedModelError("", f'the function {op.name!r} of neighbours needs edges="constant"')
            return evaluate_function(x, graph.lists_of(self.hops, self.closed), op, parameters, closed)
        steps = 1
        if self.hops == 1:
            edges = graph.neighbors(self.closed or (closed and op.name != "kernel"))
        elif graph.edges_of is not None:
            source, target = graph.edges_of(self.hops, self.closed)
            edges = with_nobody(source, target, graph.num_nodes)
        elif op.name in ("max", "min"):
            edges, steps = graph.neighbors(self.closed), self.hops
        else:
            raise UnsupportedModelError("", f'a localized {op.name} over {self.hops} hops needs edges="constant"')
        if op.name == "kernel":
            source, target = edges
            own = torch.cat([x, x[..., :1, :]], dim=-2)  # nobody has a value, too
            squares = (own.index_select(-2, target) - x.index_select(-2, source)).square()
            return gaussian(scattered(squares, target, graph.num_nodes, "sum"), parameters["gamma"], x)
        if op.name == "median":
            return median(x, *edges, graph.num_nodes)
        sign = 1 if op.name == "max" else -1
        return sign * largest(sign * x, *edges, graph.num_nodes, steps)


def with_nobody(source: Tensor, target: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    """One more edge, to a node that is not there."""
    return torch.cat([source, source.new_zeros(1)]), torch.cat([target, target.new_full((1,), num_nodes)])


def scattered(values: Tensor, target: Tensor, num_nodes: int, reduce: str) -> Tensor:
    """Values ``(..., E, F)`` of edges, added up or compared at their targets ``0..N``; N is left out.

    Of no values, the sum is 0 and the maximum minus infinity.
    """
    start = 0 if reduce == "sum" else float("-inf")
    shape = (*values.shape[:-2], num_nodes + 1, values.size(-1))
    total = torch.full(shape, start, dtype=values.dtype, device=values.device)
    index = target.unsqueeze(-1).expand(values.shape)
    return total.scatter_reduce(-2, index, values, reduce)[..., :num_nodes, :]


def degrees(target: Tensor, num_nodes: int) -> Tensor:
    """How many edges lead to each of the nodes, ``(N, 1)``."""
    return scattered(torch.ones_like(target).unsqueeze(-1), target, num_nodes, "sum")


def has_nan(values: Tensor, target: Tensor, num_nodes: int) -> Tensor:
    """Where a value is NaN, which runtimes compare as they like."""
    return scattered(values.isnan().to(values.dtype), target, num_nodes, "sum") > 0


def largest(x: Tensor, source: Tensor, target: Tensor, num_nodes: int, steps: int) -> Tensor:
    """Maxima over neighbours, taken again and again for walks of several steps; 0 where none leads to anyone."""
    found = torch.ones_like(x[..., :1])  # whether there is a value at a node
    for _ in range(steps):
        values = x.index_select(-2, source)
        is_nan = has_nan(values, target, num_nodes)
        x = scattered(torch.where(values.isnan(), 0.0, values), target, num_nodes, "amax")
        x = torch.where(is_nan, torch.nan, x)
        found = scattered(found.index_select(-2, source), target, num_nodes, "sum").clamp(max=1)
    return torch.where(found > 0, x, 0.0)


def median(x: Tensor, source: Tensor, target: Tensor, num_nodes: int) -> Tensor:
    """Lower medians: edges sorted by value, then by target, so that the values of a node stand together."""
    values = x.index_select(-2, source)
    is_nan = has_nan(values, target, num_nodes)
    count = target.numel()
    values, order = ascending(torch.where(values.isnan(), 0.0, values), count)
    places = torch.arange(count, device=x.device).unsqueeze(-1)
    keys = target[order] * count + places  # no two are equal, so that sorting them keeps the order of values
    values = values.gather(-2, ascending(keys, count)[1])
    degree = degrees(target, num_nodes)
    middle = degree.cumsum(0) - degree + (degree - 1).clamp(min=0) // 2
    middle = middle.clamp(max=count - 1).expand(x.shape)
    out = torch.where(degree > 0, values.gather(-2, middle), 0.0)
    return torch.where(is_nan, torch.nan, out)


def ascending(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Sort over edges, by the operator that ONNX has for it, whatever their number."""
    return torch.topk(values, count, dim=-2, largest=False, sorted=True)
