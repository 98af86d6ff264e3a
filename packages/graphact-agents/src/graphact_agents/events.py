"""Events of an agent on standard output: one JSON object a line, without ever waiting for who reads them."""

import json
import os
import select
import sys
import time
from collections import deque
from typing import Any

from graphact_agents.disk import FULL

Event = dict[str, Any]
CHUNK = getattr(select, "PIPE_BUF", 512)
"""Bytes that a pipe with room for any takes at once."""


class EventWriter:
    """A writer of events: whoever reads them slowly, or not at all, holds no run up.

    Where there is room an event is written at once. Some wait for :meth:`flush`, which an agent calls in its loop, and
    what does not fit, there or on a full disk, is lost, counted, and told by an event ``lost`` once there is room.

    Attributes:
        lost: events lost in all.
        untold: events lost since the last that was written.
    """

    MAX_BYTES = 2**20
    LINGER = 2.0
    """Seconds that the last events are given to be read."""

    def __init__(self) -> None:
        self.lost = self.untold = 0
        self._node: object = None
        self._lines: deque[bytes] = deque()
        self._left = b""  # of the line that is being written
        self._telling = 0  # events whose loss that line tells
        self._is_torn = False  # the last line was cut off by a full disk
        self._room = select.poll() if hasattr(select, "poll") else None
        try:
            sys.stdout.flush()
            self._file = sys.stdout.fileno()
        except (OSError, ValueError):  # no file, as in tests
            self._file, self._room = -1, None
        if self._room is not None:
            self._room.register(self._file, select.POLLOUT)

    def write(self, event: Event) -> None:
        """Write an event, with the time; OSError if the reader has gone, ValueError if it holds NaN or infinity."""
        self._node, line = event.get("node"), to_line(event)
        waiting = self.waiting
        if waiting and waiting + len(line) > self.MAX_BYTES:
            self._lose()
        else:
            self._lines.append(line)
        self.flush()

    def flush(self) -> None:
        """Write what waits, as far as there is room; OSError if the reader has gone."""
        while self._has_room() and (self._left or self._lines):
            if not self._left:
                told = {"event": "lost", "node": self._node, "count": self.untold}
                self._telling = self.untold
                self._left = b"\n" * self._is_torn + (to_line(told) if self.untold else b"") + self._lines.popleft()
            try:
                size = self._write(self._left[:CHUNK])
            except BrokenPipeError as error:
                raise OSError("the reader of the results on standard output has gone") from error
            except OSError as error:
                if error.errno not in FULL:
                    raise OSError(f"the results cannot be written: {error.strerror or error}") from error
                self._left = b""
                self._lose()
                return
            self._left, self._is_torn = self._left[size:], size < len(self._left)
            if not self._left:
                self.untold, self._telling = self.untold - self._telling, 0

    @property
    def waiting(self) -> int:
        """Bytes that wait to be written."""
        return len(self._left) + sum(map(len, self._lines))

    def _lose(self) -> None:
        self.lost, self.untold = self.lost + 1, self.untold + 1

    def _has_room(self) -> bool:
        """Return whether some bytes can be written without waiting; OSError if the reader has gone."""
        found = self._room.poll(0) if self._room is not None else [(self._file, select.POLLOUT)]
        if found and found[0][1] & select.POLLERR:
            raise OSError("the reader of the results on standard output has gone")
        return bool(found)

    def _write(self, content: bytes) -> int:
        return os.write(self._file, content) if self._file >= 0 else sys.stdout.write(content.decode())

    def __enter__(self) -> "EventWriter":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        until = time.monotonic() + self.LINGER
        try:
            self.flush()
            while self.waiting and time.monotonic() < until:
                time.sleep(0.01)
                self.flush()
        except OSError:
            if kind is None:
                raise
            return
        if self.waiting:
            sys.stderr.write("graphact-agents: standard output is not read; the last events are lost\n")


def to_line(event: Event) -> bytes:
    """Return an event as JSON, with the time; ValueError if it holds NaN or infinity."""
    return (json.dumps(event | {"time": round(time.time(), 3)}, allow_nan=False) + "\n").encode()
