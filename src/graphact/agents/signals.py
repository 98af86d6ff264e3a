"""Where the signals of a node come from: a file, a stream of lines, or a command that reads a sensor."""

import json
import os
import queue
import shlex
import signal
import subprocess
import threading
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

from graphact.agents.messages import Array
from graphact.agents.model import Model
from graphact.storage import read_array


class EndOfSignals(Exception):  # noqa: N818, as StopIteration: not an error
    """There will be no more signals."""


class NoSignal(ValueError):  # noqa: N818
    """There is none for this run, for the reason given."""


class Signals(ABC):
    """A source of signals, one for each run.

    Attributes:
        neighbors: the neighbours in the run whose signal was taken last, where the signal named them.
    """

    neighbors: tuple[int, ...] | None = None

    def prepare(self, start: float, now: float, run: int) -> None:  # noqa: B027, most sources have nothing to prepare
        """Called now and then before a run that begins at ``start``."""

    @abstractmethod
    def take(self, run: int) -> Array:
        """The signal of a run, without waiting; NoSignal if there is none (yet), EndOfSignals if there will be none."""

    def close(self) -> None:  # noqa: B027
        """Release whatever is open."""


class FileSignals(Signals):
    """Entry r of a file is the signal of run r, so a restarted node goes on where the others are.

    The file is ``.npy`` with an array ``(runs, ..., F)``, or text with one JSON array for each run.
    """

    def __init__(self, path: Path, model: Model, *, repeat: bool = False) -> None:
        self._repeat = repeat
        if path.suffix == ".npy":
            loaded = read_array(path)
            if loaded.ndim < 2:
                raise ValueError(f"{path} must hold an array (runs, ..., F), got the shape {loaded.shape}")
            self._entries = [check_signal(str(path), entry, model) for entry in loaded]
        else:
            lines = path.read_text().splitlines()
            self._entries = [parse(f"{path}, line {n}", line, model) for n, line in enumerate(lines, start=1)]
        if not self._entries:
            raise ValueError(f"{path} holds no signals")

    def take(self, run: int) -> Array:
        if run >= len(self._entries) and not self._repeat:
            raise EndOfSignals(f"the file has signals for runs 0 to {len(self._entries) - 1}, and this is run {run}")
        return self._entries[run % len(self._entries)]


