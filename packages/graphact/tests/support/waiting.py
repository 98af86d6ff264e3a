"""Count of waits for a CUDA device."""

import warnings
from contextlib import contextmanager

import torch


@contextmanager
def when_waiting(mode):
    """Let torch ``"warn"`` or raise an ``"error"`` when the host waits for the device inside."""

    def set_mode(mode):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Synchronization debug mode is a prototype feature")
            torch.cuda.set_sync_debug_mode(mode)

    set_mode(mode)
    try:
        yield
    finally:
        set_mode("default")


def waits(function):
    """Return how often a call waits for the device, after a first one that compiles kernels."""
    function()
    with warnings.catch_warnings(record=True) as caught, when_waiting("warn"):
        warnings.simplefilter("always")
        function()
    return sum("called a synchronizing" in str(warning.message) for warning in caught)
