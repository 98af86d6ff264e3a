"""A network of processes that is changed while runs go on: no answer is wrong, and few are incomplete.

python tests/agents/changing.py --nodes 20 --rate 10 --repeats 3
"""

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from agents.networks import undirected

import graphact
from graphact import agents, nn
from graphact.agents import load_model, read_log
from graphact.agents.addresses import free_addresses
from graphact.agents.processes import Processes
from graphact.agents.renewal import renew, with_node, without_node
from graphact.agents.replay import answered_links, replay
from graphact.agents.rollout import Network

TOLERANCE = 1e-12


def fir(seed):
    torch.manual_seed(seed)
    return nn.FIR([1, 1], order=2).double()


def dense(rows, size):
    matrix = np.zeros((size, size))
    for i, row in rows.items():
        matrix[i, list(row.hears)] = row.weights
    return matrix


def work(folder, nodes, rate, slot, lead, seed=0):
    """One network that is updated, gets a node, loses one and gets new keys; the counts of its runs."""
    rng = np.random.default_rng(seed)
    ring = {(i, (i + 1) % nodes) for i in range(nodes)}
    chords = {tuple(sorted(map(int, rng.choice(nodes, 2, replace=False)))) for _ in range(nodes)}
    pairs = {(min(pair), max(pair)) for pair in ring | chords}
    graph = undirected(sorted(pairs), nodes)
    folders = agents.split(fir(0), graph, folder / "nodes", addresses=free_addresses(nodes + 1)[:nodes], tls=False)
    graphact.save(fir(1), folder / "new.safetensors")
    new = load_model(folder / "new.safetensors")
    signals = [folder / f"x{i}.npy" for i in range(nodes + 1)]
    for i, path in enumerate(signals):
        np.save(path, np.full((1, 1), 1.0 + i))
    options = ["--transport", "udp", "--period", f"{1 / rate}", "--slot", str(slot), "--repeat"]
    epochs, events = [], []
    processes = Processes([*folders, folder / "nodes" / f"node-{nodes}"], options, signals, folder / "errors")
    with processes._opened:
        try:
            for i in range(nodes):
                processes.start(i)
            processes.wait_until_ready(120.0)
            events += processes.read_until(time.time() + 4.0)
            steady = max(event["run"] for event in events if event["event"] == "result")
            network = Network(folder / "nodes")
            model, rows = network.deployments[0].model, network.rows
            epochs.append((0, model, rows))

            def change(renewed, rows, model, **more):
                network = Network(folder / "nodes")
                run = network.change(renewed(network), **{"lead": lead, "timeout": 60.0, "tell": drain, **more})
                epochs.append((run, model, rows))

            def drain(_):
                events.extend(processes.read(0.0))

            change(lambda n: renew(n.deployments, model=new), rows, new)
            more = with_node(rows, nodes, {0: 0.3, nodes // 2: 0.2})
            listen = {nodes: free_addresses(1)[0]}

            def start_new(text):
                if text.startswith("committed"):
                    processes.start(nodes)
                drain(text)

            change(lambda n: renew(n.deployments, rows=more), more, new, listen=listen, tell=start_new)
            rows = without_node(more, 1)
            change(lambda n: renew(n.deployments, rows=rows), rows, new)
            shutil.rmtree(folder / "removed", ignore_errors=True)
            (folder / "nodes" / "node-1").rename(folder / "removed")
            change(lambda n: renew(n.deployments), rows, new)
            events += processes.read_until(time.time() + 4.0)
        finally:
            for process in processes.running.values():
                process.kill()
    return judge(folder, epochs, events, nodes + 1, steady)


def judge(folder, epochs, events, size, steady):
    """Every answer against the replay of its epoch; (runs, incomplete, of these beside a change)."""
    place = {i: folder / ("removed" if i == 1 else f"nodes/node-{i}") for i in range(size)}
    logs = [list(read_log(place[i] / "log.jsonl")) for i in range(size)]
    by_run = [{} for _ in range(size)]
    for log, index in zip(logs, by_run, strict=True):
        for record in log:
            index.setdefault(record.run, []).append(record)
    x = np.array([[1.0 + i] for i in range(size)])
    runs, incomplete, worst, replays = set(), {}, 0.0, {}
    for event in events:
        if event["event"] != "result":
            assert event["event"] not in ("failed",), event
            continue
        run, i = event["run"], event["node"]
        if run not in replays:
            _, model, rows = [epoch for epoch in epochs if epoch[0] <= run][-1]
            answered = answered_links([index.get(run, []) for index in by_run], run, model.rounds)
            replays[run] = replay(model, dense(rows, size), x, *answered)
        off = abs(event["output"][0] - replays[run][i, 0])
        assert off <= TOLERANCE, f"run {run} at node {i} is off the replay by {off}"  # NaN is, too
        worst = max(worst, off)
        if run > steady:
            runs.add(run)
            if not event["complete"]:
                incomplete.setdefault(run, []).append(i)
    changes = [run for run, _, _ in epochs[1:]]
    return len(runs), incomplete, changes, worst


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--rate", type=float, default=10.0, help="runs a second")
    parser.add_argument("--slot", type=float, default=0.045)
    parser.add_argument("--lead", type=float, default=2.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--most", type=int, default=2, help="incomplete runs that are allowed")
    options = parser.parse_args()
    for repeat in range(options.repeats):
        with tempfile.TemporaryDirectory() as name:
            runs, incomplete, changes, worst = work(
                Path(name), options.nodes, options.rate, options.slot, options.lead, repeat
            )
        print(  # noqa: T201
            f"{runs} runs of {options.nodes} nodes at {options.rate:g}/s with slots of {options.slot:g} s, changed at "
            f"{changes}: none is wrong ({worst:.1e} off the replay), {len(incomplete)} incomplete {sorted(incomplete)}",
            flush=True,
        )
        if len(incomplete) > options.most:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
