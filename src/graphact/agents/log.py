"""The write-ahead log: which neighbours a node used, written before anything that depends on them is sent.

A record is one line of JSON. With the logs of all nodes and their signals a whole inference can be computed again, also
one in which nodes crashed (:mod:`graphact.agents.replay`). After a restart the log says which run numbers are used up.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


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
        """Keep a record."""
        self.records.append(record)
        self.last_run = max(self.last_run, record.run)


class FileLog:
    """A log in a file, one line a record. A record is handed to the operating system before ``append`` returns.

    Args:
        path: the file; it is continued if it is there, and a line that a crash cut off is removed.
        durable: wait for the disk as well, so that records also survive a power failure.
        max_bytes: when a run begins and the file is larger, it becomes ``path.1`` and a new one is begun.
    """

    def __init__(self, path: str | os.PathLike[str], *, durable: bool = False, max_bytes: int = 64 * 2**20) -> None:
        self.path, self.durable, self.max_bytes = Path(path), durable, max_bytes
        self.path.parent.mkdir(parents=True, exist_ok=True)
        cut_torn_line(self.path)
        before = [self.path.with_name(self.path.name + ".1"), self.path]
        self.last_run = max((r.run for path in before if path.exists() for r in read_log(path)), default=-1)
        self._open()

    def append(self, record: Record) -> None:
        """Write a record with one system call."""
        if isinstance(record, Began) and os.fstat(self._file).st_size > self.max_bytes:
            os.close(self._file)
            self.path.replace(self.path.with_name(self.path.name + ".1"))
            self._open()
        line = to_line(record)
        if os.write(self._file, line) != len(line):
            raise OSError(f"{self.path}: the disk is full")
        if self.durable:
            os.fdatasync(self._file)
        self.last_run = max(self.last_run, record.run)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _open(self) -> None:
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)


def to_line(record: Record) -> bytes:
    """A record as a line of JSON."""
    if isinstance(record, Began):
        return b'{"run": %d, "program": %d}\n' % (record.run, record.program)
    return b'{"run": %d, "round": %d, "used": %s}\n' % (record.run, record.round, str(list(record.used)).encode())


def read_log(path: str | os.PathLike[str]) -> Iterator[Record]:
    """The records of a log file; a last line that a crash cut off is left out.

    Raises:
        ValueError: a line is not a record.
    """
    for number, line in enumerate(Path(path).read_bytes().split(b"\n")[:-1], start=1):
        try:
            entry = json.loads(line)
            if "used" in entry:
                yield RoundClosed(entry["run"], entry["round"], tuple(entry["used"]))
            else:
                yield Began(entry["run"], entry["program"])
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{path}: line {number} is not a record of a log: {line[:80]!r}") from error


def cut_torn_line(path: Path) -> None:
    """Remove what follows the last complete line."""
    if path.exists():
        content = path.read_bytes()
        if not content.endswith(b"\n") and content:
            os.truncate(path, content.rfind(b"\n") + 1)
