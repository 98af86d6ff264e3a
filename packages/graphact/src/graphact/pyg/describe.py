"""PyG's convolutions and models as layers: the operators of their edges."""

import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch_geometric.nn import (
    GCN,
    GIN,
    MLP,
    BatchNorm,
    ChebConv,
    GCNConv,
    GINConv,
    GraphSAGE,
    MeanAggregation,
    SAGEConv,
    SumAggregation,
)
from torch_geometric.nn import LayerNorm as PyGLayerNorm
from torch_geometric.nn import Linear as PyGLinear
from torch_geometric.nn import Sequential as PyGSequential
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.nn.resolver import swish

from graphact.graph import Graph
from graphact.graph.protocol import GraphLike
from graphact.nn.description import Edges, check_dropout, describe_part, described_edges, layer_norm, register_kinds
from graphact.nn.module import Describer, GraphModule, describe
from graphact.pyg.fused_convs import FusedGINConv, FusedSAGEConv
from graphact.pyg.pass_graph import call_with_edges, with_unit_weights
from graphact.spec import Filter, Layer, Linear, OnGraph, Sum, UnsupportedModelError

SIGNAL_ONLY = ("torch_geometric.nn.dense.linear", "torch_geometric.nn.models.mlp", "torch_geometric.nn.norm.")
AGGREGATIONS: dict[type[nn.Module], str] = {MeanAggregation: "mean", SumAggregation: "sum"}
WEIGHTED = (GCNConv, ChebConv, GCN, GraphSAGE, GIN)  # they take an edge_weight; the models leave it out where convs do
MAX_POWERS = 20  # of a Laplacian, whose Chebyshev polynomials float64 can write with its powers


def accepts_weights(module: nn.Module) -> bool:
    """Return whether a model of PyG takes an edge_weight after the edge_index."""
    if isinstance(module, PyGSequential):
        return list(module.signature.param_dict)[1:] == ["edge_index", "edge_weight"]
    return isinstance(module, WEIGHTED)


def describe_convolution(conv: nn.Module, weighted: bool = True) -> tuple[Layer, ...]:
    """Describe a convolution on the described edges, with or without weights, as a filter on its own operator."""
    graph = described_edges().to("cpu", torch.float64)
    edge_index, weight = graph.to_edge_index()
    edges: Edges = (edge_index, weight.detach() if weighted and isinstance(conv, WEIGHTED) else None)
    for name, expected in (("node_dim", -2), ("explain", None)):
        if getattr(conv, name, expected) not in (expected, False):
            raise UnsupportedModelError("", f"its {name} is {getattr(conv, name)!r}, which is not described")
    if conv.flow != "source_to_target":
        raise UnsupportedModelError("", f"its flow is {conv.flow!r}, against the direction of the edges")
    try:
        matrix, bank, following = CONVOLUTIONS[type(conv)](conv, edges, graph.num_nodes)
        if not matrix[1].isfinite().all():
            reason = "its normalization has no finite result on this graph: it takes roots of sums of weights, which "
            raise UnsupportedModelError("", reason + "must not be negative; take positive weights or normalize=False")
        own = Graph.from_edge_index(matrix[0].cpu(), matrix[1].detach().cpu().double(), graph.num_nodes)
    except (IndexError, RuntimeError, ValueError) as error:
        if isinstance(error, UnsupportedModelError):
            raise
        raise UnsupportedModelError("", f"its operator does not fit the graph, is it cached? {error}") from error
    return (OnGraph(((bank,),), own), *following)


Described = tuple[tuple[Tensor, Tensor], Filter, tuple[Layer, ...]]


def gcn_layers(conv: GCNConv, edges: Edges, num_nodes: int) -> Described:
    """Return the filter on PyG's normalised adjacency with self-loops, perhaps cached."""
    check_aggregation(conv, SumAggregation)
    edge_index, weight = edges
    if conv.normalize:
        cached = conv._cached_edge_index
        if cached is None:
            cached = gcn_norm(
                edge_index, weight, num_nodes, conv.improved, conv.add_self_loops, conv.flow, torch.float64
            )
        edge_index, weight = cached
    taps = linear_of(conv.lin, "lin").weight.T
    return (edge_index, ones_for(edge_index, weight)), Filter(torch.stack([0 * taps, taps]), conv.bias), ()


def cheb_layers(conv: ChebConv, edges: Edges, num_nodes: int) -> Described:
    r"""The Chebyshev polynomials :math:`T_k = 2 L T_{k-1} - T_{k-2}` of the scaled Laplacian, as powers of it."""
    check_aggregation(conv, SumAggregation)
    if len(conv.lins) > MAX_POWERS + 1:
        reason = f"Chebyshev polynomials beyond the order {MAX_POWERS} cannot be written as powers in float64"
        raise UnsupportedModelError("", reason)
    edge_index, weight = edges
    matrix = conv.__norm__(edge_index, num_nodes, weight, conv.normalization, None, dtype=torch.float64)
    each = [linear_of(lin, f"lins.{number}").weight.T for number, lin in enumerate(conv.lins)]
    polynomials = [torch.eye(1, len(each)).double()[0], torch.eye(2, max(2, len(each))).double()[1, : len(each)]]
    while len(polynomials) < len(each):
        polynomials.append(2 * polynomials[-1].roll(1) - polynomials[-2])
    coefficients = torch.stack(polynomials[: len(each)])  # of the powers, (K, K)
    taps = torch.einsum("kp,kfg->pfg", coefficients.to(each[0].device), torch.stack(each).double())
    return matrix, Filter(taps, conv.bias), ()