class TextSignals(Signals):
    """Signals that come one by one as JSON: an array, or ``{"signal": array, "neighbors": [nodes]}``."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def _parse(self, source: str, text: str) -> Array:
        self.neighbors = None
        if not text.lstrip().startswith("{"):
            return parse(source, text, self._model)
        try:
            content = json.loads(text)
            signal, neighbors = content["signal"], tuple(content["neighbors"])
            if not all(type(j) is int for j in neighbors):
                raise TypeError("neighbors must be nodes")
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            expected = 'an array, or {"signal": array, "neighbors": [nodes]}'
            raise NoSignal(f"{source} must hold {expected}, got {text.strip()[:60]!r}") from error
        value = parse(source, json.dumps(signal), self._model)
        self.neighbors = neighbors
        return value


class StreamSignals(TextSignals):
    """One line for each run, in the order they come; a run for which no line is there goes on without this node."""

    def __init__(self, stream: IO[str], model: Model) -> None:
        super().__init__(model)
        self._stream = stream
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader: threading.Thread | None = None

    def _read(self) -> None:
        for line in self._stream:
            self._lines.put(line)
        self._lines.put(None)

    def prepare(self, start: float, now: float, run: int) -> None:  # noqa: ARG002, a stream needs no time
        """Let a thread read, from the first time on; it ends with the process."""
        if self._reader is None:
            self._reader = threading.Thread(target=self._read, daemon=True)
            self._reader.start()

    def take(self, run: int) -> Array:  # noqa: ARG002, lines come in order
        try:
            line = self._lines.get_nowait()
        except queue.Empty:
            raise NoSignal("no line has come") from None
        if line is None:
            self._lines.put(None)
            raise EndOfSignals("the stream has ended")
        return self._parse("a line", line)


class SensorSignals(TextSignals):
    """A command that prints a JSON array; started ``lead`` seconds before each run, it must have ended by then.

    It runs in a process group of its own, which is killed as a whole when the command has ended or its time is over:
    nothing that it started is waited for, not even for a moment.
    """

    MOST_PRINTED = 2**20

    def __init__(self, command: str, model: Model, lead: float = 0.5) -> None:
        super().__init__(model)
        self._command, self._lead = shlex.split(command), lead
        self._process: subprocess.Popen[bytes] | None = None
        self._killed: list[subprocess.Popen[bytes]] = []  # and not yet gone: a process may hang in a device
        self._printed = b""
        self._failure = "was not started in time"
        self._run = -1
        if not self._command:
            raise ValueError("the sensor command is empty")

    def prepare(self, start: float, now: float, run: int) -> None:
        self._killed = [each for each in self._killed if each.poll() is None]
        if now >= start - self._lead and run != self._run:
            self.close()
            self._run, self._printed = run, b""
            try:
                self._process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    bufsize=0,
                    start_new_session=True,
                )
                assert self._process.stdout is not None
                os.set_blocking(self._process.stdout.fileno(), False)
            except OSError as error:
                self._failure = f"cannot be started: {error.strerror}"
        self._read()

    def _read(self) -> None:
        """Take what has been printed so far, without waiting for more."""
        stream = None if self._process is None else self._process.stdout
        while stream is not None and len(self._printed) <= self.MOST_PRINTED and (piece := stream.read(2**16)):
            self._printed += piece

    def take(self, run: int) -> Array:  # noqa: ARG002, a sensor knows no runs
        if self._process is None:
            raise NoSignal(f"the sensor command {self._failure}")
        process, is_over = self._process, has_ended(self._process)
        self._read()
        if len(self._printed) > self.MOST_PRINTED:
            raise NoSignal(f"the sensor command printed more than {self.MOST_PRINTED} bytes")
        if not is_over:
            raise NoSignal("the sensor command has not ended in time")
        self.close()
        if (code := process.poll()) != 0:
            raise NoSignal(f"the sensor command failed with exit code {code}")
        return self._parse("the sensor command", self._printed.decode(errors="replace"))

    def close(self) -> None:
        """Kill the command and all that it started."""
        process, self._process, self._failure = self._process, None, "was not started in time"
        if process is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            assert process.stdout is not None
            process.stdout.close()
            if process.poll() is None:
                self._killed.append(process)


def has_ended(process: "subprocess.Popen[bytes]") -> bool:
    """Whether a process has ended; where possible it stays there, so that nobody else is given its process group."""
    if hasattr(os, "waitid"):
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    return process.poll() is not None


def parse(source: str, text: str, model: Model) -> Array:
    """A signal written as a JSON array; a single number is a signal of one feature."""
    try:
        value = np.atleast_1d(np.array(json.loads(text)))
    except (ValueError, RecursionError) as error:
        raise NoSignal(f"{source} must hold a JSON array of numbers, got {text.strip()[:60]!r}") from error
    return check_signal(source, value, model)


def check_signal(source: str, value: Any, model: Model) -> Array:
    """A signal of finite numbers in the dtype of the model; NoSignal if it is none: a broken sensor stops no node."""
    wanted = model.in_features
    if value.dtype.kind not in "fiu" or value.ndim < 1 or wanted not in (None, value.shape[-1]):
        shape = f"(..., {wanted or 'F'})"
        raise NoSignal(f"{source}: a signal must be numbers of shape {shape}, got {value.dtype} of shape {value.shape}")
    with np.errstate(over="ignore"):
        signal = np.asarray(value, model.dtype)
    if not np.isfinite(signal).all():
        what = f" in {model.dtype}" if np.isfinite(value).all() else ""
        raise NoSignal(f"{source}: a signal must be finite{what}")
    return signal
