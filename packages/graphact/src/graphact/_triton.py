"""Launches without what Triton does at each of them: it looks at every argument to find the compiled kernel that fits.

Here it is found by a short key, and started by an interface that Triton does not document. Versions of Triton that this
was not tested with launch their kernels themselves.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

ALIGNMENT = 16  # bytes; kernels are compiled for pointers and sizes that are multiples of it, or for any
SMALL = 2**31
# Versions of Triton that tests/gpu passed with; the arguments of CompiledKernel.run differ between versions
TESTED = ("3.6",)
Grid = tuple[int, ...]


def launch(kernel: Any, grid: Grid, *arguments: Any, known: Any = None, **constants: Any) -> Any:
    """Start a kernel on the current device; return it compiled, or None if Triton interprets or launches it itself.

    ``known`` is all that the kinds of the arguments depend on, where the caller knows: then they are not looked at.
    """
    if not starts_compiled():
        kernel[grid](*arguments, **constants)
        return None
    key = (id(kernel), known, *constants.values())
    if known is not None and (compiled := _known.get(key)) is not None:
        values = [argument.data_ptr() if isinstance(argument, Tensor) else argument for argument in arguments]
        start(compiled, grid, values, every_constant(kernel, arguments, constants))
        return compiled
    compiled = _launch(kernel, grid, arguments, constants)
    if known is not None and compiled is not None:
        _known[key] = compiled
    return compiled


@cache
def starts_compiled() -> bool:
    """Return whether compiled kernels of the installed Triton are started directly."""
    import triton

    return ".".join(triton.__version__.split(".")[:2]) in TESTED


def _launch(kernel: Any, grid: Grid, arguments: Sequence[Any], constants: dict[str, Any]) -> Any:
    """Start the kernel that was compiled for such arguments, or compile it."""
    kinds, values = [], []
    for argument in arguments:
        kind, value = kind_of(argument)
        kinds.append(kind)
        values.append(value)
    key = (id(kernel), *constants.items(), *kinds)
    compiled = _compiled.get(key)
    if compiled is not None:
        start(compiled, grid, values, every_constant(kernel, arguments, constants))
        return compiled
    compiled = kernel[grid](*arguments, **constants)
    if compiled is not None:
        _compiled[key] = compiled
    return compiled


_compiled: dict[Any, Any] = {}
_known: dict[Any, Any] = {}


def kind_of(argument: Any) -> tuple[Any, int]:
    """Return what a kernel is compiled for, and its argument: the address of a tensor, or a number.

    It is compiled for the type of a tensor and whether it is aligned, and for the kind of a number. That is all that
    Triton asks, or more: a key that tells too much apart compiles nothing twice. Of an address, unlike of a tensor,
    Triton asks nothing at all.
    """
    if isinstance(argument, Tensor):
        address = argument.data_ptr()
        return (argument.dtype, address % ALIGNMENT == 0, argument.device.index), address
    kind = argument if -2 < argument < 2 else (argument % ALIGNMENT == 0, -SMALL <= argument < SMALL)
    return kind, argument


def every_constant(kernel: Any, arguments: Sequence[Any], constants: dict[str, Any]) -> list[Any]:
    """The constants in the order in which a compiled kernel takes them, after its arguments."""
    return [constants[name] for name in kernel.arg_names[len(arguments) :]]


def start(compiled: Any, grid: Grid, arguments: Sequence[Any], constants: Sequence[Any]) -> None:
    """Start a compiled kernel."""
    x, y, z = (*grid, 1, 1)[:3]
    stream = torch._C._cuda_getCurrentRawStream(torch.cuda.current_device())
    compiled.run(x, y, z, stream, compiled.function, compiled.packed_metadata, None, None, None, *arguments, *constants)
