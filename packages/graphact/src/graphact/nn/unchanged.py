"""Replaced functions of torch, PyG and graphact, recognised by the file that their code was compiled from.

``functools.wraps`` copies names, ``__module__`` among them, so that names tell nothing; code keeps the file and the
qualified name of its own source. A replacement is found whether it was made before graphact was imported or later.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from functools import partial, partialmethod, singledispatchmethod
from itertools import chain
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize

from graphact.spec import UnsupportedModelError

PACKAGES = ("torch", "torch_geometric", "graphact")
DEPENDENCIES = ("numpy", "scipy", "torch_scatter", "torch_sparse", "pyg_lib", "typing_extensions")
DECORATORS = {
    # wrappers that call the function that they wrap, unchanged: (end of the file, qualified name)
    ("torch/utils/_contextlib.py", "context_decorator.<locals>.decorate_context"),
    *(("torch/utils/_contextlib.py", name) for name in ("no_grad", "enable_grad", "inference_mode")),  # newer releases
    ("torch_geometric/experimental.py", "disable_dynamic_shapes.<locals>.decorator.<locals>.wrapper"),
    ("contextlib.py", "contextmanager.<locals>.helper"),
}
ALIASES = {  # attributes that hold a function of another name
    "__call__": "Module._wrapped_call_impl",
    "forward": "_forward_unimplemented",
    **{f"{kept}propagate": "MessagePassing.propagate" for kept in ("", "_orig_", "_jinja_")},
    **{f"{kept}edge_updater": "MessagePassing.edge_updater" for kept in ("", "_orig_", "_jinja_")},
}
MAKE_A_CALLABLE = (partial, partialmethod, singledispatchmethod)
NOT_CALLED = {"__init__", "__new__", "__init_subclass__", "__setstate__", "__getstate__", "_described_forward"}
CALLED_OF_MODULE = {"__call__", "_wrapped_call_impl", "_call_impl", "forward", "__getattr__", "__getattribute__"}


def check_untouched(module: nn.Module) -> None:
    """Raise if methods of a module were replaced, hooks were added to it, or it is lazy.

    A call of such a module computes something other than its class describes.
    """
    kind = original_class(module)
    if any(map(is_lazy, module.parameters(recurse=False))):
        reason = f"the size of this {kind.__name__} is not known before the model is called for the first time: call it"
        raise UnsupportedModelError("", reason)
    if replaced := next(chain(replaced_methods(module), replaced_in_class(kind)), None):
        reason = f"the {replaced} of this {kind.__name__} was replaced; override it in a subclass that describes itself"
        raise UnsupportedModelError("", reason)
    if has_hooks(module) or torch.nn.modules.module._has_any_global_hook():
        reason = f"this {kind.__name__} carries hooks, which may change what it computes: remove them first"
        raise UnsupportedModelError("", reason)


def has_hooks(module: nn.Module) -> bool:
    """Return true if hooks were added to a module; PyG's convolutions have many kinds of them."""
    return any(value for name, value in vars(module).items() if name.endswith(("ward_hooks", "ward_pre_hooks")))


def replaced_methods(module: nn.Module) -> Iterator[str]:
    """Yield names of methods that were replaced in this module alone; PyG generates some of its own that way."""
    kind = type(module)
    caller = next(each for each in kind.__mro__ if "__call__" in vars(each))
    if not is_in_packages(caller.__module__):  # aggregations of PyG define their own
        yield "forward"
    for name, value in vars(module).items():
        if callable(getattr(kind, name, None)) and not is_compiled_by_pyg(module, name, value):
            yield name


def is_compiled_by_pyg(module: nn.Module, name: str, value: Any) -> bool:
    """Return whether PyG generated a method: the forward of its Sequential, the propagate of decomposed layers."""
    function, kind = getattr(value, "__func__", None), type(module)
    if function is None or value.__self__ is not module or not kind.__module__.startswith("torch_geometric."):
        return False
    if name == "forward":
        return is_from_template(function, f"{kind.__module__}_{kind.__name__}_")
    return name == "propagate" and function in (
        getattr(kind, "_orig_propagate", None),
        getattr(kind, "_jinja_propagate", None),
    )


def original_class(module: nn.Module) -> type[nn.Module]:
    """Return the class of a module before :mod:`torch.nn.utils.parametrize` replaced it."""
    kind = type(module)
    return kind.__mro__[1] if parametrize.is_parametrized(module) else kind


def is_in_packages(module: str | None) -> bool:
    """Return whether a module belongs to torch, PyG or graphact."""
    return str(module).partition(".")[0] in PACKAGES


def replaced_in_class(kind: type) -> Iterator[str]:
    """Yield names of methods and properties that were replaced in a class of torch, PyG or graphact or in its bases.

    Of torch's Module only those that a call reaches count: torch's compiler and others replace further ones, such as
    those that copy and move a module.
    """
    for each in kind.__mro__[:-1]:
        if is_in_packages(each.__module__):
            for name, value in list(vars(each).items()):
                is_called = name in CALLED_OF_MODULE if each is nn.Module else name not in NOT_CALLED
                if is_called and any(not is_original_method(function, name, each) for function in functions_of(value)):
                    yield name


