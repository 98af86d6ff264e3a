"""Checks that a module computes what its class says: no method of its own, no hooks, no sizes still unknown."""

from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize

from graphact.spec import UnsupportedModelError

PACKAGES = ("torch", "torch_geometric", "graphact")


def check_untouched(module: nn.Module) -> None:
    """Raise if methods of a module were replaced, hooks were added to it, or it is lazy.

    A call of such a module computes something other than its class describes.
    """
    kind = original_class(module)
    if any(map(is_lazy, module.parameters(recurse=False))):
        reason = f"the size of this {kind.__name__} is not known before the model is called for the first time: call it"
        raise UnsupportedModelError("", reason)
    if replaced := replaced_method(module):
        reason = f"the {replaced} of this {kind.__name__} was replaced; override it in a subclass that describes itself"
        raise UnsupportedModelError("", reason)
    if has_hooks(module) or torch.nn.modules.module._has_any_global_hook():
        reason = f"this {kind.__name__} carries hooks, which may change what it computes: remove them first"
        raise UnsupportedModelError("", reason)


def has_hooks(module: nn.Module) -> bool:
    """Return true if hooks were added to a module; PyG's convolutions have many kinds of them."""
    return any(value for name, value in vars(module).items() if name.endswith(("ward_hooks", "ward_pre_hooks")))


def replaced_method(module: nn.Module) -> str | None:
    """Return the name of a method that was replaced in this module alone; PyG generates some of its own that way."""
    kind = type(module)
    caller = next(each for each in kind.__mro__ if "__call__" in vars(each))
    if caller.__module__.partition(".")[0] not in PACKAGES:  # aggregations of PyG define their own
        return "forward"
    for name, value in vars(module).items():
        if callable(getattr(kind, name, None)) and not is_compiled_by_pyg(module, name, value):
            return name
    return None


def is_compiled_by_pyg(module: nn.Module, name: str, value: Any) -> bool:
    """Return whether PyG generated a method: the forward of its Sequential, the propagate of decomposed layers."""
    function, kind = getattr(value, "__func__", None), type(module)
    if function is None or value.__self__ is not module or not kind.__module__.startswith("torch_geometric."):
        return False
    if name == "forward":
        return str(function.__globals__["__name__"]).startswith(f"{kind.__module__}_{kind.__name__}_")
    originals = (getattr(kind, each, None) for each in ("_orig_propagate", "_jinja_propagate"))
    return name == "propagate" and function in originals


def original_class(module: nn.Module) -> type[nn.Module]:
    """Return the class of a module before :mod:`torch.nn.utils.parametrize` replaced it."""
    kind = type(module)
    return kind.__mro__[1] if parametrize.is_parametrized(module) else kind
