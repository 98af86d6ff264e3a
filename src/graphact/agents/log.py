"""The write-ahead log: which neighbours a node used, written before anything that depends on them is sent.

A record is one line of JSON. With the logs of all nodes and their signals a whole inference can be computed again, also
one in which nodes crashed (:mod:`graphact.agents.replay`). After a restart the log gives the run numbers that are used
up, except those that no clock and no neighbour can have given it (:func:`last_plausible_run`).
"""

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from graphact.agents.messages import MAX_RUN

APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND
PLAUSIBLE_JUMP = 2**48
"""How far apart two runs of a log can be: more than a clock counts from 1970 in periods of 10 microseconds."""


@dataclass(frozen=True, slots=True)
class Began:
    """The node took a run number into use."""

    run: int
    program: int


@dataclass(frozen=True, slots=True)
class RoundClosed:
    """The node closed a round with the values of these neighbours."""

    run: int
    round: int
    used: tuple[int, ...]


Record = Began | RoundClosed


class Log(Protocol):
    """Where a node writes its records."""

    @property
    def last_run(self) -> int:
        """The highest run number in the log, -1 if there is none."""

    def append(self, record: Record) -> None:
        """Keep a record; when this returns, it survives the death of the process."""


class MemoryLog:
    """A log for simulations; it outlives the node that writes it."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.last_run = -1

    def append(self, record: Record) -> None:
        self.records.append(record)
        self.last_run = max(self.last_run, record.run)


class FileLog:
    """A log in a file, one line a record. A record is handed to the operating system before ``append`` returns.

    Args:
        path: the file; it is continued if it is there, and a line that a crash cut off is removed.
        durable: wait for the disk as well, so that records also survive a power failure.
        max_bytes: when a run begins and the file is larger, it becomes ``path.1`` and a new one is begun.

    Attributes:
        last_run: the highest run number that is used up, -1 if none is.
        ignored: how many records were left out because their run is implausible.
    """

    def __init__(self, path: str | os.PathLike[str], *, durable: bool = False, max_bytes: int = 64 * 2**20) -> None:
        self.path, self.durable, self.max_bytes = Path(path), durable, max_bytes
        self.path.parent.mkdir(parents=True, exist_ok=True)
        content = self.path.read_bytes() if self.path.exists() else b""
        if content and not content.endswith(b"\n"):  # a crash cut off the last line
            os.truncate(self.path, content.rfind(b"\n") + 1)
        self._older = self.path.with_name(self.path.name + ".1")
        records = (record for path in (self._older, self.path) if path.exists() for record in read_log(path))
        self.last_run, self.ignored = last_plausible_run(records)
        self._file = os.open(self.path, APPEND, 0o644)

    def append(self, record: Record) -> None:
        if isinstance(record, Began):
            if os.fstat(self._file).st_size > self.max_bytes:
                os.close(self._file)
                self.path.replace(self._older)
                self._file = os.open(self.path, APPEND, 0o644)
            line = b'{"run": %d, "program": %d}\n' % (record.run, record.program)
        else:
            used = str(list(record.used)).encode()
            line = b'{"run": %d, "round": %d, "used": %s}\n' % (record.run, record.round, used)
        if os.write(self._file, line) != len(line):
            raise OSError(f"{self.path}: the disk is full")
        if self.durable:
            os.fdatasync(self._file)
        self.last_run = max(self.last_run, record.run)

    def close(self) -> None:
        os.close(self._file)


def last_plausible_run(records: Iterable[Record]) -> tuple[int, int]:
    """The highest run number of a log, and how many records were left out for it.

    A record is left out if its run is not below 2^63, or more than 2^48 above the highest before it: version 0.1 took
    over whatever number a neighbour named, and its log must not keep a node from starting again.
    """
    last, ignored = -1, 0
    for record in records:
        if 0 <= record.run < MAX_RUN and record.run - last <= PLAUSIBLE_JUMP:
            last = max(last, record.run)
        else:
            ignored += 1
    return last, ignored


def read_log(path: str | os.PathLike[str]) -> Iterator[Record]:
    """The records of a log file, without a last line that a crash cut off; ValueError if a line is not a record."""
    for number, line in enumerate(Path(path).read_bytes().split(b"\n")[:-1], start=1):
        try:
            entry = json.loads(line)
            if not isinstance(entry["run"], int):
                raise TypeError("run must be an integer")
            if "used" in entry:
                yield RoundClosed(entry["run"], entry["round"], tuple(entry["used"]))
            else:
                yield Began(entry["run"], entry["program"])
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise ValueError(f"{path}: line {number} is not a record of a log: {line[:80]!r}") from error
