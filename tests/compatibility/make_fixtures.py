"""How the files in ``fixtures/`` were made: by version 0.1.0, once. Later versions read them and never make them again.

Usage: python tests/compatibility/make_fixtures.py DIR, with version 0.1.0 installed.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch

import graphact
from graphact import Graph, agents, nn
from graphact.agents.addresses import free_addresses
from graphact.agents.learning import FileStore, Learning, simulate_training
from graphact.agents.processes import Processes
from graphact.cli import main
from graphact.scaleout import PartitionedGraph, ScaleoutSettings, train


def directed_graph(dtype=torch.float64):
    """Six nodes; weights of both signs, two diagonal entries, a node that hears nobody, one that nobody hears."""
    edges = [(0, 1, 0.5), (1, 0, 0.25), (1, 2, -0.75), (2, 0, 0.3), (3, 0, 0.6), (0, 3, -0.2), (3, 2, 0.45)]
    edges += [(2, 3, 0.35), (1, 3, 0.15), (4, 2, 0.55), (4, 1, -0.4), (0, 0, 0.1), (3, 3, -0.3)]
    source, target, weight = zip(*edges, strict=True)
    return Graph.from_edge_index([source, target], torch.tensor(weight, dtype=dtype), num_nodes=6)


def ring(size, dtype=torch.float64):
    """A cycle with a chord from every third node to the opposite one, weights 0.3 and 0.2; undirected."""
    pairs = {(i, (i + 1) % size): 0.3 for i in range(size)}
    pairs |= {(i, i + size // 2): 0.2 for i in range(0, size // 2, 3)}
    ends = [[*pair] for pair in pairs] + [[*reversed(pair)] for pair in pairs]
    weight = torch.tensor([*pairs.values()] * 2, dtype=dtype)
    return Graph.from_edge_index(torch.tensor(ends).T, weight, num_nodes=size)


def all_modules():
    """One module of every kind, by the name of its file."""
    modules = {}
    for name, activation in list(nn.ACTIVATIONS.items())[:6]:
        modules[f"gcnn-{name}"] = nn.GCNN([2, 3, 2], order=2, activation=name, out_features=2)
        modules[f"gcnn-{name}-2-hops"] = nn.GCNN([2, 3], order=[1], activation=name, hops=2, out_features=1)
        modules[f"activation-{name}"] = activation() if name == "relu" else activation(hops=2, features=2)
        if name != "relu":
            modules[f"activation-{name}-shared-closed"] = activation(closed=True)
    for name in ("max-l", "max-ga", "median-ga", "kernel-ga"):
        modules[f"gcnn-{name}-shared"] = nn.GCNN([2, 3], activation=name, hops=2, per_feature=False)
        modules[f"gcnn-{name}-closed"] = nn.GCNN([2, 3], activation=name, hops=2, closed=True, bias=True)
    kernel = {"gamma": 0.7, "learn_gamma": True}
    modules["gcnn-kernel-ga-learned"] = nn.GCNN([2, 3], activation="kernel-ga", hops=2, **kernel)
    modules["activation-kernel-ga-learned"] = nn.GraphAdaptiveKernel(hops=2, **kernel)
    modules["gcnn-no-readout"] = nn.GCNN([2, 3], out_features=None)
    modules["gcnn-bias"] = nn.GCNN([2, 3, 3], bias=True, readout_bias=False)
    modules["fir"] = nn.FIR([2, 3, 2], order=[2, 1], out_features=2)
    modules["fir-bias"] = nn.FIR([2, 3], order=0, out_features=None, bias=True)
    modules["filter"] = nn.GraphFilter(2, 3, 2)
    modules["filter-bias"] = nn.GraphFilter(2, 1, 1, bias=True)
    modules["activation-min"] = nn.GraphAdaptive("min", hops=2, features=2)
    modules["activation-max"] = nn.GraphAdaptive("max", closed=True)
    modules["activation-kernel"] = nn.GraphAdaptive("kernel")
    return modules


def make_models(out):
    """Model files, float64 and float32 in turns, and what they make of one input."""
    out.mkdir(parents=True)
    graph = directed_graph()
    graph.save(out / "graph.npz")
    x = torch.randn(2, 6, 2, dtype=torch.float64)
    expected = {"x": x.numpy()}
    for number, (name, module) in enumerate(all_modules().items()):
        dtype = (torch.float64, torch.float32)[number % 2]
        module = module.to(dtype)
        graphact.save(module, out / f"{name}.safetensors")
        expected[name] = module(x.to(dtype), graph.to(dtype)).detach().numpy()
    np.savez_compressed(out / "expected.npz", **expected)


def make_graphs(out):
    """Graph files of both formats."""
    out.mkdir(parents=True)
    graphs = {
        "directed": directed_graph(),
        "directed-float32": directed_graph(torch.float32),
        "laplacian": ring(5).normalize("laplacian"),
        "undirected": ring(7, torch.float32),
        "no-edges": Graph.from_edge_index(torch.empty(2, 0, dtype=torch.long), num_nodes=3),
    }
    expected = {}
    for name, graph in graphs.items():
        graph.save(out / f"{name}.npz")
        graph.save(out / f"{name}.txt")
        expected[name] = {"dense": graph.to_dense().tolist(), "dtype": str(graph.dtype), "edges": graph.num_edges}
    (out / "expected.json").write_text(json.dumps(expected, indent=1))


def make_agents(out):
    """The folders of four nodes after real agents ran three inferences over UDP, with their logs."""
    graph = ring(4)
    model = nn.GCNN([1, 2], order=2, activation="median-ga", hops=1, out_features=1).double()
    folders = agents.split(model, graph, out, epoch=20, addresses=free_addresses(4))
    x = torch.randn(3, 4, 1, dtype=torch.float64)
    options = ["--transport", "udp", "--period", "0", "--slot", "5"]
    with Processes(folders, options) as processes:
        processes.wait_until_ready()
        processes.feed(x.numpy())
        events = processes.wait()
    outputs = np.full((3, 4, 1), np.nan)
    for event in events:
        if event["event"] == "result":
            assert event["complete"], event
            outputs[event["run"], event["node"]] = event["output"]
    np.testing.assert_allclose(outputs, model(x, graph).detach().numpy(), rtol=1e-12)
    np.savez_compressed(out / "expected.npz", x=x.numpy(), outputs=outputs, matrix=graph.to_dense().numpy())


def make_learning(out):
    """``graphact agents train`` after 20 of 40 steps, and what the nodes know then as a state of their own."""
    out.mkdir(parents=True)
    graph, model = ring(4), nn.GCNN([1, 2], order=1, activation="max-ga").double()
    graph.save(out / "graph.npz")
    graphact.save(model, out / "model.safetensors")
    x = torch.randn(5, 4, 1, dtype=torch.float64).numpy()
    np.save(out / "x.npy", x)
    np.save(out / "y.npy", np.abs(x))
    words = ["agents", "train", str(out / "model.safetensors"), str(out / "graph.npz"), "--seed", "3", "--loss", "0.1"]
    words += ["--signals", str(out / "x.npy"), "--targets", str(out / "y.npy")]
    checkpoint, trained = out / "checkpoint.npz", out / "trained-in-40-steps.safetensors"
    assert main([*words, "--steps", "20", "--checkpoint", str(checkpoint), "--out", str(out / "half")]) == 0
    assert main([*words, "--steps", "40", "--out", str(trained)]) == 0
    (out / "half").unlink()
    nodes = agents.deploy(graphact.load(out / "model.safetensors"), graph, epoch=3)
    training = simulate_training(nodes, x, np.abs(x), Learning(seed=3), steps=5)
    FileStore(out / "state-of-node-2.npz").save(training.states[2])
    state = training.states[2]
    np.savez_compressed(out / "expected.npz", **{name: np.asarray(value) for name, value in vars(state).items()})


def make_partition(out):
    """``graphact partition`` with two parts, and what a model makes of a signal on the whole graph."""
    out.mkdir(parents=True)
    graph = ring(12)
    graph.save(out / "graph.npz")
    assert main(["partition", str(out / "graph.npz"), "--parts", "2", "--out", str(out / "two")]) == 0
    model = nn.GCNN([1, 2, 2], order=2, activation="median-ga", hops=2).double()
    graphact.save(model, out / "model.safetensors")
    x = torch.randn(12, 1, dtype=torch.float64)
    np.savez_compressed(out / "expected.npz", x=x.numpy(), outputs=model(x, graph).detach().numpy())


def make_scaleout(out):
    """The checkpoint of a training on a shared graph after 5 of 8 epochs."""
    out.mkdir(parents=True)
    graph = ring(12)
    x = torch.randn(12, 1, dtype=torch.float64)
    model = nn.GCNN([1, 2], order=2, activation="max-ga").double()
    graph.save(out / "graph.npz")
    graphact.save(model, out / "model.safetensors")
    losses = {}
    for epochs in (5, 8):
        fresh = graphact.load(out / "model.safetensors")
        part = PartitionedGraph.from_graph(graph)
        settings = ScaleoutSettings(epochs=epochs, learning_rate=0.01)
        path = out / "checkpoint.safetensors" if epochs == 5 else None
        losses[epochs] = train(fresh, part, x, x.abs(), settings=settings, checkpoint=path)
    assert losses[8][:5] == losses[5]
    np.savez_compressed(out / "expected.npz", x=x.numpy(), losses=losses[8])


if __name__ == "__main__":
    assert graphact.__version__ == "0.1.0"
    torch.manual_seed(1)
    root = Path(sys.argv[1])
    make_models(root / "models")
    make_graphs(root / "graphs")
    make_agents(root / "nodes")
    make_learning(root / "learning")
    make_partition(root / "partition")
    make_scaleout(root / "scaleout")
