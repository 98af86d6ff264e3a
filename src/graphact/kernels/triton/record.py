"""The launches of an evaluation, prepared at its first run and started again on other tensors.

Triton looks at every argument of every launch, which takes longer than a small graph keeps the device busy. Signals of
one shape on one graph need the same launches every time, so the first run records which compiled kernels were started
on which tensors: given ones, those of the graph, and those that it allocated.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Launch(NamedTuple):
    """A compiled kernel and its arguments; at some positions stands, run by run, a tensor of that number."""

    start: Callable[..., Any]
    arguments: tuple[Any, ...]
    tensors: tuple[tuple[int, int], ...]  # position and number


class Recording:
    """What one evaluation does, as it is done.

    Args:
        given: the tensors that differ from run to run; they have the numbers 0, 1, ..., and those allocated follow.
        constant: those that do not differ, such as the lists of a graph.
    """

    def __init__(self, given: Sequence[Tensor], constant: Sequence[Tensor]) -> None:
        self.numbers: dict[int, int] = {}
        self.alive = [*given, *constant]  # so that no other tensor takes an id
        self.constant = {id(tensor) for tensor in constant}
        self.allocated: list[tuple[torch.Size, torch.dtype]] = []
        self.launches: list[Launch] = []
        self.device = given[0].device
        self.is_complete = True
        self.results: list[int] = []
        for tensor in given:
            self.numbers[id(tensor)] = len(self.numbers)

    def add_tensor(self, tensor: Tensor) -> None:
        """Note that a tensor was allocated."""
        self.numbers[id(tensor)] = len(self.numbers)
        self.alive.append(tensor)
        self.allocated.append((tensor.shape, tensor.dtype))

    def add_launch(self, start: Callable[..., Any], arguments: Sequence[Any]) -> None:
        """Note that a function was called; it is called again with what stands for its tensors then."""
        found = [(at, value) for at, value in enumerate(arguments) if isinstance(value, Tensor)]
        numbered = [(at, self.numbers[id(value)]) for at, value in found if id(value) in self.numbers]
        # any other tensor was made by something that is not recorded
        self.is_complete &= all(id(value) in self.numbers or id(value) in self.constant for _, value in found)
        kept = dict(numbered)
        self.launches.append(Launch(start, tuple(None if at in kept else value for at, value in enumerate(arguments)),
                                    tuple(numbered)))  # fmt: skip

    def finish(self, results: Sequence[Tensor]) -> bool:
        """Note which tensors are the results, and forget all others; return whether everything was recorded."""
        self.is_complete &= all(id(result) in self.numbers for result in results)
        self.results = [self.numbers.get(id(result), 0) for result in results]
        self.numbers, self.alive = {}, []
        return self.is_complete

    def replay(self, given: Sequence[Tensor]) -> list[Tensor]:
        """Do the same with other tensors, on the current device."""
        tensors = [*given]
        for shape, dtype in self.allocated:
            tensors.append(torch.empty(shape, dtype=dtype, device=self.device))
        for start, arguments, places in self.launches:
            filled = list(arguments)
            for at, number in places:
                filled[at] = tensors[number]
            start(*filled)
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
        _active.recording.add_launch(function, arguments)


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **constants: Any) -> None:
    """Start a kernel, recorded."""
    compiled = kernel[grid](*arguments, **constants)
    if _active.recording is not None:
        every = dict(zip(kernel.arg_names, arguments, strict=False)) | constants
        grid = (*grid, 1, 1)[:3]
        if compiled is None:  # Triton interprets
            options = {name: value for name, value in constants.items() if name not in kernel.arg_names}
            start: Callable[..., Any] = lambda *values: kernel[grid](*values, **options)  # noqa: E731
        else:
            start = compiled[grid]
        _active.recording.add_launch(start, [every[name] for name in kernel.arg_names])
