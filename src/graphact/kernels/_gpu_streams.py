"""Kernels side by side."""

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import torch


class Beside:
    """A second stream for few programs that wait for memory, while the many of the first stream work.

    What is started within :meth:`second` waits for what the first stream had been given before; at the end of it all
    the first stream waits in turn. Recorded steps stay on one stream, and so does everything that is not on a GPU.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.stream: torch.cuda.Stream | None = None

    def __enter__(self) -> "Beside":
        return self

    def __exit__(self, *error: object) -> None:
        if self.stream is not None:
            torch.cuda.current_stream(self.device).wait_stream(self.stream)

    def second(self) -> AbstractContextManager[Any]:
        """Within it, kernels go to the second stream."""
        if self.stream is None:
            if self.device.type != "cuda" or is_recording(self.device):
                return nullcontext()
            self.stream = second_stream(self.device)
            self.stream.wait_stream(torch.cuda.current_stream(self.device))
        return torch.cuda.stream(self.stream)


def is_recording(device: torch.device) -> bool:
    """Whether the current stream of a device is being recorded."""
    with torch.cuda.device(device):
        return torch.cuda.is_current_stream_capturing()


@cache
def second_stream(device: torch.device) -> torch.cuda.Stream:
    """One for each device."""
    return torch.cuda.Stream(device)