def sage_layers(conv: SAGEConv, edges: Edges, num_nodes: int) -> Described:
    """Return the filter of the mean or the sum over neighbours, and of the node itself."""
    check_aggregation(conv, SumAggregation, MeanAggregation)
    if conv.normalize:
        raise UnsupportedModelError("", "normalize=True divides by the length of the output, without a bound at 0")
    if conv.project:
        raise UnsupportedModelError("", "project=True is not described")
    weight = torch.ones(edges[0].size(1), dtype=torch.float64)
    if type(conv.aggr_module) is MeanAggregation:
        degree = torch.zeros(num_nodes, dtype=torch.float64).index_add_(0, edges[0][1], weight)
        weight = weight / degree[edges[0][1]]
    near = linear_of(conv.lin_l, "lin_l")
    own = linear_of(conv.lin_r, "lin_r").weight if conv.root_weight else 0 * near.weight
    return (edges[0], weight), Filter(torch.stack([own.T, near.weight.T]), near.bias), ()


def gin_layers(conv: GINConv, edges: Edges, _: int) -> Described:
    """Return the sum and the first linear map of the following network as one filter bank."""
    check_aggregation(conv, SumAggregation)
    following = describe_part(conv.nn, "nn")
    matrix = edges[0], ones_for(edges[0], None)
    own = 1 + conv.eps.double()  # products in float32 would be others than those of the forward
    if following and isinstance(first := following[0], Linear):
        weight = first.weight.T.double()
        return matrix, Filter(torch.stack([own * weight, weight]), first.bias), following[1:]
    width = next((layer.in_features for layer in following if layer.in_features), None)
    if width is None:
        raise UnsupportedModelError("nn", "it takes any number of features")
    unit = torch.eye(width, dtype=own.dtype, device=own.device)
    return matrix, Filter(torch.stack([own * unit, unit])), following


def check_aggregation(conv: Any, *kinds: type[nn.Module]) -> None:
    """Raise if a convolution uses another aggregation module, whatever its ``aggr`` says."""
    if type(conv.aggr_module) not in kinds:
        same = conv.aggr not in ("add", *AGGREGATIONS.values())
        aggregation = conv.aggr if same else type(conv.aggr_module).__name__
        names = " and ".join(repr(AGGREGATIONS[kind]) for kind in kinds)
        raise UnsupportedModelError("", f"its aggregation {aggregation!r} is not described, only {names}")


def ones_for(edge_index: Tensor, weight: Tensor | None) -> Tensor:
    """Return the weights, or a one for each edge."""
    return torch.ones(edge_index.size(1), dtype=torch.float64) if weight is None else weight


def linear_of(module: nn.Module, part: str) -> Linear:
    """Return the description of a linear map that a convolution holds."""
    if parametrize.is_parametrized(module):
        raise UnsupportedModelError(part, "it is parametrized")
    layers = describe_part(module, part)
    if len(layers) != 1 or not isinstance(layers[0], Linear):
        raise UnsupportedModelError(part, f"it was replaced by a {type(module).__name__}, which is no linear map")
    return layers[0]


def describe_mlp(module: MLP) -> tuple[Layer, ...]:
    """Describe linear maps, followed by activation, norm and dropout; the last may be plain."""
    found: list[Layer] = []
    last = len(module.lins) - (1 if module.plain_last else 0)
    for number, lin in enumerate(module.lins):
        found += describe_part(lin, f"lins.{number}")
        if number < last:
            norm = describe_part(module.norms[number], f"norms.{number}")
            found += ordered(module.act, norm, module.act_first)
            check_dropout(module, module.dropout[number])
    if module.plain_last:
        check_dropout(module, module.dropout[-1])
    return tuple(found)


def describe_layer_norm(module: PyGLayerNorm) -> tuple[Layer, ...]:
    """Describe PyG's norm over the features of a node."""
    if module.mode != "node":
        raise UnsupportedModelError("", f"mode={module.mode!r} normalizes over all nodes; mode='node' is described")
    return (layer_norm(module, module.in_channels),)


def ordered(act: Any, norm: tuple[Layer, ...], act_first: bool) -> tuple[Layer, ...]:
    """Return an activation and a norm in their order."""
    if act is swish:
        act = nn.SiLU()
    if act is not None and not isinstance(act, nn.Module):
        raise UnsupportedModelError("act", f"it is a function, of which nothing is known: {act!r}")
    layers = () if act is None else describe_part(act, "act")
    return (*layers, *norm) if act_first else (*norm, *layers)


