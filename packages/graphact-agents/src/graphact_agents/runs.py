"""The memory of a node: its run in progress, early and sent values, results, counts, and limits of all of them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from graphact_agents.arguments import check_integer, check_positive
from graphact_agents.messages import DTYPE_CODES, Array, Message, Payload, RejectedError
from graphact_agents.program import AnyProgram, Exchange

Tag = tuple[int, int]  # run, round
SMALL_SIZE = 16
"""Numbers that Python looks through in less time than NumPy takes to begin."""


@dataclass(frozen=True)
class Timing:
    """When a node asks again and when it goes on without an answer. All times in seconds.

    Round r of a run that starts at t ends at t + (r + 1) * slot at the latest, and earlier when all neighbours have
    answered. Deadlines count from the start of the run, so that a node that waited for a dead neighbour in one round
    does not miss the deadlines of its other neighbours in the next.

    Args:
        slot: time for one round.
        request_after: the time before a missing value is requested again (NACK). It also limits answers: a value is
            sent to a neighbour again after half of it at the earliest, and one greeting of a neighbour is answered in
            it.
        backoff: factor by which the time to the next request grows.
        jitter: every waiting time is stretched by a random factor between 1 and 1 + jitter, so that requests of many
            nodes do not fall together.
        patience: a neighbour that let this many deadlines of a run pass in a row is not waited for any longer, until it
            is heard again or the next run begins.
    """

    slot: float = 0.18
    request_after: float = 0.02
    backoff: float = 1.2
    jitter: float = 0.3
    patience: int = 2

    def __post_init__(self) -> None:
        for name in ("slot", "request_after", "jitter"):
            check_positive(name, getattr(self, name))
        if not self.backoff >= 1:
            raise ValueError(f"backoff must be at least 1, got {self.backoff}")
        check_integer("patience", self.patience, minimum=1)


@dataclass(frozen=True)
class Limits:
    """Limits of the memory of a node. More is dropped (and asked for again if it is needed after all).

    Args:
        runs_ahead: how many runs ahead of its own a neighbour may be for its values to be kept.
        pending_messages: values of later rounds kept for each neighbour.
        pending_bytes: the same in bytes, for each neighbour.
        archive_bytes: own values of this run and the one before, kept for neighbours that ask again.
        run_jump: how far ahead of its own run a neighbour may be to be believed at all. The default lets a node join
            that has been away for 136 years of one run a second (or 16 months of 100).
    """

    runs_ahead: int = 2
    pending_messages: int = 1024
    pending_bytes: int = 4 * 2**20
    archive_bytes: int = 16 * 2**20
    run_jump: int = 2**32

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            check_integer(name, value, minimum=1)


@dataclass(frozen=True, slots=True)
class RunResult:
    """A run that ended at one node.

    Attributes:
        run: its number.
        program_id: number of the program it ran.
        output: what the program returned; None if it failed.
        used: for each round the neighbours whose values were used.
        missed: for each round the neighbours that did not answer in time.
        started: when it was to begin.
        finished: when it ended.
        is_whole: whether no value that was used was computed with a link missing, at this node or another.
        failure: why there is no output; empty if there is one.
    """

    run: int
    program_id: int
    output: Any
    used: tuple[tuple[int, ...], ...]
    missed: tuple[tuple[int, ...], ...]
    started: float
    finished: float
    is_whole: bool = True
    failure: str = ""

    @property
    def complete(self) -> bool:
        """True if the whole computation of the output was complete: every link, at every node that it depends on."""
        return self.is_whole and not any(self.missed) and not self.failure


@dataclass(slots=True)
class RunInProgress:
    """A run that goes on, and its open round."""

    program: AnyProgram
    number: int
    program_id: int
    timing: Timing
    start: float
    round: int = -1
    deadline: float = 0.0
    expects: tuple[int | None, tuple[int, ...]] = (None, ())  # code of the dtype, shape
    values: dict[int, Array] = field(default_factory=dict)
    missing: set[int] = field(default_factory=set)
    requests: dict[int, tuple[float, float]] = field(default_factory=dict)  # neighbour: when due, waiting time
    opened: float = 0.0  # when the round was
    next_request: float = math.inf  # when to ask again, or to draw when to
    silent: dict[int, int] = field(default_factory=dict)  # neighbour: deadlines it let pass in a row
    used: list[tuple[int, ...]] = field(default_factory=list)
    missed: list[tuple[int, ...]] = field(default_factory=list)
    finite: bool = False  # refuse values that are not
    is_whole: bool = True  # what this node computes now rests on no missed link, here or elsewhere

    def open_round(self, exchange: Exchange, sources: tuple[int, ...], now: float) -> None:
        self.round += 1
        self.deadline = self.start + (self.round + 1) * self.timing.slot
        value, shape, dtype = exchange.value, exchange.shape, exchange.dtype
        if not isinstance(value, Mapping):
            shape, dtype = value.shape if shape is None else shape, value.dtype if dtype is None else dtype
        elif shape is None or dtype is None:
            raise ValueError("an exchange of one value for each neighbour must say the shape and dtype it expects")
        self.expects = DTYPE_CODES.get(np.dtype(dtype)), shape
        self.values, self.missing = {}, set(sources)
        self.requests, self.opened, self.next_request = {}, now, now + self.timing.request_after

    def accept(self, message: Message) -> None:
        """Take the value of a neighbour for the open round; RejectedError if it is not the first or does not fit."""
        if message.sender in self.values:
            raise RejectedError("duplicate")
        code, shape, _ = message.payload
        if message.sender not in self.missing or message.program_id != self.program_id or (code, shape) != self.expects:
            raise RejectedError("misfit")
        value = message.payload.value
        if self.finite and not is_finite(value):
            raise RejectedError("not_finite", message.sender)
        self.values[message.sender] = value
        self.missing.discard(message.sender)
        if message.mark:
            self.is_whole = False

    @property
    def may_close(self) -> bool:
        """True if no neighbour is waited for in the open round."""
        return not self.missing or (bool(self.silent) and not any(map(self.waits_for, self.missing)))

    def waits_for(self, j: int) -> bool:
        """Return whether a neighbour is given time to answer; one that has been silent for too long is not."""
        return self.silent.get(j, 0) < self.timing.patience

    def plan_requests(self) -> None:
        due = (when for j, (when, _) in self.requests.items() if j in self.missing and self.waits_for(j))
        self.next_request = min(due, default=math.inf)

    def close_round(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        used, missed = tuple(sorted(self.values)), tuple(sorted(self.missing))
        self.used.append(used)
        self.missed.append(missed)
        for j in missed:
            self.silent[j] = self.silent.get(j, 0) + 1
            self.is_whole = False
        return used, missed


def is_finite(value: Any) -> bool:
    """Return whether an array, or each of a mapping, holds no NaN and no infinity; true of anything else."""
    if isinstance(value, np.ndarray):
        if value.dtype.kind != "f":
            return True
        if value.size <= SMALL_SIZE:
            return all(map(math.isfinite, value.ravel().tolist()))
        return bool(np.isfinite(value).all())
    return not isinstance(value, Mapping) or all(map(is_finite, value.values()))


class Mailbox:
    """Data messages of the current and later rounds, one for each (run, round, sender)."""

    def __init__(self, senders: tuple[int, ...], limits: Limits) -> None:
        self._limits = limits
        self._kept: dict[int, dict[Tag, Message]] = {sender: {} for sender in senders}
        self._bytes = dict.fromkeys(senders, 0)
        self._newest = dict.fromkeys(senders, -1)

    def put(self, message: Message) -> None:
        """Keep a message, or raise RejectedError; one of a later run makes its sender's earlier ones forgotten."""
        sender, tag = message.sender, (message.run, message.round)
        kept = self._kept[sender]
        if tag in kept:
            raise RejectedError("duplicate")
        if message.run > self._newest[sender]:
            self._newest[sender] = message.run
            self._forget(sender, message.run - self._limits.runs_ahead)
        elif message.run < self._newest[sender] - self._limits.runs_ahead:
            raise RejectedError("stale")
        size = self._bytes[sender] + len(message.payload.content)
        if len(kept) >= self._limits.pending_messages or size > self._limits.pending_bytes:
            raise RejectedError("overflow")
        kept[tag] = message
        self._bytes[sender] = size

    def take(self, sender: int, run: int, round_: int) -> Message | None:
        message = self._kept[sender].pop((run, round_), None)
        if message is not None:
            self._bytes[sender] -= len(message.payload.content)
        return message

    def forget_before(self, run: int) -> None:
        for sender in self._kept:
            self._forget(sender, run)

    def _forget(self, sender: int, before: int) -> None:
        for tag in [tag for tag in self._kept[sender] if tag[0] < before]:
            self.take(sender, *tag)


