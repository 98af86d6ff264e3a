"""One node of the network as a state machine: it opens no socket and reads no clock.

Its only side effect is ``log.append``, before the messages that depend on it are queued.

A driver (a simulation, a daemon) tells a node what arrived and what time it is, and does what it asks for:

- ``begin(run, program, now)`` starts a run,
- ``receive(datagram, now)`` hands over what the transport delivered, whatever it is,
- ``advance(now)`` must be called when ``deadline`` has come (calling it earlier does no harm),
- ``take_outgoing()`` are the datagrams to send, in order, each to one neighbour,
- ``take_results()`` are the runs that ended.

The promise: a run ends at ``start + rounds * slot`` at the latest, if ``advance`` is called then; its result is exact
for the links that answered in time (a link that did not counts, for that round, as if it were not in the graph); and
which links these were is reported, and was logged before anything that depends on them was sent.
"""

import math
import random
from collections import deque
from collections.abc import Collection, Mapping
from typing import Any

from graphact_agents.links import Links
from graphact_agents.log import Began, Log, RoundClosed
from graphact_agents.messages import (
    DIGEST_BYTES,
    GREETINGS,
    MAX_FIELD,
    MAX_RUN,
    Kind,
    Message,
    Payload,
    RejectedError,
    decode,
    encode,
)
from graphact_agents.program import AnyProgram, Exchange, Received
from graphact_agents.runs import (
    Archive,
    Counters,
    Limits,
    Mailbox,
    RunInProgress,
    RunResult,
    SentRound,
    Timing,
    freeze,
    is_finite,
)

INFERENCE = 1
"""The program number of inference; learning uses others, so that their values never mix."""

DIFFERS = "its model, slot, period, origin or dynamic differs from that of this node"
OTHER_VERSION = "it speaks another version of the messages; bring all nodes to one version of graphact-agents"
ANNOUNCED = 4
"""Runs that a neighbour may announce at once; more make the oldest forgotten."""
CATCH_UP = 16
"""Numbers that a node may leave out in each run, beyond its own last and that of a majority, towards those further."""
RECENT_RUNS, RECENT_SECONDS = 20, 60.0
"""Runs of this node, and time, for which the announcement of a neighbour counts; whichever ends later."""
NOT_FINITE = "its value is not finite"
OTHER_DEPLOYMENT = "it is of another deployment"
NOT_LOGGED = "the run is not logged"
"""Beginning of the failure of a run whose neighbours could not be logged, as on a full disk."""
TOLD = {"not_finite": NOT_FINITE, "other_version": OTHER_VERSION, "other_epoch": OTHER_DEPLOYMENT}
"""Reasons of rejections that an operator should hear of, with the neighbour."""
NO_DIGEST = "its greeting has no digest of model and settings"


