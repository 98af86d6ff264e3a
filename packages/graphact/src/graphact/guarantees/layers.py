r"""A model as layers: read from its description, checked against what it computes, and evaluated with rounding errors.

A rounded sum of n products is off by less than :math:`2 n \epsilon` times the sum of their magnitudes; earlier errors
propagate as any other difference does.
"""

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, TypeVar, cast

import numpy as np
import scipy.sparse
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from graphact._sparse import quietly
from graphact.functional import graph_adaptive, graph_filter, localized, shift
from graphact.graph import Graph, Neighborhoods
from graphact.graph.eager import is_plain
from graphact.graph.edges import check_finite
from graphact.guarantees.rules import (
    MAX_ENTRIES,
    OPERATIONS,
    PARAMETRIC,
    POINTWISE,
    TRAINED,
    find_rule,
    layer_norm_box,
    layer_norm_slope,
)
from graphact.nn import GraphModule
from graphact.nn.description import call_on_graph, describe_on
from graphact.nn.module import describe
from graphact.nn.unchanged import check_untouched, is_of_known_class, original_class, replaced_globals
from graphact.spec import (
    AdaptiveFilter,
    Filter,
    HopMixture,
    InputScaling,
    Layer,
    LayerNorm,
    Linear,
    OnGraph,
    OutputScaling,
    Pointwise,
    Sum,
    UnsupportedModelError,
    map_arrays,
)
from graphact.spec.reductions import KERNEL, LOG_MEAN_EXP, STD

KnownLayer = Filter | Linear | Pointwise | HopMixture  # with rules for all guarantees
Layers = tuple[KnownLayer, ...]
Block = KnownLayer | LayerNorm | Sum  # with rules for bounds on a fixed graph
Blocks = tuple[Block, ...]
Each = TypeVar("Each", bound=Layer)
EPSILON = torch.finfo(torch.float64).eps
KINDS = (Filter, Linear, Pointwise, HopMixture, LayerNorm, Sum)
STEADY = ("torch.nn.utils.parametrizations", "graphact.guarantees.constrained")  # where known parametrizations are
DEVIATION = 1e-9  # of a model from its description, in float64, as a part of the largest output


@dataclass(frozen=True, eq=False)
class FilterOn(Filter):
    """A filter bank on a graph of its own."""

    graph: Graph | None = None


@dataclass(frozen=True, eq=False)
class HopMixtureOn(HopMixture):
    """An activation on a graph of its own."""

    graph: Graph


def resolve_graph(layer: Layer, graph: Graph) -> Graph:
    """Return the graph that a layer acts on: its own, or that of the network."""
    return getattr(layer, "graph", None) or graph


def get_branches(layer: Sum) -> tuple[Blocks, ...]:
    """Return the chains that a sum adds, of which all layers are known."""
    return cast("tuple[Blocks, ...]", layer.branches)


def split_readout(layers: tuple[Each, ...]) -> tuple[tuple[Each, ...], Linear | None]:
    """Split layers into those before a final linear map, and that map or None."""
    if layers and isinstance(layers[-1], Linear):
        return layers[:-1], layers[-1]
    return layers, None


def widths(layers: Blocks, features: int) -> Iterator[int]:
    """Yield the output features of each layer."""
    for layer in layers:
        features = layer.out_features or features
        yield features


def read_model(module: nn.Module, graph: Graph, features: int | None = None) -> tuple[Blocks, int]:
    """Return the layers of a model on a graph, in float64 on the CPU, and the number of its input features.

    Modules of graphact describe themselves; chains, torch's modules and PyG's are described as
    :mod:`graphact.nn.description` knows them. All are compared with what they compute on random signals. Raise
    UnsupportedModelError if a part is unknown, or the model computes something else.
    """
    if not isinstance(module, nn.Module):
        raise UnsupportedModelError("", f"module must be a torch.nn.Module, got {type(module).__name__}")
    graph = graph.to("cpu", torch.float64)  # first, so that operators are made of it in float64
    check_parts(module)
    layers, features = check_layers(module, flatten(describe_on(module, graph)), features, KINDS)
    check_forward(module, layers, graph, features)
    return layers, features


