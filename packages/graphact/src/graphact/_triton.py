"""Fast launches of Triton kernels: compiled kernels are found by a short key instead of inspecting each argument.

They are started by an interface that Triton does not document, and only with versions of Triton that were tested;
others launch their kernels themselves.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

PLAIN_TENSORS = (Tensor, torch.nn.Parameter)  # others are traced or transformed
ALIGNMENT = 16  # bytes; kernels are compiled for pointers and sizes that are multiples of it, or for any
SMALL = 2**31
# Versions of Triton that tests/gpu passed with; the arguments of CompiledKernel.run differ between versions
TESTED = ("3.6",)
Grid = tuple[int, ...]


def launch(kernel: Any, grid: Grid, *arguments: Any, **constants: Any) -> Any:
    """Start a kernel on the current device; return it compiled, or None if Triton interprets or launches it itself."""
    if type(arguments[0]) not in PLAIN_TENSORS:  # torch traces
        torch.library.wrap_triton(kernel)[grid](*arguments, **constants)
        return None
    if not starts_compiled():
        kernel[grid](*arguments, **constants)
        return None
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


@cache
def starts_compiled() -> bool:
    """Return true if this version of Triton was tested with starting compiled kernels directly."""
    import triton

    return ".".join(triton.__version__.split(".")[:2]) in TESTED


def kind_of(argument: Any) -> tuple[Any, int]:
    """Return the specialization of an argument, and its value: the address of a tensor, or a number.

    A kernel is specialized for type and alignment of a tensor and for the kind of a number. A key that distinguishes
    more than Triton does compiles nothing twice. Triton does not inspect addresses, unlike tensors.
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
