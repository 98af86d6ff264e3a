"""Agents of many nodes as processes of this machine: for demonstrations, tests and measurements."""

import json
import os
import queue
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any

from graphact_agents.addresses import Address
from graphact_agents.disk import write_atomically
from graphact_agents.messages import Array
from graphact_agents.network import NETWORK_NAME, NetworkFile
from graphact_agents.network_folder import deploy_network, init_network

Event = dict[str, Any]
PORTS = range(10_000, 32_768)


class LocalAgents:
    """One process of ``graphact-agents run`` (``command``) for each folder; ended at the latest when the block is left.

    Signals are files, one for each node; without them :meth:`feed` hands signals over. ``errors`` is a file that takes
    their standard error.
    """

    program: Sequence[str] = ()  # arguments of the interpreter: another program in the place of the agents' own

    def __init__(
        self,
        folders: Sequence[Path],
        options: Sequence[str],
        signals: Sequence[Path] | None = None,
        errors: Path | None = None,
        command: str = "run",
    ) -> None:
        self.command = command
        self.folders, self.options, self.signals = list(folders), list(options), signals
        self.running: dict[int, subprocess.Popen[bytes]] = {}
        self._accepted: tuple[int, ...] = (0,)  # exit codes
        self._opened = ExitStack()
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()  # None where an output has ended
        self._open = 0  # outputs that have not ended
        self._errors = None if errors is None else self._opened.enter_context(errors.open("ab"))

    def __enter__(self) -> "LocalAgents":
        for i in range(len(self.folders)):
            self.start(i)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.running.values():
            process.kill()  # also ends a process that stands still
        self._opened.close()  # waits for the processes

    def start(self, i: int) -> None:
        """Start the agent of a node, or start it again after it ended."""
        signals = "-" if self.signals is None else str(self.signals[i])
        program = self.program or ("-m", "graphact_agents.command", self.command)
        process = subprocess.Popen(
            [sys.executable, *program, str(self.folders[i]), *self.options, "--signals", signals],
            stdin=subprocess.PIPE if self.signals is None else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
        assert process.stdout is not None
        self.running[i] = self._opened.enter_context(process)
        self._open += 1
        threading.Thread(target=self._take_in, args=(process.stdout,), daemon=True).start()

    def _take_in(self, stream: IO[bytes]) -> None:
        """Read the events of one process; a line that its end cut off is none."""
        for line in stream:
            if line.endswith(b"\n"):
                self._events.put(json.loads(line))
        self._events.put(None)

    def kill(self, i: int) -> None:
        """End the process of a node without warning (kill -9)."""
        self.running[i].kill()
        self.running[i].wait()

    def stop(self) -> None:
        """Let all agents end; one that is still starting ends at once."""
        self._accepted = (0, -signal.SIGTERM)
        for process in self.running.values():
            process.terminate()

    def feed(self, signals: Array) -> None:
        """Hand all signals to all agents, ``(runs, ..., N, F)``, and no more after them.

        Threads do so: agents read a little ahead, and without a clock one goes on only if all have their signals.
        """
        for i, process in self.running.items():
            assert process.stdin is not None
            lines = (json.dumps(signal.tolist()) for signal in signals[..., i, :])
            content = "".join(f"{line}\n" for line in lines).encode()
            feeder = threading.Thread(target=write_all, args=(process.stdin, content), daemon=True)
            process.stdin = None  # closed by its thread
            feeder.start()

    def wait_until_ready(self, timeout: float = 60.0) -> None:
        """Wait until every agent listens; TimeoutError if one does not, in time, ChildProcessError if one ended."""
        waiting, until = set(self.running), time.monotonic() + timeout
        while waiting:
            left = min(0.5, max(0.0, until - time.monotonic()))
            waiting -= {event["node"] for event in self.read(left) if event["event"] == "ready"}
            ended = sorted(i for i in waiting if self.running[i].poll() is not None)
            if ended:
                raise ChildProcessError(f"the agents of the nodes {ended} ended before they were ready")
            if waiting and time.monotonic() > until:
                raise TimeoutError(f"the agents of the nodes {sorted(waiting)} did not start")

    def read(self, timeout: float) -> list[Event]:
        """Return the events that come within ``timeout`` seconds, as soon as there are any."""
        events: list[Event] = []
        with suppress(queue.Empty):
            event = self._events.get(timeout=timeout)
            while True:
                self._open -= event is None
                events += [event] if event is not None else []
                event = self._events.get_nowait()
        return events

    @property
    def finished(self) -> bool:
        return self._open == 0

    def read_until(self, until: float) -> list[Event]:
        """All events up to a time of ``time.time``."""
        events: list[Event] = []
        while not self.finished and (left := until - time.time()) > 0:
            events += self.read(left)
        return events

    def wait(self, timeout: float = 120.0) -> list[Event]:
        """All events until every agent has ended; TimeoutError if one has not in time, RuntimeError if one failed."""
        events = self.read_until(time.time() + timeout)
        if not self.finished:
            raise TimeoutError(f"agents were still running after {timeout:g} s")
        for i, process in self.running.items():
            if process.wait() not in self._accepted:
                raise RuntimeError(f"the agent of node {i} ended with exit code {process.returncode}")
        return events


def deploy_locally(
    model: Path, graph: Path, out: Path, addresses: Sequence[object] | None = None, **settings: object
) -> Sequence[Path]:
    """Write the folders of the nodes of a network on this machine, with the settings of all, and return them.

    The operator's folder is ``out`` with ``.network`` after its name. Without addresses nodes are given free ports.
    """
    network = out.with_name(f"{out.name}.network")
    if not network.exists():
        init_network(model, graph, network)
    file = NetworkFile.load(network / NETWORK_NAME)
    places = dict(zip(file.nodes, addresses or free_addresses(len(file.nodes)), strict=True))
    lines = ["[network]", *(f"{name} = {json.dumps(value)}" for name, value in settings.items())]
    lines += [f'[nodes.{node}]\naddress = "{address}"' for node, address in places.items()]
    write_atomically(network / NETWORK_NAME, "\n".join(lines).encode(), mode=0o600)
    return deploy_network(network, out).folders


def write_all(stream: IO[bytes], content: bytes) -> None:
    """Write and close; whoever reads may have ended before."""
    with suppress(BrokenPipeError), stream:
        stream.write(content)


def free_addresses(num_nodes: int, host: str = "127.0.0.1") -> list[Address]:
    """Ports of this machine that are free now, both for TCP and for UDP.

    They are below those that Linux hands out by itself, so that no connection takes one before its node has started.
    """
    found: list[Address] = []
    with ExitStack() as held:
        for port in random.SystemRandom().sample(PORTS, len(PORTS)):
            if len(found) == num_nodes:
                return found
            stream = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            datagrams = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            with suppress(OSError):
                stream.bind((host, port))
                datagrams.bind((host, port))
                found.append(Address(host, port))
    raise OSError(f"this machine lacks {num_nodes} free ports")
