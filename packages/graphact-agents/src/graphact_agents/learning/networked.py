"""Learning over a network: the process of one node.

Run ``first`` is the preparation, run ``first + 1 + s`` is step s. Runs follow one another without a clock: a round ends
when all neighbours have answered, or after a slot. A node that comes back goes on with the step that its neighbours are
in; not further ahead than they can have come without it, at least a slot a step, whatever one of them says. Numbers
that are not finite cost a step, and no more.

What a node needs to go on lies in its folder: ``state.npz`` (after each step) and ``prepared.npz`` (once). In another
deployment it begins again. Its runs are in a log of their own, ``learning.jsonl``: they are authenticated with another
digest than those of inference, so both may use the same numbers.
"""

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from graphact_agents.disk import one_line
from graphact_agents.learning.learner import PREPARATION, STEP, Learner, NotFiniteError
from graphact_agents.learning.simulated_training import PATIENT
from graphact_agents.learning.state import save_arrays
from graphact_agents.log import FileLog
from graphact_agents.node import Node
from graphact_agents.runs import RunResult, Timing
from graphact_agents.transports.transport import Transport, drive

STATE, PREPARED, PLAN, LOG = "state.npz", "prepared.npz", "learning.json", "learning.jsonl"
TRAINED = "trained.safetensors"
GATHER_SECONDS = 60.0
"""Seconds that a node waits for neighbours that do not answer before it goes on without them."""
MAX_FAILURES = 20
"""Steps in a row whose numbers may leave the floating-point range; more are an error."""
MIN_SHARE = 0.25
"""The share of its steps that a node must have made to be called trained."""


class NodeTraining:
    """The training of one node over a transport."""

    def __init__(
        self,
        folder: Path,
        learner: Learner,
        transport: Transport,
        timing: Timing,
        first: int = 0,
        tick: Callable[[], None] = lambda: None,
    ) -> None:
        self.tick = tick  # called while a run goes on
        self.folder, self.learner, self.transport, self.timing, self.first = folder, learner, transport, timing, first
        seen = [path.stat().st_mtime for path in (folder / LOG, folder / PLAN) if path.exists()]
        away = max(0.0, time.time() - max(seen)) if seen else 0.0
        self.log = FileLog(folder / LOG, learner.links.deployment)
        if self.log.last_run < 0:  # of another deployment, whose graph or model may differ
            for name in (STATE, PREPARED):
                (folder / name).unlink(missing_ok=True)
        self.node = Node(learner.links, self.log, timing, digest=learner.digest, finite=True)
        self._expect(max(self.node.run + 1, first), time.monotonic() - away)

    def _expect(self, run: int, due: float) -> None:
        """Believe no neighbour that claims to be further ahead of a run than it can have come alone."""
        self.node.expect(run, due, self.timing.slot)

    def prepare(self) -> None:
        """Take part in the preparation, or read its results of an earlier life."""
        path = self.folder / PREPARED
        if path.exists():
            try:
                with np.load(path, allow_pickle=False) as content:
                    self.learner.weights = {int(j): float(w) for j, w in content["weights"]}
                    self.learner.powers = content["powers"] if content["powers"].size else None
            except Exception as error:  # of many classes, for a damaged file
                raise ValueError(f"{path}: not the preparation of a node that learns: {one_line(error)}") from error
            self._wait_for_neighbors()
            return
        self.node.greet()
        self.node.timing = PATIENT
        failure = self._run(self.first, PREPARATION).failure
        self.node.timing = self.timing
        if self.learner.weights is None:
            raise ValueError(f"the preparation of node {self.learner.links.node} must be finite: {failure}")
        weights = np.array(sorted(self.learner.weights.items()), float).reshape(-1, 2)
        powers = np.zeros(0) if self.learner.powers is None else self.learner.powers
        save_arrays(path, {"weights": weights, "powers": powers})

    def train(self, steps: int, report: Callable[[dict[str, object]], None]) -> None:
        """Make the steps up to ``steps``; each is reported with its loss, or as failed.

        Raises:
            ValueError: the numbers of many steps in a row were not finite, or most steps were missed.
        """
        failures = 0
        while (step := self._next_step(steps)) < steps:
            event = {"node": self.learner.links.node, "step": step}
            result, reason = None, ""
            try:
                result = self._run(self.first + 1 + step, STEP)
                reason = result.failure
            except NotFiniteError as error:
                reason = str(error)
            if result is None or reason:
                failures += 1
                report({"event": "failed", **event, "reason": reason})
                if failures >= MAX_FAILURES:
                    raise ValueError(f"{reason}, and so were {MAX_FAILURES} steps in a row")
                continue
            failures = 0
            report({"event": "step", **event, "loss": result.output, "complete": result.complete})
        made = self.learner.state.steps
        if made < MIN_SHARE * steps:
            raise ValueError(f"node {self.learner.links.node} must make {steps} steps, or most of them, made {made}")

    def linger(self, seconds: float) -> None:
        """Answer neighbours that are still in the last step."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            drive(self.node, self.transport, until)

    def _wait_for_neighbors(self) -> None:
        """Greet the neighbours until all have answered, or for a while: they may just be starting, too."""
        until, everybody = time.monotonic() + GATHER_SECONDS, {*self.learner.links.neighbors}
        while self.node.welcomed_by != everybody and time.monotonic() < until:
            here = self.node.welcomed_by
            self.node.greet(sorted(everybody - here))
            self.node.welcomed_by |= here
            drive(self.node, self.transport, time.monotonic() + 0.1)

    def _next_step(self, steps: int) -> int:
        """The step after the last of this node, or that which its neighbours are in."""
        latest = min(self.node.latest_heard, self.first + steps)  # there is none after it
        return max(self.node.run - self.first, latest - 1 - self.first, self.learner.state.steps)

    def _run(self, run: int, program_id: int) -> RunResult:
        program = self.learner.prepare() if program_id == PREPARATION else self.learner.step(run - self.first - 1)
        self._expect(run, time.monotonic())
        self.node.begin(run, program, time.monotonic(), program_id=program_id)
        while not (results := drive(self.node, self.transport, time.monotonic() + 1.0)):
            self.tick()  # a slot may be long, and neighbours that ended because of it are waited for
        return results[0]