class Node:
    """The state machine of one node.

    Args:
        links: whom it hears, who hears it, and the keys; with :meth:`meet` those that it is allowed to meet.
        log: the write-ahead log; one of an earlier life makes the node go on with fresh run numbers.
        timing: how long it waits.
        limits: how much it keeps.
        seed: decides the jitter of its requests; None draws one.
        digest: 16 bytes that stand for what all nodes must agree upon, the model and when runs begin. Values of a
            neighbour with another digest are refused. Empty asks for no agreement.
        finite: refuse values with NaN or infinity, and let a run fail at the node where they arise, before they are
            sent. Otherwise they spread as in the centralised model.

    Attributes:
        links: the neighbours of the run in progress, or of the next one.
        run: the number of the run in progress or of the last one; -1 before the first.
        latest_heard: the highest run that a neighbour has begun, but at most 16 beyond the higher of :attr:`run` and
            the run that a majority of those heard recently has begun; -1 if none was heard. So a minority can move a
            node by 16 numbers in each run.
        welcomed_by: the neighbours that answered the last greeting.
        refusals: why this node does not take part with a neighbour, by neighbour; until a value of it is accepted.
        last_heard: when a neighbour was last heard, by neighbour; a message that may be a recording does not count.
        counters: messages sent, received and refused.
    """

    def __init__(
        self,
        links: Links,
        log: Log,
        timing: Timing | None = None,
        limits: Limits | None = None,
        seed: int | None = None,
        digest: bytes = b"",
        finite: bool = False,
    ) -> None:
        if len(digest) not in (0, DIGEST_BYTES):
            raise ValueError(f"digest must have {DIGEST_BYTES} bytes or none, got {len(digest)}")
        self.links, self.permitted, self.log, self.digest, self.finite = links, links, log, digest, finite
        self.timing, self.limits = timing or Timing(), limits or Limits()
        self.run = log.last_run
        self.latest_heard = -1
        self.welcomed_by: set[int] = set()
        self.refusals: dict[int, str] = {}
        self.last_heard: dict[int, float] = {}
        self.counters = Counters()
        self._expected: tuple[int, float, float] | None = None  # run, when it is due, period
        self._random = random.Random(seed)
        self._active: RunInProgress | None = None
        self._mailbox = Mailbox(links.neighbors, self.limits)
        self._archive = Archive(self.limits.archive_bytes)
        self._nonce: int | None = None
        self._meets = False  # whether neighbours differ from run to run
        self._announced: dict[int, deque[int]] = {j: deque(maxlen=ANNOUNCED) for j in links.neighbors}
        self._welcomed: dict[int, float] = {}  # when a greeting of a neighbour was last answered
        self._begun: dict[int, int] = {}  # the highest run of a neighbour
        self._heard_at: dict[int, tuple[int, float]] = {}  # runs made when it was last heard to be in a run, and when
        self._runs_made = 0
        self._outgoing: list[tuple[int, bytes]] = []
        self._results: list[RunResult] = []

    # What a driver calls

    @property
    def busy(self) -> bool:
        return self._active is not None

    @property
    def deadline(self) -> float | None:
        """When ``advance`` is due; None while nothing is."""
        run = self._active
        return None if run is None else min(run.deadline, run.next_request)

    def begin(
        self, run: int, program: AnyProgram, now: float, *, start: float | None = None, program_id: int = INFERENCE
    ) -> None:
        """Begin a run.

        All nodes give one run the same number, best taken from the clock, so that a node that comes late or back after
        a crash takes part in the next run by itself.

        Args:
            run: its number, higher than all before, also those before a restart: tags are never used twice.
            program: the computation; see :mod:`graphact_agents.program`.
            now: the time.
            start: when the run was to begin, which its deadlines count from; now, if left out.
            program_id: number of the program; 1 is inference.

        Raises:
            ValueError: the number is not higher than all before, or it or that of the program is out of range.
            RuntimeError: a run is in progress.
        """
        if self._active is not None:
            raise RuntimeError(f"run {self.run} is in progress; it ends by itself at its last deadline")
        if run <= self.run:
            raise ValueError(f"run must be higher than {self.run}, the last one of this node, got {run}")
        if run != self.log.used.next_free(run):
            raise ValueError(f"run must not be used up, got {run}, in {self.log.used.spans}")
        if run >= MAX_RUN:
            raise ValueError(f"run must be less than {MAX_RUN}, the end of all numbers, got {run}")
        if not 0 <= program_id <= MAX_FIELD["program_id"]:
            raise ValueError(f"program_id must lie between 0 and {MAX_FIELD['program_id']}, got {program_id}")
        start = now if start is None else start
        active = RunInProgress(program, run, program_id, self.timing, start, finite=self.finite)
        self.run, self._runs_made = run, self._runs_made + 1
        self._mailbox.forget_before(run)
        self._archive.forget_before(run - 1)
        try:
            self.log.append(Began(run, program_id, present=self.links.neighbors if self._meets else None))
        except OSError as error:
            return self._end(active, None, now, f"{NOT_LOGGED}: {error}")
        self._active = active
        return self._resume(active, None, now)

    def expect(self, run: int, due: float = 0.0, period: float = math.inf) -> None:
        """Set the run that is next by the clock, when it is due, and the time from run to run.

        Values of runs that are further ahead of it than the limits keep are refused: the clock of their sender, or that
        of this node, is wrong.
        """
        self._expected = run, due, period

    def rewind_to_run(self, run: int) -> None:
        """Go on with a run that is lower than the last: the clock was set back. ValueError if its number is used up."""
        if run != self.log.used.next_free(run) or self._active is not None:
            raise ValueError(f"run must not be used up, nor another in progress, got {run}")
        self.run = run - 1
        self._mailbox = Mailbox(self.permitted.neighbors, self.limits)

    def receive(self, datagram: bytes, now: float) -> None:
        """Use a datagram; one that is not from a neighbour, altered, repeated or late is counted and dropped."""
        try:
            message = decode(datagram, self.links.node, self.links.epoch, self.permitted.keys, self.digest)
            if message.kind == Kind.DATA:
                self._on_value(message, now)
            elif message.kind == Kind.REQUEST:
                self._on_request(message, now)
            else:
                self._on_greeting(message, now)
        except RejectedError as rejected:
            self.counters.count(rejected.reason)
            if rejected.sender in self.permitted.keys and rejected.reason in TOLD:
                self.refusals[rejected.sender] = TOLD[rejected.reason]

    def advance(self, now: float) -> None:
        """Close rounds whose time is over, and ask again for what is missing."""
        while (run := self._active) is not None and now >= run.deadline:
            self._finish_round(run, now)
        if run is not None and now >= run.next_request:
            if not run.requests:  # who has not answered by now is asked, at a time of its own
                first = {j: self._next_request(run.opened, self.timing.request_after) for j in sorted(run.missing)}
                run.requests.update(first)
            for j, (due, wait) in run.requests.items():
                if now >= due and j in run.missing and run.waits_for(j):
                    run.requests[j] = self._next_request(now, wait * self.timing.backoff)
                    self.counters.requests_sent += 1
                    self._send(Kind.REQUEST, j, run.number, run.round, run.program_id)
            run.plan_requests()

    def greet(self, neighbors: Collection[int] | None = None) -> None:
        """Tell all neighbours, or some, that this node is there; they answer with the run they are in."""
        self._nonce = self._random.getrandbits(32)
        self.welcomed_by = set()
        for j in self.permitted.neighbors if neighbors is None else neighbors:
            self.counters.greetings_sent += 1
            self._send(Kind.HELLO, j, self.run + 1, self._nonce)

    # Neighbours that come and go

    def announce(self, run: int) -> None:
        """Tell all that this node is allowed to meet that it is there, and about to take part in a run."""
        for j in self.permitted.neighbors:
            self.counters.greetings_sent += 1
            self._send(Kind.PRESENCE, j, run, 0)

    def present(self, run: int) -> tuple[int, ...]:
        """Those that were heard to announce a run, ascending; what they announced for another run does not count."""
        return tuple(j for j, runs in self._announced.items() if run in runs)

    def meet(self, present: Collection[int]) -> None:
        """Set the neighbours of the runs to come, among those that this node is allowed to meet.

        They are part of the log, are fixed for a run before it begins, and whatever others send in it is refused. Those
        that were heard (``meet(present(run))``), or others that a driver knows of. A node that counts this one as
        present without being counted in return is sent the values that it asks for.

        Raises:
            RuntimeError: a run is in progress.
            ValueError: this node is not allowed to meet one of them.
        """
        if self._active is not None:
            raise RuntimeError(f"the neighbours of run {self.run}, which is in progress, are fixed")
        self.links, self._meets = self.permitted.among(present), True

    def take_outgoing(self) -> list[tuple[int, bytes]]:
        taken, self._outgoing = self._outgoing, []
        return taken

    def take_results(self) -> list[RunResult]:
        taken, self._results = self._results, []
        return taken

    # Rounds

    def _resume(self, run: RunInProgress, received: Received | None, now: float) -> None:
        """Let the program go on until it waits for a neighbour, or ends."""
        while True:
            try:
                exchange = run.program.send(received)  # type: ignore[arg-type]  # None starts a generator
                if self.finite and not is_finite(exchange.value):
                    return self._end(run, None, now, f"the value of round {run.round + 1} is not finite")
                self._open_round(run, exchange, now)
            except StopIteration as stop:
                if self.finite and not is_finite(stop.value):
                    return self._end(run, None, now, "the output is not finite")
                return self._end(run, stop.value, now)
            except BaseException:
                self._active = None
                raise
            if not run.may_close:
                return None
            received = self._close_round(run, now)
            if received is None:
                return None

    def _end(self, run: RunInProgress, output: Any, now: float, failure: str = "") -> None:
        self._active = None
        used, missed = tuple(run.used), tuple(run.missed)
        numbers = (run.number, run.program_id)
        self._results.append(RunResult(*numbers, output, used, missed, run.start, now, run.is_whole, failure))

    def _open_round(self, run: RunInProgress, exchange: Exchange, now: float) -> None:
        """Send this node's value, and take the values that have come already."""
        recipients, sources = self.links.recipients(exchange.direction), self.links.sources(exchange.direction)
        entry = SentRound(run.program_id, *freeze(exchange.value, recipients), mark=not run.is_whole)
        if self._meets and not isinstance(exchange.value, Mapping):
            entry.shared = next(iter(entry.payloads.values()), None) or Payload.from_array(exchange.value)
        run.open_round(exchange, sources, now)
        self._archive.keep(run.number, run.round, entry)
        for j in recipients:
            self._send_value(run.number, run.round, j, entry, now)
        for j in sources:
            message = self._mailbox.take(j, run.number, run.round)
            if message is not None:
                self._accept(run, message)

    def _accept(self, run: RunInProgress, message: Message) -> bool:
        """Take the value of a neighbour for the open round, if it is the first and fits; whether it was of this round.

        A repetition tells nothing; a value that is refused was sent in this round all the same.
        """
        try:
            run.accept(message)
            self.counters.received += 1
            self.refusals.pop(message.sender, None)
        except RejectedError as rejected:
            self.counters.count(rejected.reason)
            if rejected.reason in TOLD:
                self.refusals[message.sender] = TOLD[rejected.reason]
            return rejected.reason != "duplicate"
        return True

    def _finish_round(self, run: RunInProgress, now: float) -> None:
        """Close the open round and let the program use what came."""
        received = self._close_round(run, now)
        if received is not None:
            self._resume(run, received, now)

    def _close_round(self, run: RunInProgress, now: float) -> Received | None:
        """Log what is used, and return it; None if the log fails, which ends the run: nothing may depend on it."""
        used, missed = run.close_round()
        try:
            self.log.append(RoundClosed(run.number, run.round, used))
        except OSError as error:
            self._end(run, None, now, f"{NOT_LOGGED}: {error}")
            return None
        self.counters.rounds += 1
        self.counters.links_used += len(used)
        self.counters.links_missed += len(missed)
        return {j: run.values[j] for j in used}

    def _next_request(self, now: float, wait: float) -> tuple[float, float]:
        return now + wait * (1 + self.timing.jitter * self._random.random()), wait

    # Messages

    def _on_value(self, message: Message, now: float) -> None:
        run = self._active
        if run is None or message.run != run.number:
            self._update_latest_run(message.sender, message.run, now)
            ahead = 1 if message.run > self.run else -1
        else:
            run.silent.pop(message.sender, None)
            self._note_run(message.sender, message.run, now)
            ahead = message.round - run.round
        if ahead < 0:
            raise RejectedError("stale")
        if run is None or ahead > 0:
            self._mailbox.put(message)
            self.last_heard[message.sender] = now
            return
        if self._accept(run, message):
            self.last_heard[message.sender] = now
        if run.may_close:
            self._finish_round(run, now)

    def _on_request(self, message: Message, now: float) -> None:
        """Send a value again, unless that happened a moment ago."""
        entry = self._archive.entries.get((message.run, message.round))
        wait, sender = self.timing.request_after / 2, message.sender
        if entry is not None and entry.shared is not None and sender in self.permitted.heard_by:
            entry.payloads.setdefault(sender, entry.shared)
            entry.sent_at.setdefault(sender, -math.inf)
        if entry is None or sender not in entry.payloads or now - entry.sent_at[sender] < wait:
            raise RejectedError("unanswered")
        self.counters.resent += 1
        self.last_heard[sender] = now
        self._send_value(message.run, message.round, sender, entry, now)

    def _on_greeting(self, message: Message, now: float) -> None:
        if message.kind == Kind.HELLO:
            if now - self._welcomed.get(message.sender, -math.inf) < self.timing.request_after:
                raise RejectedError("unanswered")
            self._welcomed[message.sender] = now
            self.counters.greetings_sent += 1
            self._send(Kind.WELCOME, message.sender, self.run + 1, message.round)
        elif message.kind == Kind.WELCOME:
            if message.round != self._nonce:  # a recording of an answer to an older greeting
                raise RejectedError("stale")
            self.last_heard[message.sender] = now
        if message.digest != self.digest:
            self.refusals[message.sender] = DIFFERS if message.digest else NO_DIGEST
            raise RejectedError("differs")
        if message.kind == Kind.PRESENCE:
            self._check_ahead(message.sender, message.run, now)
            if message.run <= self.run:
                raise RejectedError("stale")
            if message.run not in self._announced[message.sender]:
                self._announced[message.sender].append(message.run)
            self.last_heard[message.sender] = now
        if message.kind == Kind.WELCOME:
            self.welcomed_by.add(message.sender)
            self._update_latest_run(message.sender, message.run - 1, now, is_fresh=True)

    def _update_latest_run(self, sender: int, run: int, now: float, *, is_fresh: bool = False) -> None:
        """Take note of the run that a neighbour is in, if it can be true."""
        self._check_ahead(sender, run, now)
        self._note_run(sender, run, now, is_fresh=is_fresh)
        made, since = self._runs_made - RECENT_RUNS, now - RECENT_SECONDS
        recent = [j for j, (runs, at) in self._heard_at.items() if runs >= made or at >= since]
        begun = sorted((self._begun[j] for j in recent), reverse=True)
        if begun:  # else it may be a recording
            by_majority = begun[len(begun) // 2]
            self.latest_heard = min(begun[0], max(by_majority, self.run) + CATCH_UP)

    def _note_run(self, sender: int, run: int, now: float, *, is_fresh: bool = False) -> None:
        """Remember the highest run of a neighbour, and when; what tells of no higher one may be a recording."""
        if is_fresh or run > self._begun.get(sender, -1):
            self._begun[sender] = max(run, self._begun.get(sender, run))
            self._heard_at[sender] = self._runs_made, now

    def _check_ahead(self, sender: int, run: int, now: float) -> None:
        """Raise RejectedError if the run of a neighbour cannot be true."""
        if self._expected is None:
            latest, most, whom = self.run, self.limits.run_jump, "this node"
        else:
            expected, due, period = self._expected
            latest, most, whom = expected, self.limits.runs_ahead, "the clock of this node"
            if run - latest > most and now > due:  # this node may have stood still since
                latest += int((now - due) / period)
        if run - latest > most:
            self.refusals[sender] = f"its run is more than {most} ahead of {whom}"
            raise RejectedError("ahead")

    def _send_value(self, run: int, round_: int, j: int, entry: SentRound, now: float) -> None:
        entry.sent_at[j] = now
        tags = (Kind.DATA, self.links.node, j, self.links.epoch, run, round_, entry.program_id)
        self.counters.data_sent += 1
        self.counters.data_bytes_sent += self._enqueue(Message(*tags, entry.payloads[j], b"", entry.mark))

    def _send(self, kind: Kind, j: int, run: int, round_: int, program_id: int = 0) -> None:
        tags = (kind, self.links.node, j, self.links.epoch, run, round_, program_id)
        own_digest = self.digest if kind in GREETINGS else b""
        self._enqueue(Message(*tags, digest=own_digest))

    def _enqueue(self, message: Message) -> int:
        """Let the driver send a message; its size."""
        datagram = encode(message, self.permitted.keys[message.recipient], self.digest)
        self._outgoing.append((message.recipient, datagram))
        self.counters.bytes_sent += len(datagram)
        return len(datagram)
