"""Denoising the temperatures of Molène on 32 processes, one for each weather station; compared with one machine.

    python benchmarks/agents_molene.py [--transport zenoh]

Trains a small GCNN, splits it, starts 32 agents, lets them denoise the hours of the test set, one hour an
inference, and compares their answers with the centralised model. Needs the data; see README.
"""

import argparse
import sys
import tempfile

import numpy as np
import torch
from agent_files import deploy, write_nodes
from output import echo

import graphact_agents as agents
from graphact import nn
from graphact.training import TrainingSettings, fit
from graphact_agents.local_agents import LocalAgents
from graphact_lab.tasks import denoising


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transport", choices=("zenoh", "udp"), default="zenoh")
    parser.add_argument("--epochs", type=int, default=60)
    options = parser.parse_args()
    task = denoising(dtype=torch.float64)
    torch.manual_seed(0)
    model = nn.GCNN([1, 8], order=3, activation="max-ga", hops=1, out_features=1, start="uniform").double()
    fit(model, task, TrainingSettings(epochs=options.epochs, learning_rate=5e-3))
    hours, truth = task.inputs[task.test], task.targets[task.test]
    with torch.no_grad():
        central = model(hours, task.graph)
    cost = agents.cost_of_inference(deploy(model, task.graph)[0].model, task.graph.num_edges)
    outputs, seconds = on_processes(model, task.graph, hours.numpy(), options.transport)
    echo(f"{task.graph.num_nodes} stations, {task.graph.num_edges // 2} links, {len(hours)} hours of the test set")
    echo(f"one inference: {cost.rounds} rounds, {cost.messages} messages, {cost.bytes} bytes, {1000 * seconds:.0f} ms")
    echo(f"RMSE of the measurements    {rmse(hours, truth):.4f} K")
    echo(f"RMSE, centralised           {rmse(central, truth):.4f} K")
    echo(f"RMSE, 32 processes          {rmse(torch.from_numpy(outputs), truth):.4f} K")
    error = np.abs(outputs - central.numpy()).max()
    echo(f"largest difference          {error:.1g} K")
    sys.exit(0 if error < 1e-12 else 1)


def on_processes(model, graph, hours, transport):
    """Return the agents' answers for each hour, and the median time of an inference."""
    with tempfile.TemporaryDirectory() as folder:
        folders = write_nodes(model, graph, folder, period=0, slot=2, transport=transport)
        with LocalAgents(folders, []) as processes:
            processes.wait_until_ready()
            processes.feed(hours)
            events = processes.wait()
    results = [event for event in events if event["event"] == "result"]
    outputs = np.full(hours.shape, np.nan)
    for event in results:
        outputs[event["run"], event["node"]] = event["output"]
    return outputs, float(np.median([event["seconds"] for event in results]))


def rmse(values, truth):
    return (values - truth).square().mean().sqrt().item()


if __name__ == "__main__":
    main()