@dataclass(slots=True)
class SentRound:
    """The values sent in one round, and the time of the last sending to each recipient."""

    program_id: int
    payloads: dict[int, Payload]
    size: int  # bytes held
    mark: bool = False
    shared: Payload | None = None  # the value for whoever asks, where neighbours differ from run to run
    sent_at: dict[int, float] = field(default_factory=dict)


class Archive:
    """Own values of this run and the one before, by tag; the oldest go first when there are too many bytes."""

    def __init__(self, max_bytes: int) -> None:
        self.entries: dict[Tag, SentRound] = {}
        self._max_bytes, self._bytes = max_bytes, 0

    def keep(self, run: int, round_: int, entry: SentRound) -> None:
        self.entries[run, round_] = entry
        self._bytes += entry.size
        while self._bytes > self._max_bytes and len(self.entries) > 1:
            self._drop(next(iter(self.entries)))

    def forget_before(self, run: int) -> None:
        for tag in [tag for tag in self.entries if tag[0] < run]:
            self._drop(tag)

    def _drop(self, tag: Tag) -> None:
        self._bytes -= self.entries.pop(tag).size


def freeze(value: Array | Mapping[int, Array], recipients: tuple[int, ...]) -> tuple[dict[int, Payload], int]:
    """Return the payload of every recipient, and their bytes; one value for all is frozen once."""
    if isinstance(value, Mapping):
        if set(value) != set(recipients):
            raise ValueError(f"value must hold one array for each of {recipients}, got {tuple(sorted(value))}")
        frozen = {j: Payload.from_array(value[j]) for j in recipients}
        return frozen, sum(len(payload.content) for payload in frozen.values())
    payload = Payload.from_array(value)
    return dict.fromkeys(recipients, payload), len(payload.content)


@dataclass(slots=True)
class Counters:
    """Messages sent, received and refused by one node, from its start.

    ``bytes_sent`` is over all that was sent; ``received`` counts the values accepted. From ``malformed`` on they count
    why a datagram was not used; docs/agents.md has a table of the reasons.
    """

    data_sent: int = 0
    data_bytes_sent: int = 0
    resent: int = 0
    requests_sent: int = 0
    greetings_sent: int = 0
    bytes_sent: int = 0
    received: int = 0
    rounds: int = 0
    links_used: int = 0
    links_missed: int = 0
    malformed: int = 0
    foreign: int = 0
    forged: int = 0
    other_epoch: int = 0
    stale: int = 0
    duplicate: int = 0
    overflow: int = 0
    misfit: int = 0
    unanswered: int = 0
    ahead: int = 0
    differs: int = 0
    other_version: int = 0
    not_finite: int = 0

    def count(self, name: str) -> None:
        setattr(self, name, getattr(self, name) + 1)

    def __add__(self, other: "Counters") -> "Counters":
        return Counters(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))
