"""The process of one node that works on many tasks, one after the other: starting processes is what takes time.

Tasks come on standard input, one JSON object a line, with the word ``go`` before each run when all nodes are ready.
"""

import json
import queue
import sys
import threading
import time
from pathlib import Path

import numpy as np

from graphact_agents import Deployment, MemoryLog, Node, Timing, drive, infer, load_model
from graphact_agents.transports.transport import open_transport

TIMING = Timing(slot=5.0)


def main():
    lines = queue.SimpleQueue()
    threading.Thread(target=lambda: [lines.put(line) for line in sys.stdin], daemon=True).start()
    while task := json.loads(lines.get()):
        work(task, lines)


def print_event(**event):
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


def work(task, lines):
    """One inference for each model of a task, over its transport."""
    deployment = Deployment.load(task["folder"])
    links = deployment.links
    transport = open_transport(task["transport"], links, deployment.reached)
    node = Node(links, MemoryLog(), TIMING)
    signals = np.load(task["signals"])
    outputs, complete = [], True
    for run, path in enumerate(task["models"]):
        print_event(ready=links.node)
        wait_for_line(node, transport, lines)  # a node that hears nobody would run ahead
        program = infer(load_model(Path(path)), deployment.row, signals[..., links.node, :])
        node.begin(run, program, time.monotonic())
        while not (results := drive(node, transport, time.monotonic() + 1.0)):
            pass
        outputs.append(results[0].output.tolist())
        complete = complete and results[0].complete
    counters = {name: getattr(node.counters, name) for name in ("foreign", "forged", "malformed", "misfit", "received")}
    assert not {"torch", "scipy", "numba"} & set(sys.modules)
    print_event(node=links.node, outputs=outputs, complete=complete, counters=counters)
    wait_for_line(node, transport, lines)  # slower neighbours may still ask
    transport.close()


def wait_for_line(node, transport, lines):
    while lines.empty():
        drive(node, transport, time.monotonic() + 0.02)
    lines.get()


if __name__ == "__main__":
    main()
