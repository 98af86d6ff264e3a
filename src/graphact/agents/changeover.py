"""How a running agent goes from one epoch of its network to the next; :mod:`graphact.agents.changes` has the files."""

import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from graphact.agents.addresses import Addresses
from graphact.agents.changes import ChangeStore, Staged
from graphact.agents.deployment import Deployment
from graphact.agents.epochs import OVERLAP, Epochs
from graphact.agents.links import Links
from graphact.agents.node import Node
from graphact.agents.orders import Order
from graphact.agents.transports.base import Transport
from graphact.storage import one_line

WATCH_EVERY = 0.2
"""Seconds after which an agent looks for a change of its network."""
WATCH_AT_LAST = 1.0
"""Seconds after which it does so although a run is due: where runs take all the time, there is none between them."""
T = TypeVar("T")


class Job(threading.Thread, Generic[T]):
    """Work beside the runs of the agent: a model may be large, the name of a host may be looked up, a disk slow."""

    def __init__(self, function: Callable[[], T]) -> None:
        super().__init__(daemon=True)
        self._function, self._results = function, list[T]()
        self.error: OSError | ValueError | None = None
        self.start()

    def run(self) -> None:
        try:
            self._results.append(self._function())
        except (OSError, ValueError) as error:
            self.error = error

    @property
    def is_over(self) -> bool:
        return not self.is_alive()

    def wait(self) -> None:
        """Wait until the work is over."""
        if self.is_alive():
            self.join()

    def result(self) -> T:
        """What was made, or the OSError or ValueError that was met."""
        if not self._results:
            raise self.error or ValueError("the work could not be done")
        return self._results[0]


class Done(Job[T]):
    """Work that is done at once, in simulations."""

    def start(self) -> None:
        self.run()


@dataclass
class Upcoming:
    """An epoch that a node is prepared for; ``node`` is None if it is removed, ``order`` until it is committed."""

    staged: Staged
    node: Node | None
    order: Order | None = None


@dataclass
class Settling:
    """An epoch that holds since ``run``, while the one before is still kept.

    ``finishing`` writes its files, and ``failure`` is why that was not possible.
    """

    run: int
    finishing: Job[None] | None = None
    failure: str = ""


