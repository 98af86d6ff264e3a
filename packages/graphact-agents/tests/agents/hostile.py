"""A running node under a hail of hostile datagrams: nothing wrong is accepted, nothing breaks, nothing grows.

python packages/graphact-agents/tests/agents/hostile.py --datagrams 1000000
"""

import argparse
import random
import sys
import time
import tracemalloc
from collections import deque
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(1, str(Path(__file__).parents[3] / "graphact" / "tests"))
from agents.networks import SECRET, links_of
from agents.one_node import pending_bytes
from graphact_agents import Exchange, Limits, MemoryLog, Node, Timing
from graphact_agents.messages import HEADER, MAX_DATAGRAM, TAG_BYTES, authenticate, link_key

EDGES = [(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)]
ROUNDS = 3
WRONG = bytes(32)
LIMITS = Limits(pending_messages=64, pending_bytes=10_000, archive_bytes=10_000)
MAX_MEMORY = 4 * 2**20


class Forgetful(MemoryLog):
    """A log that keeps only the run, so that what grows is the node's."""

    def append(self, record):
        self.last_run = max(self.last_run, record.run)


def talk(values):
    """Say the rows of values, and return the sums of what was heard."""
    heard = []
    for value in values:
        heard.append(sum((yield Exchange(value)).values()))
    return np.stack(heard)


class Attacker:
    """Makes hostile datagrams out of nothing, or of what it has seen on the wire."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.seen = deque([b"GA" + bytes(60)], maxlen=500)
        self.old = deque(maxlen=500)
        self.ways = [self.noise, self.noise_with_header, self.flipped, self.cut, self.longer, self.spliced]
        self.ways += [self.wrong_key, self.other_fields, self.foreign, self.replayed]

    def datagram(self):
        return self.random.choice(self.ways)()

    def genuine(self):
        return self.random.choice(self.seen)

    def noise(self):
        return self.random.randbytes(self.random.choice([0, 1, 51, 52, 60, 200, 1400]))

    def noise_with_header(self):
        return self.genuine()[: self.random.randrange(HEADER.size + 9)] + self.noise()

    def flipped(self):
        altered = bytearray(self.genuine())
        for _ in range(self.random.choice([1, 1, 2, 8])):
            altered[self.random.randrange(len(altered))] ^= 1 << self.random.randrange(8)
        return bytes(altered)

    def cut(self):
        datagram = self.genuine()
        return datagram[: self.random.randrange(len(datagram))]

    def longer(self):
        return self.genuine() + self.random.randbytes(self.random.choice([1, 8, 16, 100]))

    def spliced(self):
        first, second = self.genuine(), self.genuine()
        at = self.random.randrange(1, min(len(first), len(second)))
        return first[:at] + second[at:]

    def wrong_key(self):
        body = self.genuine()[:-TAG_BYTES]
        return body + authenticate(body, WRONG)

    def other_fields(self):
        """Another run, round, sender or shape, without the key."""
        fields = list(HEADER.unpack_from(self.genuine().ljust(HEADER.size, b"\0")))
        place = self.random.randrange(1, len(fields))
        fields[place] = self.random.choice([0, 1, 2, 3, 5, 200])
        body = HEADER.pack(*fields) + self.genuine()[HEADER.size : -TAG_BYTES]
        return body + authenticate(body, self.random.randbytes(32))

    def foreign(self):
        """Return a message of node 1 to node 2, with its true key."""
        body = bytearray(self.genuine()[:-TAG_BYTES])
        body[8:12], body[12:16] = (1).to_bytes(4, "little"), (2).to_bytes(4, "little")
        return bytes(body) + authenticate(bytes(body), link_key(SECRET, 1, 2))

    def replayed(self):
        """A true datagram of a run that is over."""
        return self.random.choice(self.old) if self.old else self.noise()


def attack(count, seed=0):
    """Send ``count`` hostile datagrams to node 0 while it works; what was refused, and how much memory it took."""
    rng, attacker = np.random.default_rng(seed), Attacker(seed)
    nodes = [Node(place, Forgetful(), Timing(), LIMITS, seed=0) for place in links_of(EDGES, 3)]
    victim, sent, run, accepted = nodes[0], 0, -1, 0
    tracemalloc.start()
    baseline = None
    while sent < count:
        run += 1
        values = rng.normal(size=(3, ROUNDS, 2, 2))
        attacker.old.extend(attacker.seen)
        for node in nodes:
            node.begin(run, talk(values[node.links.node]), now=float(run))
        while any(node.busy for node in nodes):
            for node in nodes:
                for to, datagram in node.take_outgoing():
                    if to == 0:
                        attacker.seen.append(datagram)
                        for hostile in [attacker.datagram() for _ in range(50)]:
                            if hostile not in attacker.seen or hostile in attacker.old:
                                sent += 1
                                victim.receive(hostile, float(run))
                    nodes[to].receive(datagram, float(run))
        (result,) = victim.take_results()
        np.testing.assert_array_equal(result.output, values[1] + values[2])
        assert result.complete
        for node in nodes[1:]:
            node.take_results()
        accepted += 2 * ROUNDS
        assert victim.counters.received == accepted
        assert pending_bytes(victim) == 0
        if run == 20:
            tracemalloc.reset_peak()  # what was imported on the way is no growth
            baseline, _ = tracemalloc.get_traced_memory()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert victim.counters.data_sent == accepted
    assert victim.counters.resent == 0
    grown = peak - (baseline or peak)
    assert grown < MAX_MEMORY, f"{grown} bytes more than after twenty runs"
    return sent, victim.counters, grown


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datagrams", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    begun = time.perf_counter()
    sent, counters, grown = attack(options.datagrams, options.seed)
    print(  # noqa: T201
        f"{sent} hostile datagrams up to {MAX_DATAGRAM} bytes, {counters.received} true values accepted and no other, "
        f"{time.perf_counter() - begun:.0f} s, memory grew by {grown} bytes\n{counters}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
