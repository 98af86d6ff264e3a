"""Who acts on a simulated network from outside: an operator who changes it, and somebody who holds one of its nodes.

All that they do is drawn from the random numbers of the simulation (:mod:`graphact.agents.simulation`).
"""

import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from graphact.agents.changes import MemoryChanges
from graphact.agents.deployment import Deployment
from graphact.agents.links import Links
from graphact.agents.messages import MAX_RUN, NOTHING, ORDER_ELEMENT, ORDER_ELEMENTS, Kind, Message, Payload, encode
from graphact.agents.orders import Order, OrderKey
from graphact.agents.renewal import renew

NOT_TOLD = 0.1
"""The share of nodes that are prepared for a change and are not told that it holds, except by their neighbours."""
TAKEN_BACK = 0.3
"""The share of changes before which another one is staged, and taken back."""
POISONS = 12
"""Messages that a captured node sends to each neighbour."""


def operate(
    disks: Sequence[MemoryChanges],
    run: int,
    nodes: Sequence[Deployment | None],
    window: tuple[float, float],
    at: Callable[[float, Callable[[], None]], None],
    join: Callable[[int, Deployment, Order], None],
    rng: random.Random,
) -> None:
    """What an operator does: stage a change at every node, and when it is everywhere give the order, to most.

    As in reality, not while another change is under way; a change may be staged and taken back before.

    Args:
        disks: of all nodes.
        run: from which on the change holds.
        nodes: what all nodes are then; None for those without.
        window: when the operator begins and ends.
        at: lets something happen at a time.
        join: starts a node that is added.
        rng: decides.
    """
    if any(disk.next is not None for disk in disks):
        orders = [disk.order for disk in disks if disk.order is not None]
        for disk in disks if orders else ():
            disk.commit(orders[0])
        return
    begin, end = window
    first, second = begin + (end - begin) / 3, begin + 2 * (end - begin) / 3
    if rng.random() < TAKEN_BACK:
        now = {i: disk.deployment for i, disk in enumerate(disks) if disk.deployment is not None}
        withdrawn = renew(now, epoch=rng.getrandbits(63), secret=rng.randbytes(32))
        public = OrderKey(rng.randbytes(32)).public
        for i, each in withdrawn.items():
            staged = rng.uniform(begin, first)
            at(staged, partial(disks[i].stage, each, public))
            at(rng.uniform(staged, first), partial(disks[i].take_back, public))
    key = OrderKey(rng.randbytes(32))
    order = key.sign(run)
    for i, deployment in enumerate(nodes):
        if disks[i].deployment is not None:
            at(rng.uniform(first, second), partial(disks[i].stage, deployment, key.public))
            if deployment is None or rng.random() >= NOT_TOLD:  # who is removed has no neighbours
                at(rng.uniform(second, end), partial(disks[i].commit, order))
        elif deployment is not None:
            at(rng.uniform(second, end), partial(join, i, deployment, order))


def poison(links: Links, run: int, program: int, rng: random.Random) -> Iterator[tuple[int, bytes]]:
    """What a node in wrong hands sends to whom, and no other node may use: runs that cannot be, values that do not fit.

    ``program`` is the number of the program that all nodes run.
    """
    far = (run + 2**40, MAX_RUN, max(0, run - 1), run, run + 1)
    unfit, length = Payload.of(np.arange(7)), ORDER_ELEMENT * ORDER_ELEMENTS
    for j in links.neighbors:
        for kind in rng.choices(list(Kind), k=POISONS):
            tags = (links.epoch, rng.choice(far), rng.randrange(9), program)
            signature = rng.randbytes(length) if kind == Kind.ORDER else b""
            content = unfit if kind == Kind.DATA else NOTHING
            message = Message(kind, links.node, j, *tags, content, b"", False, signature)
            yield j, encode(message, links.keys[j])
