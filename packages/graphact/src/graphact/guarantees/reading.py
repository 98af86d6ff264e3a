"""Read any supported model on a graph as layers, and check these against what the model computes."""

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from graphact._checks import HALF_PRECISION
from graphact.graph import Graph
from graphact.graph.eager import is_plain
from graphact.graph.edges import check_finite
from graphact.guarantees.layers import Blocks, FilterOn, HopMixtureOn, Layers, evaluate_with_error
from graphact.guarantees.rules import OPERATIONS, PARAMETRIC, POINTWISE, TRAINED
from graphact.nn import GraphModule
from graphact.nn.description import call_on_graph, describe_on
from graphact.nn.module import describe
from graphact.nn.unchanged import check_untouched, original_class, replaced_globals
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

KINDS = (Filter, Linear, Pointwise, HopMixture, LayerNorm, Sum)
Computed = dict[tuple[str, str], Tensor]  # values of parametrizations, by part and name
DEVIATION = 1e-9  # of a model from its description, in float64, as a part of the largest output


def read_model(module: nn.Module, graph: Graph, features: int | None = None) -> tuple[Blocks, int]:
    """Return the layers of a model on a graph, in float64 on the CPU, and the number of its input features.

    Modules of graphact describe themselves; chains, torch's modules and PyG's are described as
    :mod:`graphact.nn.description` knows them. All are compared with what they compute on random signals. Raise
    UnsupportedModelError if a part is unknown, or the model computes something else.
    """
    if not isinstance(module, nn.Module):
        raise UnsupportedModelError("", f"module must be a torch.nn.Module, got {type(module).__name__}")
    graph = graph.to("cpu", torch.float64)  # first, so that operators are made of it in float64
    return checked(module, graph, lambda: check_layers(module, flatten(describe_on(module, graph)), features, KINDS))


def read_own(module: nn.Module, graph: Graph, features: int | None = None) -> tuple[Layers, int]:
    """Read a module of graphact whose layers all guarantees know, on one graph."""
    if not isinstance(module, GraphModule):
        raise UnsupportedModelError(
            "",
            "module must be a GCNN, FIR, GraphFilter or an activation of graphact.nn, or another module that describes "
            f"itself, got {type(module).__name__}",
        )
    return checked(module, graph.to("cpu", torch.float64), lambda: read_layers(module, features))


def read_layers(module: GraphModule, features: int | None = None) -> tuple[Layers, int]:
    """Return the current layers of a module in float64 on the CPU, and the number of its input features.

    Gradients flow back to the parameters. A module that takes any number of features treats all of them alike, so that
    one stands for all where no number is given. Raise UnsupportedModelError if there is no rule for a part.
    """
    layers, taken = check_layers(module, describe(module), features, (Filter, Linear, Pointwise, HopMixture))
    return cast("Layers", layers), taken


def checked(module: nn.Module, graph: Graph, read: Callable[[], tuple[Any, int]]) -> tuple[Any, int]:
    """Return what ``read`` gives; raise if the module was changed, or does not compute what these layers do."""
    check_parts(module)
    computed = computed_values(module)
    layers, features = read()
    check_forward(module, computed, layers, graph, features)
    return layers, features


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
        return to_float64(check_finite("parameters of the model", array) if is_plain(array) else array)

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
        raise UnsupportedModelError("", "each node has its own scaling: bound the network inside, model.network")
    mean, std = to_float64(layer.mean), to_float64(layer.std)
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
    return to_float64(x.detach()).reshape(-1, *x.shape[-2:])


def to_float64(tensor: Tensor) -> Tensor:
    """Return a tensor in float64 on the CPU, still attached to its history."""
    return tensor.to("cpu", torch.float64)


def check_parts(module: nn.Module) -> None:
    """Raise if a part was changed, including parts that no description mentions, such as the sum in a convolution.

    No comparison with the forward finds all of that: a hook may act on values that no random signal has.
    """
    checked: set[type] = set()
    for name, part in module.named_modules():
        if "parametrizations" not in name.split("."):  # they count by the values that they give
            try:
                check_untouched(part)
                if getattr(part, "_compiled_call_impl", None) is not None:  # copies of it do not have that code
                    reason = "it was compiled in place, and nothing is known of the compiled code: take a copy by "
                    raise UnsupportedModelError("", f"{reason}copy.deepcopy, which is not compiled")
                check_globals(original_class(part), checked)
            except UnsupportedModelError as error:
                raise (error.inside(name) if name else error) from None


def check_globals(kind: type[nn.Module], checked: set[type]) -> None:
    """Raise if a function of torch, PyG or graphact that a class calls was replaced; each class is looked at once."""
    if kind in checked:
        return
    checked.add(kind)
    if replaced := next(replaced_globals(kind), None):
        reason = f"the function {replaced}, which {kind.__name__} calls, was replaced: put the original one back"
        raise UnsupportedModelError("", reason)


