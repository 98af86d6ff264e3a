"""A whole network of nodes with a virtual clock: the real node code, a simulated world, the same every time."""

import heapq
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from graphact_agents.arguments import check_integer
from graphact_agents.deployment import Deployment, check_one_model
from graphact_agents.inference import infer
from graphact_agents.links import Links
from graphact_agents.log import MemoryLog
from graphact_agents.messages import Array
from graphact_agents.node import INFERENCE, Node
from graphact_agents.program import AnyProgram, Program
from graphact_agents.runs import Counters, Limits, RunResult, Timing
from graphact_agents.transports.memory import Faults, MemoryNetwork

ProgramFactory = Callable[[int, int], AnyProgram]
"""Makes the program of (node, run)."""


@dataclass
class SimulationOutcome:
    """Results and counts of a simulation.

    Attributes:
        results: the runs that ended, by (run, node); those of nodes that were down are missing.
        network: counts of the network.
        counters: messages of all nodes, also of those that crashed.
        lost_links: for each run the links lost for all of it.
        survived: the (run, node) at which the node was up from beginning to end.
    """

    logs: list[MemoryLog]
    network: Counter[str]
    counters: Counters = field(default_factory=Counters)
    results: dict[tuple[int, int], RunResult] = field(default_factory=dict)
    lost_links: list[set[tuple[int, int]]] = field(default_factory=list)
    crashes: int = 0
    survived: set[tuple[int, int]] = field(default_factory=set)


class Simulation:
    """Nodes, their network, and the faults of both.

    Every ``period`` a run begins at all nodes that are up, each by its own clock. Nodes crash and come back, the
    network falls into halves and is one again, as the seed decides. ``program`` makes the program of a node in a run,
    with the number ``program_id``; ``rounds`` is how many exchanges it takes at most. :attr:`nodes` holds the nodes,
    None for those that are down.
    """

    lead = 0.0  # seconds before a run for which its links are as they are in it

    def __init__(
        self,
        links: Sequence[Links],
        program: ProgramFactory,
        *,
        rounds: int,
        runs: int = 1,
        faults: Faults | None = None,
        timing: Timing | None = None,
        limits: Limits | None = None,
        seed: int = 0,
        program_id: int = INFERENCE,
    ) -> None:
        self.links = list(links)
        self.program, self.program_id = program, program_id
        self.runs = check_integer("runs", runs, minimum=1)
        self.faults, self.timing, self.limits = faults or Faults(), timing or Timing(), limits
        self.length = max(1, rounds) * self.timing.slot
        self.period = self.length + self.timing.slot + 2 * self.faults.skew
        self.seed = seed
        self.network = MemoryNetwork({each.node: each.neighbors for each in links}, self.faults, seed)
        self._random = random.Random(f"simulation {seed}")
        self._skew = [self._random.uniform(0, self.faults.skew) for _ in links]
        self.outcome = SimulationOutcome([MemoryLog() for _ in links], self.network.counters)
        self._pairs = {(min(p.node, j), max(p.node, j)) for p in links for j in p.neighbors}
        self.nodes: list[Node | None] = [None] * len(links)
        self._lives = self._number = 0
        self._dying: set[int] = set()
        self._events: list[tuple[float, bool, int, Callable[[], None]]] = []  # time, is a deadline, number, action

    def simulate(self) -> SimulationOutcome:
        for i in range(len(self.nodes)):
            self._start(i)
        for run in range(self.runs):
            self._plan(run)
        self._let_happen(self.runs * self.period)
        for node in filter(None, self.nodes):
            self.outcome.counters += node.counters
        return self.outcome

    # Faults of the network

    def _plan(self, run: int) -> None:
        begin = self._start_of(run)
        lost = {
            pair
            for pair in sorted(self._pairs)
            if self.faults.link_loss and self._random.random() < self.faults.link_loss
        }
        self.outcome.lost_links.append(lost)
        self._at(begin - self.lead, partial(self._lose_links, run, lost))
        for i, skew in enumerate(self._skew):
            self._at(begin + skew, partial(self._begin, i, run, begin))
            if self.faults.crash and self._random.random() < self.faults.crash:
                dies = begin + self._moment()
                self._at(dies, partial(self._strike, i))
                self._at(dies + self._random.uniform(0, self.faults.downtime), partial(self._restart, i))
        if self.faults.partition and self._random.random() < self.faults.partition:
            half = frozenset(i for i in range(len(self.nodes)) if self._random.random() < 0.5)
            cut = begin + self._moment()
            self._at(cut, partial(setattr, self.network, "half", half))
            rejoined = cut + self._random.uniform(0, self.faults.partition_time)
            self._at(rejoined, partial(setattr, self.network, "half", frozenset()))

    def _start_of(self, run: int) -> float:
        return run * self.period + self.lead

    def _lose_links(self, run: int, lost: set[tuple[int, int]]) -> None:  # noqa: ARG002, others lose more in some runs
        self.network.lost_links = lost

    def _moment(self) -> float:
        """A moment of a run, equally likely in each order of magnitude: a run that meets no fault is over soon."""
        return float(self.length * 10 ** self._random.uniform(-3, 0))

    # Faults of a node

    def _start(self, i: int) -> Node:
        """Start the node, with the log of its earlier lives."""
        self._lives += 1
        jitter = random.Random(f"{self.seed} {i} {self._lives}").getrandbits(64)
        node = Node(self.links[i], self.outcome.logs[i], self.timing, self.limits, seed=jitter)
        self.nodes[i] = node
        return node

    def _begin(self, i: int, run: int, begins: float) -> None:
        node = self.nodes[i]
        if node is not None:
            self.outcome.survived.add((run, i))
            program = self.program(i, run)
            node.begin(run, program, self._local(i), start=begins, program_id=self.program_id)
            self._flush(i)

    def _strike(self, i: int) -> None:
        """Kill a node now, or while it is sending: its log is written, and only some of its messages leave."""
        if self._random.random() < 0.5:
            self._dying.add(i)
        else:
            self._kill(i)

    def _kill(self, i: int) -> None:
        node = self.nodes[i]
        if node is not None:
            self.outcome.crashes += 1
            self.outcome.counters += node.counters
            if node.busy:
                self.outcome.survived.discard((node.run, i))
        self.nodes[i] = None
        self._dying.discard(i)

    def _restart(self, i: int) -> None:
        if i in self._dying:
            self._kill(i)
        if self.nodes[i] is None:
            self._start(i).greet()
            self._flush(i)

    # Time

    def _at(self, when: float, action: Callable[[], None], *, is_deadline: bool = False) -> None:
        self._number += 1
        heapq.heappush(self._events, (when, is_deadline, self._number, action))

    def _local(self, i: int) -> float:
        """The time by the clock of a node."""
        return self.network.now - self._skew[i]

    def _let_happen(self, until: float) -> None:
        """Take events, arrivals and deadlines in the order of time, and in this order at one time."""
        network = self.network
        while True:
            event, is_deadline = self._events[0][:2] if self._events else (until, True)
            arrival = until if network.next_delivery is None else network.next_delivery
            now = min(event, arrival)
            if now >= until:
                return
            network.now = max(network.now, now)
            if event < arrival or (event == arrival and not is_deadline):
                heapq.heappop(self._events)[3]()
                continue
            to, datagram = network.deliver()
            node = self.nodes[to]
            if node is not None:
                node.receive(datagram, self._local(to))
                self._flush(to)

    def _wake(self, i: int, node: Node, due: float) -> None:
        """Let a node advance at its deadline, if it is still alive and the deadline still holds."""
        if node is self.nodes[i] and node.deadline is not None and node.deadline <= due:
            node.advance(max(due, self._local(i)))
            self._flush(i)

    def _flush(self, i: int) -> None:
        node = self.nodes[i]
        assert node is not None
        outgoing = node.take_outgoing()
        if i in self._dying and outgoing:
            for to, datagram in outgoing[: self._random.randint(0, len(outgoing) - 1)]:
                self.network.send(i, to, datagram)
            self.outcome.survived.discard((node.run, i))
            self._kill(i)
            return
        for to, datagram in outgoing:
            self.network.send(i, to, datagram)
        for result in node.take_results():
            self.outcome.results[result.run, i] = result
        due = node.deadline
        if due is not None:
            when = max(due + self._skew[i], self.network.now)
            self._at(when, partial(self._wake, i, node, due), is_deadline=True)