def describe_model(model: Any) -> tuple[Layer, ...]:
    """Describe GCN, GraphSAGE or GIN: convolutions, followed by norm and activation except for the last."""
    found: list[Layer] = []
    if model.jk_mode not in (None, "last"):
        raise UnsupportedModelError("jk", f"jk={model.jk_mode!r} is not described, only 'last'")
    if hasattr(model, "jk"):  # PyG makes none then, and calls whatever stands there
        raise UnsupportedModelError("jk", f"it was replaced by a {type(model.jk).__name__}")
    for number, (conv, norm) in enumerate(zip(model.convs, model.norms, strict=True)):
        found += describe_part(conv, f"convs.{number}")
        if number < model.num_layers - 1 or model.jk_mode is not None:
            found += ordered(model.act, describe_part(norm, f"norms.{number}"), model.act_first)
            found += describe_part(model.dropout, "dropout")
    return (*found, *(describe_part(model.lin, "lin") if model.jk_mode is not None else ()))


ADDITIONS: tuple[Any, ...] = (operator.add, torch.add)


def describe_sequential(model: Any) -> tuple[Layer, ...]:
    """Describe PyG's Sequential: the value of each name, as layers from the input on."""
    signal, *others = model.signature.param_dict
    values: dict[str, tuple[Layer, ...]] = {signal: ()}
    result: tuple[Layer, ...] = ()
    for child in model._children:
        part, read = getattr(model, child.name), [name for name in child.param_names if name in values]
        edges = [name for name in child.param_names if name not in values]
        if any(name not in others for name in edges) or edges not in (
            [],
            ["edge_index"],
            ["edge_index", "edge_weight"],
        ):
            raise UnsupportedModelError(child.name, f"its arguments {child.param_names} are not described")
        if len(child.return_names) != 1:
            raise UnsupportedModelError(child.name, "it returns several values")
        if part in ADDITIONS and len(read) == 2 and not edges:
            result = added(*(values[name] for name in read))
        elif not isinstance(part, nn.Module):
            raise UnsupportedModelError(child.name, f"it is a function, of which nothing is known: {part!r}")
        elif len(read) != 1 or child.param_names[0] != read[0]:
            raise UnsupportedModelError(child.name, f"its arguments {child.param_names} are not described")
        else:
            result = (*values[read[0]], *describe_child(part, child.name, edges))
        values[child.return_names[0]] = result
    return result


def describe_child(part: nn.Module, name: str, edges: list[str]) -> tuple[Layer, ...]:
    """Describe a part of PyG's Sequential, called with the signal alone, or with edges and perhaps weights."""
    if not edges:
        return describe_part(part, name)
    weighted = len(edges) == 2
    if type(part) in CONVOLUTIONS:
        return describe(part, name, dict.fromkeys(CONVOLUTIONS, partial(describe_convolution, weighted=weighted)))
    if not isinstance(part, GraphModule):
        raise UnsupportedModelError(name, f"a {type(part).__name__} that is called with edges is not described")
    graph = described_edges()
    if not weighted:
        graph = with_unit_weights(graph)
    own = graph if part.normalize is None else graph.normalize(part.normalize)
    return (OnGraph((describe_part(part, name),), own),)


def added(first: tuple[Layer, ...], second: tuple[Layer, ...]) -> tuple[Layer, ...]:
    """Return the sum of two values: their common layers, followed by two branches."""
    shared = 0
    while shared < min(len(first), len(second)) and first[shared] is second[shared]:
        shared += 1
    return (*first[:shared], Sum((first[shared:], second[shared:])))


CONVOLUTIONS: dict[type[nn.Module], Callable[[Any, Edges, int], Described]] = {
    GCNConv: gcn_layers,
    ChebConv: cheb_layers,
    SAGEConv: sage_layers,
    GINConv: gin_layers,
    FusedSAGEConv: sage_layers,
    FusedGINConv: gin_layers,
}
KINDS: dict[type[nn.Module], Describer] = {
    **dict.fromkeys(CONVOLUTIONS, describe_convolution),
    **dict.fromkeys((GCN, GraphSAGE, GIN), describe_model),
    PyGLinear: lambda module: (Linear(module.weight, module.bias),),
    MLP: describe_mlp,
    PyGSequential: describe_sequential,
    BatchNorm: lambda module: describe_part(module.module, "module"),  # torch's norm
    PyGLayerNorm: describe_layer_norm,
}


def call_module(module: nn.Module, x: Tensor, graph: GraphLike, edges: Edges | None) -> Tensor:
    """Call a module of PyG with the edges, or with the signal alone if it is a linear map or a norm."""
    if type(module).__module__.startswith(SIGNAL_ONLY):
        return module(x)
    return call_with_edges(module, module, x, graph, edges)


register_kinds(KINDS, call_module, package="torch_geometric")
register_kinds(dict.fromkeys((FusedSAGEConv, FusedGINConv), describe_convolution), call_module)
