"""The process of one link: it is told its queue, makes a key with those that it disturbs, and says if it sends.

It needs no torch. A message that does not come in time is, for that round, as if its sender were not there.
"""

import argparse
import json
import random
import sys
import threading
import time
from collections import deque
from contextlib import closing
from pathlib import Path

import numpy as np

from graphact_agents.deployment import Deployment
from graphact_agents.events import EventWriter
from graphact_agents.inference import infer
from graphact_agents.log import LOG_NAME, FileLog
from graphact_agents.model import agreement
from graphact_agents.node import Node
from graphact_agents.program import Exchange
from graphact_agents.runs import Timing
from graphact_agents.transports.transport import drive, open_transport

SLOTS = "slots.json"
MIN_WEIGHT, DIGITS = 1e-4, 6  # of keys, so that rounding decides nothing


class LossyTransport:
    """A transport that loses datagrams, each with a probability."""

    def __init__(self, inner, node, loss, seed):
        self.inner, self.loss, self.lost, self.dropped = inner, loss, 0, {}
        self.random = random.Random(f"{seed} {node}")

    def send(self, to, datagram):
        """Send, or lose."""
        if self.random.random() < self.loss:
            self.lost += 1
        else:
            self.inner.send(to, datagram)

    def receive(self, timeout):
        """The next datagram."""
        return self.inner.receive(timeout)

    def close(self):
        """Leave the network."""
        self.inner.close()


def decide(deployment, queue):
    """The program of one slot: rounds of the network, then one of keys; 1 if the link sends."""
    degree = len(deployment.links.hears)
    signal = np.array([queue, 1 / (1 + degree), np.log1p(degree) / 3])
    learned = yield from infer(deployment.model, deployment.row, signal)
    own = round(float(learned[0] + np.log(max(queue, MIN_WEIGHT) / (1 + degree))), DIGITS)
    received = yield Exchange(np.array([own, deployment.node, queue > 0]))  # of equal keys the higher number wins
    stronger = [other for other in received.values() if other[2] and (other[0], other[1]) > (own, deployment.node)]
    return np.array([float(queue > 0 and not stronger)])


def serve(deployment, lines, transport, log, settings, events):
    """Decide at every line, the newest where several have come, until the last."""
    digest = agreement(deployment.model, slot=settings["round"])
    timing = Timing(slot=settings["round"], request_after=settings["round"] / 3, backoff=1.5)
    node = Node(deployment.links, log, timing, digest=digest, finite=True)
    events.write({"event": "ready", "node": deployment.node})
    while True:
        if not lines:
            drive(node, transport, time.monotonic() + 0.002)
            continue
        line = lines.pop()
        if line is None:
            break
        lines.clear()
        told = json.loads(line)
        if told["run"] <= node.run:
            continue
        node.begin(told["run"], decide(deployment, told["queue"]), time.monotonic(), start=told["start"])
        results = []
        while not results:
            results = drive(node, transport, time.monotonic() + 1.0)
        (result,) = results
        event = {"event": "decision", "node": deployment.node, "run": told["run"]}
        event["missed"] = sum(map(len, result.missed))
        events.write(event | ({} if result.failure else {"sends": bool(result.output[0])}))
    events.write({"event": "end", "node": deployment.node, "lost": transport.lost})


def main():
    """Serve until standard input ends; live.py starts this."""
    parser = argparse.ArgumentParser(description="one link of a wireless network")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--signals", choices=("-",), default="-", help="queues come from standard input")
    options = parser.parse_args()
    settings, deployment = json.loads((options.folder / SLOTS).read_text()), Deployment.load(options.folder)
    lines = deque()

    def read():
        for line in sys.stdin:
            if line.endswith("\n"):  # the last may be cut off
                lines.append(line)
        lines.append(None)

    network = open_transport("udp", deployment.links, deployment.reached)
    transport = LossyTransport(network, deployment.node, settings["loss"], settings["seed"])
    threading.Thread(target=read, daemon=True).start()
    with closing(transport), closing(FileLog(options.folder / LOG_NAME)) as log, EventWriter() as events:
        serve(deployment, lines, transport, log, settings, events)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
