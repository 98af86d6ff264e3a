"""Denoise with 20 sensors, one process each; one is killed on the way and comes back.

python examples/agents/sensors.py --runs 30

A GCNN learns to remove noise from a moving field over a nearest-neighbour graph. Each sensor then runs as a process of
its own that talks to its neighbours over UDP. The table shows the error before and after, and the links missed.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

import graphact
from graphact import Graph, nn
from local_agents import LocalAgents, deploy_locally

PERIOD, NOISE = 0.5, 0.5


def field_at(places, times):
    """Two bumps that wander over the unit square, ``(T, N)``."""
    value = np.zeros((len(times), len(places)))
    for sign, speed in ((2.0, 0.31), (-1.6, 0.23)):
        centre = 0.5 + 0.35 * np.stack([np.cos(speed * times), np.sin(1.3 * speed * times)], axis=-1)
        value += sign * np.exp(-np.square(np.linalg.norm(places - centre[:, None], axis=-1) / 0.35))
    return value


def train_denoiser(graph, places, rng):
    """Return a GCNN that removes noise from the field."""
    model = nn.GCNN([1, 8], order=2, activation="max-ga", hops=1, out_features=1).double()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(300):
        clean = torch.from_numpy(field_at(places, rng.uniform(1000, 2000, 100))[..., None])
        noise = torch.from_numpy(NOISE * rng.normal(size=clean.shape))
        loss = (model(clean + noise, graph) - clean).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


def main(arguments=None):
    """Train, start the processes, kill one, and print a line for each inference."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sensors", type=int, default=20, help="processes (default: 20)")
    parser.add_argument("--runs", type=int, default=30, help="inferences, two a second (default: 30)")
    parser.add_argument("--transport", choices=("udp", "zenoh"), default="udp")
    options = parser.parse_args(arguments)
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    places = rng.random((options.sensors, 2))
    graph = Graph.nearest_neighbors(torch.from_numpy(places), 4).normalize("spectral")
    model = train_denoiser(graph, places, rng)
    clean = field_at(places, np.arange(100) * 0.12)
    noisy = clean + NOISE * rng.normal(size=clean.shape)
    with tempfile.TemporaryDirectory() as name:
        graphact.save(model, Path(name) / "model.safetensors")
        graph.save(Path(name) / "graph.npz")
        origin = time.time()
        folders = deploy_locally(
            Path(name) / "model.safetensors", Path(name) / "graph.npz", Path(name) / "nodes",
            transport=options.transport, origin=origin, period=PERIOD, slot=0.1, repeat=True,
        )  # fmt: skip
        files = [folder / "x.npy" for folder in folders]
        for i, file in enumerate(files):
            np.save(file, noisy[:, i, None])
        with LocalAgents(folders, [], files) as processes:
            processes.wait_until_ready()
            show_runs(processes, options, origin, clean, noisy)
            processes.stop()
            processes.wait(20)
    return 0


def show_runs(processes, options, origin, clean, noisy):
    """Print one line for each run, and kill and restart one sensor."""
    first = 1 + int((time.time() + PERIOD - origin) / PERIOD)
    print("  run  answers  links missed  RMSE before  after")
    for run in range(first, first + options.runs):
        if run - first == options.runs // 3:
            processes.kill(0)
            print("       sensor 0 is killed")
        elif run - first == options.runs // 2:
            processes.start(0)
            print("       sensor 0 is started again")
        results = []
        for event in processes.read_until(origin + (run + 1) * PERIOD):
            if event["event"] == "result" and event["run"] == run:
                results.append(event)
        nodes = [event["node"] for event in results]
        truth, before = clean[run % 100][nodes], noisy[run % 100][nodes]
        after = np.array([event["output"][0] for event in results])
        errors = [np.sqrt(np.square(value - truth).mean()) if nodes else np.nan for value in (before, after)]
        missed = sum(len(each) for event in results for each in event["missed"])
        answers = f"{len(nodes)}/{options.sensors}"
        print(f"{run:5d}  {answers:>7s}  {missed:12d}  {errors[0]:11.3f}  {errors[1]:5.3f}", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
