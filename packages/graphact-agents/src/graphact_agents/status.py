"""The status of an agent for its operators: counts of runs, health, metrics for Prometheus, systemd's watchdog.

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

    ``missed`` counts, by neighbour, the runs in which it missed a round; ``recent`` holds start, outcome and reason of
    the last runs; ``ended`` is when the last of them ended or was skipped, at first the start of the agent, and
    ``waits`` what the next one waits for. All times are of a timer that nobody sets.
    """

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

    def totals(self, counters: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
        """All counts, with those of node and transport, and of earlier lives of the process (``before``)."""
        now = {**counters, "runs": self.begun, "starts": 1, **self.outcomes}
        now["run_microseconds"] = round(1e6 * self.seconds)
        return {name: value + before.get(name, 0) for name, value in now.items()}


def count_all(node: Counters, dropped: Mapping[str, int]) -> dict[str, int]:
    """The counters of a node with what its transport dropped, which may be for the same reasons."""
    counts = asdict(node) | dict.fromkeys(DROPPED, 0)
    return counts | {name: counts.get(name, 0) + count for name, count in dropped.items()}


@dataclass(frozen=True)
class Status:
    """The content of ``/status``; see :func:`metrics` for the same as Prometheus reads it.

    ``trouble`` is all that an operator should look at, here or in the network, and ``healthy`` that there is none.
    ``alive`` is about the process alone, whose loop goes round, and ``reason`` why it is not.
    """

    node: int
    epoch: str
    transport: str
    run: int
    alive: bool
    reason: str
    seconds_since_run: float | None
    totals: Mapping[str, int]
    peers: Mapping[int, Mapping[str, Any]]
    encrypted: bool = False
    trouble: Sequence[str] = ()

    @property
    def healthy(self) -> bool:
        return not self.trouble

    def to_json(self) -> bytes:
        return json.dumps({**vars(self), "healthy": self.healthy}).encode()


def metrics(status: Status) -> str:
    """The text that Prometheus scrapes; names and labels are in docs/agents.md."""
    lines: list[str] = []
    totals = status.totals

    def family(name: str, kind: str, text: str, samples: Iterable[tuple[str, float]]) -> None:
        lines.extend([f"# HELP graphact_{name} {text}", f"# TYPE graphact_{name} {kind}"])
        for labels, value in samples:
            more = f",{labels}" if labels else ""
            lines.append(f'graphact_{name}{{node="{status.node}"{more}}} {value!r}')

    def each(label: str, values: Mapping[Any, float]) -> list[tuple[str, float]]:
        return [(f'{label}="{key}"', value) for key, value in values.items()]

    about = f'epoch="{status.epoch}",transport="{status.transport}",encrypted="{str(status.encrypted).lower()}"'
    family("agent_info", "gauge", "What this agent is.", [(about, 1)])
    family("agent_alive", "gauge", "1 while the agent goes round its loop in time.", [("", int(status.alive))])
    family("agent_healthy", "gauge", "1 while an operator has nothing to look at.", [("", int(status.healthy))])
    family(
        "agent_trouble", "gauge", "How much an operator should look at; /status names it.", [("", len(status.trouble))]
    )
    family("agent_starts_total", "counter", "Starts of the process.", [("", totals["starts"])])
    family("run_number", "gauge", "The run in progress, or the last one.", [("", status.run)])
    if status.seconds_since_run is not None:
        family("run_age_seconds", "gauge", "Time since a run ended.", [("", status.seconds_since_run)])
    lost = totals.get("events_lost", 0)
    family("events_lost_total", "counter", "Events that standard output did not take in time.", [("", lost)])
    runs = each("outcome", {name: totals[name] for name in OUTCOMES})
    family("runs_total", "counter", "Runs by their outcome.", runs)
    family("run_seconds_total", "counter", "Time in all runs.", [("", totals["run_microseconds"] / 1e6)])
    family("rounds_total", "counter", "Rounds of all runs.", [("", totals["rounds"])])
    links = each("state", {name: totals[f"links_{name}"] for name in ("used", "missed")})
    family("links_total", "counter", "Values awaited from neighbours, by whether they came in time.", links)
    sent = each("kind", {kind: totals[name] for name, kind in SENT.items()})
    family("messages_sent_total", "counter", "Messages sent, by kind.", sent)
    family("sent_bytes_total", "counter", "Bytes handed to the transport.", [("", totals["bytes_sent"])])
    family("values_received_total", "counter", "Values of neighbours that were accepted.", [("", totals["received"])])
    refused = each("reason", {name: totals[name] for name in REASONS})
    family("refused_total", "counter", "Datagrams that were not used, by reason.", refused)
    heard = {j: peer["heard_seconds_ago"] for j, peer in status.peers.items() if peer["heard_seconds_ago"] is not None}
    family("peer_heard_seconds", "gauge", "Time since a peer was heard.", each("peer", heard))
    missed = {j: peer["missed_runs"] for j, peer in status.peers.items()}
    family(
        "peer_missed_runs_total", "counter", "Runs since the start with a round a peer missed.", each("peer", missed)
    )
    refusing = {j: int(bool(peer["refused"])) for j, peer in status.peers.items()}
    family("peer_refused", "gauge", "1 if this node takes no part with a peer.", each("peer", refusing))
    family("cpu_seconds_total", "counter", "Processor time of the process.", [("", time.process_time())])
    memory = each("kind", {kind: mebibytes * 2**20 for kind, mebibytes in memory_use().items()})
    family("memory_bytes", "gauge", "Memory: the most that was ever held, and its own now.", memory)
    return "\n".join(lines) + "\n"


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
