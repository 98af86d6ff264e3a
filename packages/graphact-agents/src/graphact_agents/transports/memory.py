"""A network in memory with a virtual clock and seeded faults: the same seed gives the same network, event by event."""

import heapq
import random
from collections import Counter, deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields

from graphact_agents.arguments import check_probability
from graphact_agents.messages import KEY_BYTES, TAG_BYTES, authenticate

TIMES = ("delay", "jitter", "downtime", "partition_time", "skew")


@dataclass(frozen=True)
class Faults:
    """Probabilities (0 to 1) and times (seconds) of faults; without arguments nothing goes wrong.

    Args:
        loss: a datagram is lost.
        link_loss: a link is lost for a whole run, in both directions; the paper's model of link loss.
        delay: a datagram travels at least this long.
        jitter: it travels up to this much longer, at random, which also reorders.
        reorder: a datagram is held back by ten times delay + jitter.
        duplicate: a datagram comes twice.
        corrupt: one bit of a datagram is flipped.
        replay: an attacker sends a datagram again that was recorded earlier, also in other runs.
        forge: an attacker without the key sends a datagram like one it saw with other values.
        crash: a node dies at a random moment of a run, forgetting everything but its log.
        downtime: a crashed node is back after at most this time.
        partition: for a part of a run the network falls into two halves that do not hear each other.
        partition_time: a partition lasts at most this long.
        skew: clocks and starts of nodes differ by at most this much.
    """

    loss: float = 0.0
    link_loss: float = 0.0
    delay: float = 0.001
    jitter: float = 0.0
    reorder: float = 0.0
    duplicate: float = 0.0
    corrupt: float = 0.0
    replay: float = 0.0
    forge: float = 0.0
    crash: float = 0.0
    downtime: float = 1.0
    partition: float = 0.0
    partition_time: float = 1.0
    skew: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name not in TIMES:
                check_probability(field.name, value)
            elif not 0 <= value < float("inf"):
                raise ValueError(f"{field.name} must be a finite time of at least 0 seconds, got {value}")


RECORDED = 512
"""Datagrams that an attacker keeps to send them again."""


class MemoryNetwork:
    """All links of a simulated network; ``neighbors`` says for every node whom it may send to.

    Attributes:
        counters: datagrams ``sent``, ``delivered``, ``lost``, ``replayed`` and so on.
        now: the virtual time in seconds; it moves when datagrams are delivered.
        lost_links: links (pairs in ascending order) that deliver nothing at the moment.
        half: nodes cut off from all others at the moment.
    """

    def __init__(self, neighbors: Mapping[int, Collection[int]], faults: Faults | None = None, seed: int = 0) -> None:
        self.neighbors = {node: frozenset(others) for node, others in neighbors.items()}
        self.faults = faults or Faults()
        self.now = 0.0
        self.lost_links: set[tuple[int, int]] = set()
        self.half: frozenset[int] = frozenset()
        self.counters: Counter[str] = Counter()
        self._random = random.Random(f"network {seed}")
        self._flying: list[tuple[float, int, int, bytes]] = []
        self._number = 0
        self._recorded: deque[tuple[int, bytes]] = deque(maxlen=RECORDED)

    def send(self, sender: int, to: int, datagram: bytes) -> None:
        if to not in self.neighbors[sender]:
            raise KeyError(f"node {sender} has no link to node {to}")
        faults, counters = self.faults, self.counters
        counters["sent"] += 1
        counters["bytes_sent"] += len(datagram)
        self._let_attackers_act(to, datagram)
        is_cut = (min(sender, to), max(sender, to)) in self.lost_links or (sender in self.half) != (to in self.half)
        if is_cut or self._happens(faults.loss):
            counters["lost"] += 1
            return
        if self._happens(faults.duplicate):
            counters["duplicated"] += 1
            self._fly(to, datagram)
        if self._happens(faults.corrupt):
            counters["corrupted"] += 1
            datagram = flip_bit(datagram, self._random.randrange(8 * len(datagram)))
        is_held = self._happens(faults.reorder)
        counters["held_back"] += is_held
        self._fly(to, datagram, 10 * (faults.delay + faults.jitter) if is_held else 0.0)

    @property
    def next_delivery(self) -> float | None:
        return self._flying[0][0] if self._flying else None

    def deliver(self) -> tuple[int, bytes]:
        """Let the next datagram arrive: its recipient and itself."""
        when, _, to, datagram = heapq.heappop(self._flying)
        self.now = max(self.now, when)
        self.counters["delivered"] += 1
        return to, datagram

    def _happens(self, probability: float) -> bool:
        return probability > 0 and self._random.random() < probability

    def _fly(self, to: int, datagram: bytes, held: float = 0.0) -> None:
        faults = self.faults
        arrival = self.now + faults.delay + held + (faults.jitter * self._random.random() if faults.jitter else 0.0)
        self._number += 1
        heapq.heappush(self._flying, (arrival, self._number, to, datagram))

    def _let_attackers_act(self, to: int, datagram: bytes) -> None:
        if self.faults.replay:
            self._recorded.append((to, datagram))
            if self._happens(self.faults.replay):
                self.counters["replayed"] += 1
                self._fly(*self._random.choice(self._recorded))
        if self._happens(self.faults.forge):
            self.counters["forged"] += 1
            body = flip_bit(datagram[:-TAG_BYTES], 8 * len(datagram[:-TAG_BYTES]) - 2)
            self._fly(to, body + authenticate(body, self._random.randbytes(KEY_BYTES)))


def flip_bit(datagram: bytes, position: int) -> bytes:
    """The datagram with one bit flipped."""
    flipped = bytearray(datagram)
    flipped[position // 8] ^= 1 << (position % 8)
    return bytes(flipped)