def read_own(module: nn.Module, graph: Graph, features: int | None = None) -> tuple[Layers, int]:
    """Read a module of graphact whose layers all guarantees know, on one graph."""
    if not isinstance(module, GraphModule):
        raise UnsupportedModelError(
            "",
            "module must be a GCNN, FIR, GraphFilter or an activation of graphact.nn, or another module that describes "
            f"itself, got {type(module).__name__}",
        )
    check_parts(module)
    layers, features = read_layers(module, features)
    check_forward(module, layers, graph.to("cpu", torch.float64), features)
    return layers, features


def read_layers(module: GraphModule, features: int | None = None) -> tuple[Layers, int]:
    """Return the current layers of a module in float64 on the CPU, and the number of its input features.

    Gradients flow back to the parameters. A module that takes any number of features treats all of them alike, so that
    one stands for all where no number is given. Raise UnsupportedModelError if there is no rule for a part.
    """
    layers, taken = check_layers(module, describe(module), features, (Filter, Linear, Pointwise, HopMixture))
    return cast("Layers", layers), taken


def check_layers(
    module: nn.Module, described: Iterable[Layer], features: int | None, kinds: tuple[type[Layer], ...]
) -> tuple[Blocks, int]:
    """Return layers of the given kinds in float64, and the input features; raise if one is unknown or does not fit."""
    described = tuple(described)
    taken = next((layer.in_features for layer in described if layer.in_features is not None), features or 1)
    if features not in (None, taken):
        raise ValueError(f"x must have {taken} features, got {features}")
    check_chain(part_names(module, described), described, taken, kinds)

    def convert(array: Tensor) -> Tensor:
        # a tensor that is not plain comes from a transform, as in a fleet, and has no values
        array = check_finite("parameters of the model", array) if is_plain(array) else array
        return array.to("cpu", torch.float64)

    return cast("Blocks", map_arrays(described, convert)), taken


def check_chain(parts: Iterable[str], layers: tuple[Layer, ...], width: int, kinds: tuple[type[Layer], ...]) -> int:
    """Return the output features of layers; raise if one is unknown or does not fit the one before it."""
    for part, layer in zip(parts, layers, strict=True):
        reason = explain_unknown(layer, kinds)
        if not reason and layer.in_features not in (None, width):
            reason = f"it takes {layer.in_features} features, and the layer in front of it gives {width}"
        if reason:
            raise UnsupportedModelError(part, reason)
        if isinstance(layer, Sum):
            ends = {check_chain([part] * len(branch), branch, width, kinds) for branch in layer.branches}
            if len(ends) > 1:
                raise UnsupportedModelError(part, f"it adds values of {' and '.join(map(str, sorted(ends)))} features")
        width = layer.out_features or width
    return width


def flatten(layers: Iterable[Layer], graph: Graph | None = None) -> Iterator[Layer]:
    """Yield layers without :class:`~graphact.spec.OnGraph`: those that act on a graph of their own hold it.

    A bank of graph-adaptive filters becomes the sum of a linear one and of its functions.
    """
    for layer in layers:
        match layer:
            case OnGraph():
                yield from flatten(layer.layers, layer.graph.to("cpu", torch.float64))
            case Sum():
                yield Sum(tuple(tuple(flatten(branch, graph)) for branch in layer.branches))
            case AdaptiveFilter():
                yield from flatten([expand(layer)], graph)
            case InputScaling() | OutputScaling():
                yield expand_scaling(layer)
            case Filter() | HopMixture() if graph is not None:
                kind = FilterOn if isinstance(layer, Filter) else HopMixtureOn
                yield kind(**{item.name: getattr(layer, item.name) for item in fields(layer)}, graph=graph)
            case _:
                yield layer


