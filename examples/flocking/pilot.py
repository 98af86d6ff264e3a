"""The process of one agent that flies. It is told its own state and who is in range, asks them, and answers a control.

It needs no torch. Who is in range exchanges states first (one round), then what the network asks for. A neighbour that
does not answer counts, for that round, as if it were out of range; its share of the shift is left out.
"""

import argparse
import json
import random
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from graphact_agents.deployment import Deployment
from graphact_agents.events import EventWriter
from graphact_agents.inference import infer
from graphact_agents.links import ShiftRow
from graphact_agents.log import LOG_NAME, FileLog
from graphact_agents.messages import Array
from graphact_agents.model import Model, agreement
from graphact_agents.node import Node
from graphact_agents.program import Exchange, Program
from graphact_agents.runs import RunResult, Timing
from graphact_agents.transports.transport import Transport, drive, open_transport

FLIGHT = "flight.json"
Flight = dict[str, Any]  # what all agents know of a flight
LOOK = 0.002  # seconds between looks for the next state, when it is due


def steer(model: Model, flight: Flight, state: Array, neighbors: tuple[int, ...]) -> Program[Array]:
    """The program of one control: states of those in range, what they amount to, then the network."""
    received = yield Exchange(state)
    measured = sense(state, list(received.values()), flight["input_limit"])
    row = ShiftRow(neighbors, np.full(len(neighbors), 1 / max(len(neighbors), 1), model.dtype), 0.0)
    answer = yield from infer(model, row, measured)
    return control_of(answer, flight)


def sense(state: Array, others: Sequence[Array], limit: float) -> Array:
    """Compute :func:`graphact_lab.experiments.flocking.world.measure` for one agent."""
    total = np.zeros(6)
    for other in others:
        apart, squared = state[:2] - other[:2], float(((state[:2] - other[:2]) ** 2).sum())
        if squared > 0:
            total += np.concatenate([state[2:] - other[2:], apart / squared**2, apart / squared])
    return np.clip(total, -limit, limit)


def control_of(answer: Array, flight: Flight) -> Array:
    """The control that an answer stands for, within what an agent can do."""
    most = flight["acceleration"]
    return np.clip(most * (np.tanh(answer) if flight["squash"] else answer), -most, most)


class LossyTransport:
    """A transport that loses datagrams: each with a probability, and those between even and odd agents ``apart``."""

    def __init__(self, inner: Transport, node: int, loss: float, seed: int) -> None:
        self.inner, self.node, self.loss, self.apart, self.lost = inner, node, loss, False, 0
        self.dropped: dict[str, int] = {}
        self.random = random.Random(f"{seed} {node} {time.time_ns()}")  # another one after a restart

    def send(self, to: int, datagram: bytes) -> None:
        if (self.apart and to % 2 != self.node % 2) or self.random.random() < self.loss:
            self.lost += 1
        else:
            self.inner.send(to, datagram)

    def receive(self, timeout: float) -> bytes | None:
        return self.inner.receive(timeout)

    def close(self) -> None:
        self.inner.close()


def fly(
    folder: Path,
    lines: deque[str | None],
    transport: LossyTransport,
    log: FileLog,
    flight: Flight,
    events: EventWriter,
) -> None:
    """Answer a control to every line, the newest where several have come, until the last."""
    deployment = Deployment.load(folder)
    timing = Timing(slot=flight["slot"], request_after=flight["slot"] / 3, backoff=1.5)
    agreed = {name: flight[name] for name in ("slot", "acceleration", "squash", "input_limit")}
    digest = agreement(deployment.model, **agreed)
    node = Node(deployment.links, log, timing, digest=digest, finite=True)
    me, due = deployment.node, 0.0
    events.write({"event": "ready", "node": me, "last_run": log.last_run})
    while True:
        if not lines:
            now = time.monotonic()
            drive(node, transport, max(now + LOOK, due))
            continue
        line = lines.pop()
        if line is None:
            break
        lines.clear()
        told = json.loads(line)
        run, neighbors = told["run"], tuple(told["neighbors"])
        if run <= node.run:
            continue
        transport.apart = told["apart"]
        node.meet(neighbors)
        program = steer(deployment.model, flight, np.array(told["state"]), neighbors)
        node.begin(run, program, time.monotonic(), start=told["start"])
        results: list[RunResult] = []
        while not results:
            results = drive(node, transport, time.monotonic() + 1.0)
        (result,) = results
        event = {"event": "control", "node": me, "run": run, "missed": sum(map(len, result.missed))}
        event |= {"used": sum(map(len, result.used)), "failed": bool(result.failure)}
        events.write(event | ({} if result.failure else {"control": result.output.tolist()}))
        due = told["start"] + flight["period"] - LOOK
    events.write({"event": "end", "node": me, "lost": transport.lost})


def main(arguments: Sequence[str] | None = None) -> int:
    """Fly until standard input ends; flock.py starts this."""
    parser = argparse.ArgumentParser(description="one agent of a flock")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--transport", choices=("udp", "zenoh"), default="udp")
    parser.add_argument("--signals", choices=("-",), default="-", help="states come from standard input")
    options = parser.parse_args(arguments)
    flight = json.loads((options.folder / FLIGHT).read_text())
    deployment = Deployment.load(options.folder)
    links = deployment.links
    lines: deque[str | None] = deque()

    def read() -> None:
        for line in sys.stdin:
            if line.endswith("\n"):  # the last may be cut off
                lines.append(line)
        lines.append(None)

    network = open_transport(options.transport, links, deployment.reached)
    transport = LossyTransport(network, links.node, flight["loss"], flight["seed"])
    threading.Thread(target=read, daemon=True).start()
    with closing(transport), closing(FileLog(options.folder / LOG_NAME)) as log, EventWriter() as events:
        fly(options.folder, lines, transport, log, flight, events)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
