"""Rounds a second of 20 agents with 55 links, one process each, on this machine; and the memory of an agent.

    python benchmarks/agents_throughput.py [--transport udp] [--runs 200] [--repeats 5]

With repeats the transports take turns, and medians are printed, with what each costs beside the first: on a machine
that does other work, too, compare these.

Every agent sends its value over each of its links in each round (110 messages a round), waits for all its neighbours,
logs whom it heard, and computes. The answers are compared with the centralised model before a figure is printed.
"""

import argparse
import random
import sys
import tempfile

import numpy as np
import torch
from agent_files import write_nodes  # and the path of local_agents
from arguments import count

from graphact import Graph, nn
from local_agents import LocalAgents

NODES, EDGES, ROUNDS = 20, 55, 10
WANTED = {"udp": 337, "zenoh": 130, "zenoh-tls": 0}
TRANSPORTS = {
    "udp": {"transport": "udp"},
    "zenoh": {"transport": "zenoh", "tls": False},
    "zenoh-tls": {"transport": "zenoh"},
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transport", choices=WANTED, action="append", help="default: all")
    parser.add_argument("--runs", type=count, default=200, help="inferences of 10 rounds (default: 200)")
    parser.add_argument("--repeats", type=count, default=1, help="measure so many times, in turn (default: 1)")
    options = parser.parse_args()
    found = {transport: [] for transport in options.transport or WANTED}
    for _ in range(options.repeats):
        for transport, figures in found.items():
            figures.append(measure(transport, options.runs))
    first = next(iter(found))
    for transport, figures in found.items() if options.repeats > 1 else ():
        rounds, busy = np.median(np.divide(figures, found[first]), axis=0)
        sys.stdout.write(
            f"{transport}: median {np.median(figures, axis=0)[0]:.0f} rounds/s, {rounds:.2f} of {first}; "
            f"{busy:.2f} of its processor time\n"
        )
    reached = [np.median(figures, axis=0)[0] >= WANTED[transport] for transport, figures in found.items()]
    sys.exit(0 if all(reached) else 1)


def measure(transport, runs):
    """Rounds a second, and seconds of processor time a round."""
    graph = random_graph()
    model = nn.GCNN([1, 1], order=8, activation="max-ga", hops=1).double()  # 8 shifts, then a max: 10 rounds
    signals = np.random.default_rng(0).normal(size=(runs, NODES, 1))
    with tempfile.TemporaryDirectory() as folder:
        folders = write_nodes(model, graph, folder, period=0, slot=2, **TRANSPORTS[transport])
        with LocalAgents(folders, []) as processes:
            processes.wait_until_ready()
            processes.feed(signals)
            events = processes.wait()
    results = [event for event in events if event["event"] == "result"]
    check(results, model(torch.from_numpy(signals), graph).detach().numpy())
    ends = np.zeros(runs)
    for event in results:
        ends[event["run"]] = max(ends[event["run"]], event["finished"])
    warm = runs // 10  # the first runs find the connections
    rounds = ROUNDS * (runs - warm - 1) / (ends[-1] - ends[warm])
    last = [event for event in events if event["event"] == "end"]
    peak, private = ([event["memory"][name] for event in last] for name in ("peak", "private"))
    busy = sum(event["cpu_seconds"] for event in last) / (ROUNDS * runs)
    resent = sum(event["counters"]["resent"] for event in last)
    sys.stdout.write(
        f"{transport}: {rounds:.0f} rounds/s (wanted {WANTED[transport]}), {rounds * 2 * EDGES:.0f} messages/s, "
        f"{resent} sent again, {busy * 1000:.2f} ms of processor time a round in all; "
        f"memory of an agent at most {max(peak):.1f} MiB, of which its own {max(private):.1f} MiB\n"
    )
    return rounds, busy


def random_graph():
    """A ring and random chords."""
    rng = random.Random(0)
    pairs = {(i, i + 1) for i in range(NODES - 1)} | {(0, NODES - 1)}
    while len(pairs) < EDGES:
        pairs.add(tuple(sorted(rng.sample(range(NODES), 2))))
    both = [*pairs, *((j, i) for i, j in pairs)]
    return Graph.from_edge_index(np.array(both).T, num_nodes=NODES).to(dtype=torch.float64).normalize("spectral")


def check(results, expected):
    if len(results) != expected.shape[0] * NODES or not all(event["complete"] for event in results):
        sys.exit("not every inference was complete: no figure")
    error = max(np.abs(event["output"] - expected[event["run"], event["node"]]).max() for event in results)
    if error > 1e-12:
        sys.exit(f"the answers differ from the centralised model by {error:.3g}: no figure")


if __name__ == "__main__":
    main()
