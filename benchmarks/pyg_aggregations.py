"""PyG's aggregations, layers and models before and after graphact.pyg, in one process, in turn.

    python benchmarks/pyg_aggregations.py                     on the CPU
    python benchmarks/pyg_aggregations.py --device cuda       also peak memory
    python benchmarks/pyg_aggregations.py --large             also 169k nodes and a million
    python benchmarks/pyg_aggregations.py --busy              CPU time of one thread, where others use the machine
    python benchmarks/pyg_aggregations.py --only "molecules"  cases whose name contains this
    python benchmarks/pyg_aggregations.py --out FILE.json     also write the figures

Forward and backward with gradients of everything trained; medians of blocks of calls. Values and gradients are compared
before anything is timed. The edge_index of models is new in every step, as batches of a loader are, so that sorting it
counts; layers and aggregations see one edge_index in all calls, as in training on one graph.
"""

import argparse
import copy
import json
import statistics
import time
from pathlib import Path

import torch
import torch_geometric
from arguments import need_cuda
from everyday import random_edges, seconds_of
from output import describe_machine, echo
from torch_geometric import nn
from torch_geometric.utils import degree

import graphact
from graphact._extras import is_installed
from graphact.kernels import autograd

CASES = {
    "34 nodes": [(34, 156)],
    "Cora's size": [(2_708, 10_556)],
    "128 molecules": [(23, 50)] * 128,
    "20,000 nodes": [(20_000, 200_000)],
}
LARGE = {"169k nodes": [(169_343, 2_332_486)], "a million nodes": [(1_000_000, 10_000_000)]}
WIDE = {"20,000 nodes, wide": ([(20_000, 200_000)], 64, 64), "169k nodes, wide": ([(169_343, 2_332_486)], 256, 128)}
FEATURES = 64
MAX_SORTED = 200_000_000  # messages times features that PyG's median is asked to sort
AGGREGATORS, SCALERS = ["mean", "min", "max", "std"], ["identity", "amplification", "attenuation"]
SECONDS_OF_A_BLOCK, BLOCKS = 0.05, 9
SLOW, FEW_BLOCKS = 1.0, 3  # seconds of a call from which on fewer are made


class Step:
    """A forward and a backward pass of a module, given the inputs without gradients."""

    def __init__(self, module, x, *inputs, is_batch=False):
        self.module, self.x, self.inputs, self.is_batch = module, x.clone().requires_grad_(), inputs, is_batch
        generator = torch.Generator(x.device).manual_seed(1)
        with torch.no_grad():
            shape = module(x, *inputs).shape
        self.cotangent = torch.randn(shape, generator=generator, device=x.device, dtype=x.dtype) / shape[0]

    def __call__(self):
        self.module.zero_grad()
        self.x.grad = None
        out = self.module(self.x, *(each.clone() if self.is_batch else each for each in self.inputs))
        out.backward(self.cotangent)
        return [out.detach(), self.x.grad, *(parameter.grad for parameter in self.module.parameters())]


def check_equal(theirs, ours):
    """Raise if results or gradients differ in float64, where no rounding decides which neighbour is the largest."""
    exact = [
        Step(copy.deepcopy(step.module).double(), step.x.detach().double(), *step.inputs) for step in (theirs, ours)
    ]
    for name, found, right in zip(("values", "gradients"), exact[1](), exact[0](), strict=False):
        apart = float((found - right).norm() / right.norm().clamp(min=1e-300))
        if not apart < 1e-8:
            raise RuntimeError(f"{name} of {type(theirs.module).__name__} differ by {apart:.1e}")


