"""Learning by nodes as processes over a network: the process of one node, and many of them on this machine.

Run ``first`` is the preparation, run ``first + 1 + s`` is step s. Runs follow one another without a clock: a round ends
when all neighbours have answered, or after a slot. A node that comes back goes on with the step that its neighbours are
in; not further ahead than they can have come without it, at least a slot a step, whatever one of them says. Numbers
that are not finite cost a step, and no more.

What a node needs to go on lies in its folder: ``state.npz`` (after each step), ``prepared.npz`` (once), and every few
steps a ``state-STEP.npz``, so that all nodes can begin again from one step when all of them were stopped. Its runs are
in a log of their own, ``learning.jsonl``: they are authenticated with another digest than those of inference, so both
may use the same numbers.
"""

import json
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict
from pathlib import Path

import numpy as np

from graphact.agents.addresses import Addresses, free_addresses
from graphact.agents.certificates import TLS_FOLDER
from graphact.agents.daemon import check_read, write_event
from graphact.agents.deployment import Deployment, check_private
from graphact.agents.files import READ_ERRORS, one_line, read_json, write_atomically
from graphact.agents.learning.learner import PREPARATION, STEP, Learner, NotFiniteError
from graphact.agents.learning.mixing import Learning
from graphact.agents.learning.simulated import PATIENT, SEGMENT, Training
from graphact.agents.learning.state import FileStore, State, save_arrays
from graphact.agents.log import FileLog
from graphact.agents.messages import Array
from graphact.agents.node import Node
from graphact.agents.processes import Processes
from graphact.agents.runs import Counters, RunResult, Timing
from graphact.agents.transports.base import Transport, drive, open_transport
from graphact.agents.transports.zenoh import Tls

STATE, PREPARED, PLAN, LOSSES, LOG = "state.npz", "prepared.npz", "learning.json", "losses.npz", "learning.jsonl"
KEPT = 6
"""States of earlier steps that a node keeps, one for each :data:`SEGMENT` of steps."""
RESTARTS = 100
"""How many processes that were killed are started again in one training."""
GATHER = 60.0
"""Seconds that a node waits for neighbours that do not answer before it goes on without them."""
FAILURES = 20
"""Steps in a row whose numbers may leave the floating-point range; more are an error."""
LEAST = 0.25
"""The share of its steps that a node must have made to be called trained."""
RUNS_A_LIFE = 2**24
"""Run numbers for one training; all nodes that begin again together take the next ones."""


# One node


