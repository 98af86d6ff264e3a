"""What a node said lately, for neighbours that ask for it again."""

from dataclasses import dataclass, field

from graphact.agents.messages import Payload

Tag = tuple[int, int]  # run, round


@dataclass(slots=True)
class Entry:
    """What was said in one round, and when it was last sent to whom.

    Attributes:
        size: bytes held; a value that goes to several neighbours is held once.
    """

    program: int
    payloads: dict[int, Payload]
    sent_at: dict[int, float] = field(default_factory=dict)
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = sum(len(content) for content in {id(p): p.content for p in self.payloads.values()}.values())


class Archive:
    """Own values of this run and the one before; the oldest go first when there are too many bytes."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._entries: dict[Tag, Entry] = {}

    def keep(self, run: int, round_: int, entry: Entry) -> None:
        """Remember what was said in a round."""
        self._entries[run, round_] = entry
        self._bytes += entry.size
        while self._bytes > self._max_bytes and len(self._entries) > 1:
            self._drop(next(iter(self._entries)))

    def find(self, run: int, round_: int) -> Entry | None:
        """What was said in a round, if it is still known."""
        return self._entries.get((run, round_))

    def forget_before(self, run: int) -> None:
        """Drop everything of earlier runs."""
        for tag in [tag for tag in self._entries if tag[0] < run]:
            self._drop(tag)

    def _drop(self, tag: Tag) -> None:
        self._bytes -= self._entries.pop(tag).size
