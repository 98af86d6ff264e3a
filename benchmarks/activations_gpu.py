"""Graph-adaptive activations on a GPU, beside PyG's operations composed, at a size that does not fit a cache.

    python benchmarks/activations_gpu.py --out DIR

A random graph of 1,000,000 nodes and 16,000,000 directed edges, 64 features, two hops, in float32 and bfloat16; then a
power-law graph of the same size. A time is reported only after every hop and its way back were compared with the plain
reference. Times are medians of the device's own clock, with the cache cleared before each call; "replayed" is the
forward pass recorded as a CUDA graph, which does not wait for the host to start its kernels. The peak counts signals.
The floor is the time in which K + 1 passes would read every neighbour's row once at the bandwidth of a plain copy,
measured in the same run.
"""

import argparse
import json
import sys
from pathlib import Path

import torch
import triton
from arguments import need_cuda
from output import echo

from graphact import Graph
from graphact.functional import graph_adaptive
from graphact.kernels import reference
from graphact.kernels import triton as gpu
from graphact.kernels.autograd import tensors_of

NODES, EDGES, FEATURES, HOPS = 1_000_000, 16_000_000, 64, 2
OPS = ("max", "median", "kernel")
GAMMA = 0.5
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 1e-2}  # of a number's size plus the root mean square of all
ALLOWED = 1e-4  # share of values where nearly equal neighbours were told apart differently


