"""Export of a model to ONNX, with its graph in the file or with edges as inputs."""

import inspect
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from graphact._checks import check_choice
from graphact._extras import require
from graphact.graph import Graph, Neighborhoods
from graphact.graph.graph import check_graph, check_values
from graphact.nn.module import GraphModule
from graphact.onnx.edge_graph import EdgeGraph
from graphact.spec import UnsupportedModelError

Edges = Literal["constant", "input"]
OPSET = 18  # the first that scatters maxima
ADVICE = (
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
        model: any module; it is exported in evaluation mode. PyG's modules take an edge_index: in your own
            ``forward``, ``edge_index, edge_weight = graph.to_edge_index()`` gives one for ``conv(x, edge_index)`` or
            for a ``PassGraph``, called as ``model(x, edge_index, graph=graph)``.
        x: an example of its signal, ``(..., N, F)``.
        graph: the graph.
        path: where to write.
        edges: ``"constant"`` puts the graph into the file, whose only input is ``x``. With ``"input"`` the file has the
            inputs ``x``, ``edge_index`` ``(2, E)`` and ``edge_weight`` ``(E,)``, of any number of nodes and edges;
            :meth:`Graph.to_edge_index <graphact.Graph.to_edge_index>` gives the last two. Weights are used unchanged
            (normalise the graph first), and no edge may be there twice.

    Raises:
        ModuleNotFoundError: onnx or onnxscript is missing.
        UnsupportedModelError: the model takes an edge_index; with ``edges="input"``, it has localized medians or
            kernels over several hops, a soft maximum, a trimmed or weighted mean, or a user's own function of
            neighbours; torch cannot translate a part of it; or the exported steps do not compute what it computes.

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
    if needs_edges(model) and not hasattr(graph, "one_hop"):
        raise UnsupportedModelError("", ADVICE)
    x = check_values(x, check_graph("graph", graph)).detach()
    min_size = 1 if edges == "constant" else 2  # torch treats sizes below 2 as constants
    if graph.num_nodes < min_size or (edges == "input" and graph.num_edges < min_size):
        raise ValueError(
            f'with edges="{edges}" graph must have at least {min_size} nodes and {2 * min_size - 2} edges, '
            f"got {graph.num_nodes} and {graph.num_edges}"
        )
    x = x.expand(*(max(size, 2) for size in x.shape[:-2]), *x.shape[-2:])
    edge_index, edge_weight = (part.detach() for part in graph.to_edge_index())
    with torch.no_grad(), evaluation_mode(model):
        expected = output_of(model, x, graph)
        if not isinstance(expected, Tensor):
            raise UnsupportedModelError("", f"it must return a tensor, got {type(expected).__name__}")
        if edges == "constant":
            whole: nn.Module = OnConstantGraph(model, graph, edge_index, edge_weight)
            inputs: dict[str, Tensor] = {"x": x}
        else:
            whole = OnGivenEdges(model)
            inputs = {"x": x, "edge_index": edge_index, "edge_weight": edge_weight}
        whole.eval()
        found = whole(**inputs)  # also computes the neighbours of several hops, before tracing
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


def output_of(model: nn.Module, x: Tensor, graph: Graph) -> Any:
    """Return the output of a model that takes a graph."""
    try:
        return model(x, graph)
    except (TypeError, ValueError, AttributeError) as error:
        if needs_edges(model):
            raise UnsupportedModelError("", ADVICE) from error
        raise


def needs_edges(model: nn.Module) -> bool:
    """Return whether a model is called with an edge_index, like those of PyG, rather than with a graph."""
    if isinstance(model, GraphModule):
        return False
    return "edge_index" in inspect.signature(model.forward).parameters or any(
        type(part).__module__.startswith("torch_geometric.") for part in model.modules()
    )


def write(model: nn.Module, inputs: dict[str, Tensor], shapes: dict[str, Any], path: Path) -> None:
    """Write the file with torch's exporter."""
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
