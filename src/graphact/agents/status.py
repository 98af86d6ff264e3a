"""What an agent lets its operators see: metrics in Prometheus' text format, health and peers, and systemd's watchdog.

A thread answers HTTP on a local port, by hand: a server of the standard library would take more memory than it saves
lines here. It reads what the agent counts and changes nothing.
"""

import json
import os
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, cast

from graphact.agents.addresses import Address
from graphact.agents.runs import Counters, RunResult
from graphact.storage import one_line

STALLED = 5.0
"""Seconds without a sign of life of the agent's loop after which it is not healthy."""
REQUEST_BYTES = 4096
REQUEST_SECONDS = 1.0
CONNECTIONS = 64
"""That are open at once; one more cuts off the oldest."""
SENT = {"data_sent": "data", "resent": "resent", "requests_sent": "request", "greetings_sent": "greeting"}
PLAIN = ("data_bytes_sent", "bytes_sent", "received", "rounds", "links_used", "links_missed")
DROPPED = ("strangers", "unsealed", "unopened")
"""Why a transport drops a datagram, beside the reasons of a node."""
REASONS = (*(f.name for f in fields(Counters) if f.name not in {*SENT, *PLAIN}), *DROPPED)
OUTCOMES = ("complete", "incomplete", "failed", "skipped")
RECENT = 3
"""Runs without a complete one, or without a word of a peer, after which an operator should look."""
QUIET_SECONDS, QUIET_SLOTS = 60.0, 50
"""Without a clock, time without a run after which an operator should look; whichever is longer."""


