"""The status of an agent over HTTP: a server in a thread, and the client that asks."""

import json
import socket
import socketserver
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

from graphact_agents.addresses import Address
from graphact_agents.files import one_line
from graphact_agents.status import OUTCOMES, Status, metrics

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
        self._ask, self._open = ask, dict[socket.socket, None]()  # the oldest first
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
        """Somebody went away while being answered."""

    def answer(self, asked: bytes) -> bytes:
        """Return the answer to a request."""
        path = asked.split(b" ")[1] if asked.startswith(b"GET ") and asked.count(b" ") >= 2 else b""
        code, kind, body = "404 Not Found", "text/plain", b"GET /metrics, /healthz or /status\n"
        try:
            status = self._ask()
            if path == b"/metrics":
                code, kind = "200 OK", "text/plain; version=0.0.4; charset=utf-8"
                body = metrics(status).encode()
            elif path == b"/status":
                code, kind, body = "200 OK", "application/json", status.to_json()
            elif path == b"/healthz":
                code = "200 OK" if status.healthy else "503 Service Unavailable"
                body = "".join(f"{each}\n" for each in status.trouble or ["healthy"]).encode()
        except Exception as error:  # of a moment in which the agent changed what is read here; the next may succeed
            code, body = "500 Internal Server Error", f"{type(error).__name__}: {one_line(error)}\n".encode()
        head = f"HTTP/1.1 {code}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        return head.encode() + body

    def close(self) -> None:
        self.shutdown()
        self.server_close()


class StatusHandler(socketserver.BaseRequestHandler):
    """One request, within its time."""

    def handle(self) -> None:
        connection, until, asked = self.request, time.monotonic() + REQUEST_SECONDS, b""
        while b"\r\n\r\n" not in asked:
            connection.settimeout(max(1e-3, until - time.monotonic()))
            piece = connection.recv(MAX_REQUEST_BYTES)
            asked += piece
            if not piece or len(asked) > MAX_REQUEST_BYTES:
                return
        connection.settimeout(REQUEST_SECONDS)
        connection.sendall(self.server.answer(asked))  # type: ignore[attr-defined]


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
    """Return whether JSON is what :meth:`Status.to_json` writes, as far as others rely on it."""
    fields_of = {"node": int, "run": int, "alive": bool, "totals": dict, "peers": dict, "trouble": list}
    if not isinstance(content, dict) or not all(
        isinstance(content.get(name), kind) for name, kind in fields_of.items()
    ):
        return False
    totals, peers = content["totals"], content["peers"].values()
    has_totals = all(isinstance(totals.get(name), int) for name in (*OUTCOMES, "starts"))
    has_peers = all(isinstance(peer, dict) and "heard_seconds_ago" in peer for peer in peers)
    return has_totals and has_peers and all(isinstance(each, str) for each in content["trouble"])
