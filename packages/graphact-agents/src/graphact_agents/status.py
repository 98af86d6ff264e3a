"""The status of an agent for its operators: counts of runs, health, systemd's watchdog.

:mod:`graphact_agents.status_server` answers whoever asks for it.
"""

import json
import os
import socket
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from graphact_agents.runs import Counters, RunResult

STATUS_NAME = "status.json"
"""In the folder of a node: where its agent answers."""
STALLED = 5.0
"""Seconds without a sign of life of the agent's loop after which it is not healthy."""
SENT = {"data_sent": "data", "resent": "resent", "requests_sent": "request", "greetings_sent": "greeting"}
PLAIN = ("data_bytes_sent", "bytes_sent", "received", "rounds", "links_used", "links_missed")
DROPPED = ("strangers",)
"""Reasons of a transport to drop a datagram, beside those of a node."""
REASONS = (*(f.name for f in fields(Counters) if f.name not in {*SENT, *PLAIN}), *DROPPED)
OUTCOMES = ("complete", "incomplete", "failed", "skipped")
RECENT_RUNS = 3
"""Runs without a complete one, or without a word of a peer, after which an operator should look."""
QUIET_SECONDS, QUIET_SLOTS = 60.0, 50
"""Without a clock, time without a run after which an operator should look; whichever is longer."""


@dataclass
class Tally:
    """Counts of an agent beside the counters of its node, from its start; ``beat`` is when its loop last went round.

    ``started`` is Unix time; all other times are of a timer that nobody sets. ``missed`` counts, by neighbour, the runs
    in which it missed a round; ``recent`` holds start, outcome and reason of the last runs; ``ended`` is when the last
    of them ended or was skipped, at first the start of the agent, and ``waits`` what the next one waits for.
    """

    started: float = field(default_factory=time.time)
    begun: int = 0
    outcomes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OUTCOMES, 0))
    seconds: float = 0.0
    missed: dict[int, int] = field(default_factory=dict)
    recent: deque[tuple[float, str, str]] = field(default_factory=lambda: deque(maxlen=RECENT_RUNS))
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
        """Return that there was no run for long, if so: for some periods, or without a clock for a minute or more."""
        quiet = time.monotonic() - self.ended
        if period is None:
            most = max(QUIET_SECONDS, QUIET_SLOTS * slot)
        else:
            most = max(STALLED, (RECENT_RUNS + 1) * period) if self.recent else float("inf")
        return [f"no run for {quiet:.0f} s{self.waits and f': {self.waits}'}"] if quiet > most else []

    def trouble(self, hears: Iterable[int], heard: Mapping[int, float]) -> list[str]:
        """Return what is wrong with the last runs."""
        recent, found = list(self.recent), []
        if len(recent) < RECENT_RUNS:
            return []
        outcomes = [outcome for _, outcome, _ in recent]
        if "complete" not in outcomes:
            counts = ", ".join(f"{outcomes.count(name)} {name}" for name in OUTCOMES if name in outcomes)
            reason = next((f": {why}" for *_, why in recent[::-1] if why), "")
            found.append(f"none of the last {RECENT_RUNS} runs was complete ({counts}{reason})")
        if silent := [str(j) for j in hears if heard.get(j, float("-inf")) < recent[0][0]]:
            found.append(f"not heard in the last {RECENT_RUNS} runs: node {', '.join(silent)}")
        return found

    @property
    def counters(self) -> dict[str, int]:
        """The counts by name."""
        return {"runs": self.begun, **self.outcomes, "run_microseconds": round(1e6 * self.seconds)}


def count_all(node: Counters, dropped: Mapping[str, int]) -> dict[str, int]:
    """The counters of a node with what its transport dropped, which may be for the same reasons."""
    counts = asdict(node) | dict.fromkeys(DROPPED, 0)
    return counts | {name: counts.get(name, 0) + count for name, count in dropped.items()}


@dataclass(frozen=True)
class Status:
    """The content of ``/status``.

    ``trouble`` is all that an operator should look at, here or in the network, and ``healthy`` that there is none.
    ``alive`` is about the process alone, whose loop goes round, and ``reason`` why it is not.
    """

    node: int
    deployment: str
    transport: str
    run: int
    alive: bool
    reason: str
    seconds_since_run: float | None
    counters: Mapping[str, int]
    peers: Mapping[int, Mapping[str, Any]]
    started: float
    encrypted: bool = False
    trouble: Sequence[str] = ()

    @property
    def healthy(self) -> bool:
        return not self.trouble

    def to_json(self) -> bytes:
        return json.dumps({**vars(self), "healthy": self.healthy}).encode()


def memory_use() -> dict[str, float]:
    """MiB of memory of this process: the largest it ever held, and what it holds for itself alone (on Linux)."""
    use = {}
    for name, file, label in (("peak", "status", "VmHWM"), ("private", "smaps_rollup", "Private_")):
        path = Path("/proc/self") / file
        lines = path.read_text().splitlines() if path.is_file() else []
        use[name] = round(sum(int(line.split()[1]) for line in lines if line.startswith(label)) / 1024, 1)
    return use


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
