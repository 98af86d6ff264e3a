"""A network of real processes, and a captured node: a test that holds the keys of one of its nodes."""

import json
import os
import selectors
import socket
import subprocess
import sys
import time
from collections import deque

import numpy as np

from agents.networks import undirected
from graphact import nn
from graphact_agents import Deployment, MemoryLog, Timing
from graphact_agents.agent import Agent, BackToBack, Clocked
from graphact_agents.messages import GREETINGS, NOTHING, Kind, Message, Payload, encode
from local_agents import free_addresses
from support.on_agents import split

PATIENCE = 60.0
"""Seconds that a test waits for what must happen; a machine with many processes is slow."""


def make_network(folder, edges, size, model=None, **options):
    """The folders of nodes that run one filter of order 1, or a model; each with signals for many runs."""
    model = nn.GCNN([1, 1], order=1).double() if model is None else model
    folders = split(model, undirected(edges, size), folder / "nodes", addresses=free_addresses(size), **options)
    for i, each in enumerate(folders):
        np.save(each / "x.npy", np.full((50, 1), 1.0 + i))
    return folders


def make_pairs(folder, count):
    """The folders of ``count`` nodes, and those of a neighbour of each: cases that wait can do so side by side."""
    folders = make_network(folder, [(2 * i, 2 * i + 1) for i in range(count)], 2 * count)
    return folders[::2], folders[1::2]


class Daemon:
    """The process of one node, and the events it has printed."""

    def __init__(
        self, folder, *options, environment=None, command=("-m", "graphact_agents.command"), stdin=subprocess.DEVNULL
    ):
        words = ["run", str(folder), *options]
        if "--sensor" not in options and "--signals" not in options:
            words += ["--signals", str(folder / "x.npy"), "--repeat"]
        variables = {**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})}
        pipes = {"stdin": stdin, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen([sys.executable, *command, *words], env=variables, **pipes)
        self.folder, self.events, self._new, self._partial = folder, [], deque(), b""
        self._selector = selectors.DefaultSelector()
        self._selector.register(self.process.stdout, selectors.EVENT_READ)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()
        self._selector.close()

    def next_event(self, kind=None, timeout=PATIENCE, where=lambda event: True):
        """The next event of a kind for which something holds; fails if it does not come in time."""
        until = time.monotonic() + timeout
        while time.monotonic() < until:
            while self._new:
                event = self._new.popleft()
                if kind in (None, event["event"]) and where(event):
                    return event
            if self._selector.select(0.1):
                self.take_in()
        raise AssertionError(f"no {kind} within {timeout:g} s; the last events are {self.events[-3:]}")

    def take_in(self):
        """Read what the process has printed; fails if it has ended."""
        content = os.read(self.process.stdout.fileno(), 1 << 16)
        if not content:
            raise AssertionError(f"the process ended: {self.process.stderr.read().decode()[-2000:]}")
        *lines, self._partial = (self._partial + content).split(b"\n")
        events = [json.loads(line, parse_constant=refuse_constant) for line in lines]
        self.events += events
        self._new += events

    def results(self, count):
        return [self.next_event("result") for _ in range(count)]

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self, signal_number):
        """Send a signal and wait for the end; the exit code."""
        self.process.send_signal(signal_number)
        self.process.communicate(timeout=PATIENCE)
        return self.process.returncode


def refuse_constant(word):
    raise AssertionError(f"{word} is no JSON")


class Wire:
    """The socket of a captured node as a transport; ``frames`` are the last that it heard."""

    dropped = {}  # noqa: RUF012

    def __init__(self, captured):
        self.send, self._socket, self.frames = captured.send, captured.socket, deque(maxlen=100)

    def receive(self, _):
        try:
            self.frames.append(self._socket.recv(65_536, socket.MSG_DONTWAIT))
            return self.frames[-1]
        except BlockingIOError:
            return None


class Captured:
    """A node in wrong hands: its keys and its address, over UDP."""

    def __init__(self, folder, slot=0.18, origin=0.0, period=0.0):
        self.deployment = Deployment.load(folder)
        self.links = self.deployment.links
        self.addresses = self.deployment.reached
        schedule = Clocked(origin, period) if period else BackToBack(origin)
        agent = Agent(self.deployment, None, MemoryLog(), None, schedule, print, Timing(slot=slot))
        self.digest = agent.node.digest
        self.socket = socket.socket(type=socket.SOCK_DGRAM)
        self.socket.bind((self.addresses.listen.host, self.addresses.listen.port))
        self.wire = Wire(self)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def listen(self):
        """Return a frame that has come, or None."""
        return self.wire.receive(0.0)

    def send(self, to, datagram):
        """Send a frame as it is."""
        address = self.addresses.neighbors[to]
        self.socket.sendto(datagram, (address.host, address.port))

    def send_value(self, to, run, round_=0, value=(5.0,), kind=Kind.DATA, **fields):
        """Send an authenticated message."""
        payload = Payload.from_array(np.asarray(value, float)) if kind == Kind.DATA else NOTHING
        digest = self.digest if kind in GREETINGS else b""
        fields = dict(program_id=1 if kind == Kind.DATA else 0, payload=payload, digest=digest) | fields
        message = Message(kind, self.links.node, to, self.links.epoch, run, round_, **fields)
        self.send(to, encode(message, self.links.keys[to], self.digest))
