"""Scheduling in time: packets arrive, queues are the utilities, and every round of messages takes air from the slot."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from graphact_lab.experiments.scheduling.conflicts import Conflicts
from graphact_lab.experiments.scheduling.rules import greedy, heard
from graphact_lab.statistics import Estimate, estimate

SLOT, ACCESS, BITRATE = 10e-3, 40e-6, 6e6  # seconds of a slot and of the access to the channel; bits a second
PACKETS = 5.0  # of 1,500 bytes in a slot without messages
SHARE_DRAWS = 200  # of utilities, to see how often the centralised greedy serves a link


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


class Traffic(NamedTuple):
    """Conflict graphs, the packets that arrive in a slot at load 1 ``(N,)``, and the loads to try."""

    conflicts: Conflicts
    arrivals: Tensor
    loads: tuple[float, ...]

    @classmethod
    def on(cls, conflicts: Conflicts, loads: Sequence[float], generator: torch.Generator) -> "Traffic":
        """At load 1, each link gets as much as the centralised greedy serves with random priorities and no messages."""
        keys = torch.rand(SHARE_DRAWS, len(conflicts.member), generator=generator).to(conflicts.degree.device)
        served = greedy(keys, torch.ones_like(keys), conflicts).double().mean(0)
        return cls(conflicts, PACKETS * served, tuple(loads))


class Outcome(NamedTuple):
    """Of a load and a contention: the share of the arrivals served, the mean delay in slots, the backlog's slope.

    The slope is relative to the arrivals, with half of its 95 % interval over graphs.
    """

    contention: int
    load: float
    throughput: float
    delay: float
    slope: float
    margin: float


def run_slots(
    schedule: Callable[[Tensor], Tensor], sent: Sequence[int], traffic: Traffic, contentions: Sequence[int], slots: int,
    *, seed: int, replicas: int = 1,
) -> list[Outcome]:  # fmt: skip
    """Serve queues for some slots and measure over the second half of them.

    Args:
        schedule: which links send, from queues ``(R, C, L, N)``: networks, contentions, loads, links.
        sent: bytes of the messages of a link, round by round.
        traffic: where packets arrive.
        contentions: numbers of messages that follow each other in a round.
        slots: how many.
        seed: of the arrivals, which all schedulers share.
        replicas: R.
    """
    conflicts, device = traffic.conflicts, traffic.arrivals.device
    generator = torch.Generator().manual_seed(seed)
    share = torch.tensor([max(0.0, 1 - air_time(sent, contention)) for contention in contentions], device=device)
    expected = torch.tensor(traffic.loads, dtype=torch.float64).view(-1, 1) * traffic.arrivals.cpu()
    queue = torch.zeros(replicas, len(contentions), len(traffic.loads), len(conflicts.member), device=device)
    backlog = list[Tensor]()
    served = torch.zeros(*queue.shape[:-1], conflicts.num_graphs, device=device)
    for slot in range(slots):
        queue = queue + torch.poisson(expected, generator=generator).to(queue)
        sends = schedule(queue)
        sends = sends & ~heard(sends, conflicts.graph)
        carried = torch.where(sends, queue.minimum(PACKETS * share.view(-1, 1, 1)), 0.0)
        queue = queue - carried
        if slot >= slots // 2:
            served += conflicts.totals(carried)
            backlog.append(conflicts.totals(queue))
    rate = conflicts.totals(expected.to(device))  # (L, G), packets a slot
    series = torch.stack(backlog).double()
    time = torch.arange(len(series), dtype=torch.float64, device=device)
    time = time - time.mean()
    slope = torch.tensordot(time, series, ([0], [0])) / time.square().sum() / rate  # (R, C, L, G)
    throughput, delay = served.double() / len(series) / rate, series.mean(0) / rate
    found = []
    for c, contention in enumerate(contentions):
        for n, load in enumerate(traffic.loads):
            grows: Estimate = estimate(slope[:, c, n].mean(0).tolist())
            means: Any = [part[:, c, n].mean().item() for part in (throughput, delay)]
            found.append(Outcome(contention, load, *means, grows.mean, grows.margin))
    return found


def largest_stable(outcomes: Sequence[Outcome]) -> float:
    """The largest load whose backlog does not grow with certainty, of outcomes at one contention; 0 without one."""
    return max((one.load for one in outcomes if one.slope - one.margin <= 0), default=0.0)
