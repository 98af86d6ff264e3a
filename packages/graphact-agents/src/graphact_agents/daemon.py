"""The process of an agent: what it opens, the signals of the system that end it, and its events on standard output."""

import gc
import json
import os
import queue
import select
import signal
import sys
import threading
import time
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from graphact_agents.addresses import Address, Addresses
from graphact_agents.agent import Agent, Clocked, Event, Schedule
from graphact_agents.deployment import Deployment
from graphact_agents.disk import FULL, write_atomically
from graphact_agents.log import LOG_NAME, FileLog
from graphact_agents.runs import Timing
from graphact_agents.signals import Signals
from graphact_agents.status import Status, Watchdog, memory_use
from graphact_agents.status_server import StatusServer
from graphact_agents.transports.transport import open_transport
from graphact_agents.transports.zenoh import Tls

STATUS_NAME = "status.json"


def serve(
    folder: Path,
    deployment: Deployment,
    signals: Signals,
    schedule: Schedule,
    *,
    transport: str,
    timing: Timing | None = None,
    tls: Tls | None = None,
    durable: bool = False,
    dynamic: bool = False,
    status: Address | None = None,
    runs: int | None = None,
) -> None:
    """Run the agent of a folder until its signals end or SIGTERM or SIGINT comes; events go to standard output.

    ``status`` is where it answers its operators
    (:class:`~graphact_agents.status_server.StatusServer`); the others are as in
    :func:`~graphact_agents.transports.transport.open_transport` and :class:`~graphact_agents.agent.Agent`.
    """
    links, addresses = deployment.links, Addresses.load(folder, deployment.links.neighbors)
    with ExitStack() as opened:
        events = opened.enter_context(EventWriter())
        opened.callback(signals.close)
        log = opened.enter_context(closing(FileLog(folder / LOG_NAME, durable=durable)))
        timely = isinstance(schedule, Clocked)
        network = open_transport(transport, links, addresses, tls, timely=timely)
        opened.callback(network.close)
        agent = Agent(
            deployment,
            network,
            log,
            signals,
            schedule,
            events.write,
            timing,
            dynamic=dynamic,
        )

        def stop(*_: object) -> None:
            """Let the agent finish its run; a second signal interrupts it."""
            if agent.stopping:
                raise KeyboardInterrupt
            agent.stop()

        for number in (signal.SIGTERM, signal.SIGINT):
            opened.callback(signal.signal, number, signal.signal(number, stop))
        agent.watchdog = Watchdog()
        encrypted = tls is not None

        def ask() -> Status:
            found = agent.status(transport, encrypted)
            reason = "standard output is not read, or its disk is full"
            lost = [f"{reason}: {events.untold} events were lost"] * bool(events.untold)
            return replace(found, totals={**found.totals, "events_lost": events.lost}, trouble=[*found.trouble, *lost])

        ready = {"event": "ready", "node": links.node, "epoch": links.epoch_name, "transport": transport}
        ready |= {"encrypted": encrypted, "last_run": log.last_run}
        if status is not None:
            server = opened.enter_context(closing(StatusServer(status, ask)))
            ready["status"] = str(server.address)
            write_atomically(folder / STATUS_NAME, json.dumps({"status": str(server.address)}).encode())
        gc.freeze()  # what is there stays: no need to look through it again and again
        used_to_start = time.process_time()
        agent.watchdog.tell("READY=1")
        events.write({**ready, "ignored_records": log.ignored} if log.ignored else ready)
        end = {"event": "end", "node": links.node, "reason": agent.work(runs)}
        agent.watchdog.tell("STOPPING=1")
        agent.linger()
        agent.count()
        end |= {"counters": agent.counted, "totals": agent.totals, "memory": memory_use()}
        events.write(end | {"cpu_seconds": round(time.process_time() - used_to_start, 3)})