def functions_of(value: Any) -> Iterator[Any]:
    """Yield the functions that run when an attribute of a class is read, set or called."""
    if isinstance(value, property):
        yield from (function for function in (value.fget, value.fset, value.fdel) if function is not None)
    elif isinstance(value, staticmethod | classmethod):
        yield value.__func__
    elif isinstance(value, FunctionType):
        yield value
    elif (
        (hasattr(value, "__get__") or callable(value)) and not isinstance(value, type) and not is_of_known_class(value)
    ):
        yield value  # slots, and callable values such as the operation of an activation, are of known classes


def is_original_method(function: Any, name: str, kind: type) -> bool:
    """Return whether a function is compiled from the definition in the class's own source, or from a template of PyG.

    The bare function is meant: a copied ``__module__`` or a replaced ``__code__`` does not hide what runs.
    """
    if not isinstance(function, FunctionType):
        return False
    if is_from_template(function, f"{kind.__module__}_{kind.__name__}_"):
        return True
    function = undecorated(function)
    code: CodeType = function.__code__
    for each in (kind, *kind.__mro__[1:-1]) if name in ALIASES else (kind,):
        module = sys.modules.get(each.__module__)
        if is_compiled_from(function, module):
            return code.co_qualname in (f"{kind.__qualname__}.{name}", ALIASES.get(name))
    return False


def is_compiled_from(function: FunctionType, module: ModuleType | None) -> bool:
    """Return whether a function is compiled from the file of a module, and reads its global names there."""
    return (
        module is not None
        and function.__code__.co_filename == getattr(module, "__file__", None)
        and (function.__globals__ is vars(module))
    )


def is_from_template(function: Any, prefix: str) -> bool:
    """Return whether PyG compiled a function from a template, into a module whose name starts with ``prefix``."""
    if not isinstance(function, FunctionType) or not str(function.__module__).startswith(prefix):
        return False
    module = sys.modules.get(function.__module__)
    name = function.__code__.co_qualname
    return is_compiled_from(function, module) and getattr(module, name, None) is function


def undecorated(function: FunctionType) -> FunctionType:
    """Return the function inside the known decorators of these packages; other wrappers are returned unchanged."""
    while (
        isinstance(inner := getattr(function, "__wrapped__", None), FunctionType)
        and any(cell.cell_contents is inner for cell in function.__closure__ or ())
        and any(
            function.__code__.co_filename.replace(os.sep, "/").endswith("/" + file)
            and function.__code__.co_qualname == name
            for file, name in DECORATORS
        )
    ):
        function = inner
    return function


def replaced_globals(kind: type, depth: int = 2) -> Iterator[str]:
    """Yield global names that the methods of a class use and that hold a replaced function.

    Names that the code of a method reads are looked up among its globals and in the modules of torch, PyG and graphact
    among them (``F.relu``), and so are those that these functions read (``torch.relu``), ``depth`` steps far. Methods
    of tensors are not looked at.
    """
    found = [
        function
        for each in kind.__mro__[:-1]
        if is_in_packages(each.__module__) and each is not nn.Module
        for value in list(vars(each).values())
        for function in functions_of(value)
        if isinstance(function, FunctionType)
    ]
    seen: set[int] = set()
    for _ in range(depth):
        reached = []
        for function in found:
            for name, value in global_functions(undecorated(function)):
                if id(value) not in seen:
                    seen.add(id(value))
                    if not is_original_function(value):
                        yield name
                    if isinstance(value, FunctionType):
                        reached.append(value)
        found = reached


def global_functions(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the callables, except classes, that code may reach by a global name, in a module, or in a table."""
    names, values = function.__code__.co_names, function.__globals__
    modules = [
        values[name]
        for name in names
        if isinstance(values.get(name), ModuleType) and is_in_packages(values[name].__name__)
    ]
    for name in names:
        for place in (values, *map(vars, modules)):
            value = place.get(name)
            table = value.values() if isinstance(value, Mapping) and name.isupper() else (value,)
            for each in table:
                if callable(each) and not isinstance(each, type | ModuleType):
                    yield name, each


def is_original_function(value: Any) -> bool:
    """Return whether a function is compiled from the module that it names, or a callable is of a trusted class.

    Wrappers that torch makes of other functions, such as those of its compiler, name the module of what they wrap.
    """
    if not isinstance(value, FunctionType):
        return is_of_known_class(value)
    function = undecorated(value)
    module = sys.modules.get(function.__module__)
    return is_trusted(function.__module__) and is_compiled_from(function, module)


def is_of_known_class(value: Any) -> bool:
    """Return whether the class of a callable is defined in the module that it names, and wraps no function."""
    kind, place = type(value), sys.modules.get(type(value).__module__)
    return (
        is_trusted(kind.__module__)
        and not isinstance(value, MAKE_A_CALLABLE)
        and (kind.__module__ == "builtins" or getattr(place, kind.__qualname__, None) is kind)
    )


def is_trusted(module: str | None) -> bool:
    """Return whether functions of these packages use a module: their own, Python's, or one of their dependencies."""
    root = str(module).partition(".")[0]
    return root in DEPENDENCIES or root in PACKAGES or root in sys.stdlib_module_names
