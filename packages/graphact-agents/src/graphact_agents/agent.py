"""An agent: a node with its transport, its log, its signals and a clock."""

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np

from graphact_agents.arguments import check_positive
from graphact_agents.deployment import Deployment
from graphact_agents.events import Event
from graphact_agents.inference import infer
from graphact_agents.log import Log
from graphact_agents.messages import Array
from graphact_agents.model import agreement
from graphact_agents.node import NOT_LOGGED, Node
from graphact_agents.runs import RunResult, Timing
from graphact_agents.signals import EndOfSignals, NoSignal, NotYet, Signals
from graphact_agents.status import STALLED, Status, Tally, count_all
from graphact_agents.transports.transport import Transport, drive

LOOK_UP = 0.1
"""Seconds after which a waiting agent looks whether it is to stop."""
GREETING_TIME = 1.0
"""Seconds that an agent without a clock waits for answers to its greeting."""


@dataclass(frozen=True)
class Clocked:
    """Run r begins at ``origin + r * period`` by the clock, at every node.

    A node that comes late, or back after a crash, is right again at the next run. Clocks must agree to a small part of
    a slot. After a clock was set back, the next run is the first from there on whose number is not used up; until its
    start the node waits, silent. ``origin`` is Unix time; both are in seconds.
    """

    origin: float
    period: float

    def __post_init__(self) -> None:
        check_positive("period", self.period)

    def next_run(self, node: Node, skipped: int, now: float) -> tuple[int, float]:
        """Return the next run and its start.

        A run that started less than one slot ago can still be joined, because neighbours wait one slot for the first
        values.
        """
        late = now - self.origin - node.timing.slot
        run = max(math.ceil(late / self.period), 0)
        # the run that was skipped, or the one before it when the clock was adjusted a little: take the one after it
        run = skipped + 1 if run in (skipped, skipped - 1) else run
        run = node.log.used.next_free(run)
        if run in (node.run, node.run - 1):  # the last run was not logged, or as above: go on after it, do not rewind
            run = node.log.used.next_free(node.run + 1)
        return run, self.origin + run * self.period


@dataclass(frozen=True)
class BackToBack:
    """Run 0 begins at ``origin``, each following one when the one before has ended and there is a signal.

    Runs are counted. A node that was away goes on with the run that its neighbours are in.
    """

    origin: float

    def next_run(self, node: Node, skipped: int, now: float) -> tuple[int, float]:
        run = node.log.used.next_free(max(node.run + 1, node.latest_heard, skipped + 1))
        return run, max(now, self.origin)


Schedule = Clocked | BackToBack