def expand(layer: AdaptiveFilter) -> Sum:
    """Return a bank as a sum: a linear bank, and for each function and shift an activation and a linear map."""
    branches: list[tuple[Layer, ...]] = [(Filter(layer.taps, layer.bias),)]
    for (operation, constants), taps in zip(layer.functions, layer.function_taps, strict=True):
        for shifts, tap in enumerate(taps):
            weights = torch.zeros(shifts + 1, dtype=torch.float64)
            weights[-1] = 1.0
            term = HopMixture(operation, "unshifted", layer.closed, constants, weights.new_zeros(()), weights, {})
            branches.append((term, Linear(tap.mT)))
    return Sum(tuple(branches))


def expand_scaling(layer: InputScaling | OutputScaling) -> Linear:
    """Return one end of a scaled network as a linear map; no reading is missing, so that all masks are 1."""
    if layer.nodes is not None:
        raise UnsupportedModelError("", "each node has its own scaling: certify the network inside, model.network")
    mean, std = layer.mean.to("cpu", torch.float64), layer.std.to("cpu", torch.float64)
    if isinstance(layer, OutputScaling):
        return Linear(torch.diag(std), mean)
    mean, std = mean.repeat(layer.window), std.repeat(layer.window)
    weight, bias = torch.diag(1 / std), -mean / std
    if layer.mask:
        weight, bias = torch.cat([weight, torch.zeros_like(weight)]), torch.cat([bias, torch.ones_like(bias)])
    return Linear(weight, bias)


def explain_unknown(layer: Layer, kinds: tuple[type[Layer], ...]) -> str:
    """Return the reason why a layer has no rule; empty if it has one."""
    if not isinstance(layer, kinds):
        return f"nothing is known about layers of the kind {layer.kind!r} here"
    if isinstance(layer, Pointwise):
        name, known = layer.function, [*POINTWISE, *TRAINED]
        is_known = name in known or name.partition("(")[0] in PARAMETRIC
    elif isinstance(layer, HopMixture):  # by identity: another operation of the same name has no rule
        name, known = layer.operation.name, [rule.name for rule in OPERATIONS]
        is_known = layer.operation in OPERATIONS
    else:
        return ""
    if is_known:
        return ""
    return f"there is no rule for {name!r} (a function of your own has none); there are rules for {', '.join(known)}"


def part_names(module: nn.Module, layers: Sequence[Layer]) -> list[str]:
    """Return the part of a module that each layer comes from, by the parameters it holds; otherwise its number."""
    owners = {id(parameter): name.rpartition(".")[0] for name, parameter in module.named_parameters()}
    return [
        next((owners[id(array)] for array in layer.arrays().values() if id(array) in owners), f"layer {number}")
        for number, layer in enumerate(layers)
    ]


def read_signals(x: Tensor) -> Tensor:
    """Return signals as float64 ``(B, N, F)``; there must be at least one."""
    if x.numel() == 0:
        raise ValueError(f"x must hold at least one signal, got the shape {tuple(x.shape)}")
    check_finite("x", x)
    return x.detach().to("cpu", torch.float64).reshape(-1, *x.shape[-2:])


def check_parts(module: nn.Module) -> None:
    """Raise if a part was changed, including parts that no description mentions, such as the sum in a convolution.

    No comparison with the forward finds all of that: a hook may act on values that no random signal has, and a
    parametrization may give other values later.
    """
    checked: set[type] = set()
    for name, part in module.named_modules():
        try:
            check_untouched(part)
            check_parametrizations(part)
            if getattr(part, "_compiled_call_impl", None) is not None:  # copies of it do not have that code
                reason = "it was compiled in place, and nothing is known of the compiled code: take a copy by "
                raise UnsupportedModelError("", f"{reason}copy.deepcopy, which is not compiled")
            check_globals(original_class(part), checked)
        except UnsupportedModelError as error:
            raise (error.inside(name) if name else error) from None


