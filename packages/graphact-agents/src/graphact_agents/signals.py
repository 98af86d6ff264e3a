"""Sources of the signals of a node: a file, a stream of lines, or a command that reads a sensor."""

import json
import math
import os
import queue
import shlex
import signal
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

from graphact_agents.disk import one_line, read_array
from graphact_agents.messages import MAX_DATAGRAM, MAX_DIMENSIONS, Array, datagram_bytes
from graphact_agents.model import Model


class EndOfSignals(Exception):  # noqa: N818, as StopIteration: not an error
    """There will be no more signals."""


class NoSignal(ValueError):  # noqa: N818
    """There is none for this run, for the reason given."""


class NotYet(NoSignal):
    """There may still be one; without a clock the run waits for it."""


class NotFinite(NoSignal):
    """It is one, but for its numbers."""


class Signals(ABC):
    """A source of signals, one for each run.

    Attributes:
        numbered: whether signals belong to runs, so that a missing one will never come.
        missing: the reason why the signal that was taken last holds no reading, if it does not.
    """

    numbered: bool = False
    missing: str = ""

    def prepare(self, start: float, now: float, run: int) -> None:  # noqa: B027, most sources have nothing to prepare
        """Called now and then before a run that begins at ``start``."""

    @abstractmethod
    def take(self, run: int) -> Array:
        """The signal of a run, without waiting.

        NoSignal if there is none, and NotYet, which is one, if there may still be one; EndOfSignals if there will be no
        more.
        """

    def close(self) -> None:  # noqa: B027
        """Release whatever is open."""


class FileSignals(Signals):
    """Entry r of a file is the signal of run r, so a restarted node goes on where the others are.

    The file is ``.npy`` with an array ``(runs, ..., F)``, or text with one JSON array for each run. An entry with NaN
    or infinity is a measurement that is missing: there is no signal for its run, unless the model takes missing
    readings. Whatever else is none is refused.
    """

    numbered = True

    def __init__(self, path: Path, model: Model, *, repeat: bool = False) -> None:
        self._repeat = repeat
        self._entries: list[Array | NotFinite] = []
        if path.suffix == ".npy":
            loaded = read_array(path)
            if loaded.ndim < 2:
                raise ValueError(f"{path} must hold an array (runs, ..., F), got the shape {loaded.shape}")
            found: Iterable[tuple[str, Any]] = ((str(path), each) for each in loaded)
        else:
            found = ((f"{path}, line {n}", line) for n, line in enumerate(path.read_text().splitlines(), start=1))
        for source, entry in found:
            try:
                self._entries.append((parse if isinstance(entry, str) else check_signal)(source, entry, model))
            except NotFinite as reason:
                self._entries.append(reason)
        if not self._entries:
            raise ValueError(f"{path} holds no signals")

    def take(self, run: int) -> Array:
        if run >= len(self._entries) and not self._repeat:
            raise EndOfSignals(f"the file has signals for runs 0 to {len(self._entries) - 1}, and this is run {run}")
        entry = self._entries[run % len(self._entries)]
        if isinstance(entry, NotFinite):
            raise NotFinite(*entry.args)
        return entry


class StreamSignals(Signals):
    """One JSON array a line for each run, in their order; a run for which no line is there goes on without this node.

    None is left out, so that a file in the place of a sensor gives its lines to as many runs. A few lines are read
    ahead: whoever writes faster than runs take place is held up.
    """

    MAX_BYTES, AHEAD = 2**20, 16
    """Bytes of a line, and lines that are read ahead."""

    def __init__(self, stream: IO[bytes], model: Model) -> None:
        self._model, self._stream = model, stream
        self._lines: queue.Queue[bytes] = queue.Queue(self.AHEAD)
        self._end = ""
        self._reader: threading.Thread | None = None

    def _read(self) -> None:
        end = "the stream has ended"
        try:
            while line := self._stream.readline(self.MAX_BYTES + 1):
                self._lines.put(line)
                while line and not line.endswith(b"\n"):  # too long, and refused when it is taken; or the last
                    line = self._stream.readline(2**16)
        except (OSError, ValueError) as error:  # closed is a ValueError
            end = f"the stream cannot be read: {one_line(error)}"
        self._end = end

    def prepare(self, start: float, now: float, run: int) -> None:  # noqa: ARG002, a stream needs no time
        """Let a thread read, from the first time on; it ends with the process."""
        if self._reader is None:
            self._reader = threading.Thread(target=self._read, daemon=True)
            self._reader.start()

    def take(self, run: int) -> Array:  # noqa: ARG002, lines come in order
        end = self._end  # before the last line is looked for
        try:
            line = self._lines.get_nowait()
        except queue.Empty:
            raise EndOfSignals(end) if end else NotYet("no line has come") from None
        if len(line) > self.MAX_BYTES:
            raise NoSignal(f"a line has more than {self.MAX_BYTES} bytes")
        return parse("a line", line.decode(errors="replace"), self._model)