@torch.no_grad()
def check_forward(module: nn.Module, computed: Computed, layers: Blocks, graph: Graph, features: int) -> None:
    """Raise if a model differs from its layers on random signals, large and small."""
    check_still(module, computed)
    generator, same = torch.Generator().manual_seed(features), in_float64(module, computed)
    for scale in (1.0, 100.0, 1e-10):
        x = scale * torch.randn(graph.num_nodes, features, generator=generator, dtype=torch.float64)
        expected, lost = evaluate_with_error(layers, x, graph)
        try:
            actual = call_on_graph(same, x, graph)
        except (RuntimeError, TypeError, ValueError) as error:
            raise UnsupportedModelError("", f"the model cannot be called on this graph: {error}") from error
        if actual.shape != expected.shape or not agree(actual, expected, lost):
            reason = "the model does not compute what its layers do; was a part replaced, or does one work in place "
            raise UnsupportedModelError("", reason + "(inplace=True) on values that another one reads?")
    check_still(module, computed)


def agree(actual: Tensor, expected: Tensor, lost: Tensor) -> bool:
    """Return True if two results agree up to rounding errors; numbers that overflow are ignored."""
    known = expected.isfinite() & actual.isfinite()
    size = expected[known].abs().amax() if known.any() else expected.new_zeros(())
    lost = lost[known].nan_to_num(nan=0.0, posinf=torch.inf)  # infinity met zero: no allowance for rounding
    return bool(((actual - expected)[known].abs() <= DEVIATION * size.clamp_min(1e-300) + 2 * lost).all())


def computed_values(module: nn.Module) -> Computed:
    """Return the values of parametrizations by part and name; raise if they differ between readings."""
    found: Computed = {}
    for place, part in parametrized_parts(module):
        same = copy.deepcopy(part)  # a parametrization in training mode may change when it is read
        found |= {(place, name): read_parametrized(same, place, name) for name in same.parametrizations}  # type: ignore[union-attr]
    return found


def parametrized_parts(module: nn.Module) -> list[tuple[str, nn.Module]]:
    """Return the places and parts of a model that have parametrized tensors."""
    return [(place, part) for place, part in module.named_modules() if parametrize.is_parametrized(part)]


def in_float64(module: nn.Module, computed: Computed) -> nn.Module:
    """Copy a model to float64 on the CPU, with its current coefficients instead of parametrizations."""
    same = copy.deepcopy(module)
    for place, part in parametrized_parts(same):
        # parametrize.remove_parametrizations would change the class, which the copy shares with the module
        part.__class__ = original_class(part)
        del part.parametrizations
        for (where, name), value in computed.items():
            if where == place:
                part.register_parameter(name, nn.Parameter(value.clone(), requires_grad=False))
    return same.to("cpu", torch.float64)


def check_still(module: nn.Module, computed: Computed) -> None:
    """Raise if parametrizations of a model have changed their values."""
    for (place, name), value in computed.items():
        if not is_same(getattr(module.get_submodule(place), name).detach(), value):
            reason = f"its parametrization gives another {name} in every call: call eval() of the model first"
            raise UnsupportedModelError(place, reason)


def read_parametrized(part: nn.Module, place: str, name: str) -> Tensor:
    """Return a tensor that a parametrization gives; raise if another reading gives another one, or leaves traces.

    A model is called with gradients, without them and in inference mode; all must find the same coefficients.
    """
    values, before = [], snapshot(part, name)
    for mode in (torch.enable_grad, torch.no_grad, torch.inference_mode, torch.enable_grad):
        with mode():
            values.append(getattr(part, name).detach().clone())
    remedy = "; make it an ordinary parameter with remove_parametrizations"
    if not is_same(values[0], values[-1]):
        reason = f"gives another {name} in every call: call eval() of the model first"
    elif not all(is_same(values[0], value) for value in values):
        reason = f"gives another {name} without gradients than with them{remedy}"
    elif not same_state(before, snapshot(part, name)):
        reason = f"changes when {name} is read, and may give another one later{remedy}"
    else:
        return values[0]
    raise UnsupportedModelError(place, f"its parametrization {reason}")


def is_same(first: Tensor, second: Tensor) -> bool:
    """Return whether two readings are equal but for the rounding of other kernels, which gradients may ask for."""
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    steps = 0 if first.dtype in HALF_PRECISION else 4 * torch.finfo(first.dtype).eps
    return torch.allclose(first, second, rtol=steps, atol=0.0)


def snapshot(part: nn.Module, name: str) -> dict[str, Any]:
    """Return tensors, numbers and strings held by the modules of a parametrization, by place."""
    steps: nn.Module = part.parametrizations[name]  # type: ignore[index, assignment]
    state: dict[str, Any] = {key: value.detach().clone() for key, value in steps.state_dict().items()}
    for place, step in steps.named_modules():
        plain = {key: value for key, value in vars(step).items() if isinstance(value, int | float | str | None)}
        state |= {f"{place}.{key}": value for key, value in plain.items()}
    return state


def same_state(before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Return whether nothing changed between two readings."""
    return before.keys() == after.keys() and all(
        torch.equal(value, after[key]) if isinstance(value, Tensor) else value == after[key]
        for key, value in before.items()
    )
