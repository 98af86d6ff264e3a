"""Simulations with what only tests need: clocks that are set, captured nodes, links that come and go."""

from dataclasses import dataclass
from functools import partial

import numpy as np

from graphact_agents import Faults
from graphact_agents.messages import MAX_RUN, NOTHING, Kind, Message, Payload, encode
from graphact_agents.simulation import Simulation

STEPS = (-3, -2, -1, 1, 2, 3, 5)
"""By how many runs a clock is set."""
POISONS = 12
"""Messages that a captured node sends to each neighbour."""
ANNOUNCEMENTS = 4
"""Announcements of a run, in the slot before it."""


@dataclass(frozen=True)
class HostileFaults(Faults):
    """Also the probabilities that the clock of a node is set before a run, by a few runs forwards or back or right
    again, and that a captured node sends its neighbours impossible messages in a run, with its own keys."""

    clock: float = 0.0
    poison: float = 0.0


class HostileSimulation(Simulation):
    """A simulation with the faults above."""

    def __init__(self, links, program, **options):
        super().__init__(links, program, **options)
        self._clock = [0] * len(links)  # by how many runs the clock of a node is ahead

    def _begin(self, i, due, begins):
        """Begin the run that the clock of the node says is due."""
        if self.faults.clock and self._random.random() < self.faults.clock:
            self._clock[i] = 0 if self._clock[i] else self._random.choice(STEPS)
        run, node = due + self._clock[i], self.nodes[i]
        if node is None or not 0 <= run < self.runs:
            return
        if self.faults.clock:
            if run != node.log.used.next_free(run):
                return
            if run <= node.run:
                node.rewind_to_run(run)
            node.expect(run, begins, self.period)
        super()._begin(i, run, begins)
        if self.faults.poison and self._random.random() < self.faults.poison:
            for j, datagram in poison(node.links, run, self.program_id, self._random):
                self.network._fly(j, datagram)


def poison(links, run, program, rng):
    """Yield recipients and messages of a captured node: runs that cannot be, values that do not fit."""
    far = (run + 2**40, MAX_RUN, max(0, run - 1), run, run + 1)
    unfit = Payload.from_array(np.arange(7))
    for j in links.neighbors:
        for kind in rng.choices(list(Kind), k=POISONS):
            tags = (links.epoch, rng.choice(far), rng.randrange(9), program)
            yield j, encode(Message(kind, links.node, j, *tags, unfit if kind == Kind.DATA else NOTHING), links.keys[j])


class MovingSimulation(Simulation):
    """A simulation in which links come and go.

    ``reach`` is called a slot before each run, when the run before has ended everywhere, and says which pairs of nodes
    hear each other until it is called again. Nodes announce themselves, and meet those that they have heard.
    """

    def __init__(self, links, program, *, reach, **options):
        super().__init__(links, program, **options)
        self.reach, self.lead = reach, self.timing.slot + self.faults.skew
        self.period += self.lead

    def _plan(self, run):
        super()._plan(run)
        for i, skew in enumerate(self._skew):
            for number in range(ANNOUNCEMENTS):
                before = self.timing.slot * (1 - number / ANNOUNCEMENTS) + self.faults.skew - skew
                self._at(self._start_of(run) - before, partial(self._announce, i, run))

    def _lose_links(self, run, lost):
        super()._lose_links(run, lost | (self._pairs - {*self.reach(run)}))

    def _announce(self, i, run):
        if self.nodes[i] is not None:
            self.nodes[i].announce(run)
            self._flush(i)

    def _begin(self, i, run, begins):
        if self.nodes[i] is not None:
            self.nodes[i].meet(self.nodes[i].present(run))
        super()._begin(i, run, begins)
