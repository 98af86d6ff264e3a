"""Real processes and real faults: packets dropped by the kernel, processes killed and stopped.

``python real_faults.py loss`` and ``... kills`` measure for minutes; the tests call the same functions for
seconds. Loss needs Linux, root (or the right to make a network namespace) and nft.
"""

import argparse
import json
import math
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(1, str(Path(__file__).parents[3] / "graphact" / "tests"))
sys.path.insert(2, str(Path(__file__).parents[4] / "examples" / "agents"))
from agents.networks import undirected
from agents.replay import answered_links, dense_matrix, replay
from graphact import nn
from graphact_agents import Deployment, read_log
from graphact_agents.log import Began, RoundClosed
from local_agents import LocalAgents, free_addresses
from support.on_agents import split

SLOT = 0.18
BOUNDS = {0.05: 1e-4, 0.1: 1e-3, 0.2: 5e-3}
"""Loss of packets, and the share of links that may be missed then."""


def random_graph(num_nodes, num_edges, seed=0):
    """A ring with random chords, its weights small enough for deep shifts."""
    rng = random.Random(seed)
    pairs = {tuple(sorted((i, (i + 1) % num_nodes))) for i in range(num_nodes)}
    while len(pairs) < num_edges:
        pairs.add(tuple(sorted(rng.sample(range(num_nodes), 2))))
    return undirected(sorted(pairs), num_nodes)


class Deployed:
    """A model on a graph, on disk, with signals for a number of runs."""

    def __init__(self, folder, graph, model, runs=10):
        self.graph, self.model, self.runs = graph, model.double(), runs
        self.folders = split(self.model, graph, folder, addresses=free_addresses(graph.num_nodes))
        self.nodes = [Deployment.load(each) for each in self.folders]
        self.x = np.random.default_rng(0).normal(size=(runs, graph.num_nodes, model.config()["features"][0]))
        self.files = [each / "x.npy" for each in self.folders]
        for i, file in enumerate(self.files):
            np.save(file, self.x[:, i])

    @contextmanager
    def started(self, transport, period, slot=SLOT):
        """Processes that run by the clock; the first run that all of them take part in, and when runs begin."""
        origin = time.time()
        options = ["--transport", transport, "--origin", repr(origin), "--period", repr(period), "--slot", repr(slot)]
        with LocalAgents(self.folders, [*options, "--repeat"], self.files) as processes:
            processes.wait_until_ready()
            time.sleep(0.5)  # for the connections
            first = math.ceil((time.time() - origin) / period)
            yield processes, first, lambda run: origin + run * period

    def check(self, events):
        """Every output that was reported is what the logs say, to 1e-12; how many outputs that were.

        Nothing is lost from the logs: what a process reported before it was killed is there, round by round.
        """
        matrix, model = dense_matrix(self.nodes), self.nodes[0].model
        logs = [list(read_log(folder / "log.jsonl")) for folder in self.folders]
        results = {(e["run"], e["node"]): e for e in events if e["event"] == "result"}
        for (run, i), result in results.items():
            heard = set(self.nodes[i].links.hears)
            closed = [r.used for r in logs[i] if isinstance(r, RoundClosed) and r.run == run]
            assert closed == [tuple(sorted(heard - set(missed))) for missed in result["missed"]]
        for i, log in enumerate(logs):
            numbers = [record.run for record in log if isinstance(record, Began)]
            assert all(a < b for a, b in pairwise(numbers)), f"node {i} used a run number twice: {numbers}"
        for run in {run for run, _ in results}:
            expected = replay(model, matrix, self.x[run % self.runs], *answered_links(logs, run, model.rounds))
            for i in range(len(self.nodes)):
                if (run, i) in results:
                    np.testing.assert_allclose(results[run, i]["output"], expected[i], rtol=1e-12, atol=1e-12)
        return len(results)

    def incomplete(self, events, runs):
        """The runs in which a node gave no result, or one with a link missed."""
        there = {(e["run"], e["node"]) for e in events if e["event"] == "result" and e["complete"]}
        return [run for run in runs if any((run, i) not in there for i in range(len(self.nodes)))]


def suffer(deployed, transport, faults, period, slot, seed=0):
    """Kill or stop an agent in the middle of each run; see the returned dictionary.

    A killed agent is started again at once, a stopped one goes on after a third of the period.
    """
    rng = random.Random(seed)
    events, hurt = [], {}
    with deployed.started(transport, period, slot) as (processes, first, begins):
        for run, kind in enumerate(faults, start=first):
            victim = rng.randrange(len(deployed.nodes))
            hurt[run] = (kind, victim)
            events += processes.read_until(begins(run) + rng.uniform(0.005, 0.03))
            if kind == "kill":
                processes.kill(victim)
                processes.start(victim)
            else:
                processes.running[victim].send_signal(signal.SIGSTOP)
                events += processes.read_until(time.time() + period / 3)
                processes.running[victim].send_signal(signal.SIGCONT)
        last = first + len(faults)
        events += processes.read_until(begins(last) + 0.5 * period)
        processes.stop()
        events += processes.wait(20)
    incomplete = deployed.incomplete(events, range(first, last + 1))
    return {"outputs": deployed.check(events), "incomplete": incomplete, "hurt": hurt}


