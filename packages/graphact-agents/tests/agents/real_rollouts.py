"""Real processes that are given another model, a node more, a node less and new keys, by deploy and restart.

``python packages/graphact-agents/tests/agents/real_rollouts.py --nodes 20 --period 0.1`` changes 20 processes three
times and prints for how long runs were incomplete; the test does the same with fewer nodes. Every answer is compared
with that of one machine: of the same deployment, with the links that its log says were used.
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(1, str(Path(__file__).parents[3] / "graphact" / "tests"))
sys.path.insert(2, str(Path(__file__).parents[4] / "examples" / "agents"))
import graphact
from agents.networks import undirected
from agents.real_faults import random_graph
from agents.replay import answered_links, replay
from graphact import nn
from graphact_agents import Deployment, read_log
from graphact_agents.log import RoundClosed
from graphact_agents.network_folder import deploy_network, init_network
from local_agents import LocalAgents, free_addresses

ENTRIES = 16
"""Signals of each node, which it repeats."""
TOLERANCE = 1e-12


def new_model():
    return nn.GCNN([1, 2], order=1, activation="max-ga", out_features=1).double()


def deploy_and_deliver(network, out, **options):
    """Deploy, and bring the new folders into those of the nodes, as rsync does."""
    with tempfile.TemporaryDirectory() as folder:
        made = deploy_network(network, Path(folder) / "new", **options)
        shutil.copytree(made.folders[0].parent, out, dirs_exist_ok=True)
    return replace(made, folders=[out / each.name for each in made.folders])


class Rollouts(LocalAgents):
    """A network of processes, its operator's folder, and all that they ever answered.

    ``answers`` holds results by deployment, run and node; ``changes`` name, begin and end of each change.
    """

    def __init__(self, folder, size, period, transport="udp"):
        self.period, self.transport, self.size = period, transport, size
        self.network, self.out, self.places = folder / "network", folder / "nodes", free_addresses(size + 1)
        self.x = np.random.default_rng(0).normal(size=(ENTRIES, size + 1, 1))
        files = [folder / f"x-{i}.npy" for i in range(size + 1)]
        for i, file in enumerate(files):
            np.save(file, self.x[:, i])
        graphact.save(new_model(), folder / "model.safetensors")
        self.graph = random_graph(size, min(2 * size, size * (size - 1) // 2))
        self.graph.save(folder / "graph.npz")
        init_network(folder / "model.safetensors", folder / "graph.npz", self.network)
        self.members, self.deployments, self.logs = set(range(size)), {}, defaultdict(dict)
        self.answers, self.changes, self.current = {}, [], {}
        self.deploy()
        super().__init__([self.out / f"node-{i}" for i in range(size + 1)], ["--repeat"], files)

    def __enter__(self):
        for i in self.members:
            self.start(i)
        return self

    def deploy(self):
        """Write the file of the network for its members, and deploy."""
        lines = ["[network]", f"period = {self.period}", f"slot = {self.period / 3.5:.4f}"]
        lines += [f'transport = "{self.transport}"']
        lines += [f'[nodes.{i}]\naddress = "{self.places[i]}"' for i in sorted(self.members)]
        (self.network / "network.toml").write_text("\n".join(lines))
        made = deploy_and_deliver(self.network, self.out)
        self.deployments[made.deployment] = {i: Deployment.load(self.out / f"node-{i}") for i in self.members}

    def stop_one(self, i, log):
        """End a process as systemd does, and keep its log: in another deployment it begins a new one."""
        self.running[i].terminate()
        self.running[i].wait()
        self.take(0.02)
        self.logs[self.current[i]][i] = list(read_log(log))

    def take(self, seconds):
        """Take what processes answer for some seconds; a process tells its deployment first."""
        until = time.time() + seconds
        while (left := until - time.time()) > 0:
            for event in self.read(left):
                if event["event"] == "ready":
                    self.current[event["node"]] = event["deployment"]
                elif event["event"] == "result":
                    self.answers[self.current[event["node"]], event["run"], event["node"]] = event

    def wait_for_runs(self, patience=120.0):
        """Wait until all members have answered completely in the current deployment; fails if they never do."""
        until, current = time.time() + patience, [*self.deployments][-1]
        while True:
            self.take(0.5)
            whole = {i for (name, _, i), event in self.answers.items() if name == current and event["complete"]}
            if whole >= self.members:
                return
            assert time.time() < until, f"{sorted(self.members - whole)} never answered completely"

    def change(self, name, members=None, **files):
        """Put files and members into the operator's folder, deploy, and restart one process after the other."""
        for file, content in files.items():
            save = content.save if file == "graph" else lambda path, content=content: graphact.save(content, path)
            save(self.network / ("graph.npz" if file == "graph" else "model.safetensors"))
        before, self.members = self.members, self.members if members is None else set(members)
        begun = time.time()
        self.deploy()
        for i in sorted(before):
            self.stop_one(i, self.out / f"node-{i}" / "log.jsonl")
            if i in self.members:
                self.start(i)
        for i in sorted(self.members - before):
            self.start(i)
        restarted = time.time() - begun
        self.wait_for_runs()
        self.take(20 * self.period)
        self.changes.append((name, begun, time.time(), restarted))

    def seconds_of_changes(self):
        """Return for each change its name, the seconds of its restarts, and those with runs that were incomplete."""
        whole = defaultdict(set)
        for (_, run, i), event in self.answers.items():
            whole[run] |= {i} if event["complete"] else set()
        least, found = min(len(nodes) for nodes in self.deployments.values()), []
        for name, begun, ended, restarted in self.changes:
            runs = range(int(begun / self.period), int(ended / self.period) - 2)
            found.append((name, restarted, sum(len(whole[run]) < least for run in runs) * self.period))
        return found

    def check(self):
        """Compare every answer with that of one machine; how many there were, and how many were complete."""
        complete = 0
        for deployment, nodes in self.deployments.items():
            size = 1 + max(max(nodes), *(j for node in nodes.values() for j in node.links.neighbors))
            matrix, model = np.zeros((size, size)), next(iter(nodes.values())).model
            for i, node in nodes.items():
                matrix[i, list(node.row.hears)] = node.row.weights
                matrix[i, i] = node.row.diagonal
            by_run = {run: [[] for _ in range(size)] for name, run, _ in self.answers if name == deployment}
            for i, records in self.logs[deployment].items():
                for record in records:
                    if isinstance(record, RoundClosed) and record.run in by_run:
                        by_run[record.run][i].append(record)
            for run in by_run:
                answered = answered_links(by_run[run], run, model.rounds)
                expected = replay(model, matrix, self.x[run % ENTRIES, :size], *answered)
                for i in (i for i in nodes if (deployment, run, i) in self.answers):
                    event = self.answers[deployment, run, i]
                    error = np.abs(np.array(event["output"]) - expected[i]).max()
                    assert error <= TOLERANCE, f"{deployment}: run {run} at node {i} is off by {error}"
                    complete += event["complete"]
        return len(self.answers), complete


def roll_out(folder, size, period, transport="udp"):
    """Give processes another model, then a node more, then a node less; each time new keys; how it went."""
    with Rollouts(folder, size, period, transport) as network:
        pairs = [pair for pair in network.graph.to_edge_index()[0].T.tolist() if pair[0] < pair[1]]
        more = undirected([*pairs, (size, 0), (size, 1)], size + 1)
        network.wait_for_runs()
        network.change("another model", model=new_model())
        network.change("a node more", members=range(size + 1), graph=more)
        network.change("a node less", members=range(1, size + 1))
        for i in network.members:
            network.stop_one(i, network.out / f"node-{i}" / "log.jsonl")
    return network


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--period", type=float, default=0.1)
    parser.add_argument("--transport", choices=("udp", "zenoh"), default="udp")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        network = roll_out(Path(folder), options.nodes, options.period, options.transport)
        count, complete = network.check()
    print(f"{count} answers of {options.nodes} processes, {complete} complete, none wrong")  # noqa: T201
    for name, restarted, incomplete in network.seconds_of_changes():
        print(f"{name:16s}restarts took {restarted:5.1f} s, incomplete runs {incomplete:5.1f} s")  # noqa: T201


if __name__ == "__main__":
    main()