@dataclass
class Tally:
    """What an agent counts beside the counters of its node, from its start; ``beat`` is when its loop last went round.

    ``missed`` counts, by neighbour, the runs in which it missed a round; ``recent`` holds start, outcome and reason of
    the last runs; ``ended`` is when the last of them ended or was skipped, at first the start of the agent, and
    ``waits`` what the next one waits for. All times are of a timer that nobody sets.
    """

    begun: int = 0
    outcomes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OUTCOMES, 0))
    seconds: float = 0.0
    missed: dict[int, int] = field(default_factory=dict)
    recent: deque[tuple[float, str, str]] = field(default_factory=lambda: deque(maxlen=RECENT))
    finished: float | None = None
    beat: float = field(default_factory=time.monotonic)
    ended: float = field(default_factory=time.monotonic)
    waits: str = ""

    def add(self, result: RunResult) -> None:
        outcome = "failed" if result.failure else "complete" if result.complete else "incomplete"
        self.end(result.started, outcome, result.failure)
        self.seconds += result.finished - result.started
        self.finished = time.monotonic()
        for j in {j for missed in result.missed for j in missed}:
            self.missed[j] = self.missed.get(j, 0) + 1

    def end(self, started: float, outcome: str, reason: str) -> None:
        """Count a run, also one that was skipped."""
        self.outcomes[outcome] += 1
        self.recent.append((started, outcome, reason))
        self.ended, self.waits = time.monotonic(), ""

    def quiet(self, slot: float, period: float | None) -> list[str]:
        """That there was no run for long, if so: some periods since the last, or without a clock a minute or more."""
        quiet = time.monotonic() - self.ended
        if period is None:
            most = max(QUIET_SECONDS, QUIET_SLOTS * slot)
        else:
            most = max(STALLED, (RECENT + 1) * period) if self.recent else float("inf")  # the first may be far ahead
        return [f"no run for {quiet:.0f} s{self.waits and f': {self.waits}'}"] if quiet > most else []

    def trouble(self, hears: Iterable[int], heard: Mapping[int, float], hint: str) -> list[str]:
        """What is wrong with the last runs; ``hint`` is a likely reason why peers are not heard."""
        recent, found = list(self.recent), []
        if len(recent) < RECENT:
            return []
        outcomes = [outcome for _, outcome, _ in recent]
        if "complete" not in outcomes:
            counts = ", ".join(f"{outcomes.count(name)} {name}" for name in OUTCOMES if name in outcomes)
            reason = next((f": {why}" for *_, why in recent[::-1] if why), "")
            found.append(f"none of the last {RECENT} runs was complete ({counts}{reason})")
        if silent := [str(j) for j in hears if heard.get(j, float("-inf")) < recent[0][0]]:
            found.append(f"not heard in the last {RECENT} runs: node {', '.join(silent)}{hint}")
        return found

    def totals(self, counters: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
        """All counts, with those of node and transport, and of earlier lives of the process (``before``)."""
        now = {**counters, "runs": self.begun, "starts": 1, **self.outcomes}
        now["run_microseconds"] = round(1e6 * self.seconds)
        return {name: value + before.get(name, 0) for name, value in now.items()}


def count_all(node: Counters, dropped: Mapping[str, int]) -> dict[str, int]:
    """The counters of a node with what its transport dropped, which may be for the same reasons."""
    counts = asdict(node) | dict.fromkeys(DROPPED, 0)
    return counts | {name: counts.get(name, 0) + count for name, count in dropped.items()}


@dataclass(frozen=True)
class Status:
    """What is asked for by ``/status``, as a whole; see :func:`metrics` for the same as Prometheus reads it.

    ``trouble`` is all that an operator should look at, here or in the network, and ``healthy`` that there is none.
    ``alive`` is about the process alone, whose loop goes round, and ``reason`` why it is not.
    """

    node: int
    epoch: str
    transport: str
    run: int
    alive: bool
    reason: str
    seconds_since_run: float | None
    totals: Mapping[str, int]
    peers: Mapping[int, Mapping[str, Any]]
    encrypted: bool = False
    trouble: Sequence[str] = ()

    @property
    def healthy(self) -> bool:
        return not self.trouble

    def to_json(self) -> bytes:
        return json.dumps({**vars(self), "healthy": self.healthy}).encode()


def metrics(status: Status) -> str:
    """The text that Prometheus scrapes; names and labels are in docs/agents.md."""
    lines: list[str] = []
    totals = status.totals

    def family(name: str, kind: str, text: str, samples: Iterable[tuple[str, float]]) -> None:
        lines.extend([f"# HELP graphact_{name} {text}", f"# TYPE graphact_{name} {kind}"])
        for labels, value in samples:
            more = f",{labels}" if labels else ""
            lines.append(f'graphact_{name}{{node="{status.node}"{more}}} {value!r}')

    def each(label: str, values: Mapping[Any, float]) -> list[tuple[str, float]]:
        return [(f'{label}="{key}"', value) for key, value in values.items()]

    about = f'epoch="{status.epoch}",transport="{status.transport}",encrypted="{str(status.encrypted).lower()}"'
    family("agent_info", "gauge", "What this agent is.", [(about, 1)])
    family("agent_alive", "gauge", "1 while the agent goes round its loop in time.", [("", int(status.alive))])
    family("agent_healthy", "gauge", "1 while an operator has nothing to look at.", [("", int(status.healthy))])
    family(
        "agent_trouble", "gauge", "How much an operator should look at; /status names it.", [("", len(status.trouble))]
    )
    family("agent_starts_total", "counter", "Starts of the process.", [("", totals["starts"])])
    family("run_number", "gauge", "The run in progress, or the last one.", [("", status.run)])
    if status.seconds_since_run is not None:
        family("run_age_seconds", "gauge", "Time since a run ended.", [("", status.seconds_since_run)])
    lost = totals.get("events_lost", 0)
    family("events_lost_total", "counter", "Events that standard output did not take in time.", [("", lost)])
    runs = each("outcome", {name: totals[name] for name in OUTCOMES})
    family("runs_total", "counter", "Runs by their outcome.", runs)
    family("run_seconds_total", "counter", "Time in all runs.", [("", totals["run_microseconds"] / 1e6)])
    family("rounds_total", "counter", "Rounds of all runs.", [("", totals["rounds"])])
    links = each("state", {name: totals[f"links_{name}"] for name in ("used", "missed")})
    family("links_total", "counter", "Values awaited from neighbours, by whether they came in time.", links)
    sent = each("kind", {kind: totals[name] for name, kind in SENT.items()})
    family("messages_sent_total", "counter", "Messages sent, by kind.", sent)
    family("sent_bytes_total", "counter", "Bytes handed to the transport.", [("", totals["bytes_sent"])])
    family("values_received_total", "counter", "Values of neighbours that were accepted.", [("", totals["received"])])
    refused = each("reason", {name: totals[name] for name in REASONS})
    family("refused_total", "counter", "Datagrams that were not used, by reason.", refused)
    heard = {j: peer["heard_seconds_ago"] for j, peer in status.peers.items() if peer["heard_seconds_ago"] is not None}
    family("peer_heard_seconds", "gauge", "Time since a peer was heard.", each("peer", heard))
    missed = {j: peer["missed_runs"] for j, peer in status.peers.items()}
    family(
        "peer_missed_runs_total", "counter", "Runs since the start with a round a peer missed.", each("peer", missed)
    )
    refusing = {j: int(bool(peer["refused"])) for j, peer in status.peers.items()}
    family("peer_refused", "gauge", "1 if this node takes no part with a peer.", each("peer", refusing))
    family("cpu_seconds_total", "counter", "Processor time of the process.", [("", time.process_time())])
    memory = each("kind", {kind: mebibytes * 2**20 for kind, mebibytes in memory_use().items()})
    family("memory_bytes", "gauge", "Memory: the most that was ever held, and its own now.", memory)
    return "\n".join(lines) + "\n"


def memory_use() -> dict[str, float]:
    """MiB of memory of this process: the largest it ever held, and what it holds for itself alone (on Linux)."""
    use = {}
    for name, file, label in (("peak", "status", "VmHWM"), ("private", "smaps_rollup", "Private_")):
        path = Path("/proc/self") / file
        lines = path.read_text().splitlines() if path.is_file() else []
        use[name] = round(sum(int(line.split()[1]) for line in lines if line.startswith(label)) / 1024, 1)
    return use


@dataclass
class Connection:
    """Somebody who asks: until when, what has come, and what is left of the answer."""

    socket: socket.socket
    until: float
    asked: bytes = b""
    answer: memoryview = field(default_factory=lambda: memoryview(b""))


class StatusServer:
    """A thread that answers ``GET /metrics``, ``/healthz`` (503 with trouble) and ``/status`` (JSON), many at a time.

    Whoever takes longer than a second to ask or to read the answer, or asks for more than 4 KiB, is cut off.

    Args:
        address: where it listens; port 0 takes a free one.
        ask: gives the status, called by the thread.

    Raises:
        OSError: it cannot listen there.
    """

    def __init__(self, address: Address, ask: Callable[[], Status]) -> None:
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        try:
            self._socket = socket.create_server((address.host, address.port), family=family, backlog=CONNECTIONS)
        except OSError as error:
            raise OSError(f"cannot listen on {address} for the status: {error.strerror or error}") from error
        self._socket.setblocking(False)
        self.address = Address(address.host, self._socket.getsockname()[1])
        self._ask, self._closed = ask, False
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._socket, selectors.EVENT_READ)
        self._connections: dict[socket.socket, Connection] = {}  # the oldest first
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while not self._closed:
            now = time.monotonic()
            for late in [each for each in self._connections.values() if each.until <= now]:
                self._cut_off(late)
            wait = min((each.until - now for each in self._connections.values()), default=REQUEST_SECONDS)
            for key, _ in self._selector.select(wait):
                if key.data is None:
                    self._accept()
                elif key.data.socket in self._connections:  # nobody cut it off meanwhile
                    self._go_on(key.data)
        for each in list(self._connections.values()):
            self._cut_off(each)
        self._selector.close()

    def _accept(self) -> None:
        try:
            opened, _ = self._socket.accept()
        except BlockingIOError:  # gone again
            return
        except OSError:  # closed, or this process has no descriptor left: others will be given back
            time.sleep(0.0 if self._closed else 0.1)
            return
        if len(self._connections) >= CONNECTIONS:
            self._cut_off(next(iter(self._connections.values())))
        opened.setblocking(False)
        connection = Connection(opened, time.monotonic() + REQUEST_SECONDS)
        self._connections[opened] = connection
        self._selector.register(opened, selectors.EVENT_READ, connection)

    def _go_on(self, connection: Connection) -> None:
        """Read what was asked, or write what is left of the answer; never waits."""
        try:
            if connection.answer:
                connection.answer = connection.answer[connection.socket.send(connection.answer) :]
                is_over = not connection.answer
            else:
                is_over = not self._read(connection)
        except BlockingIOError:
            return
        except OSError:
            is_over = True
        if is_over:
            self._cut_off(connection)

    def _read(self, connection: Connection) -> bool:
        """Take a part of the request, and answer it when it is whole; False if there is nothing to wait for."""
        piece = connection.socket.recv(REQUEST_BYTES)
        connection.asked += piece
        if b"\r\n\r\n" not in connection.asked and b"\n\n" not in connection.asked:
            return bool(piece) and len(connection.asked) <= REQUEST_BYTES
        connection.answer = memoryview(self._answer(connection.asked))
        connection.until = time.monotonic() + REQUEST_SECONDS
        self._selector.modify(connection.socket, selectors.EVENT_WRITE, connection)
        return True

    def _answer(self, asked: bytes) -> bytes:
        words = asked.split(b"\r\n")[0].split()
        path = words[1].split(b"?")[0] if len(words) == 3 and words[0] == b"GET" else b""
        code, kind, body = "404 Not Found", "text/plain", b"GET /metrics, /healthz or /status\n"
        try:
            status = self._ask()
            if path == b"/metrics":
                code, kind, body = "200 OK", "text/plain; version=0.0.4; charset=utf-8", metrics(status).encode()
            elif path == b"/status":
                code, kind, body = "200 OK", "application/json", status.to_json()
            elif path == b"/healthz":
                code = "200 OK" if status.healthy else "503 Service Unavailable"
                body = "".join(f"{each}\n" for each in status.trouble or ["healthy"]).encode()
        except Exception as error:  # of a moment in which the agent changed what is read here; the next may succeed
            code, body = "500 Internal Server Error", f"{type(error).__name__}: {one_line(error)}\n".encode()
        head = f"HTTP/1.1 {code}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        return head.encode() + body

    def _cut_off(self, connection: Connection) -> None:
        del self._connections[connection.socket]
        self._selector.unregister(connection.socket)
        connection.socket.close()

    def close(self) -> None:
        self._closed = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._thread.join(2 * REQUEST_SECONDS)
        self._socket.close()