class Agent:
    """Runs inferences on a schedule until the signals end or :meth:`stop` is called.

    ``report`` is called with every event: ``result`` or ``failed`` (see :func:`describe`), ``skipped``, and
    ``refused`` with the reason why this node does not take part with a neighbour. ``clock`` is Unix time and says which
    run is next, and when; it may be set at any moment. ``timer`` goes on evenly and measures all that happens within a
    run (:func:`time.monotonic`, or the clock if another one is given).

    With ``dynamic`` the links of the deployment are those that may be: the neighbours of a run are those among them
    that announced it in the slot before it, which takes a clock.
    """

    def __init__(
        self,
        deployment: Deployment,
        transport: Transport,
        log: Log,
        signals: Signals,
        schedule: Schedule,
        report: Callable[[Event], None],
        timing: Timing | None = None,
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] | None = None,
        dynamic: bool = False,
    ) -> None:
        self._deployment, self._timing, self._schedule = deployment, timing or Timing(), schedule
        self._dynamic, self._transport, self._signals = dynamic, transport, signals
        settings = [("slot", self._timing.slot), ("dynamic", dynamic), *asdict(schedule).items()]
        numbers = {name: float(value) for name, value in settings}
        digest = agreement(deployment.model, schedule=type(schedule).__name__, **numbers)
        self.node = Node(deployment.links, log, self._timing, digest=digest, finite=True)
        self.stopping = False
        self._report, self._clock = report, clock
        self._timer = timer or (time.monotonic if clock is time.time else clock)
        self._skipped = -1
        self._announced = (-1, 0.0)  # the last: its run, and when
        self._refusals: dict[int, str] = {}
        self.tally = Tally()
        self.tick: Callable[[], None] = lambda: None  # called whenever the loop goes round

    def stop(self) -> None:
        """Leave after the run in progress; may be called by a signal handler."""
        self.stopping = True

    def work(self, runs: int | None = None) -> str:
        """Work until there is a reason to end, such as this many runs; the reason."""
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is found, and told, by the node
            return self._work(runs)

    def _work(self, runs: int | None) -> str:
        self._greet()
        done = skipped = 0
        while runs is None or done < runs:
            run, start = self._wait_for_run()
            if self.stopping:
                return "stopped"
            try:
                signal = self._signals.take(run)
            except EndOfSignals as end:
                return str(end)
            except NoSignal as reason:
                waits = isinstance(self._schedule, BackToBack) and not self._signals.numbered  # for the next signal
                if not waits or not isinstance(reason, NotYet):
                    done, skipped = done + 1, skipped + 1
                    self.tally.end(start, "skipped", str(reason))
                    self._report({"event": "skipped", "node": self.node.links.node, "run": run, "reason": str(reason)})
                if waits:
                    self.tally.waits = str(reason)
                    self._drive(self._timer() + 0.001)
                else:
                    self._skipped = run
                    self._let_pass(run)
                continue
            self._run(run, start, signal)
            done += 1
        return f"{done} runs are done" + (f", of which {skipped} were skipped" if skipped else "")

    def _let_pass(self, run: int) -> None:
        """Without a clock, give neighbours the time of a run that is skipped, or until one is beyond it."""
        until = self._timer() + self._deployment.model.rounds * self._timing.slot
        while isinstance(self._schedule, BackToBack) and self._timer() < until and not self.stopping:
            if self.node.latest_heard > run:
                return
            self._drive(min(until, self._timer() + 0.01))

    def linger(self) -> None:
        """Answer neighbours that are still in the last run, for a slot."""
        until = self._timer() + self.node.timing.slot
        while self._timer() < until:
            self._drive(until)

    def _greet(self) -> None:
        """Greet the neighbours; without a clock, wait to learn which run they are in."""
        self.node.greet()
        until = self._timer() + (GREETING_TIME if isinstance(self._schedule, BackToBack) else 0.0)
        while not self.stopping and self.node.welcomed_by != set(self.node.links.neighbors):
            self._drive(min(until, self._timer() + LOOK_UP))
            if self._timer() >= until:
                return

    def _wait_for_run(self) -> tuple[int, float]:
        """The next run when it is due by the clock, and the start that its deadlines count from, by the timer."""
        while True:
            clock, now = self._clock(), self._timer()
            run, at = self._schedule.next_run(self.node, self._skipped, clock)  # again and again: the clock may be set
            start = now + at - clock
            if isinstance(self._schedule, Clocked):
                self.node.expect(run, start, self._schedule.period)
            self._signals.prepare(at, clock, run)
            if self.stopping or clock >= at:
                return run, start
            self._drive(min(self._announce(run, start, now), start, now + LOOK_UP))

    def _announce(self, run: int, start: float, now: float) -> float:
        """Announce a run four times in the slot before it, where neighbours come and go; when to come back."""
        if not self._dynamic:
            return start
        slot, (announced, at) = self._timing.slot, self._announced
        due = start - slot if announced != run else max(start - slot, at + slot / 4)
        if now >= due:
            self.node.announce(run)
            self._announced, due = (run, now), now + slot / 4
        return min(start, due)

    def _run(self, run: int, start: float, signal: Array) -> None:
        deployment = self._deployment
        program = infer(deployment.model, deployment.row, signal)
        if run <= self.node.run:
            self.node.rewind_to_run(run)
        if self._dynamic:
            self.node.meet(self.node.present(run))
        self.tally.begun += 1
        self.node.begin(run, program, self._timer(), start=start)
        while True:
            for result in self._drive(self._timer() + LOOK_UP):
                self.tally.add(result)
                event = describe(self.node.links.node, result, self._clock() - self._timer())
                event |= {"no_reading": self._signals.missing} if self._signals.missing else {}
                self._report(event | {"neighbors": list(self.node.links.neighbors)} if self._dynamic else event)
                silent = set(self.node.links.hears).intersection(*result.missed) if result.missed else ()
                if silent:  # away, or with other settings: the answer to a greeting tells which
                    self.node.greet(sorted(silent))
                if result.failure.startswith(NOT_LOGGED):
                    self._let_pass(run)
            if not self.node.busy:
                return
            if isinstance(self._schedule, Clocked):  # the next run may begin when this one ends
                at = self._schedule.origin + (run + 1) * self._schedule.period
                self._signals.prepare(at, self._clock(), run + 1)

    def _drive(self, until: float) -> list[RunResult]:
        """Let the node work until a time or the end of its run, and report neighbours it does not take part with."""
        self.tally.beat = time.monotonic()
        self.tick()
        results = drive(self.node, self._transport, until, self._timer)
        if self.node.refusals != self._refusals:
            before, self._refusals = self._refusals, dict(self.node.refusals)
            for j, reason in self._refusals.items():
                if before.get(j) != reason:
                    self._report({"event": "refused", "node": self.node.links.node, "neighbor": j, "reason": reason})
        return results

    # What operators see

    @property
    def counters(self) -> dict[str, int]:
        """Counts of node, transport and runs since the start, by name."""
        return count_all(self.node.counters, self._transport.dropped) | self.tally.counters

    def status(self, transport: str, encrypted: bool = False) -> Status:
        """May be asked for by another thread."""
        node, tally, now = self.node, self.tally, time.monotonic()
        stalled = now - tally.beat
        reason = "" if stalled < STALLED else f"the loop of the agent has stood still for {stalled:.1f} s"
        heard, timer = dict(node.last_heard), self._timer()
        peers = {
            j: {
                "heard_seconds_ago": None if j not in heard else round(timer - heard[j], 3),
                "missed_runs": tally.missed.get(j, 0),
                "neighbor": j in node.links.neighbors,
                "refused": node.refusals.get(j, ""),
            }
            for j in node.permitted.neighbors
        }
        age = None if tally.finished is None else round(now - tally.finished, 3)
        quiet = tally.quiet(node.timing.slot, getattr(self._schedule, "period", None))
        trouble = [reason] * bool(reason) + quiet + tally.trouble(node.links.hears, heard)
        if isinstance(self._schedule, Clocked) and (wait := self._schedule.origin - self._clock()) > 0:
            trouble.append(f"the first run, at its origin, is in {wait:.0f} s")
        trouble += [f"{j}: {peer['refused']}" for j, peer in peers.items() if peer["refused"]]
        about = (node.links.node, node.links.deployment, transport, node.run)
        return Status(*about, not reason, reason, age, self.counters, peers, tally.started, encrypted, trouble)


def describe(node: int, result: RunResult, offset: float = 0.0) -> Event:
    """A result as JSON can hold it: the output, and for each round the neighbours that were missed.

    A run without an output, since its numbers left the floating-point range, is ``failed``, with the reason. ``offset``
    is what the time of its run lacks to Unix time.
    """
    if result.failure:
        return {"event": "failed", "node": node, "run": result.run, "reason": result.failure}
    return {
        "event": "result",
        "node": node,
        "run": result.run,
        "output": result.output.tolist(),
        "complete": result.complete,
        "missed": [list(missed) for missed in result.missed],
        "seconds": round(result.finished - result.started, 6),
        "finished": result.finished + offset,
    }
