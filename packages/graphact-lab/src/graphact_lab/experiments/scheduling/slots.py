"""Scheduling in time: packets arrive, queues are the utilities, and every round of messages takes air from the slot."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from graphact_lab.experiments.scheduling.conflicts import Conflicts
from graphact_lab.experiments.scheduling.greedy_rules import greedy, heard
from graphact_lab.statistics import estimate
from graphact_lab.store import Row

SLOT, ACCESS, BITRATE = 10e-3, 40e-6, 6e6  # seconds of a slot and of the access to the channel; bits a second
PACKETS = 5.0  # of 1,500 bytes in a slot without messages
SHARE_DRAWS = 200  # of priorities, to see how often the centralised greedy serves a link


def air_time(sent: Sequence[int], contention: int) -> float:
    """The share of a slot that rounds of messages take.

    Args:
        sent: bytes of a message, for each round.
        contention: how many messages of neighbours follow each other in a round.

    Example:
        >>> round(air_time([2, 1, 1], 16), 3)
        0.201
    """
    return contention * sum(ACCESS + 8 * size / BITRATE for size in sent) / SLOT


def usual_arrivals(conflicts: Conflicts, generator: torch.Generator) -> Tensor:
    """The packets a slot at load 1, ``(N,)``: what the centralised greedy serves with random priorities, for free."""
    keys = torch.rand(SHARE_DRAWS, len(conflicts.member), generator=generator).to(conflicts.degree.device)
    return PACKETS * greedy(keys, torch.ones_like(keys), conflicts).double().mean(0)


def run_slots(
    schedule: Callable[[Tensor], Tensor], sent: Sequence[int], conflicts: Conflicts, arrivals: Tensor, *,
    loads: Sequence[float], contentions: Sequence[int], slots: int, seed: int, replicas: int = 1,
) -> list[Row]:  # fmt: skip
    """Serve queues for some slots and measure over the second half of them: a row for each contention and load.

    A row has the share of the arrivals that were served, the mean delay in slots, and the slope of the backlog relative
    to the arrivals, with half of its 95 % interval over graphs.

    Args:
        schedule: which links send, from queues ``(R, C, L, N)``: networks, contentions, loads, links.
        sent: bytes of the messages of a link, round by round.
        conflicts: the graphs.
        arrivals: packets a slot at load 1.
        loads: multiples of them to try.
        contentions: numbers of messages that follow each other in a round.
        slots: how many.
        seed: of the arrivals, which all schedulers share.
        replicas: R.
    """
    device, generator = arrivals.device, torch.Generator().manual_seed(seed)
    useful = torch.tensor([max(0.0, 1 - air_time(sent, contention)) for contention in contentions], device=device)
    expected = torch.tensor(loads, dtype=torch.float64).view(-1, 1) * arrivals.cpu()
    queue = torch.zeros(replicas, len(contentions), len(loads), len(arrivals), device=device)
    served, backlog = list[Tensor](), list[Tensor]()
    for slot in range(slots):
        queue = queue + torch.poisson(expected, generator=generator).to(queue)
        sends = schedule(queue)
        carried = torch.where(sends & ~heard(sends, conflicts.graph), queue, 0.0)
        carried = carried.minimum(PACKETS * useful.view(-1, 1, 1))
        queue = queue - carried
        if slot >= slots // 2:
            served.append(conflicts.totals(carried))
            backlog.append(conflicts.totals(queue))
    rate = conflicts.totals(expected.to(device))  # (L, G), packets a slot
    series, time = torch.stack(backlog).double(), torch.arange(len(backlog), dtype=torch.float64, device=device)
    time = time - time.mean()
    slope = torch.tensordot(time, series, ([0], [0])) / time.square().sum() / rate  # (R, C, L, G)
    throughput, delay = (part.mean((0, 1, -1)) for part in (torch.stack(served).double() / rate, series / rate))
    rows = list[Row]()
    for c, contention in enumerate(contentions):
        for n, load in enumerate(loads):
            grows = estimate(slope[:, c, n].mean(0).tolist())
            row = {"contention": contention, "load": load, "slope": grows.mean, "margin": grows.margin}
            rows.append(row | {"throughput": throughput[c, n].item(), "delay": delay[c, n].item()})
    return rows