def fetch_status(address: Address, timeout: float = 2.0) -> dict[str, Any]:
    """The status of an agent; OSError if nobody answers in time, ValueError if it is no agent."""
    until, answer = time.monotonic() + timeout, b""
    with socket.create_connection((address.host, address.port), timeout) as connection:
        connection.sendall(b"GET /status HTTP/1.1\r\nHost: agent\r\n\r\n")
        while piece := connection.recv(1 << 16):
            answer += piece
            if len(answer) > 1 << 22:
                raise ValueError(f"{address} answers with more than a status")
            connection.settimeout(max(1e-3, until - time.monotonic()))
    head, _, body = answer.partition(b"\r\n\r\n")
    try:
        content = json.loads(body) if b" 200 " in head.split(b"\r\n")[0] else None
    except (ValueError, RecursionError):
        content = None
    if not is_status(content):
        raise ValueError(f"{address} is not the status of an agent")
    return cast("dict[str, Any]", content)


def is_status(content: Any) -> bool:
    """Whether JSON is what :meth:`Status.to_json` writes, as far as others rely on it."""
    fields_of = {"node": int, "run": int, "alive": bool, "totals": dict, "peers": dict, "trouble": list}
    if not isinstance(content, dict) or not all(
        isinstance(content.get(name), kind) for name, kind in fields_of.items()
    ):
        return False
    totals, peers = content["totals"], content["peers"].values()
    has_totals = all(isinstance(totals.get(name), int) for name in (*OUTCOMES, "starts"))
    has_peers = all(isinstance(peer, dict) and "heard_seconds_ago" in peer for peer in peers)
    return has_totals and has_peers and all(isinstance(each, str) for each in content["trouble"])


class Watchdog:
    """Tells systemd that the agent is ready, alive (if the unit has ``WatchdogSec=``) and about to end."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._path = environment.get("NOTIFY_SOCKET", "")
        usec, pid = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", "")
        watched = self._path and usec.isdecimal() and pid in ("", str(os.getpid()))
        self._every = int(usec) / 3e6 if watched else float("inf")
        self._next = 0.0

    def beat(self, now: float) -> None:
        """Called often; tells three times in the time that the unit allows."""
        if self._every < float("inf") and now >= self._next:
            self._next = now + self._every
            self.tell("WATCHDOG=1")

    def tell(self, state: str) -> None:
        if self._path:
            address = "\0" + self._path[1:] if self._path.startswith("@") else self._path
            with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
                notify.sendto(state.encode(), address)