def graph_of(ends, nodes):
    """Both directions of the given links, without loops and repetitions; weights keep sums of the size of a value."""
    index = torch.cat([ends, ends.flip(0)], dim=1)
    key = torch.unique((index[1] * nodes + index[0])[index[0] != index[1]])
    weight = torch.rand(len(key), device=key.device) / 16
    return Graph.from_edge_index(torch.stack([key % nodes, key // nodes]), weight, nodes)


def random_graph(nodes, edges):
    return graph_of(torch.randint(nodes, (2, edges // 2), device="cuda"), nodes)


def power_law_graph(nodes, edges):
    """One end of each link is drawn with probability proportional to its rank to the power of -3/4."""
    mass = torch.arange(1, nodes + 1, device="cuda", dtype=torch.float64).pow(-0.75).cumsum(0)
    draws = torch.rand(edges // 2, device="cuda", dtype=torch.float64) * mass[-1]
    popular = torch.randperm(nodes, device="cuda")[torch.searchsorted(mass, draws).clamp(max=nodes - 1)]
    return graph_of(torch.stack([popular, torch.randint_like(popular, nodes)]), nodes)


def composed(x, graph, beta, weights, op):
    """The composition a user of PyG would write: messages gathered along the edges, then aggregated."""
    from torch_geometric.nn.aggr import MaxAggregation, SumAggregation

    source, target = graph.incoming.col, graph.incoming.rows
    out, y = beta * torch.relu(x), x
    for weight in weights:
        y = SumAggregation()(graph.weight.unsqueeze(1) * y[source], target, dim_size=graph.num_nodes)
        if op == "max":
            value = MaxAggregation()(y[source], target, dim_size=graph.num_nodes)
        else:
            spread = SumAggregation()((y[target] - y[source]).square(), target, dim_size=graph.num_nodes)
            value = torch.exp(-spread / (2 * GAMMA**2))
        out = out + weight * value
    return out


class Case:
    """A signal, coefficients and a gradient for one graph and operation."""

    def __init__(self, graph, op, dtype):
        self.graph, self.op = graph.to(dtype=dtype), op
        self.x, self.grad = torch.randn(2, graph.num_nodes, FEATURES, device="cuda", dtype=dtype).unbind()
        self.x.requires_grad_()
        self.beta = torch.tensor(0.7, device="cuda", dtype=dtype, requires_grad=True)
        self.weights = torch.randn(HOPS, FEATURES, device="cuda", dtype=dtype, requires_grad=True)

    def ours(self):
        return graph_adaptive(self.x, self.graph, self.beta, self.weights, self.op, gamma=GAMMA)

    def theirs(self):
        return composed(self.x, self.graph, self.beta, self.weights, self.op)

    def results(self, run):
        """Values and gradients, in that order."""
        value = run()
        return [value.detach(), *torch.autograd.grad(value, [self.x, self.beta, self.weights], self.grad)]

    def disagrees(self):
        """Return the difference between the kernels and the float64 reference, hop by hop on equal inputs.

        Whole activations cannot be compared number by number: sums in another order let the odd comparison of nearly
        equal neighbours fall the other way in the next hop, and its gradient then goes elsewhere.
        """
        graph, exact = self.graph, tensors_of(self.graph.to(dtype=torch.float64))
        tensors, options = tensors_of(graph), ([self.op], False, True, graph.incoming.max_degree)
        for y in (self.x.detach(), gpu.shift(self.x.detach(), graph.weight, graph.incoming)):
            found = gpu.neighborhood_functions(y, tensors, *options)
            expected = reference.neighborhood_functions(y.double(), exact, *options)
            slots = {name: slot for name, slot in found.items() if "slot" in name}
            for name, slot in slots.items():
                if not torch.equal(slot, expected[name]):
                    return f"{(slot != expected[name]).sum()} choices"
            if not all(close(found[name], expected[name]) for name in (self.op, "shift")):
                return "values"
            del expected
            if self.op == "kernel":
                back = gpu.sum_sq_diff_backward(self.grad, y, *tensors.lists)
                right = reference.sum_sq_diff_backward(self.grad.double(), y.double(), *exact.lists)
            else:
                grads, wide = (
                    {self.op: one, "shift": two} for one, two in ((self.grad, y), (self.grad.double(), y.double()))
                )
                back = gpu.neighborhood_functions_backward(grads, slots, tensors, False)
                right = reference.neighborhood_functions_backward(wide, slots, exact, False)
            if not close(back, right):
                return "gradients"
        return None

    def differs_from(self, run):
        """The share of values that differ from those of another way to compute them."""
        with torch.no_grad():
            return far(self.ours(), run()).double().mean().item()

    def times(self, run):
        """Milliseconds of forward alone, and of forward with backward."""

        def both():
            run().backward(self.grad)

        leaves = [self.x, self.beta, self.weights]
        return milliseconds(without_gradients(run)), milliseconds(both, leaves)

    def peak(self):
        """Memory beyond the input and the graph while training, in signals."""
        self.results(self.ours)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        self.results(self.ours)
        return (torch.cuda.max_memory_allocated() - before) / self.x.nbytes


def without_gradients(run):
    def forward():
        with torch.no_grad():
            run()

    return forward


def far(found, right):
    """Return which numbers differ by more than rounding."""
    size = right.double().square().mean().sqrt()
    return (found.double() - right).abs() > TOLERANCE[found.dtype] * (right.abs() + size)


def close(found, right):
    return not far(found, right).any()


def milliseconds(function, leaves=None):
    return triton.testing.do_bench(function, warmup=20, rep=150, grad_to_none=leaves, return_mode="median")


def replayed(function):
    """Milliseconds of a recorded call."""
    return triton.testing.do_bench_cudagraph(function, rep=60, return_mode="median")


def copy_bandwidth():
    source = torch.randn(2**28, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.nbytes / 1e6 / milliseconds(lambda: target.copy_(source))


def measure(name, graph, bandwidth, peers=False, dtype=torch.float32):
    rows = []
    floor = (HOPS + 1) * graph.num_edges * FEATURES * dtype.itemsize / 1e6 / bandwidth
    echo(f"{name}: {graph.num_nodes:,} nodes, {graph.num_edges:,} edges, longest list {int(graph.degree.max()):,}")
    for op in OPS:
        case = Case(graph, op, dtype)
        mistake = case.disagrees()
        if mistake:
            echo(f"  {op}: WRONG {mistake}, not timed")
            rows.append({"graph": name, "op": op, "wrong": mistake})
            continue
        forward, both = case.times(case.ours)
        row = {"graph": name, "op": op, "forward": forward, "both": both, "peak": case.peak()}
        row["replayed"] = replayed(without_gradients(case.ours))
        row["of the floor"] = floor / row["replayed"]
        echo(
            f"  {op}: forward {forward:.2f} ms, replayed {row['replayed']:.2f} ms, with backward {both:.2f} ms, "
            f"peak {row['peak']:.1f} signals"
        )
        if peers and op != "median":  # PyG's median fails on CUDA tensors
            error = case.differs_from(case.theirs)
            if error <= ALLOWED:
                row["peer forward"], row["peer both"] = case.times(case.theirs)
                echo(f"    PyG {row['peer forward']:.1f} / {row['peer both']:.1f} ms")
            else:
                echo(f"    PyG composed differs in {error:.1e} of all numbers, not timed")
        rows.append(row)
        del case
        torch.cuda.empty_cache()
    return rows


def table(rows):
    """The figures as Markdown."""
    lines = [
        "| graph | activation | forward (ms) | replayed | with backward | PyG | ratio | floor / replayed | peak |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        if "forward" not in row:
            lines.append(f"| {row['graph']} | {row['op']}-ga (2) | wrong | | | | | | |")
            continue
        peer = ratio = "-"
        if "peer both" in row:
            peer = f"{row['peer forward']:.1f} / {row['peer both']:.1f}"
            ratio = f"{row['peer forward'] / row['forward']:.1f}x / {row['peer both'] / row['both']:.1f}x"
        lines.append(
            f"| {row['graph']} | {row['op']}-ga (2) | {row['forward']:.2f} | {row['replayed']:.2f} | "
            f"{row['both']:.2f} | {peer} | {ratio} | {row['of the floor']:.0%} | {row['peak']:.1f} |"
        )
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write activations-gpu.json and .md here")
    options = parser.parse_args()
    need_cuda()
    torch.manual_seed(0)
    bandwidth = copy_bandwidth()
    device = f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}"
    echo(f"{device}, copy {bandwidth:.0f} GB/s")
    graph = random_graph(NODES, EDGES)
    rows = measure("random", graph, bandwidth, peers=True)
    rows += measure("random, bfloat16", graph, bandwidth, dtype=torch.bfloat16)
    del graph
    torch.cuda.empty_cache()
    rows += measure("power law", power_law_graph(NODES, EDGES), bandwidth)
    echo("\n" + table(rows))
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "activations-gpu.json").write_text(json.dumps({"device": device, "rows": rows}, indent=1))
        (options.out / "activations-gpu.md").write_text(f"{device}\n\n{table(rows)}")
    sys.exit(any("forward" not in row for row in rows))


if __name__ == "__main__":
    main()