def check_parametrizations(part: nn.Module) -> None:
    """Raise if a tensor of a part is computed by a parametrization that may give another one in the next call."""
    parametrized = part.parametrizations.items() if parametrize.is_parametrized(part) else ()  # type: ignore[union-attr, operator]
    for name, steps in parametrized:
        for step in steps:
            if type(step).__module__ not in STEADY or not is_of_known_class(step):
                reason = f"nothing is known about the parametrization {type(step).__name__} of its {name}"
                raise UnsupportedModelError("", f"{reason}: make it an ordinary parameter with remove_parametrizations")
            if step.training and any(True for _ in step.buffers()):
                reason = f"its parametrization gives another {name} in every call: call eval() of the model first"
                raise UnsupportedModelError("", reason)


def check_globals(kind: type[nn.Module], checked: set[type]) -> None:
    """Raise if a function of torch, PyG or graphact that a class calls was replaced; each class is looked at once."""
    if kind in checked:
        return
    checked.add(kind)
    if replaced := next(replaced_globals(kind), None):
        reason = f"the function {replaced}, which {kind.__name__} calls, was replaced: put the original one back"
        raise UnsupportedModelError("", reason)


@torch.no_grad()
def check_forward(module: nn.Module, layers: Blocks, graph: Graph, features: int) -> None:
    """Raise if a model differs from its layers on random signals, large and small."""
    generator, same = torch.Generator().manual_seed(features), in_float64(module)
    for scale in (1.0, 100.0, 1e-10):
        x = scale * torch.randn(graph.num_nodes, features, generator=generator, dtype=torch.float64)
        expected, rounding_error = evaluate_with_error(layers, x, graph)
        try:
            actual = call_on_graph(same, x, graph)
        except (RuntimeError, TypeError, ValueError) as error:
            raise UnsupportedModelError("", f"the model cannot be called on this graph: {error}") from error
        if actual.shape != expected.shape or not agree(actual, expected, rounding_error):
            reason = "the model does not compute what its layers do; was a part replaced, or does one work in place "
            raise UnsupportedModelError("", reason + "(inplace=True) on values that another one reads?")


def agree(actual: Tensor, expected: Tensor, rounding_error: Tensor) -> bool:
    """Return True if two results agree up to rounding errors; numbers that overflow are ignored."""
    known = expected.isfinite() & actual.isfinite()
    size = expected[known].abs().amax() if known.any() else expected.new_zeros(())
    rounding_error = rounding_error[known].nan_to_num(
        nan=0.0, posinf=torch.inf
    )  # infinity met zero: no allowance for rounding
    return bool(((actual - expected)[known].abs() <= DEVIATION * size.clamp_min(1e-300) + 2 * rounding_error).all())


def in_float64(module: nn.Module) -> nn.Module:
    """Copy a model to float64 on the CPU, with its current coefficients instead of parametrizations."""
    same = copy.deepcopy(module)
    for part, current in [*zip(same.modules(), module.modules(), strict=True)]:
        if parametrize.is_parametrized(part):
            values = {name: getattr(current, name).detach().clone() for name in part.parametrizations}  # type: ignore[union-attr]
            # parametrize.remove_parametrizations would change the class, which the copy shares with the module
            part.__class__ = original_class(part)
            del part.parametrizations
            for name, value in values.items():
                part.register_parameter(name, nn.Parameter(value, requires_grad=False))
    return same.to("cpu", torch.float64)


