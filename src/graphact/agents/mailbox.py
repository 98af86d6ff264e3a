"""Values that came before they were needed, within bounds."""

from graphact.agents.messages import Message, RejectedError
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
        """Keep a message.

        A sender that goes on to later runs makes its earlier ones forgotten, and nobody else's.

        Raises:
            RejectedError: there is one with its tags already, it is long past, or there are too many of its sender.
        """
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
        """Hand out the message of a round and forget it."""
        message = self._kept[sender].pop((run, round_), None)
        if message is not None:
            self._bytes[sender] -= len(message.payload.content)
        return message

    def forget_before(self, run: int) -> None:
        """Drop everything of earlier runs."""
        for sender in self._kept:
            self._forget(sender, run)

    def _forget(self, sender: int, before: int) -> None:
        for tag in [tag for tag in self._kept[sender] if tag[0] < before]:
            self.take(sender, *tag)

    @property
    def pending_bytes(self) -> int:
        """How much is kept, over all senders."""
        return sum(self._bytes.values())