@dataclass(frozen=True)
class SimulatedInference:
    """Outputs of agents, ``(runs, ..., N, F_out)`` with NaN where a node was down or failed, and how it went."""

    outputs: Array
    outcome: SimulationOutcome


def simulate_inference(
    deployments: Sequence[Deployment],
    signals: Array,
    *,
    faults: Faults | None = None,
    timing: Timing | None = None,
    limits: Limits | None = None,
    seed: int = 0,
    simulation: Callable[..., Simulation] = Simulation,
) -> SimulatedInference:
    """Let simulated agents work on a stream of signals.

    Values that are not finite spread as in the centralised model; agents refuse them.

    Args:
        deployments: what each node holds; see :func:`graphact_agents.deploy`.
        signals: ``(runs, ..., N, F)``: one inference for each entry of the first dimension.
        faults: what goes wrong, nothing when left out; this and the others as in :class:`Simulation`.
        simulation: another kind of :class:`Simulation`.

    Example:
        >>> import numpy as np
        >>> from graphact_agents import Model, deploy, simulate_inference
        >>> from graphact_agents.graph_file import build_operator
        >>> ends = np.array([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> path = build_operator(ends[0], ends[1], np.ones(4), num_nodes=3)
        >>> filters = {"kind": "filter", "arrays": {"taps": "taps"}}
        >>> model = Model("GraphFilter", {}, {"taps": np.ones((2, 1, 1))}, [filters])
        >>> simulate_inference(deploy(model, path), np.array([[[1.0], [2.0], [4.0]]])).outputs.ravel()
        array([3., 7., 6.])
    """
    model = check_one_model(deployments)
    if signals.ndim < 3 or signals.shape[-2] != len(deployments):
        expected = f"(runs, ..., N, F) with N = {len(deployments)}, the number of nodes"
        raise ValueError(f"signals must have the shape {expected}, got {signals.shape}")

    def program(i: int, run: int) -> Program[Array]:
        return infer(model, deployments[i].row, signals[run, ..., i, :])

    outcome = simulation(
        [deployment.links for deployment in deployments],
        program,
        rounds=model.rounds,
        runs=len(signals),
        faults=faults,
        timing=timing,
        limits=limits,
        seed=seed,
    ).simulate()
    outputs = np.full((*signals.shape[:-1], model.out_features(signals.shape[-1])), np.nan, model.dtype)
    for (run, i), result in outcome.results.items():
        if result.output is not None:
            outputs[run, ..., i, :] = result.output
    return SimulatedInference(outputs, outcome)
