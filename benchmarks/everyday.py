"""Cost of an activation on graphs that people train on, beside ReLU and PyG's operations composed, in one process.

    python benchmarks/everyday.py                     on the CPU
    python benchmarks/everyday.py --device cuda
    python benchmarks/everyday.py --out FILE.json     also write the figures, with the machine and its versions
    python benchmarks/everyday.py --largest 3000      leave out larger graphs
    python benchmarks/everyday.py --busy              on a machine that does other work: one thread, its own time

Forward and backward with gradients of everything trained, milliseconds of the host's clock until the device has
finished; medians of blocks of calls, the contenders in turn, so that a busy machine is as busy for all. Values and
gradients are compared with PyG's before anything is timed. Then a network of four graph convolutions on a batch of
proteins, with an edge_index in every layer, whose activation is swapped.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import torch
from arguments import count, need_cuda
from output import describe_machine, echo
from torch_geometric.nn import GCNConv

import graphact
from graphact.benchmarking import composed

CASES = {
    "34 nodes, 16 features": ([(34, 156)], 16),
    "Cora's size, 64": ([(2_708, 10_556)], 64),
    "32 proteins, 64": ([(39, 146)] * 32, 64),
    "20,000 nodes, 64": ([(20_000, 200_000)], 64),
}
LARGE = {"169k nodes, 256": ([(169_343, 2_332_486)], 256)}
OPERATIONS = ("max", "median", "kernel")
GAMMA = 2.0


def random_edges(sizes, generator):
    """Undirected graphs of (nodes, edges) side by side, as a DataLoader joins them."""
    parts, nodes = [], 0
    for size, edges in sizes:
        one = torch.randint(size, (edges // 2,), generator=generator)
        other = (one + torch.randint(1, size, (edges // 2,), generator=generator)) % size
        parts.append(torch.cat([torch.stack([one, other]), torch.stack([other, one])], 1) + nodes)
        nodes += size
    return torch.unique(torch.cat(parts, 1), dim=1), nodes


def seconds_of(step, calls, device, clock):
    """Seconds of one of several calls."""
    if device == "cuda":
        torch.cuda.synchronize()
    begun = clock()
    for _ in range(calls):
        step()
    if device == "cuda":
        torch.cuda.synchronize()
    return (clock() - begun) / calls


def times(contenders, device, clock, blocks=9, least=0.02):
    """Median milliseconds of each contender's calls; a block of calls takes a fiftieth of a second or more."""
    calls = {}
    for name, step in contenders.items():
        seconds_of(step, 3, device, clock)
        calls[name] = max(3, int(least / seconds_of(step, 3, device, clock)))
    found = {name: [] for name in contenders}
    for _ in range(blocks):
        for name, step in contenders.items():
            found[name].append(1e3 * seconds_of(step, calls[name], device, clock))
    return {name: statistics.median(values) for name, values in found.items()}


def training_step(function, x, parameters, cotangent):
    """One forward and backward pass."""

    def step():
        x.grad = None
        for parameter in parameters:
            parameter.grad = None
        function(x, *parameters).backward(cotangent)
        return [x.grad, *(parameter.grad for parameter in parameters)]

    return step


def close(found, right):
    """Return whether gradients agree, ties and rounding aside."""
    return all(float((a - b).norm() / b.norm().clamp(min=1e-30)) < 5e-3 for a, b in zip(found, right, strict=True))


def activations(sizes, features, device, clock):
    """Milliseconds of every contender on one graph."""
    generator = torch.Generator().manual_seed(0)
    edge_index, nodes = random_edges(sizes, generator)
    edge_index = edge_index.to(device)
    graph = graphact.Graph.from_edge_index(edge_index, num_nodes=nodes).normalize("symmetric")
    x = torch.randn(nodes, features, generator=generator).to(device).requires_grad_()
    cotangent = torch.randn(nodes, features, generator=generator).to(device)
    beta, weights = (torch.full(shape, 0.7, device=device, requires_grad=True) for shape in ((), (1,)))
    contenders = {"ReLU": training_step(torch.relu, x, [], cotangent)}
    for op in OPERATIONS:

        def ours(x, beta, weights, op=op):
            return graphact.functional.graph_adaptive(x, graph, beta, weights, op, gamma=GAMMA)

        step = training_step(ours, x, [beta, weights], cotangent)
        peer = training_step(composed(graph, op, GAMMA), x, [beta, weights], cotangent)
        contenders[f"{op}-ga"] = step
        if op == "median" and device == "cuda" and nodes > 100_000:
            continue  # it sorts all edges for every feature
        if not close(step(), peer()):
            raise RuntimeError(f"{op}-ga and PyG differ on {nodes} nodes")
        contenders[f"PyG {op}"] = peer
    return times(contenders, device, clock)


