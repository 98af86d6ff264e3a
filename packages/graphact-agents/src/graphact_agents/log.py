"""The write-ahead log: which neighbours a node used, written before anything that depends on them is sent.

A record is one line of JSON with a checksum. With the logs of all nodes and their signals a whole inference can be
computed again, also one in which nodes crashed. After a restart the end of the log gives the run numbers that are used
up. They are those of one deployment, which the first line names: another one has
other keys or another number in all messages, and begins with a log of its own.
"""

import errno
import json
import math
import os
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from graphact_agents.disk import explain, lock, sync

LOG_NAME = "log.jsonl"
"""In the folder of a node; the one before has .1 after it."""
APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND
TAIL_BYTES = 2**20
"""Bytes at the end of a log that a start reads, so that it takes a moment however long the log is."""

Span = tuple[int, int]  # the first and the last run


@dataclass(frozen=True, slots=True)
class Began:
    """The node took a run number into use.

    ``spans`` are all numbers that are used up, as the file has them; ``present`` are the neighbours of this run, where
    they differ from run to run (:meth:`graphact_agents.Node.meet`).
    """

    run: int
    program_id: int
    spans: tuple[Span, ...] = field(default=(), compare=False)
    present: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class RoundClosed:
    """The node closed a round with the values of these neighbours."""

    run: int
    round: int
    used: tuple[int, ...]


Record = Began | RoundClosed


@dataclass
class UsedRuns:
    """The run numbers that a node has used up, as a few spans, ascending.

    They are one span while runs follow one another. A clock that stood in the future for a while leaves a span there;
    the numbers before it are still free when the clock has been set right.
    """

    spans: list[Span] = field(default_factory=list)

    MAX_GAP = 16
    """Gap up to which a span is extended instead of starting a new one; also the numbers reserved after a damaged last
    record, which may have begun a run."""
    MAX_SPANS = 4
    """More spans than this become fewer: what lies between the lowest two counts as used."""

    def add(self, run: int) -> None:
        for number, (first, last) in enumerate(self.spans):
            following = self.spans[number + 1][0] if number + 1 < len(self.spans) else math.inf
            if first <= run <= last + self.MAX_GAP and run < following:
                self.spans[number] = (first, max(last, run))
                break
        else:
            self.spans = sorted([*self.spans, (run, run)])
        joined: list[Span] = []
        for first, last in self.spans:
            if joined and first <= joined[-1][1] + 1:
                joined[-1] = (joined[-1][0], last)
            else:
                joined.append((first, last))
        if len(joined) > self.MAX_SPANS:
            joined[:2] = [(joined[0][0], joined[1][1])]
        self.spans = joined

    def next_free(self, run: int) -> int:
        """The lowest number from ``run`` on that is not used up."""
        for first, last in self.spans:
            run = last + 1 if first <= run <= last else run
        return run