@dataclass(frozen=True, eq=False)
class Hop:
    """One term of an activation, counted from 0: the signals ``(..., N, F)`` that are read, and the neighbourhoods."""

    number: int
    signals: tuple[Tensor, ...]
    neighborhoods: Neighborhoods
    closed: bool  # whether a node reads its own value as well

    def reduce(self, function: Callable[[Tensor, Tensor], tuple[Tensor, ...]], entries: int) -> tuple[Tensor, ...]:
        """Apply a function to the nodes ``(n,)`` and their neighbours ``(n, d)``, degree by degree, 0 included.

        Every result has the nodes in its second last dimension, ``(..., n, F)``; they come back in the order of all
        nodes. ``entries`` numbers are held for each neighbour, which limits the nodes of one batch.
        """
        parts: list[tuple[Tensor, ...]] = []
        for nodes, table in self.neighborhoods.tables():
            if self.closed:
                table = torch.cat([nodes.unsqueeze(-1), table], dim=-1)
            step = max(1, MAX_ENTRIES // max(1, entries * table.size(-1)))
            parts += [function(*chunk) for chunk in zip(nodes.split(step), table.split(step), strict=True)]
        return tuple(torch.cat(column, dim=-2)[..., self.neighborhoods.rank, :] for column in zip(*parts, strict=True))

    def reduce_one(self, function: Callable[[Tensor, Tensor], Tensor], entries: int) -> Tensor:
        """Apply a function with one result."""
        return self.reduce(lambda nodes, table: (function(nodes, table),), entries)[0]


def iterate_hops(layer: HopMixture, graph: Graph, *signals: Tensor) -> Iterator[Hop]:
    """Yield the hops of an activation: :math:`S^k x` at neighbours (graph-adaptive), or x at k-hop neighbours."""
    graph = resolve_graph(layer, graph)
    for number in range(layer.hops):
        if layer.is_shifted(number):
            signals = tuple(shift(x, graph) for x in signals)
        if layer.reads != "hops" or number == 0:
            yield Hop(number, signals, graph.incoming, layer.closed)
        else:
            yield Hop(number, signals, graph.hop_pattern(number + 1, closed=layer.closed), False)


def evaluate(layers: Blocks, x: Tensor, graph: Graph) -> Tensor:
    """Evaluate layers on signals ``(..., N, F)`` in float64; gradients flow through."""
    for layer in layers:
        own = resolve_graph(layer, graph)
        match layer:
            case Filter():
                x = graph_filter(x, own, layer.taps)
            case Linear():
                x = x @ layer.weight.T
            case Pointwise():
                x = find_rule(layer).apply(x)
            case LayerNorm():  # without the squares of large values, which overflow
                x, _ = layer_norm_box(layer, x, torch.zeros_like(x))
            case Sum():
                x = torch.stack([evaluate(branch, x, graph) for branch in get_branches(layer)]).sum(0)
            case HopMixture():
                function = localized if layer.reads == "hops" else graph_adaptive
                options: dict[str, Any] = {"closed": layer.closed, "parameters": layer.parameters}
                options |= {"unshifted": True} if layer.reads == "unshifted" else {}
                x = function(x, own, layer.beta, layer.weights, layer.operation, **options)
        if isinstance(layer, Filter | Linear) and layer.bias is not None:
            x = x + layer.bias
    return x


def evaluate_with_error(layers: Blocks, x: Tensor, graph: Graph, error: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Evaluate layers on signals ``(..., N, F)``, and bound the rounding errors of the result."""
    error = torch.zeros_like(x) if error is None else error
    for layer in layers:
        if isinstance(layer, Sum):
            branches = [evaluate_with_error(branch, x, graph, error) for branch in get_branches(layer)]
            x, error = (torch.stack(parts).sum(0) for parts in zip(*branches, strict=True))
            error = error + 2 * len(branches) * EPSILON * sum(values.abs() for values, _ in branches)
        else:
            error = propagate_rounding_error(layer, x.abs(), error, graph)
            x = evaluate((layer,), x, graph)
    return x, error


def propagate_magnitude(layer: Block, near: Tensor, graph: Graph, hop_factor: float = 1.0) -> tuple[Tensor, int]:
    """Bound the change of a layer's outputs when its inputs change by ``near`` ``(..., N, F)``; also count operations.

    Inputs of which all features move alike may have F = 1.
    """
    graph = resolve_graph(layer, graph)
    degree = graph.incoming.max_degree + 1
    num_operations = near.numel() + degree + near.size(-1)
    match layer:
        case Filter():
            matrix = abs(to_scipy(graph))
            total = through_weights(near, layer.taps[0].abs())
            for tap in layer.taps[1:]:
                near = shift_by(matrix, near)
                total, num_operations = (
                    total + through_weights(near, tap.abs()),
                    num_operations + degree + near.size(-1),
                )
        case Linear():
            total = through_weights(near, layer.weight.abs().T)
        case Pointwise():
            total = find_rule(layer).steepest * near
        case LayerNorm():
            slope = layer_norm_slope(layer.features, layer.epsilon)
            total = slope * near.amax(-1, keepdim=True).expand(*near.shape[:-1], layer.features)
            total = total if layer.weight is None else total * layer.weight.abs()
            num_operations += 10 * layer.features
        case Sum():
            total = torch.zeros(())
            for branch in get_branches(layer):
                value = near
                for inner in branch:
                    value, steps = propagate_magnitude(inner, value, graph, hop_factor)
                    num_operations += steps
                total = total + value
        case HopMixture():
            matrix = abs(to_scipy(graph))
            total = layer.beta.abs() * near
            for hop in iterate_hops(layer, graph):
                if layer.is_shifted(hop.number):
                    near = shift_by(matrix, near)
                entries = near[..., 0, :].numel()
                largest = hop.reduce_one(partial(OPERATIONS[layer.operation].move, layer, near), entries)
                total = total + hop_factor * layer.weights[hop.number].abs() * largest
                num_operations += 3 * (degree if hop.number == 0 else graph.num_nodes)
    return total, num_operations


def through_weights(near: Tensor, weight: Tensor) -> Tensor:
    """Apply a linear map ``(F_in, F_out)`` without signs; a single feature represents all if they are equal."""
    return near @ weight if near.size(-1) == weight.size(0) else near * weight.sum(0)


def to_scipy(graph: Graph) -> scipy.sparse.csr_array:
    """Return the shift operator as a SciPy matrix in float64."""
    (source, target), weight = (part.cpu() for part in graph.to_edge_index())
    entries = weight.detach().double().numpy(), (target.numpy(), source.numpy())
    return scipy.sparse.csr_array(entries, shape=(graph.num_nodes, graph.num_nodes))


def to_torch(matrix: scipy.sparse.csr_array) -> Tensor:
    """Return a SciPy matrix as a sparse tensor, for products that gradients flow through."""
    entries = matrix.tocoo()
    places, values = torch.from_numpy(np.stack(entries.coords).astype(np.int64)), torch.from_numpy(entries.data)
    with quietly():
        return torch.sparse_coo_tensor(places, values, matrix.shape, check_invariants=False).coalesce()


def shift_by(matrix: Any, near: Tensor) -> Tensor:
    """Multiply a sparse matrix by signals ``(..., N, F)``; gradients flow through signals ``(N, F)``."""
    if near.requires_grad:
        return torch.sparse.mm(to_torch(matrix), near)
    if near.dim() == 2:
        return torch.from_numpy(matrix @ near.numpy())
    rows = near.movedim(-2, 0)
    return torch.from_numpy(matrix @ rows.flatten(1).numpy()).view(rows.shape).movedim(0, -2)


def size_at_zero(layer: Block, width: int, graph: Graph) -> Tensor:
    """Bound the magnitude of a layer's outputs at the input 0: biases, and functions that are not 0 there."""
    zero = torch.zeros((), dtype=torch.float64)
    match layer:
        case Filter() | Linear():
            return zero if layer.bias is None else layer.bias.abs()
        case Pointwise():
            return find_rule(layer).apply(torch.zeros(width, dtype=torch.float64)).abs()
        case LayerNorm():
            fixed = math.sqrt(width) * (torch.ones(width).double() if layer.weight is None else layer.weight.abs())
            return fixed if layer.bias is None else fixed + layer.bias.abs()
        case HopMixture(operation=operation) if operation is KERNEL:
            return layer.weights.abs().sum(0)
        case HopMixture(operation=operation) if operation is LOG_MEAN_EXP:
            size = layer.parameters["temperature"] * (1 + math.log(largest_neighborhood(layer, graph)))
            return layer.weights.abs().sum(0) * size
    return zero


def largest_neighborhood(layer: HopMixture, graph: Graph) -> int:
    """Bound the number of values that a node reads in one hop."""
    own = resolve_graph(layer, graph)
    return own.num_nodes if layer.reads == "hops" and layer.hops > 1 else own.incoming.max_degree + 2


def propagate_rounding_error(
    layer: Block, size: Tensor, error: Tensor, graph: Graph, columns: int = 0, *, is_difference: bool = False
) -> Tensor:
    """Bound the rounding error after a layer, ``(..., N, F)``, whose inputs have a ``size`` and an ``error``.

    The values may be forms with that many ``columns``, whose size is that of the centre and of all coefficients: then
    every value that a form stands for is within the error of the true one. Differences have no biases.
    """
    degree, width = resolve_graph(layer, graph).incoming.max_degree + 2, size.size(-1)
    match layer:
        case Filter() | Linear():
            steps = 2 * (width + 2 + (degree + width) * layer.exchanges)
        case Pointwise():
            steps = 2 * columns + 20
        case LayerNorm():  # errors before the root are multiplied by its slope, which is part of the magnitude
            steps = 4 * width + 2 * columns + 20
        case HopMixture():
            steps = 6 * largest_neighborhood(layer, graph) + 2 * degree * layer.hops + 6 * columns + 20
            if layer.operation is STD:  # the rounding of squares, whose mean is at least 1 / 2d of the largest one
                steps += 8 * math.ceil(largest_neighborhood(layer, graph) ** 1.5)
        case Sum():
            raise AssertionError("the branches of a sum are walked through one by one")
    rounded = propagate_magnitude(layer, size, graph)[0]
    rounded = rounded if is_difference else rounded + size_at_zero(layer, width, graph)
    return propagate_magnitude(layer, error, graph)[0] + steps * EPSILON * rounded


def walk_errors(
    layers: Blocks, size: Tensor, error: Tensor, graph: Graph, *, is_difference: bool = False
) -> tuple[Tensor, Tensor]:
    """Bound values and rounding errors ``(N, O)`` after layers, from bounds ``(N, F)`` before them.

    As a difference, ``size`` bounds the change of the inputs, and the results are those of the change of outputs.
    """
    for layer in layers:
        if isinstance(layer, Sum):
            branches = [
                walk_errors(branch, size, error, graph, is_difference=is_difference) for branch in get_branches(layer)
            ]
            size, error = (torch.stack(parts).sum(0) for parts in zip(*branches, strict=True))
            error = error + 2 * len(branches) * EPSILON * size
        else:
            error = propagate_rounding_error(layer, size, error, graph, is_difference=is_difference)
            size = propagate_magnitude(layer, size, graph)[0] + (
                0.0 if is_difference else size_at_zero(layer, size.size(-1), graph)
            )
    return size, error


def propagate_through_rows(layer: Filter, changes: Tensor, graph: Graph) -> Tensor:
    """Multiply changes ``(C, B, N, F)`` by the rows of a filter bank in magnitude, with an allowance for rounding."""
    total = propagate_rounding_error(layer, changes, torch.zeros_like(changes), graph, is_difference=True)
    size, sizes = graph.num_nodes * layer.taps.size(1), changes.flatten(2)
    step = max(1, MAX_ENTRIES // (graph.num_nodes * max(layer.taps.shape[1:])))
    for first in range(0, size, step):  # as many inputs at once as fit into memory
        columns = torch.zeros(min(step, size - first), size, dtype=torch.float64)
        columns.diagonal(first).fill_(1.0)
        rows = graph_filter(columns.view(-1, graph.num_nodes, layer.taps.size(1)), graph, layer.taps)
        total = total + torch.einsum("cbm,mnf->cbnf", sizes[..., first : first + len(rows)], rows.abs())
    return total
