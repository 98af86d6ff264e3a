"""Kernels side by side."""

from functools import cache

import torch


class Beside:
    """A second stream for few programs that wait for memory, while the many of the first stream work.

    What is started within it waits for what the first stream had been given before; :meth:`join` lets the first stream
    wait in turn. Recorded steps stay on one stream, and so does everything that is not on a GPU.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.stream: torch.cuda.Stream | None = None
        self.usable = device.type == "cuda" and not torch.cuda.is_current_stream_capturing()

    def __enter__(self) -> None:
        if not self.usable:
            return
        if self.stream is None:
            self.stream = second_stream(self.device)
            self.stream.wait_stream(torch.cuda.current_stream(self.device))
        self.within = torch.cuda.stream(self.stream)
        self.within.__enter__()

    def __exit__(self, *error: object) -> None:
        if self.usable:
            self.within.__exit__(*error)

    def join(self) -> None:
        """Let the first stream wait for the second."""
        if self.stream is not None:
            torch.cuda.current_stream(self.device).wait_stream(self.stream)


@cache
def second_stream(device: torch.device) -> torch.cuda.Stream:
    """One for each device."""
    return torch.cuda.Stream(device)