def peak_of(step):
    """Megabytes on the device beyond what was there before."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def compare(theirs, ours, device, clock):
    """Compare results in float64, then times."""
    check_equal(theirs, ours)
    return times_of((theirs, ours), device, clock)


def check_close(theirs, ours):
    """Raise if results differ by more than float32 explains; float64 would not fit."""
    for found, right in zip(ours(), theirs(), strict=True):
        if not float((found - right).norm() / right.norm().clamp(min=1e-30)) < 1e-2:
            raise RuntimeError(f"{type(theirs.module).__name__} differs")


def times_of(both, device, clock):
    """Milliseconds of PyG's step and ours, in turn, and on a GPU the peak memory."""
    steps = dict(zip(("pyg", "graphact"), both, strict=True))
    first = {name: seconds_of(step, 1, device, clock) for name, step in steps.items()}
    calls = {name: max(1, int(SECONDS_OF_A_BLOCK / seconds)) for name, seconds in first.items()}
    found = {name: [] for name in steps}
    for _ in range(FEW_BLOCKS if max(first.values()) > SLOW else BLOCKS):
        for name, step in steps.items():
            found[name].append(1e3 * seconds_of(step, calls[name], device, clock))
    row = {name: statistics.median(values) for name, values in found.items()}
    row |= {f"{name}_range": [min(values), max(values)] for name, values in found.items()}
    if device == "cuda":
        row |= {f"{name}_mb": peak_of(step) for name, step in steps.items()}
    return row


class Gathered(torch.nn.Module):
    """An aggregation of the values of the senders, as a convolution of PyG calls it."""

    def __init__(self, aggregation):
        super().__init__()
        self.aggregation = aggregation

    def forward(self, x, edge_index):
        return self.aggregation(x[edge_index[0]], edge_index[1], dim_size=len(x))


def contenders(edge_index, nodes, device):
    """Yield a name, PyG's module, ours, and whether each call is a new batch."""
    is_sortable = edge_index.size(1) * FEATURES <= MAX_SORTED
    medians = ["median"] if is_sortable else []
    histogram = torch.bincount(degree(edge_index[1], nodes, dtype=torch.long)).cpu()
    pna = {"aggregators": AGGREGATORS, "scalers": SCALERS, "deg": histogram}
    for name in ("max", "min", *medians, "std"):
        kind = f"{name.capitalize()}Aggregation"
        both = (Gathered(getattr(package, kind)()).to(device) for package in (nn, graphact.pyg))
        yield f"aggregation {name}", *both, False
    four = (Gathered(package.MultiAggregation(AGGREGATORS)).to(device) for package in (nn, graphact.pyg))
    yield "aggregations of PNA", *four, False
    modules = {f"SAGEConv {name}": nn.SAGEConv(FEATURES, FEATURES, name) for name in ("mean", "max", *medians, "std")}
    modules["PNAConv"] = nn.PNAConv(FEATURES, FEATURES, **pna)
    modules["GraphSAGE max, 4 layers"] = nn.GraphSAGE(FEATURES, FEATURES, 4, aggr="max")
    modules["PNA, 4 layers"] = nn.PNA(FEATURES, FEATURES, 4, **pna)
    for name, module in modules.items():
        module = module.to(device)
        yield name, module, graphact.pyg.accelerate(copy.deepcopy(module)), "layers" in name


def measure_case(sizes, device, clock):
    """All rows of one graph."""
    generator = torch.Generator().manual_seed(0)
    edge_index, nodes = random_edges(sizes, generator)
    edge_index = torch.cat([edge_index, torch.arange(nodes).repeat(2, 1)], 1)  # PyG's median needs a message to node 0
    x, edge_index = torch.randn(nodes, FEATURES, generator=generator).to(device), edge_index.contiguous().to(device)
    rows = {}
    for name, theirs, ours, is_batch in contenders(edge_index, nodes, device):
        torch.manual_seed(0)
        steps = (Step(module, x, edge_index, is_batch=is_batch) for module in (theirs, ours))
        try:
            rows[name] = row = compare(*steps, device, clock)
        except torch.OutOfMemoryError:
            echo(f"| {name} | out of memory |")
            continue
        show(name, row)
    return rows


def show(name, row):
    """Print a row of the table."""
    memory = f" {row['pyg_mb']:.0f} | {row['graphact_mb']:.0f} |" if "pyg_mb" in row else ""
    echo(f"| {name} | {row['pyg']:.3f} | {row['graphact']:.3f} | {row['pyg'] / row['graphact']:.1f} |{memory}")


