"""Times of calls, and what a device can do at most."""

import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

ENOUGH = 10.0  # seconds; a call that takes longer is not repeated


class Times(NamedTuple):
    """Seconds of several calls."""

    median: float
    fastest: float
    slowest: float
    calls: int

    def as_dict(self) -> dict[str, float]:
        """For a file."""
        return dict(self._asdict())


def one_call(function: Callable[[], Any], device: str) -> float:
    """Seconds of a call, until the device has finished."""
    if device == "cuda":
        torch.cuda.synchronize()
    begun = time.perf_counter()
    function()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begun


def measure(function: Callable[[], Any], device: str, repeats: int = 9, warm_up: int = 2) -> Times:
    """Times of several calls after a few that do not count; one call counts where it takes very long."""
    seconds = [one_call(function, device) for _ in range(1)]
    if seconds[0] < ENOUGH:
        for _ in range(warm_up - 1):
            one_call(function, device)
        seconds = [one_call(function, device) for _ in range(repeats)]
    return Times(statistics.median(seconds), min(seconds), max(seconds), len(seconds))


def best_seconds(function: Callable[[], Any], device: str, repeats: int = 10) -> float:
    """The shortest of several calls."""
    return min(one_call(function, device) for _ in range(repeats + 2))


def copy_bandwidth(device: str) -> float:
    """Bytes a second, read and written, of a large copy."""
    source = torch.rand(2**28 if device == "cuda" else 2**25, device=device)
    target = torch.empty_like(source)
    return 2 * source.nbytes / best_seconds(lambda: target.copy_(source), device)
