"""What a node keeps for a while, within bounds: values that came early, and values that may be asked for again."""

from dataclasses import dataclass, field

from graphact.agents.messages import Message, Payload, RejectedError
from graphact.agents.settings import Limits

Tag = tuple[int, int]  # run, round


class Mailbox:
    """Data messages of the current and later rounds, one for each (run, round, sender)."""

    def __init__(self, senders: tuple[int, ...], limits: Limits) -> None:
        self._limits = limits
        self._kept: dict[int, dict[Tag, Message]] = {sender: {} for sender in senders}
        self._bytes = dict.fromkeys(senders, 0)
        self._newest: dict[int, int] = {}

    def put(self, message: Message) -> None:
        """Keep a message, or raise RejectedError; one of a later run makes its sender's earlier ones forgotten."""
        kept, tag = self._kept[message.sender], (message.run, message.round)
        if tag in kept:
            raise RejectedError("duplicate")
        newest = self._newest.get(message.sender, -1)
        if message.run > newest:
            self._newest[message.sender] = message.run
            self._forget(message.sender, message.run - self._limits.runs_ahead)
        elif message.run < newest - self._limits.runs_ahead:
            raise RejectedError("stale")
        size = self._bytes[message.sender] + len(message.payload.content)
        if len(kept) >= self._limits.pending_messages or size > self._limits.pending_bytes:
            raise RejectedError("overflow")
        kept[tag] = message
        self._bytes[message.sender] = size

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

    @property
    def pending_bytes(self) -> int:
        return sum(self._bytes.values())


@dataclass(slots=True)
class Entry:
    """What was sent in one round, and when it was last sent to whom."""

    program: int
    payloads: dict[int, Payload]
    sent_at: dict[int, float] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes held; a value that goes to several neighbours is held once."""
        return sum(len(content) for content in {id(p): p.content for p in self.payloads.values()}.values())


class Archive:
    """Own values of this run and the one before; the oldest go first when there are too many bytes."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._entries: dict[Tag, Entry] = {}

    def keep(self, run: int, round_: int, entry: Entry) -> None:
        self._entries[run, round_] = entry
        self._bytes += entry.size
        while self._bytes > self._max_bytes and len(self._entries) > 1:
            self._drop(next(iter(self._entries)))

    def find(self, run: int, round_: int) -> Entry | None:
        return self._entries.get((run, round_))

    def forget_before(self, run: int) -> None:
        for tag in [tag for tag in self._entries if tag[0] < run]:
            self._drop(tag)

    def _drop(self, tag: Tag) -> None:
        self._bytes -= self._entries.pop(tag).size
