"""Recorded launches, for graphs so small that preparing a launch takes longer than they keep the device busy.

Signals of one shape on one graph need the same launches every time: an evaluation can be recorded, that is which
compiled kernels were started on which tensors (given ones, those of the graph, and those that it allocated), and
replayed on others.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from graphact import _triton
from graphact._triton import ALIGNMENT, Grid, every_constant

__all__ = ["ALIGNMENT", "Recording", "allocate", "call", "launch", "recording"]

APART = 512  # bytes, as torch lays tensors


def launch(kernel: Any, grid: Grid, *arguments: Any, **constants: Any) -> None:
    """Start a kernel on the current device; recorded."""
    compiled = _triton.launch(kernel, grid, *arguments, **constants)
    if _active.recording is not None:
        _active.recording.add_kernel(kernel, grid, compiled, arguments, constants)


class Step(NamedTuple):
    """A compiled kernel or a function and its arguments; at some positions stands, run by run, a tensor."""

    function: Any
    grid: Grid | None  # None: a function
    arguments: list[Any]
    tensors: tuple[tuple[int, int], ...]  # position, and the number of the tensor


class Recording:
    """What one evaluation does, as it is done.

    Args:
        given: the tensors that differ from run to run; they have the numbers 0, 1, ..., and those allocated follow.
        constant: those that do not differ, such as the lists of a graph.
    """

    def __init__(self, given: Sequence[Tensor], constant: Sequence[Tensor]) -> None:
        self.numbers: dict[int, int] = {}
        self.given = len(given)
        self.alive = [*given, *constant]  # so that no other tensor takes an id
        self.constant = {id(tensor) for tensor in constant}
        self.allocated: list[
            tuple[torch.Size, torch.dtype, int | None]
        ] = []  # with the offset of what only kernels see
        self.scratch = 0  # bytes of all those together
        self.steps: list[Step] = []
        self.device = given[0].device
        self.is_complete = True
        self.results: list[int] = []
        for number, tensor in enumerate(given):
            self.numbers[id(tensor)] = number

    def add_tensor(self, tensor: Tensor) -> None:
        """Note that a tensor was allocated."""
        self.numbers[id(tensor)] = self.given + len(self.allocated)
        self.alive.append(tensor)
        self.allocated.append((tensor.shape, tensor.dtype, None))

    def add_kernel(
        self, kernel: Any, grid: Grid, compiled: Any, arguments: Sequence[Any], constants: dict[str, Any]
    ) -> None:
        """Note that a kernel was started."""
        if compiled is None:
            self.add_function(lambda *values: kernel[grid](*values, **constants), arguments)
            return
        every = [*arguments, *every_constant(kernel, arguments, constants)]
        self._add(compiled, (*grid, 1, 1)[:3], every)

    def add_function(self, function: Callable[..., Any], arguments: Sequence[Any]) -> None:
        """Note that a function was called."""
        self._add(function, None, arguments)

    def _add(self, function: Any, grid: Grid | None, arguments: Sequence[Any]) -> None:
        kept, tensors = list(arguments), []
        for at, value in enumerate(arguments):
            if not isinstance(value, Tensor):
                continue
            if id(value) in self.numbers:
                tensors.append((at, self.numbers[id(value)]))
                kept[at] = None
            elif id(value) not in self.constant:
                self.is_complete = False  # made by something that is not recorded
            elif grid is not None:
                kept[at] = value.data_ptr()
        self.steps.append(Step(function, grid, kept, tuple(tensors)))

    def finish(self, results: Sequence[Tensor]) -> bool:
        """Note which tensors are the results, and forget all others; return whether everything was recorded."""
        self.is_complete &= all(id(result) in self.numbers for result in results)
        self.results = [self.numbers.get(id(result), 0) for result in results]
        self.numbers, self.alive = {}, []
        given = self.given
        seen = {*self.results, *(number for step in self.steps if step.grid is None for _, number in step.tensors)}
        for number, (shape, dtype, _) in enumerate(self.allocated, start=given):
            if number not in seen:
                self.allocated[number - given] = (shape, dtype, self.scratch)
                self.scratch += -(-shape.numel() * dtype.itemsize // APART) * APART
        return self.is_complete

    def replay(self, given: Sequence[Tensor]) -> list[Tensor]:
        """Do the same with other tensors, on the current device. Kernels take addresses."""
        tensors: list[Any] = [*given]
        addresses, device = [tensor.data_ptr() for tensor in given], self.device
        scratch = torch.empty(self.scratch, dtype=torch.uint8, device=device)
        base = scratch.data_ptr()
        for shape, dtype, offset in self.allocated:
            if offset is None:
                tensor = torch.empty(shape, dtype=dtype, device=device)
                tensors.append(tensor)
                addresses.append(tensor.data_ptr())
            else:
                tensors.append(None)
                addresses.append(base + offset)
        stream = torch._C._cuda_getCurrentRawStream(device.index) if device.type == "cuda" else None
        for function, grid, arguments, places in self.steps:
            filled, source = arguments.copy(), tensors if grid is None else addresses
            for at, number in places:
                filled[at] = source[number]
            if grid is None:
                function(*filled)
            else:
                function.run(*grid, stream, function.function, function.packed_metadata, None, None, None, *filled)
        return [tensors[number] for number in self.results]


class _Active(threading.local):
    recording: Recording | None = None


_active = _Active()


@contextmanager
def recording(given: Sequence[Tensor], constant: Sequence[Tensor]) -> Iterator[Recording]:
    """Record what is allocated, called and launched inside, in this thread."""
    _active.recording = made = Recording(given, constant)
    try:
        yield made
    finally:
        _active.recording = None


def allocate(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """``torch.empty``, recorded."""
    tensor = torch.empty(shape, dtype=dtype, device=device)
    if _active.recording is not None:
        _active.recording.add_tensor(tensor)
    return tensor


def call(function: Callable[..., Any], *arguments: Any) -> None:
    """Call a function that writes into its arguments, recorded."""
    function(*arguments)
    if _active.recording is not None:
        _active.recording.add_function(function, arguments)