class Firewall:
    """Drops packets at random in the network namespace of this process."""

    def __init__(self):
        self.nft("add table inet loss", "add chain inet loss in { type filter hook input priority 0; }")

    def nft(self, *commands):
        return subprocess.run(["nft", "-j", "; ".join(commands)], check=True, stdout=subprocess.PIPE, text=True).stdout

    def lose(self, share):
        """Drop this share of all packets from now on."""
        rule = f"add rule inet loss in numgen random mod 10000 < {round(share * 10_000)} counter drop"
        self.nft("flush chain inet loss in", "add rule inet loss in counter", *([rule] if share else []))

    def counted(self):
        """Packets that came, and those dropped of them, since the last change."""
        rules = json.loads(self.nft("list chain inet loss in"))["nftables"]
        expressions = [expr for entry in rules for expr in entry.get("rule", {}).get("expr", [])]
        packets = [expr["counter"]["packets"] for expr in expressions if "counter" in expr]
        return packets[0], packets[1] if len(packets) > 1 else 0


def measure_loss(deployed, transport, levels, runs):
    """The share of links missed at each level of loss, in a namespace of our own."""
    firewall = Firewall()
    rounds = deployed.nodes[0].model.rounds
    events, measured = [], {}
    with deployed.started(transport, rounds * SLOT) as (processes, first, begins):
        spans = {level: range(first + i * runs, first + (i + 1) * runs) for i, level in enumerate(levels)}
        for level, span in spans.items():
            events += processes.read_until(begins(span[0]) - 0.05)
            firewall.lose(level)
            events += processes.read_until(begins(span[-1] + 1) - 0.06)
            came, dropped = firewall.counted()
            measured[level] = {"packets": came, "dropped": dropped / came}
        firewall.lose(0.0)
        processes.stop()
        events += processes.wait(20)
    deployed.check(events)
    for level, span in spans.items():
        mine = [e for e in events if e["event"] == "result" and e["run"] in span]
        links = sum(rounds * len(deployed.nodes[e["node"]].links.hears) for e in mine)
        missed = sum(len(each) for e in mine for each in e["missed"])
        absent = len(deployed.nodes) * runs - len(mine)
        measured[level] |= {"links": links, "missed": missed, "share": missed / links, "absent": absent}
    return {"transport": transport, "levels": measured}


def in_a_namespace(arguments):
    """The command that runs this file in a network namespace of its own, where loopback alone exists."""
    inside = 'ip link set lo up && exec "$0" "$@"'
    return ["unshare", "--net", "sh", "-c", inside, sys.executable, __file__, *arguments]


def why_not_allowed():
    """Return why packets cannot be dropped here; None if they can."""
    probe = "ip link set lo up && nft add table inet probe"
    try:
        done = subprocess.run(["unshare", "--net", "sh", "-c", probe], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "there is no unshare (util-linux)"
    return None if done.returncode == 0 else f"no network namespace with nft: {done.stderr.strip()[-100:]}"


def short_model():
    """A shift, then a look at the neighbours and another shift: 3 rounds."""
    return nn.GCNN([1, 2], order=1, activation="max-ga", hops=1, out_features=1, start="uniform")


def long_model():
    """So many rounds that one can hit a process in the middle of a run: 40 shifts, then 2 rounds."""
    return nn.GCNN([1, 2], order=40, activation="median-ga", hops=1, out_features=1, start="uniform")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["loss", "kills"])
    parser.add_argument("--transport", choices=["udp", "zenoh"], default="udp")
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--edges", type=int, default=55)
    parser.add_argument("--runs", type=int, default=100, help="runs at each level of loss")
    parser.add_argument("--faults", type=int, default=20, help="processes killed or stopped")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.what == "loss" and not options.inside:
        if reason := why_not_allowed():
            sys.exit(reason)
        sys.exit(subprocess.run(in_a_namespace([*sys.argv[1:], "--inside"]), check=False).returncode)
    with tempfile.TemporaryDirectory() as folder:
        graph = random_graph(options.nodes, options.edges)
        deployed = Deployed(Path(folder), graph, short_model() if options.what == "loss" else long_model())
        if options.what == "loss":
            result = measure_loss(deployed, options.transport, list(BOUNDS), options.runs)
        else:
            kinds = ["kill", "stop"] * (options.faults // 2)
            result = suffer(deployed, options.transport, kinds, period=6.0, slot=0.1)
            result |= {"hurt": list(result["hurt"].values())}
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
