"""Eager code beside torch.compile, in its default mode and with CUDA graphs: activations and networks, in one process.

    python benchmarks/compiled.py                     on the CPU, one thread
    python benchmarks/compiled.py --device cuda
    python benchmarks/compiled.py --out FILE.json     also write the figures, with the machine and its versions
    python benchmarks/compiled.py --largest 3000      leave out larger graphs
    python benchmarks/compiled.py --busy              on a machine that does other work: its own time

Forward and backward with gradients of everything trained, milliseconds, as in `everyday.py`. Values and gradients of
compiled code are compared with those of eager code before anything is timed. The frame that torch itself takes for a
compiled call is that of the ReLU.
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import torch
from arguments import count, need_cuda
from everyday import CASES, GAMMA, LARGE, Composed, close, random_edges, times, training_step
from output import describe_machine, echo
from torch_geometric.nn import GCNConv

import graphact
from graphact.benchmarking import composed

ACTIVATIONS = ("34 nodes, 16 features", "Cora's size, 64", "169k nodes, 256")
NETWORKS = ("32 proteins, 64", "Cora's size, 64")
OPERATIONS = ("max", "median", "kernel")
MODES = {"eager": None, "compiled": "default", "reduce-overhead": "reduce-overhead"}


def compiled_in(mode, function):
    """Return a function or module as this mode runs it."""
    return function if MODES[mode] is None else torch.compile(function, mode=MODES[mode])


def in_all_modes(name, make_step, modes):
    """Return the training steps of one contender by mode, if they give what eager code gives.

    Of PyG's code, which torch 2.13 compiles wrongly in places, a wrong mode is left out.
    """
    steps, right = {}, None
    for mode in modes:
        step = make_step(mode)
        for _ in range(3):  # a CUDA graph is recorded at the second call
            gradients = [None if one is None else one.clone() for one in step()]
        right = gradients if right is None else right
        if not close(gradients, right):
            if name.startswith("PyG"):
                echo(f"{name}: not timed {mode}, where it is wrong")
                continue
            raise RuntimeError(f"{name}: {mode} and eager code differ")
        steps[name, mode] = step
    return steps


def activations(sizes, features, device, modes, clock):
    """Milliseconds of every activation in every mode on one graph."""
    generator = torch.Generator().manual_seed(0)
    edge_index, nodes = random_edges(sizes, generator)
    graph = graphact.Graph.from_edge_index(edge_index.to(device), num_nodes=nodes).normalize("symmetric")
    x = torch.randn(nodes, features, generator=generator).to(device).requires_grad_()
    cotangent = torch.randn(nodes, features, generator=generator).to(device)
    beta, weights = (torch.full(shape, 0.7, device=device, requires_grad=True) for shape in ((), (1,)))
    contenders = in_all_modes(
        "ReLU", lambda mode: training_step(compiled_in(mode, lambda x: torch.relu(x)), x, [], cotangent), modes
    )
    for op in OPERATIONS:

        def ours(x, beta, weights, op=op):
            return graphact.functional.graph_adaptive(x, graph, beta, weights, op, gamma=GAMMA)

        def make(mode, function=ours):
            return training_step(compiled_in(mode, function), x, [beta, weights], cotangent)

        contenders |= in_all_modes(f"{op}-ga", make, modes)
    peer = composed(graph, "max", GAMMA)
    contenders |= in_all_modes(
        "PyG max", lambda mode: training_step(compiled_in(mode, peer), x, [beta, weights], cotangent), modes
    )
    return table_of(times(contenders, device, clock))


class Network(torch.nn.Module):
    """Four graph convolutions with cached normalisation, an activation after each, called with more or with x alone."""

    def __init__(self, features, activation):
        super().__init__()
        self.convolutions = torch.nn.ModuleList(GCNConv(features, features, cached=True) for _ in range(4))
        self.activations = torch.nn.ModuleList(activation() for _ in range(4))

    def forward(self, x, edge_index, *more):
        for convolution, activation in zip(self.convolutions, self.activations, strict=True):
            x = activation(convolution(x, edge_index), *more)
        return x


def networks(sizes, features, device, modes, clock):
    """Milliseconds of forward and backward of the networks in every mode on one graph."""
    edge_index, nodes = random_edges(sizes, torch.Generator().manual_seed(0))
    edge_index = edge_index.to(device)
    graph = graphact.Graph.from_edge_index(edge_index, num_nodes=nodes).normalize("symmetric")
    x, cotangent = torch.randn(2, nodes, features, device=device)
    bank = {"bank": "adaptive", "ops": ["max"], "order": 1, "out_features": features}

    def max_ga():
        return graphact.nn.GraphAdaptiveMax(start="uniform")

    kinds = {
        "ReLU": (Network(features, torch.nn.ReLU), (edge_index,)),
        "max-ga, Graph": (Network(features, max_ga), (edge_index, graph)),
        "max-ga, edge_index": (graphact.pyg.PassGraph(Network(features, max_ga)), (edge_index,)),
        "adaptive bank (max), Graph": (graphact.nn.GCNN([features] * 5, **bank), (graph,)),
        "PyG max composed": (Network(features, Composed), (edge_index, edge_index)),
    }
    contenders = {}
    for name, (model, arguments) in kinds.items():
        model = model.to(device)
        model(x, *arguments)  # fills PyG's caches

        def make(mode, model=model, arguments=arguments):
            run = compiled_in(mode, model)

            def step():
                model.zero_grad()
                out = run(x, *arguments)
                out.backward(cotangent)
                return [out.detach(), *(parameter.grad for parameter in model.parameters())]

            return step

        contenders |= in_all_modes(name, make, modes)
    return table_of(times(contenders, device, clock))


def table_of(found):
    """Return milliseconds by contender, then by mode."""
    table = {}
    for (name, mode), milliseconds in found.items():
        table.setdefault(name, {})[mode] = milliseconds
    return table


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--busy", action="store_true", help="its own time instead of the clock's")
    parser.add_argument("--largest", type=count, default=10**9, help="leave out graphs of more nodes")
    parser.add_argument("--only", default="", metavar="PARTS", help="cases whose name contains one of these")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the figures here, as JSON")
    options = parser.parse_args()
    modes = [*MODES] if options.device == "cuda" else ["eager", "compiled"]
    clock = time.process_time if options.busy else time.perf_counter
    if options.device == "cuda":
        need_cuda()
        if options.busy:
            parser.error("--busy is for the CPU; a GPU's time is not the process's")
    else:
        torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message=".*(TensorFloat32|AccumulateGrad|CUDA Graph is empty)")
    torch._dynamo.config.recompile_limit = 64  # contenders of one class share its code
    cases = CASES | (LARGE if options.device == "cuda" else {})
    cases = {name: case for name, case in cases.items() if sum(nodes for nodes, _ in case[0]) <= options.largest}
    machine, found = describe_machine(options.device) | {"clock": "own time" if options.busy else "wall"}, {}
    for kind, names, run in (("activation", ACTIVATIONS, activations), ("network", NETWORKS, networks)):
        for name in names:
            title = f"{kind}, {name}"
            if name not in cases or not any(part in title for part in options.only.split(",")):
                continue
            found[title] = run(*cases[name], options.device, modes, clock)
            echo(f"\n| {title}, milliseconds | " + " | ".join(f"{mode} | of ReLU's" for mode in modes) + " |")
            echo("|---" * (2 * len(modes) + 1) + "|")
            relu = found[title]["ReLU"]
            for contender, row in found[title].items():
                timed = [(row.get(mode), relu[mode]) for mode in modes]
                cells = (f"{one:.3f} | {one / base:.2f}" if one else "- | -" for one, base in timed)
                echo(f"| {contender} | " + " | ".join(cells) + " |")
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps({"machine": machine, "milliseconds": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
