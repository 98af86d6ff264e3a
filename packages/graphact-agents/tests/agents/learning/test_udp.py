"""Learning over sockets: the same programs, the same numbers as in the simulator."""

import time

import numpy as np

from agents.networks import directed
from graphact import nn
from graphact_agents import MemoryLog, Node, Timing, drive
from graphact_agents.addresses import Addresses, free_addresses
from graphact_agents.learning import Learner, Learning, MemoryStore, simulate_training
from graphact_agents.transports.udp import UdpTransport
from support.on_agents import deploy

STEPS = 3
PATIENT = Timing(slot=10.0)  # a busy machine may be slow, and rounds end when all have answered


def run_everywhere(nodes, transports, number, program, kind):
    """One run at all nodes, which take turns in this process."""
    for i, node in enumerate(nodes):
        node.begin(number, program(i), time.monotonic(), kind=kind)
    results = {}
    until = time.monotonic() + 60
    while len(results) < len(nodes):
        assert time.monotonic() < until
        for i, node in enumerate(nodes):
            for result in drive(node, transports[i], time.monotonic() + 0.001):
                results[i] = result
    assert all(result.complete for result in results.values())


def test_learning_over_udp():
    graph = directed(5, 0.5, 3)
    model = nn.GCNN([1, 2, 2], order=1, activation="median-ga").double()
    deployments = deploy(model, graph)
    x, targets = np.random.default_rng(0).normal(size=(2, 6, graph.num_nodes, 1))
    learning = Learning("gradient-tracking", rate=0.02)
    learners = [Learner(d, learning, x[:, i], targets[:, i], MemoryStore()) for i, d in enumerate(deployments)]
    addresses = free_addresses(graph.num_nodes)
    transports = [
        UdpTransport(Addresses(addresses[i], {j: addresses[j] for j in d.links.neighbors}))
        for i, d in enumerate(deployments)
    ]
    try:
        nodes = [Node(d.links, MemoryLog(), PATIENT, seed=i) for i, d in enumerate(deployments)]
        run_everywhere(nodes, transports, 0, lambda i: learners[i].prepare(), 3)
        for step in range(STEPS):
            run_everywhere(nodes, transports, step + 1, lambda i, step=step: learners[i].step(step), 2)
    finally:
        for transport in transports:
            transport.close()
    simulated = simulate_training(deployments, x, targets, learning, steps=STEPS)
    np.testing.assert_array_equal([learner.state.parameters for learner in learners], simulated.copies)
