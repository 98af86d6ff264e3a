"""When runs begin and how they are numbered, the same at all nodes without talking about it."""

import math
from dataclasses import dataclass

from graphact._checks import check_positive
from graphact.agents.node import Node


@dataclass(frozen=True)
class Clocked:
    """Run r begins at ``origin + r * period`` by the clock, at every node.

    A node that comes late, or back after a crash, is right again at the next run. Clocks must agree to a small part of
    a slot.

    Args:
        origin: when run 0 began, in seconds of Unix time.
        period: seconds from one run to the next.
    """

    origin: float
    period: float

    def __post_init__(self) -> None:
        check_positive("period", self.period)

    def next_run(self, node: Node, skipped: int, now: float) -> tuple[int, float]:
        """The number and the start of the next run.

        A run may be begun somewhat late: neighbours wait for its first values for a slot.

        Args:
            node: the node; its run numbers are used up.
            skipped: the last run it let pass.
            now: the time.
        """
        late = now - self.origin - node.timing.slot / 2
        run = max(math.ceil(late / self.period), node.run + 1, skipped + 1, 0)
        return run, self.origin + run * self.period


@dataclass(frozen=True)
class BackToBack:
    """Run 0 begins at ``origin``, each following one when the one before has ended and there is a signal.

    Runs are counted. A node that was away goes on with the run that its neighbours are in.
    """

    origin: float

    def next_run(self, node: Node, skipped: int, now: float) -> tuple[int, float]:
        """The number and the start of the next run."""
        run = max(node.run + 1, node.latest_heard, skipped + 1)
        return run, max(now, self.origin)


Schedule = Clocked | BackToBack