class SensorSignals(Signals):
    """A command that prints a JSON array; started ``lead`` seconds before each run, it must have ended by then.

    It runs in a process group of its own, which is killed as a whole when the command has ended or its time is over:
    nothing that it started is waited for, not even for a moment. A command that failed is started for the next run, or
    after a pause if the run waits for it, without a clock.
    """

    MAX_PRINTED = 2**20
    PAUSE = 1.0

    def __init__(self, command: str, model: Model, lead: float = 0.5) -> None:
        self._model, self._command, self._lead = model, shlex.split(command), lead
        self._process: subprocess.Popen[bytes] | None = None
        self._killed: list[subprocess.Popen[bytes]] = []  # and not yet gone: a process may hang in a device
        self._printed = b""
        self._failure, self._is_told = "", True  # of the last command, if it failed
        self._again = -math.inf  # when to start it again for the same run, by a timer
        self._run = -1

    def prepare(self, start: float, now: float, run: int) -> None:
        self._killed = [each for each in self._killed if each.poll() is None]
        is_again = self._process is None and bool(self._failure) and time.monotonic() >= self._again
        if now >= start - self._lead and (run != self._run or is_again):
            self.close()
            self._run, self._printed, self._failure = run, b"", ""
            try:
                nothing, pipe = subprocess.DEVNULL, subprocess.PIPE
                self._process = subprocess.Popen(
                    self._command, bufsize=0, start_new_session=True, stdin=nothing, stdout=pipe
                )
                assert self._process.stdout is not None
                os.set_blocking(self._process.stdout.fileno(), False)
            except (OSError, ValueError) as error:
                reason = getattr(error, "strerror", None) or one_line(error)
                self._fail(f"the sensor command cannot be started: {reason}")
                self._is_told = False
        self._read()

    def _fail(self, reason: str) -> None:
        self.close()
        self._failure, self._again = reason, time.monotonic() + self.PAUSE

    def _read(self) -> None:
        """Take what has been printed so far, without waiting for more."""
        stream = None if self._process is None else self._process.stdout
        while stream is not None and len(self._printed) <= self.MAX_PRINTED and (piece := stream.read(2**16)):
            self._printed += piece

    def take(self, run: int) -> Array:  # noqa: ARG002, a sensor knows no runs
        if self._process is None:
            was_told, self._is_told = self._is_told, True
            reason = self._failure or "the sensor command was not started in time"
            raise NotYet(reason) if was_told else NoSignal(reason)
        process, is_over = self._process, has_ended(self._process)
        self._read()
        try:
            if len(self._printed) > self.MAX_PRINTED:
                raise NoSignal(f"the sensor command printed more than {self.MAX_PRINTED} bytes")
            if not is_over:
                raise NotYet("the sensor command has not ended in time")
            self.close()
            if (code := process.poll()) != 0:
                raise NoSignal(f"the sensor command failed with exit code {code}")
            return parse("the sensor command", self._printed.decode(errors="replace"), self._model)
        except NoSignal as reason:
            if not isinstance(reason, NotYet):
                self._fail(str(reason))
            raise

    def close(self) -> None:
        """Kill the command and all that it started."""
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            assert process.stdout is not None
            process.stdout.close()
            if process.poll() is None:
                self._killed.append(process)


def has_ended(process: "subprocess.Popen[bytes]") -> bool:
    """Return whether a process has ended; where possible as a zombie, so that its process group is not reused."""
    if hasattr(os, "waitid"):
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    return process.poll() is not None


def parse(source: str, text: str, model: Model) -> Array:
    """A signal written as a JSON array; a single number is a signal of one feature."""
    try:
        value = np.atleast_1d(np.array(json.loads(text)))
        if value.dtype == object and model.takes_missing:  # null is a missing reading
            value = value.astype(float)
    except (ValueError, TypeError, RecursionError) as error:
        raise NoSignal(f"{source} must hold a JSON array of numbers, got {text.strip()[:60]!r}") from error
    return check_signal(source, value, model)


def check_signal(source: str, value: Any, model: Model) -> Array:
    """A signal of finite numbers in the dtype of the model; NoSignal if it is none: a broken sensor stops no node."""
    wanted = None if model.in_features is None else model.in_features // model.window
    if value.dtype.kind not in "fiu" or value.ndim < 1 or wanted not in (None, value.shape[-1]):
        shape = f"(..., {wanted or 'F'})"
        raise NoSignal(f"{source}: a signal must be numbers of shape {shape}, got {value.dtype} of shape {value.shape}")
    if value.ndim > MAX_DIMENSIONS or value.size == 0:
        expected = f"at most {MAX_DIMENSIONS} dimensions, none of them 0"
        raise NoSignal(f"{source}: a signal must have {expected}, got the shape {value.shape}")
    *batch, features = value.shape
    widths = model.widths(features * model.window)
    longest = max((datagram_bytes((*batch, each), model.dtype) for each in widths), default=0)
    if longest > MAX_DATAGRAM:
        made = f"messages of {longest} bytes, and one holds {MAX_DATAGRAM}"
        raise NoSignal(f"{source}: a signal of shape {value.shape} makes {made}: use smaller batches")
    with np.errstate(over="ignore"):
        signal = np.asarray(value, model.dtype)
    bad = np.isinf(signal) if model.takes_missing else ~np.isfinite(signal)
    if bad.any():
        what = f" in {model.dtype}" if np.isfinite(value).all() else ""
        raise NotFinite(f"{source}: a signal must be finite{what}, got {signal[bad][0]}")
    return signal
