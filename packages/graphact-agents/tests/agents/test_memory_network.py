"""The simulated network: its faults have the stated sizes, and the driver works over it."""

import sys
from pathlib import Path

import numpy as np
import pytest

import graphact_agents
from agents.networks import GRAPHS, MemoryTransport, links_of
from graphact import nn
from graphact_agents import Exchange, Faults, MemoryLog, Node, Timing, drive, simulate_inference
from graphact_agents.simulation import Simulation
from graphact_agents.transports.memory import MemoryNetwork
from support.on_agents import deploy

COUNT = 4000


def arrivals(faults, count=COUNT, seed=0):
    """Send numbered datagrams, 1 ms apart, and list (time, datagram) of those that arrive."""
    network, arrived = MemoryNetwork({0: [1], 1: [0]}, faults, seed), []
    for number in range(count):
        network.now = number * 0.001
        network.send(0, 1, number.to_bytes(8, "big") * 4)
    while network.next_delivery is not None:
        when = network.next_delivery
        to, datagram = network.deliver()
        assert to == 1
        arrived.append((when, datagram))
    return network, arrived


def numbers(arrived):
    return [int.from_bytes(datagram[:8], "big") for _, datagram in arrived]


def test_without_faults_everything_arrives_in_order():
    _, arrived = arrivals(Faults(delay=0.5))
    assert numbers(arrived) == list(range(COUNT))
    np.testing.assert_allclose([when for when, _ in arrived], np.arange(COUNT) * 0.001 + 0.5)


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_the_share_of_each_fault(p):
    """Five standard deviations around the expected count."""
    margin = 5 * np.sqrt(COUNT * p * (1 - p))
    assert abs(len(arrivals(Faults(loss=p))[1]) - COUNT * (1 - p)) < margin
    assert abs(len(arrivals(Faults(duplicate=p))[1]) - COUNT * (1 + p)) < margin
    whole = {number.to_bytes(8, "big") * 4 for number in range(COUNT)}
    altered = [datagram for _, datagram in arrivals(Faults(corrupt=p))[1] if datagram not in whole]
    assert abs(len(altered) - COUNT * p) < margin
    late = [when - number * 0.001 > 0.005 for (when, _), number in held(Faults(reorder=p))]
    assert abs(sum(late) - COUNT * p) < margin
    for fault in ("replay", "forge"):
        network, arrived = arrivals(Faults(**{fault: p}))
        assert abs(len(arrived) - COUNT * (1 + p)) < margin
        assert network.counters["delivered"] == len(arrived)


def held(faults):
    _, arrived = arrivals(faults)
    return zip(arrived, numbers(arrived), strict=True)


def test_jitter_reorders_within_its_bounds():
    _, arrived = arrivals(Faults(delay=0.01, jitter=0.05))
    travelled = np.array([when - number * 0.001 for (when, _), number in held(Faults(delay=0.01, jitter=0.05))])
    assert 0.01 <= travelled.min() < 0.011
    assert 0.059 < travelled.max() <= 0.06
    assert numbers(arrived) != sorted(numbers(arrived))


def test_cut_links_and_halves_deliver_nothing():
    network = MemoryNetwork({0: [1, 2], 1: [0, 2], 2: [0, 1]})
    network.lost_links = {(0, 1)}
    network.half = frozenset({2})
    for sender in range(3):
        for to in network.neighbors[sender]:
            network.send(sender, to, b"x")
    assert network.next_delivery is None
    network.half = frozenset()
    network.send(2, 1, b"x")
    assert network.deliver() == (1, b"x")


def test_only_neighbors_can_be_reached():
    with pytest.raises(KeyError, match="node 0 has no link to node 2"):
        MemoryNetwork({0: [1], 1: [0], 2: []}).send(0, 2, b"x")


@pytest.mark.parametrize(
    ("name", "value"), [("loss", 1.5), ("crash", -0.1), ("delay", -1.0), ("downtime", float("nan"))]
)
def test_bad_faults(name, value):
    with pytest.raises(ValueError, match=f"{name} must"):
        Faults(**{name: value})


