"""Recorded launches, for graphs so small that preparing a launch takes longer than they keep the device busy.

Signals of one shape on one graph need the same launches every time: an evaluation can be recorded, that is which
compiled kernels were started on which tensors (given ones, those of the graph, and those that it allocated), and
replayed on others.
"""

import math
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


class Tiles(NamedTuple):
    """The number of nodes, divided by so many and rounded up."""

    size: int

    def of(self, nodes: int) -> int:
        return -(-nodes // self.size)


NODES = Tiles(1)
PER_NODE = frozenset({"count", "rows", "nodes"})  # arguments of kernels that are the number of nodes


class RecordedStep(NamedTuple):
    """A compiled kernel or a function and its arguments; some of them differ from run to run."""

    function: Any
    grid: tuple[Any, ...] | None  # sizes or numbers; None: a function
    arguments: list[Any]
    tensors: tuple[tuple[int, int], ...]  # position, and the number of the tensor
    sizes: tuple[tuple[int, Tiles], ...]  # position, and the size
    takes_tensors: bool  # or addresses


class JitKernel(NamedTuple):
    """A kernel that Triton interprets or launches itself, started as a compiled one."""

    kernel: Any
    options: dict[str, Any]
    function: Any = None
    packed_metadata: Any = None

    def run(self, x: int, y: int, z: int, *arguments: Any) -> None:
        self.kernel[(x, y, z)](*arguments[6:], **self.options)


class Recording:
    """The allocations, calls and launches of one evaluation.

    Args:
        given: the tensors that differ from run to run; they have the numbers 0, 1, ..., and those allocated follow.
        constant: those that do not differ, such as the lists of a graph.
        nodes: the number of nodes, if it differs, too.
    """

    def __init__(self, given: Sequence[Tensor], constant: Sequence[Tensor], nodes: int | None = None) -> None:
        self.nodes, self.tiles = nodes, NODES
        self.numbers: dict[int, int] = {}
        self.given = len(given)
        self.alive = [*given, *constant]  # so that no other tensor takes an id
        self.constant = {id(tensor) for tensor in constant}
        # shape, type, and 0 for what only kernels see
        self.allocated: list[tuple[Any, torch.dtype, int | None]] = []
        self.steps: list[RecordedStep] = []
        self.device = given[0].device
        self.is_complete = True
        self.results: list[int] = []
        for number, tensor in enumerate(given):
            self.numbers[id(tensor)] = number

    def add_tensor(self, tensor: Tensor, rows_per_tile: int | None) -> None:
        """Note that a tensor was allocated."""
        self.numbers[id(tensor)] = self.given + len(self.allocated)
        self.alive.append(tensor)
        shape: list[Any] = list(tensor.shape)
        if self.nodes is not None and len(shape) > 1:
            at, self.tiles = (-2, self.tiles) if rows_per_tile is None else (1, Tiles(rows_per_tile))
            size = NODES if rows_per_tile is None else self.tiles
            if shape[at] == size.of(self.nodes):
                shape[at] = size
        self.allocated.append((tuple(shape), tensor.dtype, None))

    def add_kernel(
        self, kernel: Any, grid: Grid, compiled: Any, arguments: Sequence[Any], constants: dict[str, Any]
    ) -> None:
        """Note that a kernel was started."""
        every: list[Any] = [*arguments, *every_constant(kernel, arguments, constants)]
        whole_grid: tuple[Any, ...] = (*grid, 1, 1)[:3]
        sizes: list[tuple[int, Tiles]] = []
        if self.nodes is not None:
            per_tile = constants.get("lanes", constants.get("block_rows"))
            if per_tile is not None:
                self.is_complete &= whole_grid[0] == Tiles(per_tile).of(self.nodes)
                whole_grid = (Tiles(per_tile), *whole_grid[1:])
            for at, name in enumerate(kernel.arg_names[: len(arguments)]):
                size = NODES if name in PER_NODE else self.tiles
                if name in PER_NODE or name == "tiles":
                    self.is_complete &= every[at] == size.of(self.nodes)
                    sizes.append((at, size))
        if compiled is None:
            options = {name: value for name, value in constants.items() if name not in kernel.arg_names}
            compiled = JitKernel(kernel, options)
        self._add(compiled, whole_grid, every, tuple(sizes))

    def add_function(self, function: Callable[..., Any], arguments: Sequence[Any]) -> None:
        """Note that a function was called."""
        self._add(function, None, arguments)

    def _add(
        self, function: Any, grid: Any, arguments: Sequence[Any], sizes: tuple[tuple[int, Tiles], ...] = ()
    ) -> None:
        kept, tensors = list(arguments), []
        for at, value in enumerate(arguments):
            if not isinstance(value, Tensor):
                continue
            if id(value) in self.numbers:
                tensors.append((at, self.numbers[id(value)]))
                kept[at] = None
            elif id(value) not in self.constant:
                self.is_complete = False  # made by something that is not recorded
            elif grid is not None and not isinstance(function, JitKernel):
                kept[at] = value.data_ptr()
        takes_tensors = grid is None or isinstance(function, JitKernel)
        self.steps.append(RecordedStep(function, grid, kept, tuple(tensors), sizes, takes_tensors))

    def finish(self, results: Sequence[Tensor]) -> bool:
        """Note which tensors are the results, and forget all others; return whether everything was recorded."""
        self.is_complete &= all(id(result) in self.numbers for result in results)
        self.results = [self.numbers.get(id(result), 0) for result in results]
        self.numbers, self.alive = {}, []
        seen = {*self.results, *(number for step in self.steps if step.takes_tensors for _, number in step.tensors)}
        for index, (shape, dtype, _) in enumerate(self.allocated):
            self.allocated[index] = (shape, dtype, None if self.given + index in seen else 0)
        return self.is_complete

    def replay(self, given: Sequence[Tensor], nodes: int = 0) -> list[Tensor]:
        """Do the same with other tensors, on the current device. Kernels take addresses."""
        tensors: list[Any] = [*given]
        addresses, device, hidden = [tensor.data_ptr() for tensor in given], self.device, 0
        for shape, dtype, offset in self.allocated:
            size = [part.of(nodes) if isinstance(part, Tiles) else part for part in shape]
            if offset is None:
                tensor = torch.empty(size, dtype=dtype, device=device)
                tensors.append(tensor)
                addresses.append(tensor.data_ptr())
            else:  # what only kernels see lies in one piece
                tensors.append(None)
                addresses.append(hidden)
                hidden += -(-math.prod(size) * dtype.itemsize // APART) * APART
        scratch = torch.empty(hidden, dtype=torch.uint8, device=device)
        base = scratch.data_ptr()
        addresses = [a if t is not None else a + base for a, t in zip(addresses, tensors, strict=True)]
        stream = torch._C._cuda_getCurrentRawStream(device.index) if device.type == "cuda" else None
        for function, grid, arguments, places, sizes, takes_tensors in self.steps:
            filled, source = arguments.copy(), tensors if takes_tensors else addresses
            for at, number in places:
                filled[at] = source[number]
            for at, part in sizes:
                filled[at] = part.of(nodes)
            if grid is None:
                function(*filled)
                continue
            x, y, z = grid if type(grid[0]) is int else (grid[0].of(nodes), *grid[1:])
            function.run(x, y, z, stream, function.function, function.packed_metadata, None, None, None, *filled)
        return [tensors[number] for number in self.results]


class _Active(threading.local):
    recording: Recording | None = None


_active = _Active()


@contextmanager
def recording(given: Sequence[Tensor], constant: Sequence[Tensor], nodes: int | None = None) -> Iterator[Recording]:
    """Record what is allocated, called and launched inside, in this thread."""
    _active.recording = made = Recording(given, constant, nodes)
    try:
        yield made
    finally:
        _active.recording = None


def allocate(
    shape: Sequence[int], dtype: torch.dtype, device: torch.device, rows_per_tile: int | None = None
) -> Tensor:
    """``torch.empty``, recorded; with ``rows_per_tile``, the second dimension counts tiles of so many nodes."""
    tensor = torch.empty(shape, dtype=dtype, device=device)
    if _active.recording is not None:
        _active.recording.add_tensor(tensor, rows_per_tile)
    return tensor


def call(function: Callable[..., Any], *arguments: Any) -> None:
    """Call a function that writes into its arguments, recorded."""
    function(*arguments)
    if _active.recording is not None:
        _active.recording.add_function(function, arguments)
