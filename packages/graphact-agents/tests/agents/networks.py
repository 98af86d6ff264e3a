"""Networks of agents for tests: graphs of every shape, and nodes that talk to each other without a network."""

from collections import deque

import numpy as np
import torch

from graphact import Graph
from graphact_agents import Links, MemoryLog, Node, Timing
from graphact_agents.messages import link_key

SECRET = bytes(range(32))


def undirected(pairs, num_nodes):
    """A weighted undirected graph of pairs."""
    pairs = np.array(pairs, dtype=int).reshape(-1, 2)
    weights = np.random.default_rng(1).uniform(0.2, 0.5, len(pairs))
    both = np.concatenate([pairs, pairs[:, ::-1]])
    return Graph.from_edge_index(both.T, np.concatenate([weights, weights]), num_nodes=num_nodes)


def directed(num_nodes, density, seed, loops=False):
    """A random directed graph, with a diagonal if asked for."""
    rng = np.random.default_rng(seed)
    edges = rng.random((num_nodes, num_nodes)) < density
    np.fill_diagonal(edges, loops)
    matrix = np.where(edges, rng.uniform(-0.5, 0.5, edges.shape), 0.0)
    return Graph.from_dense(torch.from_numpy(matrix))


GRAPHS = {
    "line": lambda: undirected([(i, i + 1) for i in range(5)], 6),
    "star": lambda: undirected([(0, i) for i in range(1, 7)], 7),
    "complete": lambda: undirected([(i, j) for i in range(6) for j in range(i)], 6),
    "disconnected": lambda: undirected([(0, 1), (1, 2), (4, 5)], 7),
    "random": lambda: undirected([(i, j) for i in range(9) for j in range(i) if (i * j) % 3 == 1], 9),
    "directed": lambda: directed(8, 0.35, 0),
    "directed with a diagonal": lambda: directed(6, 0.5, 1, loops=True),
    "one node": lambda: undirected([], 1),
}


def links_of(edges, num_nodes, epoch=1, secret=SECRET):
    """The links of all nodes; edges are (hearing, heard)."""
    places = []
    for i in range(num_nodes):
        hears = tuple(sorted(j for k, j in edges if k == i))
        heard_by = tuple(sorted(k for k, j in edges if j == i))
        keys = {j: link_key(secret, i, j) for j in {*hears, *heard_by}}
        places.append(Links(i, epoch, hears, heard_by, keys))
    return places


def pair(**timing):
    """Two nodes that hear each other."""
    return [Node(place, MemoryLog(), Timing(**timing), seed=place.node) for place in links_of([(0, 1), (1, 0)], 2)]


def pass_on(nodes, now, lose=()):
    """Deliver everything at once but kinds to lose, until nobody has anything to say; what was delivered."""
    delivered = []
    while waiting := [(node.links.node, *sent) for node in nodes for sent in node.take_outgoing()]:
        for _, to, datagram in waiting:
            if datagram[3] not in lose:
                nodes[to].receive(datagram, now)
        delivered += waiting
    return delivered


class MemoryTransport:
    """One end of a simulated network, for the driver and for the tests that all transports must pass.

    ``receive`` moves the virtual clock on, and keeps what arrives for other ends until they ask for it; ``inboxes``
    holds what has arrived at each open end, and is the same for all ends of a network.
    """

    def __init__(self, network, node, inboxes):
        self._network, self._node, self._inboxes, self._closed = network, node, inboxes, False
        self._inboxes[node] = deque()

    def send(self, to, datagram):
        if not self._closed:
            self._network.send(self._node, to, datagram)

    def receive(self, timeout):
        if self._closed:
            return None
        until = self._network.now + timeout
        while not self._inboxes[self._node]:
            due = self._network.next_delivery
            if due is None or due > until:
                self._network.now = max(self._network.now, until)
                return None
            to, datagram = self._network.deliver()
            if to in self._inboxes:
                self._inboxes[to].append(datagram)
        return self._inboxes[self._node].popleft()

    def close(self):
        self._closed = True
        self._inboxes.pop(self._node, None)