def test_links_are_lost_for_whole_runs_with_the_stated_probability():
    edges = [(i, j) for i in range(8) for j in range(8) if i != j]

    def program(node, run):
        for _ in range(2):
            received = yield Exchange(np.array([float(node)]))
        return set(received)

    outcome = Simulation(
        links_of(edges, 8), program, rounds=2, runs=60, faults=Faults(link_loss=0.2), timing=Timing(slot=0.05)
    ).simulate()
    lost = sum(map(len, outcome.lost_links))
    assert abs(lost - 60 * 28 * 0.2) < 5 * np.sqrt(60 * 28 * 0.2 * 0.8)
    for (run, i), result in outcome.results.items():
        expected = {j for j in range(8) if j != i and (min(i, j), max(i, j)) not in outcome.lost_links[run]}
        assert [set(used) for used in result.used] == [expected, expected]


def test_a_crashed_node_takes_part_in_the_next_run():
    """A node that dies is missed in that run alone, and comes back with fresh run numbers."""

    def program(node, run):
        for _ in range(4):
            received = yield Exchange(np.array([float(run)]))
            assert all(value == run for value in received.values())
        return run

    edges = [(i, j) for i in range(4) for j in range(4) if i != j]
    faults = Faults(crash=0.2, downtime=0.01)
    outcome = Simulation(links_of(edges, 4), program, rounds=4, runs=40, faults=faults, seed=2).simulate()
    assert outcome.crashes > 10
    down = {(run, i) for run in range(40) for i in range(4)} - outcome.survived
    assert 0 < len(down) <= outcome.crashes
    for (run, _), result in outcome.results.items():
        assert {j for missed in result.missed for j in missed} <= {j for j in range(4) if (run, j) in down}


@pytest.mark.parametrize(("loss", "most"), [(0.05, 1e-4), (0.1, 1e-3), (0.2, 5e-3)])
def test_requests_repair_loss(loss, most):
    """20 nodes, 55 links: the share of links missed under packet loss."""
    rng = np.random.default_rng(0)
    pairs = [(i, j) for i in range(20) for j in range(i)]
    chosen = [pairs[k] for k in rng.choice(len(pairs), 55, replace=False)]
    links = links_of([edge for i, j in chosen for edge in ((i, j), (j, i))], 20)

    def program(node, run):
        for _ in range(4):
            yield Exchange(np.zeros((1, 8)))

    faults = Faults(loss=loss, delay=0.0003, jitter=0.0005)
    counters = Simulation(links, program, rounds=4, runs=25, faults=faults, seed=1).simulate().counters
    assert counters.links_used + counters.links_missed == 25 * 4 * 110
    assert counters.links_missed <= most * 25 * 4 * 110


def test_the_driver_over_the_network():
    """Two nodes driven in turns over endpoints with a virtual clock and loss."""
    network = MemoryNetwork({0: [1], 1: [0]}, Faults(loss=0.3), seed=1)
    nodes = [Node(place, MemoryLog(), Timing(slot=0.5), seed=0) for place in links_of([(0, 1), (1, 0)], 2)]
    inboxes = {}
    ends = [MemoryTransport(network, i, inboxes) for i in range(2)]

    def program(value):
        total = 0.0
        for _ in range(20):
            received = yield Exchange(np.array([value]))
            total += sum(x.item() for x in received.values())
        return total

    for i, node in enumerate(nodes):
        node.begin(0, program(float(i + 1)), now=0.0)
    results = {}
    while len(results) < 2:
        for i, node in enumerate(nodes):
            for result in drive(node, ends[i], network.now + 0.001, clock=lambda: network.now):
                results[i] = result
    assert [results[i].output for i in range(2)] == [40.0, 20.0]
    assert all(result.complete for result in results.values())
    assert nodes[0].counters.requests_sent + nodes[1].counters.requests_sent > 0
    ends[0].close()
    ends[0].close()
    assert ends[0].receive(1.0) is None


def test_a_message_visits_ten_files_at_most():
    """From the program that makes a value to the program of the neighbour that uses it."""
    nodes = deploy(nn.GCNN([1, 2], order=2, activation="kernel-ga", learn_gamma=True).double(), GRAPHS["line"]())
    visited, source = set(), str(Path(graphact_agents.__file__).parent)

    def note(frame, kind, _):
        if kind == "call" and frame.f_code.co_filename.startswith(source):
            visited.add(Path(frame.f_code.co_filename).name)

    def deliver(self, original=MemoryNetwork.deliver):
        sys.setprofile(note)  # from the first delivery on: all programs have begun
        return original(self)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(MemoryNetwork, "deliver", deliver)
        simulate_inference(nodes, np.ones((1, 6, 1)))
        sys.setprofile(None)
    assert {"node.py", "messages.py", "inference.py", "log.py", "memory.py"} <= visited
    assert len(visited) <= 10, sorted(visited)