class OnePass(torch.nn.Module):
    """The shift, the maximum, the minimum and the standard deviation of the neighbours, side by side."""

    def __init__(self, graph):
        super().__init__()
        self.graph = graph

    def forward(self, x, _):
        return torch.cat(autograd.neighborhood_functions(x, self.graph, ("max", "min", "std"), shift=True), -1)


class FourAggregations(torch.nn.Module):
    """The same with PyG's aggregations of weighted and unweighted messages."""

    def __init__(self, weight):
        super().__init__()
        self.weight, self.kinds = weight, [nn.SumAggregation(), nn.MaxAggregation(), nn.MinAggregation()]
        self.std = nn.StdAggregation()

    def forward(self, x, edge_index):
        messages, target = x[edge_index[0]], edge_index[1]
        terms = [messages * self.weight.unsqueeze(-1), messages, messages]
        found = [kind(term, target, dim_size=len(x)) for kind, term in zip(self.kinds, terms, strict=True)]
        return torch.cat([*found, self.std(messages, target, dim_size=len(x))], -1)


def wide_rows(sizes, features, pna_features, device, clock):
    """One fused pass over a graph of signals this wide, and training PNA of three layers on it."""
    generator = torch.Generator().manual_seed(0)
    edge_index, nodes = random_edges(sizes, generator)
    histogram = torch.bincount(degree(edge_index[1], nodes, dtype=torch.long))
    edge_index = edge_index.to(device)
    weight = torch.rand(edge_index.size(1), generator=generator).to(device)
    graph = graphact.Graph.from_edge_index(edge_index, weight, nodes)
    x = torch.randn(nodes, features, generator=generator).to(device)
    modules = FourAggregations(weight), OnePass(graph)
    both = [Step(module, x, edge_index) for module in modules]
    check_close(*both)
    row = times_of(both, device, clock)
    show(f"shift, max, min and std, {features} features", row)
    rows, megabytes = {"one pass": row}, nodes * features * 4 / 2**20
    if device == "cuda":
        peaks = [row[f"{name}_mb"] / megabytes for name in ("pyg", "graphact")]
        echo(f"peak in signals: {peaks[0]:.1f} and {peaks[1]:.1f}")
    pna = nn.PNA(pna_features, pna_features, 3, aggregators=AGGREGATORS, scalers=SCALERS, deg=histogram).to(device)
    ours = graphact.pyg.accelerate(copy.deepcopy(pna))
    x = x[:, :pna_features].contiguous()
    both = [Step(module, x, edge_index) for module in (pna, ours)]
    check_close(*both)
    rows["PNA, 3 layers"] = row = times_of(both, device, clock)
    show(f"PNA, 3 layers, {pna_features} wide", row)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--large", action="store_true", help="also the large graphs")
    parser.add_argument("--only", default="", metavar="PART", help="cases whose name contains this")
    parser.add_argument("--busy", action="store_true", help="one thread and its CPU time, on a machine that others use")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the figures here, as JSON")
    options = parser.parse_args()
    if options.device == "cuda":
        need_cuda()
    clock = time.perf_counter
    if options.busy:
        torch.set_num_threads(1)
        clock = time.process_time
    extras = {name: is_installed(name) for name in ("torch_scatter", "pyg_lib")}
    machine = describe_machine(options.device) | {"clock": "own time" if options.busy else "wall"}
    found = {"machine": machine | extras}
    versions = f"torch {torch.__version__}, PyG {torch_geometric.__version__}"
    echo(f"{versions}, {machine['threads']} threads, {options.device}")
    echo("PyG uses " + ", ".join(f"{name} ({'' if has else 'not '}installed)" for name, has in extras.items()))
    for case, sizes in (CASES | (LARGE if options.large else {})).items():
        if options.only in case:
            echo(f"\n{case}, {FEATURES} features\n\n| | PyG ms | graphact ms | times as fast |")
            echo("|---|---|---|---|")
            found[case] = measure_case(sizes, options.device, clock)
    for case, (sizes, features, width) in WIDE.items():
        if options.only in case and (options.large or sizes[0][0] < 100_000):
            echo(f"\n{case}\n\n| | PyG ms | graphact ms | times as fast |\n|---|---|---|---|")
            found[case] = wide_rows(sizes, features, width, options.device, clock)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