class EventWriter:
    """Events on standard output: whoever reads them slowly, or not at all, holds no run up.

    Where there is room a short one is written at once. Others are written by a thread; some of them wait, and what does
    not fit, there or on a full disk, is lost, counted, and told by an event ``lost`` once there is room again.
    """

    MAX_BYTES = 2**20
    LINGER = 2.0
    """Seconds that the last events are given to be read."""

    def __init__(self) -> None:
        self._overflowed = self._without_room = 0  # events lost in all, since too many wait or the disk is full
        self._skipped = self._torn = 0  # those of them that no event has told
        self._node: object = None
        self._came = self._gone = 0  # bytes, each counted by one thread
        self._error: OSError | None = None
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        sys.stdout.flush()
        self._file, self._room = file_of(sys.stdout), select.poll() if hasattr(select, "poll") else None
        if self._room is not None and self._file is not None:
            self._room.register(self._file, select.POLLOUT)
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def write(self, event: Event) -> None:
        """Hand over an event; OSError if the reader has gone."""
        self._check()
        self._node = event.get("node")
        line, waiting = to_line(event), self.waiting
        if not waiting and not self.untold and self._write_now(line):
            return
        if waiting and waiting + len(line) > self.MAX_BYTES:
            self._overflowed, self._skipped = self._overflowed + 1, self._skipped + 1
            return
        if self._skipped:
            line = to_line({"event": "lost", "node": self._node, "count": self._skipped}) + line
            self._skipped = 0
        self._came += len(line)
        self._lines.put(line)

    def _write_now(self, line: bytes) -> bool:
        """Write a line if that cannot wait: so many bytes are taken at once wherever there is room for any."""
        if self._file is None or self._room is None or len(line) > select.PIPE_BUF:
            return False
        if self._room.poll(0) != [(self._file, select.POLLOUT)]:
            return False
        try:
            written = os.write(self._file, line)
        except OSError as error:
            if error.errno not in FULL:
                raise
            return False
        if written < len(line):  # of a file, as the disk is full
            self._came += len(line) - written
            self._lines.put(line[written:])
        return True

    @property
    def lost(self) -> int:
        """Events lost in all."""
        return self._overflowed + self._without_room

    @property
    def untold(self) -> int:
        """Events lost since the last that was written."""
        return self._skipped + self._torn

    @property
    def waiting(self) -> int:
        """Bytes that wait to be written."""
        return self._came - self._gone

    def _write(self) -> None:
        is_open = True
        while is_open:
            lines = [self._lines.get()]
            while not self._lines.empty():
                lines.append(self._lines.get())
            is_open = None not in lines
            content = b"".join(line for line in lines if line is not None)
            told = to_line({"event": "lost", "node": self._node, "count": self._torn}) if self._torn else b""
            try:
                write_out(b"\n" * bool(told) + told + content)  # after a torn line
                self._torn = 0
            except OSError as error:
                if error.errno not in FULL:
                    self._error = error
                    return
                count = content.count(b"\n")
                self._torn, self._without_room = self._torn + count, self._without_room + count
            self._gone += len(content)

    def _check(self) -> None:
        if self._error is not None:
            raise OSError(explain_write_error(self._error)) from self._error

    def __enter__(self) -> "EventWriter":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._lines.put(None)
        self._thread.join(self.LINGER)
        if self._thread.is_alive():
            sys.stderr.write("graphact-agents: standard output is not read; the last events are lost\n")
        elif kind is None:
            self._check()


def write_out(content: bytes) -> None:
    """To standard output, however long that takes; not through a buffer that the end of the process would wait for."""
    file = file_of(sys.stdout)
    if file is None:
        sys.stdout.write(content.decode())
        return
    left = memoryview(content)
    while left:
        left = left[os.write(file, left) :]


def file_of(stream: TextIO) -> int | None:
    """The descriptor of a stream; None where it is not a file, as in tests."""
    try:
        return stream.fileno()
    except (OSError, ValueError):
        return None


def to_line(event: Event) -> bytes:
    """An event as JSON, with the time; ValueError if it holds NaN or infinity."""
    return (json.dumps(event | {"time": round(time.time(), 3)}, allow_nan=False) + "\n").encode()


def explain_write_error(error: OSError) -> str:
    """Return why events cannot be written."""
    if isinstance(error, BrokenPipeError):
        return "the reader of the results on standard output has gone"
    return f"the results cannot be written to standard output: {error.strerror or error}"


def check_reader() -> None:
    """Raise OSError if the reader of standard output has gone; for drivers that may not write for long."""
    file = file_of(sys.stdout)
    if file is not None and hasattr(select, "poll"):
        reader = select.poll()
        reader.register(file, 0)  # for errors alone
        if reader.poll(0):
            raise OSError(explain_write_error(BrokenPipeError()))


def write_event(event: Event) -> None:
    """Write one line of JSON to standard output, unbuffered; OSError if its reader has gone."""
    line = to_line(event)
    try:
        sys.stdout.flush()
        write_out(line)
    except BrokenPipeError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left cannot fail again at the end
        raise OSError(explain_write_error(error)) from error
