"""A training step recorded once and replayed: on a GPU the launches of a small step cost more than its work."""

from collections.abc import Callable

import torch
from torch import Tensor

from graphact.training.loop import ModelBatch, plain_step

WARM_UP_STEPS = 3


def captured_step(batch: ModelBatch, optimizer: torch.optim.Optimizer) -> Callable[[Tensor], Tensor]:
    """The step of :func:`~graphact.training.loop.plain_step` as CUDA graphs, one for each batch size that occurs."""
    plain = plain_step(batch, optimizer)
    recorded: dict[int, tuple[torch.cuda.CUDAGraph, Tensor, Tensor]] = {}
    warm_up_left = WARM_UP_STEPS

    def step(positions: Tensor) -> Tensor:
        nonlocal warm_up_left
        size = positions.size(1)
        if size not in recorded:
            if warm_up_left > 0:
                warm_up_left -= 1
                return on_side_stream(plain, positions)
            recorded[size] = record(plain, positions)
        graph, static_positions, losses = recorded[size]
        static_positions.copy_(positions)
        graph.replay()
        return losses.clone()

    return step


def on_side_stream(plain: Callable[[Tensor], Tensor], positions: Tensor) -> Tensor:
    """One step outside the default stream, as recording demands of the steps before it."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        losses = plain(positions)
    torch.cuda.current_stream().wait_stream(stream)
    return losses


def record(plain: Callable[[Tensor], Tensor], positions: Tensor) -> tuple[torch.cuda.CUDAGraph, Tensor, Tensor]:
    """Record a step; recording runs nothing."""
    static_positions = positions.clone()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        losses = plain(static_positions)
    return graph, static_positions, losses