class Network(torch.nn.Module):
    """Four graph convolutions, an activation after each; both are handed the edge_index."""

    def __init__(self, features, activation, keywords):
        super().__init__()
        self.convolutions = torch.nn.ModuleList(GCNConv(features, features) for _ in range(4))
        self.activations = torch.nn.ModuleList(activation() for _ in range(4))
        self.keywords = keywords

    def forward(self, x, edge_index):
        for convolution, activation in zip(self.convolutions, self.activations, strict=True):
            x = convolution(x, edge_index)
            x = activation(x, edge_index) if self.keywords else activation(x)
        return x


class Composed(torch.nn.Module):
    """The maximum of PyG's aggregations over a shift that is normalised in every call, as one would write it."""

    def __init__(self):
        super().__init__()
        self.beta, self.h = torch.nn.Parameter(torch.ones(())), torch.nn.Parameter(torch.full((1,), 0.1))

    def forward(self, x, edge_index):
        from torch_geometric.utils import degree, scatter

        source, target = edge_index
        scale = degree(target, x.size(0)).clamp(min=1).rsqrt()
        weight = (scale[source] * scale[target]).unsqueeze(-1)
        shifted = scatter(x[source] * weight, target, 0, x.size(0), "sum")
        return self.beta * torch.relu(x) + self.h * scatter(shifted[source], target, 0, x.size(0), "max")


def networks(device, clock):
    """Milliseconds of a training step of the network on the batch of proteins, a new edge_index each time."""
    sizes, features = CASES["32 proteins, 64"]
    edge_index, nodes = random_edges(sizes, torch.Generator().manual_seed(0))
    edge_index = edge_index.to(device)
    x, target = torch.randn(2, nodes, features, device=device)
    kinds = {
        "ReLU": (torch.nn.ReLU, False),
        "max-ga, edge_index in every layer": (graphact.nn.GraphAdaptiveMax, True),
        "PyG max composed": (Composed, True),
    }
    contenders = {}
    for name, (activation, keywords) in kinds.items():
        model = Network(features, activation, keywords).to(device)
        optimizer = torch.optim.Adam(model.parameters())

        def step(model=model, optimizer=optimizer):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x, edge_index.clone()), target).backward()
            optimizer.step()

        contenders[name] = step
    return times(contenders, device, clock)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--busy", action="store_true", help="one thread, and its own time instead of the clock's")
    parser.add_argument("--largest", type=count, default=10**9, help="leave out graphs of more nodes")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the figures here, as JSON")
    options = parser.parse_args()
    if options.device == "cuda":
        need_cuda()
        if options.busy:
            parser.error("--busy is for the CPU; a GPU's time is not the process's")
    cases = CASES | (LARGE if options.device == "cuda" else {})
    cases = {name: case for name, case in cases.items() if sum(nodes for nodes, _ in case[0]) <= options.largest}
    clock = time.perf_counter
    if options.busy:
        torch.set_num_threads(1)
        clock = time.process_time
    machine = describe_machine(options.device) | {"clock": "own time" if options.busy else "wall"}
    found = {name: activations(*case, options.device, clock) for name, case in cases.items()}
    names = list(dict.fromkeys(name for row in found.values() for name in row))
    echo(f"| milliseconds, {options.device} | " + " | ".join(found) + " |")
    echo("|---" * (len(found) + 1) + "|")
    for name in names:
        echo(f"| {name} | " + " | ".join(f"{row[name]:.3f}" if name in row else "-" for row in found.values()) + " |")
    for op in OPERATIONS:
        ratios = (row.get(f"PyG {op}") and row[f"{op}-ga"] / row[f"PyG {op}"] for row in found.values())
        echo(f"| {op}-ga over PyG | " + " | ".join(f"{ratio:.2f}" if ratio else "-" for ratio in ratios) + " |")
    found["network"] = networks(options.device, clock)
    base = found["network"]["ReLU"]
    echo("\nA training step of four graph convolutions, 32 proteins, 64 features:")
    for name, milliseconds in found["network"].items():
        echo(f"  {name}: {milliseconds:.2f} ms, {milliseconds / base:.2f} of ReLU's")
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps({"machine": machine, "milliseconds": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
