"""The status of an agent over HTTP: a server in a thread, and the client that asks."""

import io
import json
import socket
import socketserver
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from types import SimpleNamespace
from typing import Any, cast

from graphact_agents.addresses import Address
from graphact_agents.disk import one_line
from graphact_agents.status import OUTCOMES, REASONS, SENT, Status, memory_use

MAX_REQUEST_BYTES = 4096
MAX_CONNECTIONS = 64
REQUEST_SECONDS = 1.0
"""Seconds to ask, and as long to read the answer; who takes longer is cut off."""


class StatusServer(socketserver.ThreadingTCPServer):
    """A server that answers ``GET /metrics``, ``/healthz`` (503 with trouble) and ``/status`` (JSON).

    Args:
        address: where it listens; port 0 takes a free one.
        ask: returns the status; called by threads.

    Raises:
        OSError: it cannot listen there.
    """

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = MAX_CONNECTIONS

    def __init__(self, address: Address, ask: Callable[[], Status]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        self.ask, self._open = ask, dict[socket.socket, None]()  # the oldest first
        try:
            super().__init__((address.host, address.port), StatusHandler)
        except OSError as error:
            raise OSError(f"cannot listen on {address} for the status: {error.strerror or error}") from error
        self.address = Address(address.host, self.socket.getsockname()[1])
        threading.Thread(target=self.serve_forever, args=(0.1,), daemon=True).start()

    def get_request(self) -> tuple[socket.socket, Any]:
        try:
            opened, where = super().get_request()
        except OSError:  # gone again, or this process has no descriptor left
            time.sleep(0.1)
            raise
        if len(self._open) >= MAX_CONNECTIONS:
            with suppress(OSError, StopIteration, RuntimeError):  # the oldest, unless it ends just now
                next(iter(self._open)).shutdown(socket.SHUT_RDWR)
        self._open[opened] = None
        return opened, where

    def shutdown_request(self, request: Any) -> None:
        self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, *_: object) -> None:
        """Ignore clients that went away while being answered."""

    def close(self) -> None:
        self.shutdown()
        self.server_close()


class StatusHandler(BaseHTTPRequestHandler):
    """One request, of few bytes and within its time."""

    timeout = REQUEST_SECONDS
    server: StatusServer

    def setup(self) -> None:
        super().setup()
        until, head = time.monotonic() + REQUEST_SECONDS, b""
        while b"\r\n\r\n" not in head and len(head) <= MAX_REQUEST_BYTES:
            self.connection.settimeout(max(1e-3, until - time.monotonic()))
            if not (piece := self.connection.recv(MAX_REQUEST_BYTES)):
                break
            head += piece
        self.connection.settimeout(REQUEST_SECONDS)
        self.rfile = io.BytesIO(head)

    def do_GET(self) -> None:
        code, kind, body = 404, "text/plain", b"GET /metrics, /healthz or /status\n"
        try:
            status = self.server.ask()
            if self.path == "/metrics":
                code, kind, body = 200, "text/plain; version=0.0.4; charset=utf-8", metrics(status)
            elif self.path == "/status":
                code, kind, body = 200, "application/json", status.to_json()
            elif self.path == "/healthz":
                code = 200 if status.healthy else 503
                body = "".join(f"{each}\n" for each in status.trouble or ["healthy"]).encode()
        except ModuleNotFoundError as error:
            code, body = 501, f"{error}\n".encode()
        except Exception as error:  # of a moment in which the agent changed what is read here; the next may succeed
            code, body = 500, f"{type(error).__name__}: {one_line(error)}\n".encode()
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing: standard error is the agent's."""


