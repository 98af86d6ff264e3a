"""Threads of training on the CPU: one, or as many as torch takes by itself, whichever is faster.

Several threads wait for each other at the end of every operation. That pays for large signals on idle cores; for small
ones, or where other programs use the cores, one thread is several times faster. Torch's number holds for the kernels of
this package, too.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from statistics import fmean
from typing import Any, NamedTuple, ParamSpec, TypeVar

import torch

P = ParamSpec("P")
T = TypeVar("T")

VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")  # by which users set a number
SECONDS = 0.2  # of steps that decide ...
MIN_STEPS = 2  # ... and at least so many with each number


class _Measurement(NamedTuple):
    numbers: tuple[int, ...]
    clock: Callable[[], float]


_measurement: ContextVar[_Measurement | None] = ContextVar("graphact_threads", default=None)


def are_set() -> bool:
    """Return whether the user set the number of threads in the environment."""
    return any(os.environ.get(name) for name in VARIABLES)


@contextmanager
def measured_threads(clock: Callable[[], float] = time.perf_counter) -> Iterator[None]:
    """Let the first steps of every training on the CPU decide whether it takes one thread or torch's number.

    The steps that are timed are steps of the training. The choice depends on what else the machine does, and torch does
    not promise the same last bits with another number of threads: sums of a million numbers differ. Rows of
    source-localization (quick) and of the other experiments (smoke), but for robustness, were the same bit for bit with
    one thread and with two. Where more is at stake, set the number.
    """
    before = torch.get_num_threads()
    token = _measurement.set(_Measurement((1, before), clock))
    try:
        yield
    finally:
        _measurement.reset(token)
        torch.set_num_threads(before)


def timed(step: Callable[P, T]) -> Callable[P, T]:
    """Return a step of training that finds the fastest number of threads; itself outside of :func:`measured_threads`.

    The numbers take turns. The first step with each is not counted: it compiles kernels or starts threads. Nor are
    steps on arguments of other shapes than the first, such as the last batch of an epoch.
    """
    measurement = _measurement.get()
    if measurement is None or len(set(measurement.numbers)) == 1:
        return step
    (numbers, clock), shapes = measurement, list[Any]()
    seconds: dict[int, list[float]] = {number: [] for number in numbers}
    is_decided = False

    def measured(*args: P.args, **kwargs: P.kwargs) -> T:
        nonlocal is_decided
        if is_decided:
            return step(*args, **kwargs)
        shape = [getattr(argument, "shape", None) for argument in args]
        shapes[:] = shapes or [shape]
        number = min(numbers, key=lambda number: len(seconds[number]))
        torch.set_num_threads(number)
        begun = clock()
        result = step(*args, **kwargs)
        if shape == shapes[0]:
            seconds[number].append(clock() - begun)
        counted = {number: each[1:] for number, each in seconds.items()}
        if min(map(len, counted.values())) >= MIN_STEPS and sum(map(sum, counted.values())) >= SECONDS:
            is_decided = True
            torch.set_num_threads(min(numbers, key=lambda number: fmean(counted[number])))
        return result

    return measured
