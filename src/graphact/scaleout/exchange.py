"""The halo exchange: every process sends the values that others need of its nodes and receives those that it needs.

An exchange is begun, work on the interior goes on meanwhile, and the exchange is ended. The gradient takes the opposite
way: the backward pass of the end begins the transposed exchange, so that it overlaps the same work.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


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
    """Who sends the values of which nodes to whom.

    Attributes:
        send: positions of the nodes held here that others need, receiver after receiver.
        send_counts: how many of them go to each process.
        halo_counts: how many values come from each process.
        group: the processes; None is all of them.
        traffic: counts what is exchanged.
    """

    send: Tensor
    send_counts: tuple[int, ...]
    halo_counts: tuple[int, ...]
    group: dist.ProcessGroup | None
    traffic: Traffic = field(default_factory=Traffic)

    @property
    def num_halo(self) -> int:
        """How many values arrive."""
        return sum(self.halo_counts)

    def begin(self, x: Tensor) -> Callable[[], Tensor]:
        """Send what others need of the signal ``(..., n, F)``, without waiting.

        Returns a function that waits for the values of the halo, ``(..., h, F)``, owner after owner.
        """
        ticket = _Ticket(self.send_counts, self.halo_counts, self.group, self.traffic)
        outgoing = x.index_select(-2, self.send).movedim(-2, 0).contiguous()
        # a number without meaning that ties the end of the exchange to its beginning, for autograd
        token = _Begin.apply(outgoing, ticket)
        return lambda: _End.apply(token, ticket).movedim(0, -2)


@dataclass(eq=False)
class _Ticket:
    """One use of the network, there or back."""

    send_counts: tuple[int, ...]
    receive_counts: tuple[int, ...]
    group: dist.ProcessGroup | None
    traffic: Traffic
    work: Any = None
    outgoing: Tensor | None = None
    incoming: Tensor | None = None
    transposed: "_Ticket | None" = None

    def start(self, outgoing: Tensor) -> None:
        """Send rows of ``(s, ..., F)``."""
        outgoing = outgoing.contiguous()
        incoming = outgoing.new_empty(sum(self.receive_counts), *outgoing.shape[1:])
        row = math.prod(outgoing.shape[1:]) * outgoing.element_size()
        # bytes, because not every transport knows every precision
        sent, received = outgoing.view(-1).view(torch.uint8), incoming.view(-1).view(torch.uint8)
        self.work = dist.all_to_all_single(
            received,
            sent,
            [count * row for count in self.receive_counts],
            [count * row for count in self.send_counts],
            group=self.group,
            async_op=True,
        )
        self.outgoing, self.incoming = outgoing, incoming  # alive until the values have arrived
        self.traffic.exchanges += 1
        self.traffic.sent += sent.numel()
        self.traffic.received += received.numel()

    def finish(self) -> Tensor:
        """Wait for the values."""
        self.work.wait()
        arrived, self.work, self.outgoing, self.incoming = self.incoming, None, None, None
        assert arrived is not None
        return arrived

    def transpose(self) -> "_Ticket":
        """The exchange in the opposite direction, which carries the gradient; ended where this one was begun."""
        self.transposed = _Ticket(self.receive_counts, self.send_counts, self.group, self.traffic)
        return self.transposed


class _Begin(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, outgoing: Tensor, ticket: _Ticket) -> Tensor:
        ctx.ticket = ticket
        ticket.start(outgoing)
        return outgoing.new_zeros(())

    @staticmethod
    def backward(ctx: Any, token: Tensor) -> tuple[Tensor, None]:
        assert ctx.ticket.transposed is not None
        return _End.apply(token, ctx.ticket.transposed), None


class _End(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, _: Tensor, ticket: _Ticket) -> Tensor:
        ctx.ticket = ticket
        return ticket.finish()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _Begin.apply(grad, ctx.ticket.transpose()), None


def exchange_rows(rows: Tensor, send_counts: list[int], group: dist.ProcessGroup | None) -> tuple[Tensor, list[int]]:
    """Send rows of integers to each process; return what came and how many rows each process sent."""
    counts = torch.tensor(send_counts, device=rows.device)
    coming = torch.empty_like(counts)
    dist.all_to_all_single(coming, counts, group=group)
    receive_counts: list[int] = coming.tolist()
    received = rows.new_empty(sum(receive_counts), *rows.shape[1:])
    dist.all_to_all_single(received, rows.contiguous(), receive_counts, send_counts, group=group)
    return received, receive_counts
