"""Construction of activations from names, mappings, modules and functions."""

import copy
import inspect
from collections.abc import Callable, Mapping, Set
from functools import cache
from typing import Any

from torch import Tensor, nn

from graphact import registry
from graphact._checks import did_you_mean
from graphact.graph.protocol import GraphLike
from graphact.nn.module import GraphModule, describe
from graphact.registry import BUILT_IN, register
from graphact.spec import Layer
from graphact.spec.reductions import Operation, unregister_operation

__all__ = ["ACTIVATIONS", "Activation", "PlainModule", "make_activation", "register", "unregister"]

ACTIVATIONS = registry.Activations()
Activation = str | nn.Module | Callable[[int | None], nn.Module] | Mapping[str, Any]
"""A name, a module, a function from the number of features to a module, or a mapping of a name and its options."""


def unregister(name: str) -> None:
    """Forget an activation that :func:`register` added, and the operation of its class."""
    operation = vars(registry.unregister(name) or object).get("operation")
    if isinstance(operation, Operation):
        unregister_operation(operation)


class PlainModule(GraphModule):
    """A torch module of the signal alone, such as ``torch.nn.Tanh()``, called like the others."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor, graph: GraphLike | Tensor | None = None, edge_weight: Tensor | None = None) -> Tensor:
        out = self.module(x)
        if not isinstance(out, Tensor) or out.shape != x.shape:
            got = f"the shape {tuple(out.shape)}" if isinstance(out, Tensor) else type(out).__name__
            raise ValueError(
                f"the activation {self.module!r:.60} must keep the shape {tuple(x.shape)} of the signal, got {got}; a "
                "function that reduces the values of neighbours goes into graphact.nn.GraphAdaptive(function)"
            )
        return out

    def describe(self) -> tuple[Layer, ...]:
        return describe(self.module, "module")


def make_activation(
    name: Activation,
    *,
    hops: int = 1,
    features: int | None = None,
    closed: bool = False,
    **options: Any,
) -> GraphModule:
    """Build an activation.

    Args:
        name: a name of :data:`ACTIVATIONS`, which gets those of ``hops``, ``features``, ``closed`` and ``options`` that
            it accepts; a mapping of ``"name"`` and options, which override these; a module, which is copied; or a
            function from a number of features to a module.
        hops: number of hops.
        features: number of features to give each its own weights; None shares them.
        closed: count a node among its neighbours.
        options: ``normalize``, ``start``, and parameters of its operation, such as the kernel's ``gamma``; those
            of other activations are ignored, unknown ones refused.

    Raises:
        TypeError: an option that no activation has, or a function that returns no module.
        ValueError: the name is unknown.

    Example:
        >>> import graphact
        >>> graphact.nn.make_activation("median-ga", hops=2)
        GraphAdaptiveMedian(hops=2, features=None, closed=False)
    """
    every = {"hops": hops, "features": features, "closed": closed, **options}
    if isinstance(name, str | Mapping):
        given = {"name": name} if isinstance(name, str) else dict(name)
        called: Any = given.pop("name", None)
        module = registry.find(called)
        taken = accepted(module)
        check_options(f"the activation {called!r}", options, taken, taken | options_of_all(options.keys() - taken))
        if not accepts_any_keyword(module):  # which says itself what it does not take
            check_options(f"the activation {called!r}", given, taken, taken)
        return module(**{key: value for key, value in every.items() if key in taken} | given)
    known = options_of_all(options.keys())
    check_options("an activation", options, known, known)
    made = None
    if isinstance(name, nn.Module):
        made = copy.deepcopy(name)
    elif callable(name):
        made = call_factory(name, features)
    if not isinstance(made, nn.Module):
        raise TypeError(
            f"activation must be a name, a module, or a function of the number of features that returns a module, "
            f"got {name!r}" + (f", which returned {type(made).__name__}" if callable(name) else "")
        )
    return made if isinstance(made, GraphModule) else PlainModule(made)


def call_factory(function: Callable[[int | None], Any], features: int | None) -> Any:
    """Return the result of a function for a number of features; raise if it is not a function of that number."""
    try:
        return function(features)
    except (TypeError, AttributeError, IndexError) as error:
        raise TypeError(
            f"activation must be a name, a module, or a function of the number of features that returns a module, got "
            f"{function!r:.60}, which fails for {features} features: {error}; a function of the signal goes into a "
            "torch.nn.Module, one of the neighbours' values into graphact.nn.GraphAdaptive(function)"
        ) from error


def accepted(module: type[GraphModule]) -> set[str]:
    """Return the keywords that a class of activations accepts."""
    parameters_ = inspect.signature(module).parameters.items()
    names = {name for name, p in parameters_ if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}
    operation = getattr(module, "operation", None)
    parameters = () if operation is None else operation.parameters
    return names | {*parameters, *(f"learn_{name}" for name in parameters)}


def accepts_any_keyword(module: type[GraphModule]) -> bool:
    """Return whether a class takes keywords of any name and checks them itself."""
    return any(p.kind is p.VAR_KEYWORD for p in inspect.signature(module).parameters.values())


def check_options(owner: str, options: Mapping[str, Any], own: Set[str], allowed: Set[str]) -> None:
    """Raise if an option is not allowed; networks hand the same options to all activations, so others' may be."""
    for name in options:
        if name not in allowed:
            meant = did_you_mean(name, own) or did_you_mean(name, allowed)
            raise TypeError(f"options of {owner} must be among {', '.join(sorted(own))}, got {name!r}{meant}")


def options_of_all(asked: Set[str]) -> Set[str]:
    """Return the options of all activations; those of registered ones are read only if needed."""
    if asked <= built_in_options():
        return built_in_options()
    others = [accepted(ACTIVATIONS[name]) for name in ACTIVATIONS if name not in BUILT_IN]
    return built_in_options().union(*others)


@cache
def built_in_options() -> frozenset[str]:
    """Return the options of all built-in activations; networks need them in each layer."""
    return frozenset().union(*(accepted(registry.find(name)) for name in BUILT_IN))


def describe_activation(module: nn.Module) -> dict[str, Any]:
    """Return the mapping from which :func:`make_activation` builds such a module; the name is None without one."""
    name = next((name for name, kind in ACTIVATIONS.items() if kind is type(module)), None)
    return {"name": name, **(module.config() if isinstance(module, GraphModule) and name else {})}
