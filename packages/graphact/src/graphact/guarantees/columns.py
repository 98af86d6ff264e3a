r"""Affine forms of differences on graphs of any size: the coefficients of a few inputs or unknowns at a time.

The forms ``(M, N, F)`` of :mod:`graphact.guarantees.forms` pass through a network column by column: filters act on
every column alone, and so does the middle of what a nonlinearity can do. Columns meet only in sums of magnitudes,
which are added up block by block. No more than a block is held, and only at the nodes that its columns have reached.

A block may also be given up behind any activation: its coefficients are replaced by a fresh unknown at every node and
feature, as large as their sum of magnitudes. This keeps the forms valid and makes them cover more, and is what happens
where the budget does not suffice for following all columns to the outputs.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from graphact.graph import Graph
from graphact.guarantees.budget import Budget, Progress
from graphact.guarantees.description import Blocks, split_readout, widths
from graphact.guarantees.segments import (
    Outputs,
    Segment,
    features_tried,
    hops_of_step,
    on_device,
    pass_linear,
    split_segments,
    unit_columns,
)
from graphact.guarantees.windows import BLOCK, Array, Surroundings


def column_norms(
    layers: Blocks,
    features: int,
    graph: Graph,
    budget: Budget,
    device: torch.device,
    progress: Progress,
    sizes: Tensor | None = None,
) -> tuple[Tensor, float]:
    """How far each output ``(N, O)`` moves, at most, when every input moves by 1; the share of columns followed.

    ``sizes`` of the features ``(F,)`` that the last activation reads, in about, say whose slopes are tried. Raise
    OutOfTimeError if the budget does not suffice for one layer at a time.
    """
    with one_thread(device):
        return _column_norms(layers, features, graph, budget, device, progress, sizes)


@contextmanager
def one_thread(device: torch.device) -> Iterator[None]:
    """A block fits into a cache: waiting for other threads costs more than they help, most on a busy machine."""
    threads = torch.get_num_threads()
    if device.type == "cpu":
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _column_norms(
    layers: Blocks,
    features: int,
    graph: Graph,
    budget: Budget,
    device: torch.device,
    progress: Progress,
    sizes: Tensor | None,
) -> tuple[Tensor, float]:
    _, readout = split_readout(layers)  # on the CPU, where it is looked at
    layers = on_device(layers, device)
    body, _ = split_readout(layers)
    whole = Surroundings(graph, layers, device)
    segments, behind = split_segments(body, features, whole)
    width = max([features, *widths(body, features)])
    last_width = list(widths(body, features))[-1] if body else features
    weights = torch.ones(graph.num_nodes, features, dtype=torch.float64, device=device)
    last = segments[-1] if segments and not behind else None
    steps: list[tuple[Blocks, Segment | None]] = [(segment.layers, segment) for segment in segments]
    if last is None:
        steps.append((behind, None))
    columns_of = [weights.numel(), *(segment.norms.numel() for segment in segments)][: len(steps)]
    weight = torch.eye(last_width, dtype=torch.float64) if readout is None else readout.weight
    tried = torch.zeros(len(weight), 0, dtype=torch.int64)
    if last is not None:
        sizes = torch.ones(last_width, dtype=torch.float64) if sizes is None else sizes
        tried = features_tried(weight, sizes, sum(columns_of) * graph.num_nodes, readout is None)
    outputs = Outputs(graph.num_nodes, weight, tried, last, device)
    sources = enumerate(columns_of)
    budget.blocks = sum(count / columns_of_block(whole, steps[source:], width) for source, count in sources)
    budget.reserve(*expected_work(whole, steps, columns_of, last_width))
    left, followed = sum(columns_of), 0
    for source in range(len(steps)):
        for nodes, chosen in column_blocks(whole, steps[source:], weights.size(1), width):
            count = len(nodes) * (chosen.stop - chosen.start)
            left -= count
            columns = weights[torch.from_numpy(nodes).to(device)][:, chosen]
            followed += follow(steps[source:], nodes, columns, chosen, budget, left, outputs, whole) * count
            budget.columns += count
            progress(1 - left / sum(columns_of))
        if source < len(segments):
            weights = segments[source].merged + sum(segments[source].spread(whole))
    zero = torch.zeros(graph.num_nodes, last_width, dtype=torch.float64, device=device)
    return outputs.total(*(last.spread(whole) if last else (zero, zero))), followed / max(1, sum(columns_of))


def expected_work(
    whole: Surroundings, steps: list[tuple[Blocks, Segment | None]], columns_of: list[int], last_width: int
) -> tuple[float, float]:
    """Operations for one layer of all columns, and for all layers, in about: from a sample of nodes."""
    some = np.unique(np.linspace(0, whole.num_nodes - 1, 33).astype(int))
    needed = every = 0.0
    for source, columns in enumerate(columns_of):
        hops = 0
        for number, (linear, segment) in enumerate(steps[source:]):
            ahead = hops_of_step(linear, segment)
            hops += ahead
            reached = sum(whole.window(some[i : i + 1], hops).operations for i in range(len(some))) / len(some)
            work = columns * (last_width if segment is None else segment.norms.size(1)) * reached * (1 + ahead)
            needed, every = needed + (work if number == 0 else 0), every + work
    return needed, every


def column_blocks(
    whole: Surroundings, steps: list[tuple[Blocks, Segment | None]], features: int, width: int
) -> Iterator[tuple[Array, slice]]:
    """Groups of nodes and ranges of their features, such that what a block reaches fits into the memory for it."""
    columns = columns_of_block(whole, steps, width)
    step = min(columns, features)
    for nodes in whole.clusters(max(1, columns // max(1, features))):
        for first in range(0, features, max(1, step)):
            yield nodes, slice(first, min(first + step, features))


def columns_of_block(whole: Surroundings, steps: list[tuple[Blocks, Segment | None]], width: int) -> int:
    """How many columns a block has, from what those of a few nodes reach."""
    hops = sum(hops_of_step(*step) for step in steps)
    some = np.unique(np.linspace(0, whole.num_nodes - 1, 9).astype(int))
    size = width * sum(len(whole.window(some[i : i + 1], hops).nodes) for i in range(len(some))) / len(some)
    return max(1, int(BLOCK[whole.device.type] / max(1, size)))


def follow(
    steps: list[tuple[Blocks, Segment | None]],
    nodes: Array,
    weights: Tensor,
    chosen: slice,
    budget: Budget,
    left: int,
    outputs: Outputs,
    whole: Surroundings,
) -> bool:
    """Carry the columns of some nodes and features as far as the budget allows; whether to the outputs."""
    hops, window, x = 0, whole.all, weights
    for number, (linear, segment) in enumerate(steps):
        hops += hops_of_step(linear, segment)
        before, window = window, whole.window(nodes, hops)
        width = outputs.weight.size(1) if segment is None else segment.norms.size(1)
        work = weights.numel() * width * window.operations * (1 + hops_of_step(linear, segment))
        if number and not budget.allows(work, left):
            given_up = steps[number - 1][1]
            assert given_up is not None
            before.add(given_up.merged, x)
            return False
        since = time.monotonic()
        if number == 0:
            x = unit_columns(linear[0] if linear else None, nodes, weights, chosen, width, window)
        else:
            x = window.widen(x, before)
        for layer in linear[int(number == 0) :]:
            x = pass_linear(layer, x, window)
        if segment is None:
            outputs.add(window, x)
        else:
            fixed, rectified = segment.advance(x, window)
            if number == len(steps) - 1:
                outputs.add(window, fixed, rectified)
            else:
                x = fixed.add_(rectified, alpha=sum(segment.slopes) / 2)
        if whole.device.type == "cuda" and budget.deadline is not None:
            torch.cuda.synchronize(whole.device)  # seconds are counted when the work is done, not when it is queued
        budget.spend(number == 0, work, since)
    return True