class Changeover:
    """How a running agent goes from one epoch to the next.

    Args:
        nodes: its node, in the epochs that it holds.
        deployment: what it is now.
        addresses: where its neighbours are now; None where no change ever arrives, and in simulations.
        changes: what becomes of it; None likewise.
        transport: its end of the network; None in simulations.
        make_node: makes its node in another epoch.
        check: raises ValueError if the agent cannot go on with another deployment.
        about: what it answers to whoever changes the network, beside the digest.
        report: called with events.
        job: how work is done beside the runs.

    Attributes:
        deployment: what it is now.
        removed_from: the run from which on this node is no part of the network; None while it is.
    """

    def __init__(
        self,
        nodes: Epochs,
        deployment: Deployment,
        addresses: Addresses | None,
        changes: ChangeStore | None,
        transport: Transport | None,
        *,
        make_node: Callable[[Deployment, bytes], Node],
        check: Callable[[Deployment], None],
        about: Mapping[str, float],
        report: Callable[[dict[str, Any]], None],
        job: Callable[[Callable[[], Any]], Job[Any]] = Job,
    ) -> None:
        self.deployment = deployment
        self.removed_from: int | None = None
        self._nodes, self._addresses, self._changes, self._transport = nodes, addresses, changes, transport
        self._make_node, self._check, self._about, self._job = make_node, check, about, job
        self._tell = lambda event, **more: report({"event": event, "node": deployment.node, **more})
        self._upcoming: Upcoming | None = None
        self._settling: Settling | None = None
        self._staged: object = None
        self._loading: Job[Staged] | None = None
        self._noting: Job[None] | None = None  # an order that a neighbour passed on
        self._looked = -math.inf

    def watch(self, now: float, due: int, *, has_time: bool = True) -> None:
        """Look for a change, prepare it, and learn from which run on it holds; called often between runs.

        ``due`` is the run that is next, whether or not this node takes part in it. Without ``has_time`` it is about to
        begin, here and at all neighbours, and what is not urgent waits until it is over.
        """
        if self._changes is None or now < self._looked + (WATCH_EVERY if has_time else WATCH_AT_LAST):
            return
        self._looked = now
        if self._settling is not None:
            self._settle(self._changes, self._settling, due)
            return
        if (found := self._changes.staged) != self._staged:
            self._staged, self._loading = found, None
            if self._upcoming is not None:
                self._take_back(self._upcoming)
            if found is not None:
                self._loading = self._job(self._load)
        if self._loading is not None and self._loading.is_over:
            self._prepare(self._changes, self._loading)
            self._loading = None
        if self._upcoming is not None and self._upcoming.order is None:
            self._learn_order(self._changes, self._upcoming)

    def node_in(self, run: int) -> Node:
        """The node in the epoch that holds in a run to come, as far as it is known."""
        upcoming = self._upcoming
        if upcoming is not None and upcoming.order is not None and upcoming.node is not None:
            return upcoming.node if run >= upcoming.order.run else self._nodes.current
        return self._nodes.current

    def _load(self) -> Staged:
        """Read a change, beside the runs."""
        assert self._changes is not None
        staged = self._changes.load()
        if staged.addresses is not None and self._transport is not None:
            self._transport.look_up(staged.addresses)
        return staged

    def _prepare(self, changes: ChangeStore, loading: Job[Staged]) -> None:
        """Check that this node can change to the next epoch, which was read beside the runs, and tell."""
        digest, node, staged = b"", None, None
        try:
            staged = loading.result()
            if staged.deployment is not None:
                new, old = staged.deployment.links, self.deployment.links
                if (new.node, new.network) != (old.node, old.network) or new.epoch == old.epoch:
                    raise ValueError(f"the change must be one of node {old.node} of this network, in another epoch")
                self._check(staged.deployment)
                node = self._make_node(staged.deployment, staged.order_key)
                if staged.addresses is not None:
                    self._reach((staged.addresses, new))
                self._nodes.add(node)
                digest = node.digest
        except (OSError, ValueError) as error:
            changes.answer(staged, error=one_line(error))
            self._tell("refused", neighbor=self.deployment.node, reason=f"a change: {one_line(error)}")
            return
        self._upcoming = Upcoming(staged, node)
        changes.answer(staged, digest=digest.hex(), **self._about)
        self._tell("prepared", epoch=None if node is None else node.links.epoch_name)

    def _learn_order(self, changes: ChangeStore, upcoming: Upcoming) -> None:
        """Take the order for the upcoming epoch from the operator, and pass it on, or from a neighbour."""
        node, order = upcoming.node, changes.order
        if order is not None and not order.is_signed(upcoming.staged.order_key):
            order = None  # of a change that was staged since in its place
        if order is None and node is not None and node.order is not None:
            order = node.order
            self._noting = self._job(partial(changes.commit, order))  # where that fails, the next start asks again
        if order is None:
            return
        upcoming.order = order
        if node is not None and node.order is None:
            node.tell_order(order)
        self._tell("committed", run=order.run)

    def _reach(self, *others: tuple[Addresses, Links]) -> None:
        """Have the neighbours of other epochs beside the current ones."""
        if self._addresses is not None and self._transport is not None:
            self._transport.reach((self._addresses, self.deployment.links), *others)

    def _take_back(self, upcoming: Upcoming) -> None:
        """Forget an upcoming epoch: nothing was changed."""
        self._nodes.forget([] if upcoming.node is None else [upcoming.node])
        self._upcoming = None
        self._reach()
        self._tell("taken back")

    def follow(self, run: int) -> bool:
        """Go on in the upcoming epoch, if it holds in this run; False if this node is no part of it."""
        upcoming = self._upcoming
        if self._changes is None or upcoming is None:
            return True
        if upcoming.order is None and may_hold(self._changes, upcoming, run):
            self._learn_order(self._changes, upcoming)
        if upcoming.order is None or run < upcoming.order.run:
            return True
        staged, node, before = upcoming.staged, upcoming.node, (self._addresses, self.deployment.links)
        if staged.deployment is None or node is None:
            self.removed_from = upcoming.order.run
            self._finish(self._changes)
            return False
        if self._changes.brings_certificates:
            self._finish(self._changes)  # certificates must be there when links are opened
        self._nodes.switch(node)
        self.deployment, self._addresses = staged.deployment, staged.addresses
        self._upcoming, self._settling = None, Settling(upcoming.order.run)
        self._reach(*([] if before[0] is None else [(before[0], before[1])]))
        self._tell("changed", run=upcoming.order.run, epoch=node.links.epoch_name)
        return True

    def _finish(self, changes: ChangeStore) -> None:
        """Write the files of an epoch that holds."""
        if self._noting is not None:
            self._noting.wait()
        changes.finish()

    def _settle(self, changes: ChangeStore, settling: Settling, due: int) -> None:
        """After the first run of an epoch write its files, beside the next runs; later forget the epoch before.

        Runs are counted by what is due: a node without signals changes like all others.
        """
        finishing = settling.finishing
        if finishing is None:
            if due > settling.run:
                settling.finishing = self._job(partial(self._finish, changes))
        elif finishing.is_over and finishing.error is not None:  # a full disk; next/ is still there
            settling.finishing, failure = None, one_line(finishing.error)
            if failure != settling.failure:
                self._tell("unfinished", reason=f"the files of the change: {failure}")
            settling.failure = failure
        elif finishing.is_over and due > settling.run + OVERLAP:
            self._nodes.forget(self._nodes.others)
            self._reach()
            self._settling = None


def may_hold(changes: ChangeStore, upcoming: Upcoming, run: int) -> bool:
    """Whether there is an order for a run or one before, of the operator or not: all that is urgent when it begins.

    To check an order and to pass it on takes longer, and almost all are given for a run that is still far.
    """
    heard = None if upcoming.node is None else upcoming.node.order
    return changes.has_order_for(run) or (heard is not None and heard.run <= run)
