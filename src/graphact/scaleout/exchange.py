"""The halo exchange: every process sends the values that others need of its nodes and receives those that it needs.

An exchange is begun, work on the interior goes on meanwhile, and the exchange is ended. The gradient takes the opposite
way: the backward pass of the end begins the transposed exchange, so that it overlaps the same work.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from graphact.scaleout.partition import Array


@dataclass
class Traffic:
    """What has been exchanged so far: number of exchanges, and bytes of payload that this process sent and received."""

    exchanges: int = 0
    sent: int = 0
    received: int = 0

    def reset(self) -> None:
        """Count from zero again."""
        self.exchanges = self.sent = self.received = 0


@dataclass(frozen=True)
class HaloPlan:
    """Who sends the values of which nodes to whom."""

    send: Tensor  # positions of the nodes held here that others need, receiver after receiver
    send_counts: tuple[int, ...]  # how many of them go to each process
    halo_counts: tuple[int, ...]  # how many values come from each process
    group: dist.ProcessGroup | None  # None is all processes
    traffic: Traffic = field(default_factory=Traffic)

    @property
    def has_others(self) -> bool:
        return len(self.send_counts) > 1

    def begin(self, x: Tensor) -> Callable[[], Tensor]:
        """Send what others need of the signal ``(..., n, F)``, without waiting.

        Returns a function that waits for the values of the halo, ``(..., h, F)``, owner after owner.
        """
        there = _Ticket(self, self.send_counts, self.halo_counts)
        back = _Ticket(self, self.halo_counts, self.send_counts)
        outgoing = x.index_select(-2, self.send).movedim(-2, 0).contiguous()
        # a number without meaning that ties the end of the exchange to its beginning, for autograd
        token = _Begin.apply(outgoing, there, back)
        return lambda: _End.apply(token, there, back).movedim(0, -2)

    def exchange_rows(self, rows: Array, send_counts: Sequence[int]) -> tuple[Array, list[int]]:
        """Send rows of integers to each process; return what came and how many rows each process sent."""
        if not self.has_others:
            return rows, list(send_counts)
        outgoing = torch.from_numpy(rows).to(self.send.device)
        counts = torch.tensor(send_counts, device=outgoing.device)
        coming = torch.empty_like(counts)
        dist.all_to_all_single(coming, counts, group=self.group)
        receive_counts: list[int] = coming.tolist()
        received = outgoing.new_empty(sum(receive_counts), *outgoing.shape[1:])
        dist.all_to_all_single(received, outgoing.contiguous(), receive_counts, list(send_counts), group=self.group)
        return received.cpu().numpy(), receive_counts


class _Ticket:
    """One use of the network, there or back."""

    def __init__(self, plan: HaloPlan, send_counts: Sequence[int], receive_counts: Sequence[int]) -> None:
        self.plan, self.send_counts, self.receive_counts = plan, send_counts, receive_counts
        self.pending: Any = None

    def start(self, outgoing: Tensor) -> None:
        """Send rows of ``(s, ..., F)``."""
        outgoing = outgoing.contiguous()
        incoming = outgoing.new_empty(sum(self.receive_counts), *outgoing.shape[1:])
        row = math.prod(outgoing.shape[1:]) * outgoing.element_size()
        # bytes, because not every transport knows every precision
        sent, received = outgoing.view(-1).view(torch.uint8), incoming.view(-1).view(torch.uint8)
        receive_bytes, send_bytes = ([n * row for n in counts] for counts in (self.receive_counts, self.send_counts))
        work = dist.all_to_all_single(received, sent, receive_bytes, send_bytes, group=self.plan.group, async_op=True)
        self.pending = work, incoming, outgoing  # alive until the values have arrived
        traffic = self.plan.traffic
        traffic.exchanges += 1
        traffic.sent += sent.numel()
        traffic.received += received.numel()

    def finish(self) -> Tensor:
        (work, incoming, _), self.pending = self.pending, None
        work.wait()
        return incoming


class _Begin(torch.autograd.Function):
    """Start the exchange ``there``; the gradient ends the one ``back``, which the gradient of :class:`_End` began."""

    @staticmethod
    def forward(ctx: Any, outgoing: Tensor, there: _Ticket, back: _Ticket) -> Tensor:
        ctx.there, ctx.back = there, back
        there.start(outgoing)
        return outgoing.new_zeros(())

    @staticmethod
    def backward(ctx: Any, token: Tensor) -> tuple[Tensor, None, None]:
        return _End.apply(token, ctx.back, ctx.there), None, None


class _End(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, _: Tensor, there: _Ticket, back: _Ticket) -> Tensor:
        ctx.there, ctx.back = there, back
        return there.finish()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return _Begin.apply(grad, ctx.back, ctx.there), None, None