def metrics(status: Status) -> bytes:
    """Return the text that Prometheus scrapes; names and labels are in docs/agents.md.

    Raises:
        ModuleNotFoundError: prometheus_client is not installed.
    """
    try:
        from prometheus_client import generate_latest
        from prometheus_client.core import CounterMetricFamily as Counter
        from prometheus_client.core import GaugeMetricFamily as Gauge
        from prometheus_client.core import InfoMetricFamily, Metric
    except ModuleNotFoundError as error:
        reason = "/metrics needs the package prometheus-client: pip install 'graphact-agents[metrics]'"
        raise ModuleNotFoundError(reason) from error
    counters, peers, node = status.counters, status.peers, str(status.node)
    heard = {j: peer["heard_seconds_ago"] for j, peer in peers.items() if peer["heard_seconds_ago"] is not None}
    families: list[Metric] = []

    def add(kind: Callable[..., Any], name: str, text: str, values: Any, label: str | None = None) -> None:
        """Add a number, or one for each value of a label."""
        family = kind(f"graphact_{name}", text, labels=["node", label] if label else ["node"])
        for key, value in values.items() if label else [(None, values)]:
            family.add_metric([node, str(key)] if label else [node], float(value))
        families.append(family)

    about = {"deployment": status.deployment, "transport": status.transport, "encrypted": str(status.encrypted).lower()}
    families.append(InfoMetricFamily("graphact_agent", "What this agent is.", {"node": node, **about}))
    add(Gauge, "agent_alive", "1 while the agent goes round its loop in time.", status.alive)
    add(Gauge, "agent_healthy", "1 while an operator has nothing to look at.", status.healthy)
    add(Gauge, "agent_trouble", "How much an operator should look at; /status names it.", len(status.trouble))
    add(Gauge, "agent_start_time_seconds", "Unix time at which the process started.", status.started)
    add(Gauge, "run_number", "The run in progress, or the last one.", status.run)
    if status.seconds_since_run is not None:
        add(Gauge, "run_age_seconds", "Time since a run ended.", status.seconds_since_run)
    add(Counter, "events_lost", "Events that standard output did not take in time.", counters.get("events_lost", 0))
    add(Counter, "runs", "Runs by their outcome.", {name: counters[name] for name in OUTCOMES}, "outcome")
    add(Counter, "run_seconds", "Time in all runs.", counters["run_microseconds"] / 1e6)
    add(Counter, "rounds", "Rounds of all runs.", counters["rounds"])
    links = {state: counters[f"links_{state}"] for state in ("used", "missed")}
    sent = {kind: counters[name] for name, kind in SENT.items()}
    add(Counter, "links", "Values awaited from neighbours, by whether they came in time.", links, "state")
    add(Counter, "messages_sent", "Messages sent, by kind.", sent, "kind")
    add(Counter, "sent_bytes", "Bytes handed to the transport.", counters["bytes_sent"])
    add(Counter, "values_received", "Values of neighbours that were accepted.", counters["received"])
    add(
        Counter,
        "refused",
        "Datagrams that were not used, by reason.",
        {name: counters[name] for name in REASONS},
        "reason",
    )
    add(Gauge, "peer_heard_seconds", "Time since a peer was heard.", heard, "peer")
    missed = {j: peer["missed_runs"] for j, peer in peers.items()}
    add(Counter, "peer_missed_runs", "Runs since the start with a round a peer missed.", missed, "peer")
    refused = {j: bool(peer["refused"]) for j, peer in peers.items()}
    add(Gauge, "peer_refused", "1 if this node takes no part with a peer.", refused, "peer")
    add(Counter, "cpu_seconds", "Processor time of the process.", time.process_time())
    memory = {kind: mebibytes * 2**20 for kind, mebibytes in memory_use().items()}
    add(Gauge, "memory_bytes", "Memory: the most that was ever held, and its own now.", memory, "kind")
    return generate_latest(cast("Any", SimpleNamespace(collect=lambda: families)))


def fetch_status(address: Address, timeout: float = 2.0) -> dict[str, Any]:
    """Return the status of an agent; OSError if nobody answers in time, ValueError if it is no agent."""
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
    """Return whether JSON is what :meth:`Status.to_json` writes, as far as others rely on it."""
    kinds = {"node": int, "deployment": str, "run": int, "alive": bool}
    kinds |= {"counters": dict, "peers": dict, "trouble": list}
    if not isinstance(content, dict) or not all(isinstance(content.get(name), kind) for name, kind in kinds.items()):
        return False
    counters, peers = content["counters"], content["peers"].values()
    has_counters = all(isinstance(counters.get(name), int) for name in OUTCOMES)
    has_peers = all(isinstance(peer, dict) and "heard_seconds_ago" in peer for peer in peers)
    return has_counters and has_peers and all(isinstance(each, str) for each in content["trouble"])
