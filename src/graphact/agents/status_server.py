"""The status of an agent over HTTP: a thread that answers its operators, and the client that asks.

The server is written by hand: one of the standard library would take more memory than it saves lines here. It reads
what the agent counts and changes nothing.
"""

import json
import selectors
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast

from graphact.agents.addresses import Address
from graphact.agents.status import OUTCOMES, Status, metrics
from graphact.storage import one_line

REQUEST_BYTES = 4096
REQUEST_SECONDS = 1.0
CONNECTIONS = 64
"""That are open at once; one more cuts off the oldest."""


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