class NodeTraining:
    """The training of one node over a transport."""

    def __init__(self, folder: Path, learner: Learner, transport: Transport, timing: Timing, first: int = 0) -> None:
        self.folder, self.learner, self.transport, self.timing, self.first = folder, learner, transport, timing, first
        seen = [path.stat().st_mtime for path in (folder / LOG, folder / PLAN) if path.exists()]
        away = max(0.0, time.time() - max(seen)) if seen else 0.0
        self.log = FileLog(folder / LOG)
        self.node = Node(learner.links, self.log, timing, digest=learner.digest, finite=True)
        self._expect(max(self.node.run + 1, first), time.monotonic() - away)

    def _expect(self, run: int, due: float) -> None:
        """Believe no neighbour that claims to be further ahead of a run than it can have come alone."""
        self.node.expect(run, due, self.timing.slot)

    def prepare(self) -> None:
        """Take part in the preparation, or read what came of it in an earlier life."""
        path = self.folder / PREPARED
        if path.exists():
            try:
                with np.load(path, allow_pickle=False) as content:
                    self.learner.weights = {int(j): float(w) for j, w in content["weights"]}
                    self.learner.powers = content["powers"] if content["powers"].size else None
            except READ_ERRORS as error:
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
                if failures >= FAILURES:
                    raise ValueError(f"{reason}, and so were {FAILURES} steps in a row")
                continue
            failures = 0
            report({"event": "step", **event, "loss": result.output, "complete": result.complete})
            if (step + 1) % SEGMENT == 0:
                write_atomically(self.folder / f"state-{step + 1}.npz", (self.folder / STATE).read_bytes())
                (self.folder / f"state-{step + 1 - KEPT * SEGMENT}.npz").unlink(missing_ok=True)
        made = self.learner.state.steps
        if made < LEAST * steps:
            raise ValueError(f"node {self.learner.links.node} must make {steps} steps, or most of them, made {made}")

    def linger(self, seconds: float) -> None:
        """Answer neighbours that are still in the last step."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            drive(self.node, self.transport, until)

    def _wait_for_neighbors(self) -> None:
        """Greet the neighbours until all have answered, or for a while: they may just be starting, too."""
        until, everybody = time.monotonic() + GATHER, {*self.learner.links.neighbors}
        while self.node.welcomed_by != everybody and time.monotonic() < until:
            here = self.node.welcomed_by
            self.node.greet(sorted(everybody - here))
            self.node.welcomed_by |= here
            drive(self.node, self.transport, time.monotonic() + 0.1)

    def _next_step(self, steps: int) -> int:
        """The step after the last of this node, or that which its neighbours are in."""
        latest = min(self.node.latest_heard, self.first + steps)  # there is none after it
        return max(self.node.run - self.first, latest - 1 - self.first, self.learner.state.steps)

    def _run(self, run: int, kind: int) -> RunResult:
        program = self.learner.prepare() if kind == PREPARATION else self.learner.step(run - self.first - 1)
        self._expect(run, time.monotonic())
        self.node.begin(run, program, time.monotonic(), kind=kind)
        while not (results := drive(self.node, self.transport, time.monotonic() + 1.0)):
            check_read()  # a slot may be long, and neighbours that ended because of it are waited for
        return results[0]


def learn(folder: Path, signals: Array, targets: Array, *, transport: str, slot: float) -> None:
    """The process of one node: train as its ``learning.json`` says, with its own data; events on standard output."""
    plan, deployment = read_json(folder / PLAN), Deployment.load(folder)
    check_private(folder / "keys.json")
    try:
        learning, steps, first = Learning(**plan["learning"]), int(plan["steps"]), int(plan["first"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{folder / PLAN}: damaged: {one_line(error)}") from error
    learner = Learner(deployment, learning, signals, targets, FileStore(folder / STATE))
    addresses = Addresses.load(folder, deployment.links.neighbors)
    with ExitStack() as opened:
        has_tls = transport == "zenoh" and (folder / TLS_FOLDER).is_dir()
        tls = Tls.of_folder(folder / TLS_FOLDER) if has_tls else None
        network = open_transport(transport, deployment.links, addresses, tls)
        opened.callback(network.close)
        training = NodeTraining(folder, learner, network, Timing(slot=slot), first)
        opened.enter_context(closing(training.log))
        write_event({"event": "ready", "node": deployment.node, "step": learner.state.steps})
        training.prepare()
        training.train(steps, write_event)
        counters, made = asdict(training.node.counters), learner.state.steps
        write_event({"event": "trained", "node": deployment.node, "steps": made, "counters": counters})
        training.linger(max(2 * slot, 1.0))


# All nodes, on this machine


def train_on_processes(
    deployments: Sequence[Deployment],
    signals: Array,
    targets: Array,
    learning: Learning,
    folder: Path,
    *,
    steps: int,
    transport: str = "udp",
    slot: float = 5.0,
    identity: str = "",
    progress: Callable[[int, float], None] | None = None,
) -> Training:
    """Let one process for each node train over a real network of this machine.

    If no link was missed the result is that of :func:`~graphact.agents.learning.simulate_training`, to the bit.

    Args:
        deployments: what each node holds.
        signals: ``(M, N, F)``; a process is given those of its node alone.
        targets: ``(M, N, O)``, likewise.
        learning: how.
        folder: for the folders of the nodes; a training that was stopped there goes on, from the last step that all
            nodes have kept.
        steps: how many in all.
        transport: "udp" or "zenoh".
        slot: seconds after which a round goes on without an answer.
        identity: tells trainings apart; a folder of another one is refused.
        progress: called with the number of steps that are done everywhere, and the mean loss of the last.

    Raises:
        ValueError: the folder holds another training, or what a process refused.
        ChildProcessError: a process ended; the last line it wrote to standard error is the reason.
    """
    plan = folder / "training.json"
    life = 0
    if plan.exists():
        found = read_json(plan)
        if found.get("identity") != identity:
            raise ValueError(f"{folder}: holds another training (other model, graph, samples or options)")
        life = int(found.get("life", 0)) + 1
    places, count = free_addresses(len(deployments)), len(deployments)
    folders = [folder / f"node-{i}" for i in range(count)]
    known = means([])
    if (folder / LOSSES).exists():
        with np.load(folder / LOSSES) as content:
            known = content["losses"]
    begin = common_step(folders, len(known)) if life else 0
    for i, (deployment, place) in enumerate(zip(deployments, folders, strict=True)):
        deployment.save(place)  # keys of one draw, whatever an earlier start has come to write
        Addresses(places[i], {j: places[j] for j in deployment.links.neighbors}).save(place)
        np.save(place / "signals.npy", signals[:, i])
        np.save(place / "targets.npy", targets[:, i])
        described = {"learning": asdict(learning), "steps": steps, "first": life * RUNS_A_LIFE}
        write_atomically(place / PLAN, json.dumps(described).encode())
        return_to(place, begin)
    write_atomically(plan, json.dumps({"identity": identity, "life": life}).encode())
    losses: list[dict[int, float]] = [{} for _ in range(steps)]
    losses[:begin] = [{0: float(loss)} for loss in known[:begin]]
    options = ["--transport", transport, "--slot", str(slot)]
    errors = folder / "errors.txt"
    errors.unlink(missing_ok=True)
    counters, done, restarts, reached = Counters(), begin, 0, [begin] * count
    data = [place / "signals.npy" for place in folders]
    with Processes(folders, options, data, errors, command="learn") as processes:
        trained: set[int] = set()
        while len(trained) < count:
            for event in processes.read(1.0):
                if event["event"] in ("step", "failed"):
                    reached[event["node"]] = event["step"] + 1
                if event["event"] == "step":
                    losses[event["step"]][event["node"]] = event["loss"]
                elif event["event"] == "trained":
                    trained.add(event["node"])
                    counters += Counters(**event["counters"])
            while done < min(reached):
                done += 1
                if done % SEGMENT == 0 or done == steps:
                    save_arrays(folder / LOSSES, {"losses": means(losses[:done])})
                    if progress is not None:
                        progress(done, means(losses[done - 1 : done])[0])
            ended = [i for i, process in processes.running.items() if process.poll() is not None and i not in trained]
            if ended and (processes.running[ended[0]].returncode or 0) < 0 and restarts < RESTARTS:
                restarts += 1  # killed: it comes back, as a supervisor would let it
                processes.start(ended[0])
            elif ended:
                said = errors.read_text().strip().splitlines() if errors.exists() else []
                raise ChildProcessError(
                    f"the process of node {ended[0]} ended: {said[-1] if said else 'without a word'}"
                )
        processes.stop()
    states = tuple(State.load(place / STATE) for place in folders)
    return Training(states, means(losses), counters, restarts)


def means(losses: Sequence[dict[int, float]]) -> Array:
    """The mean over the nodes for each step, NaN where none made it."""
    return np.array([np.mean([each[i] for i in sorted(each)]) if each else np.nan for each in losses])


def common_step(folders: Sequence[Path], most: int) -> int:
    """The last step, at most ``most``, of which all nodes have kept the state, undamaged; 0 if there is none."""
    kept = [{int(f.stem[6:]) for f in folder.glob("state-*.npz") if f.stem[6:].isdecimal()} for folder in folders]
    common = sorted({step for step in set.intersection(*kept) if step <= most}, reverse=True)
    if not all((folder / PREPARED).exists() for folder in folders):
        return 0
    for step in common:
        with suppress(ValueError):
            for folder in folders:
                State.load(folder / f"state-{step}.npz")
            return step
    return 0


def return_to(folder: Path, step: int) -> None:
    """Let a node go on from a step; from the beginning if it is 0."""
    for file in folder.glob("state-*.npz"):
        if int(file.stem[6:]) > step:
            file.unlink()
    if step:
        write_atomically(folder / STATE, (folder / f"state-{step}.npz").read_bytes())
    else:
        for name in (STATE, PREPARED):
            (folder / name).unlink(missing_ok=True)
