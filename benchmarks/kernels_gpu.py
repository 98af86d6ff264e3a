"""Check each Triton kernel against the reference on the device, then time it.

Run: python benchmarks/kernels_gpu.py [a b c d]

Times are those of the device alone (calls recorded as a CUDA graph, replayed between CUDA events; median of repeats).
Small signals rotate through copies, so that a call does not find its input in the cache. GB/s counts the numbers of
neighbours that are read; "of copy" is its ratio to the bandwidth of a plain copy measured in the same run.
"""

# ruff: noqa: T201

import statistics
import sys
import time

import torch

from graphact import Graph
from graphact.kernels import gpu, reference
from graphact.kernels.reference import Lists

REPEATS = 9
ROTATE_OVER = 256 * 2**20  # bytes, several times the cache
TOLERANCE = 1e-4


def graph_of(index, nodes):
    """Edges without loops and repetitions, each with a random weight."""
    key = torch.unique((index[1] * nodes + index[0])[index[0] != index[1]])
    index = torch.stack([key % nodes, key // nodes])
    return Graph.from_edge_index(index, torch.rand(index.size(1), device=index.device), num_nodes=nodes)


def random_edges(nodes, edges, skew=1.0):
    source, target = torch.rand(2, edges, device="cuda", dtype=torch.float64)
    return torch.stack([(source * nodes).long(), (target**skew * nodes).long()])


def fleet():
    one = torch.rand(400, 40, 40, device="cuda") < 11 / 39
    number, target, source = one.nonzero().T
    return graph_of(torch.stack([source + 40 * number, target + 40 * number]), 16_000)


def power_law(nodes=1_000_000, hub=100_000):
    heard = torch.randint(nodes, (4, hub), device="cuda")
    hubs = torch.stack([heard.flatten(), torch.arange(4, device="cuda").repeat_interleave(hub) * (nodes // 4)])
    return graph_of(torch.cat([random_edges(nodes, 6_000_000, skew=2.5), hubs], 1), nodes)


REGIMES = {
    "a": ("fleet: 400 graphs of 40 nodes, 800 columns", fleet, (16_000, 800)),
    "b": ("1M nodes, 16M edges, 64 columns", lambda: graph_of(random_edges(10**6, 16 * 10**6), 10**6), (10**6, 64)),
    "c": (
        "batch 100, 100 nodes, degree 24, 32 columns",
        lambda: graph_of(random_edges(100, 2_730), 100),
        (100, 100, 32),
    ),
    "d": ("power law, hubs of 100,000 neighbours, 64 columns", power_law, (10**6, 64)),
}


def calls(graph, chosen, grad):
    """Name, numbers read for each edge and column, and the call, with the module that runs it left open."""
    incoming, outgoing = Lists.of(graph.incoming), Lists.of(graph.outgoing)
    return [
        ("shift", 1, lambda run, x: run.shift(x, graph.weight, incoming)),
        ("weight grad", 1, lambda run, x: run.shift_weight_grad(grad, x, incoming)),
        ("max", 1, lambda run, x: run.select(x, None, incoming, "max", False)),
        ("max, 2nd hop", 2, lambda run, x: run.select(x, chosen, incoming, "max", False)),
        ("median", 1, lambda run, x: run.select(x, None, incoming, "median", False)),
        ("median, 2nd hop", 2, lambda run, x: run.select(x, chosen, incoming, "median", False)),
        ("route", 0, lambda run, x: run.route(x, chosen)),
        ("spread", 1, lambda run, x: run.spread(x, incoming)),
        ("pull", 3, lambda run, x: run.pull(grad, x, incoming, outgoing)),
    ]


def difference(actual, expected):
    """The largest difference relative to the largest number; labels must be equal."""
    if isinstance(actual, tuple):
        return difference(actual[0], expected[0]) if torch.equal(actual[1], expected[1]) else float("inf")
    return ((actual - expected).abs().max() / expected.abs().max().clamp(min=1e-30)).item()


def milliseconds(function, inputs):
    """Median device time of one call."""
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        for x in inputs:
            function(x)
    times = []
    for _ in range(REPEATS + 2):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        recorded.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / len(inputs))
    return statistics.median(times[2:])


def main():
    """Print a table for each regime that was asked for; fail if any result was wrong."""
    torch.manual_seed(0)
    big = torch.empty(2**28, device="cuda")
    target = torch.empty_like(big)
    copy = 2 * big.nbytes / 1e6 / milliseconds(target.copy_, [big])
    del big, target
    versions = f"torch {torch.__version__}, triton {gpu.triton.__version__}"
    print(f"{torch.cuda.get_device_name()}, {versions}, copy {copy:.0f} GB/s")
    wrong = 0
    for name in sys.argv[1:] or REGIMES:
        begin, (title, build, shape) = time.time(), REGIMES[name]
        graph = build()
        x, grad = torch.randn(2, *shape, device="cuda")
        copies = [x] + [x.clone() for _ in range(min(ROTATE_OVER // x.nbytes, 64))]
        chosen = reference.select(x, None, Lists.of(graph.incoming), "max", False)[1]
        longest, edges = int(graph.incoming.sizes[-1, 0]), graph.weight.numel()
        print(f"\n({name}) {title}: {edges:,} edges, longest list {longest:,}, {len(copies)} copies")
        print(f"{'':16}{'ms':>9}{'GB/s':>9}{'of copy':>9}{'difference':>12}")
        for kernel, reads, call in calls(graph, chosen, grad):
            error = difference(call(gpu, x), call(reference, x))
            if not error <= TOLERANCE:
                wrong += 1
                print(f"{kernel:16}  WRONG, not timed: {error:.1e}")
                continue
            ms = milliseconds(lambda signal, call=call: call(gpu, signal), copies)
            rate = (reads * edges / graph.num_nodes if reads else 3) * x.nbytes / 1e6 / ms
            print(f"{kernel:16}{ms:9.3f}{rate:9.0f}{rate / copy:9.2f}{error:12.1e}")
        print(f"{time.time() - begin:.1f} s")
        del graph, x, grad, copies, chosen
        torch.cuda.empty_cache()
    sys.exit(wrong)


if __name__ == "__main__":
    main()