class MemoryLog:
    """A log for simulations; it outlives the node that writes it."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.last_run = -1
        self.used = UsedRuns()

    def append(self, record: Record) -> None:
        self.records.append(record)
        if isinstance(record, Began):
            self.used.add(record.run)
        self.last_run = record.run


class FileLog:
    """A log in a file, one line a record. A record is handed to the operating system before ``append`` returns.

    On a full disk ``append`` raises OSError and leaves nothing of the record.

    Args:
        path: the file; it is continued if it is there, and a line that a crash cut off is removed.
        deployment: the name of the deployment whose runs it holds. The log of another one is put aside.
        durable: wait for the disk as well, so that records also survive a power failure.
        max_bytes: when a run begins and the file is larger, it becomes ``path.1`` and a new one is begun.

    Attributes:
        last_run: the run number that was last taken into use, -1 if none was.
        used: the run numbers that are used up.
        damaged: how many lines of its end are not records; they are left out.

    Raises:
        ValueError: there are lines, and none of the last is a record.
        OSError: another agent has the file open.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        deployment: str = "",
        *,
        durable: bool = False,
        max_bytes: int = 64 * 2**20,
    ) -> None:
        self.path, self.durable, self.max_bytes = Path(path), durable, max_bytes
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._older = self.path.with_name(self.path.name + ".1")
        self._head = seal(b'{"deployment": %s' % json.dumps(deployment).encode()) if deployment else b""
        self._file = self._open()  # and locked, before it is repaired
        try:
            if not self._is_mine(self.path):
                self._put_aside()
            ends = [read_end(self.path)]
            if not any(isinstance(record, Began) for record in ends[0].records) and self._is_mine(self._older):
                ends.insert(0, read_end(self._older))
        except BaseException:
            os.close(self._file)
            raise
        records = [each for end in ends for each in end.records]
        damaged = [reason for end in ends for reason in end.damaged]
        if damaged and not records:
            os.close(self._file)
            raise ValueError(f"{self.path}: {damaged[0]}")
        self.damaged = len(damaged)
        self.last_run, self.used = used_runs(records)
        if ends[-1].is_torn:  # a number may have been taken into use by the last record
            self.used.add(self.last_run + UsedRuns.MAX_GAP)

    def _is_mine(self, path: Path) -> bool:
        """Return whether a file may hold runs of this deployment; one whose first line is damaged may."""
        if not path.exists():
            return False
        with path.open("rb") as stream:
            head = stream.readline(TAIL_BYTES)
        return head == self._head or not self._head or not is_sealed(head)

    def _open(self) -> int:
        """The file, at its end; that there is one survives a power failure, too."""
        file = os.open(self.path, APPEND, 0o644)
        try:
            lock(file, f"{self.path} is in use by another agent; one folder is for one agent")
        except OSError:
            os.close(file)
            raise
        if self.durable:
            sync(self.path.parent)
        return file

    def append(self, record: Record) -> None:
        if isinstance(record, Began):
            if os.fstat(self._file).st_size > self.max_bytes:
                self._put_aside()
            self.used.add(record.run)
            entry = b'{"run": %d, "program": %d, "spans": %s'
            line = entry % (record.run, record.program_id, json.dumps(self.used.spans).encode())
            if record.present is not None:
                line += b', "present": %s' % json.dumps(record.present).encode()
            line = seal(line)
        else:
            used = str(list(record.used)).encode()
            line = seal(b'{"run": %d, "round": %d, "used": %s' % (record.run, record.round, used))
        size = os.fstat(self._file).st_size
        line = line if size else self._head + line
        try:
            if os.write(self._file, line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if self.durable:
                os.fdatasync(self._file)
        except OSError as error:
            os.ftruncate(self._file, size)  # the next record begins on a line of its own
            raise OSError(f"the log cannot be written: {self.path}: {explain(error)}") from error
        self.last_run = record.run

    def _put_aside(self) -> None:
        """Begin a new file; where that fails the old one goes on."""
        full = self._file
        self.path.replace(self._older)
        try:
            self._file = self._open()
        except OSError:
            self._older.replace(self.path)
            raise
        os.close(full)

    def close(self) -> None:
        os.close(self._file)


Log = MemoryLog | FileLog
"""Where a node writes its records; when ``append`` returns, a record survives the death of the process."""


def used_runs(records: Iterable[Record]) -> tuple[int, UsedRuns]:
    """Return the last run number of a log, and all that are used up: the last record of a beginning tells."""
    last, used = -1, UsedRuns()
    for record in records:
        if isinstance(record, Began):
            used = UsedRuns(list(record.spans))
        elif not used.spans:  # no record of a beginning can be read: all numbers before count as used
            used = UsedRuns([(0, record.run)])
        elif record.run != last:  # the record of its beginning was damaged
            used.add(record.run)
        last = record.run
    return last, used


def seal(entry: bytes) -> bytes:
    """Return a line of a log: a JSON object that is still open, with a checksum at its end."""
    return b'%s, "crc32": %d}\n' % (entry, zlib.crc32(entry))


def is_sealed(line: bytes) -> bool:
    """Return whether a line is as it was written."""
    return line == seal(line.rpartition(b', "crc32": ')[0])


class LogEnd(NamedTuple):
    """The last records of a log.

    Attributes:
        records: all that can be read.
        damaged: for each line that cannot be read, why.
        is_torn: whether the last of them is such a line.
    """

    records: list[Record]
    damaged: list[str]
    is_torn: bool


def read_end(path: Path) -> LogEnd:
    """Return the last records of a log; what a crash cut off is removed from the file."""
    with path.open("rb+") as stream:
        size = stream.seek(0, os.SEEK_END)
        begin = max(0, size - TAIL_BYTES)
        stream.seek(begin)
        content = stream.read()
        kept = content.rfind(b"\n") + 1
        if b"\0" in content[kept:]:  # a power failure kept the length of the file and lost its content
            stream.write(b"\n")
            content += b"\n"
            kept = len(content)
        if kept < len(content):
            if begin and not kept:
                raise ValueError(f"{path}: its end is not a log: no line ends in the last {TAIL_BYTES} bytes")
            stream.truncate(begin + kept)
    records: list[Record] = []
    has_lost_its_end = is_sealed(content[kept:-1] + b"\n")  # the last line; one that a crash cut off was not written
    damaged, is_torn = list[str](), has_lost_its_end
    for line in content[:kept].split(b"\n")[bool(begin) : -1]:  # the first may be cut
        try:
            record = parse_record(line)
            records += [] if record is None else [record]
            is_torn = has_lost_its_end
        except ValueError as error:
            damaged.append(str(error))
            is_torn = True
    return LogEnd(records, damaged, is_torn)


def read_log(path: str | os.PathLike[str]) -> Iterator[Record]:
    """The records of a log file, without a last line that a crash cut off; ValueError if a line is not a record."""
    for number, line in enumerate(Path(path).read_bytes().split(b"\n")[:-1], start=1):
        try:
            record = parse_record(line)
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from error
        if record is not None:
            yield record


def parse_record(line: bytes) -> Record | None:
    """Return the record in a line, None for that which names the deployment; ValueError if it is neither."""
    try:
        if not is_sealed(line + b"\n"):
            raise ValueError("its checksum differs")
        entry = json.loads(line)
        if "deployment" in entry:
            return None
        run, present = entry["run"], entry.get("present")
        if "used" in entry:
            return RoundClosed(run, entry["round"], tuple(entry["used"]))
        spans = tuple((first, last) for first, last in entry["spans"])
        return Began(run, entry["program"], spans, None if present is None else tuple(present))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"not a record of a log: {line[:80]!r}") from error
