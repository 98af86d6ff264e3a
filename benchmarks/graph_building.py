"""Time to build a graph from a list of edges, beside SciPy's CSR and CSC of the same edges on the CPU.

On the CPU: edges in any order, and sorted as PyG leaves them. With --device cuda: small graphs, a batch of proteins, a
citation graph of the size of arXiv, a union of built graphs, and how often each of them waits for the device.
Results are compared with SciPy's before anything is timed. One process, one thread.

    python benchmarks/graph_building.py
    python benchmarks/graph_building.py --device cuda
"""

import argparse
import statistics
import time
import warnings

import numpy as np
import scipy.sparse
import torch
from arguments import count, need_cuda
from output import echo

from graphact import Graph

ON_THE_CPU = {"10 k edges": (2_708, 10_556), "200 k edges": (20_000, 200_000), "3.6 M edges": (300_000, 3_600_000)}
ON_A_GPU = {"34 nodes": (34, 156), "Cora's size": (2_708, 10_556), "arXiv's size": (169_343, 2_332_486)}
PROTEINS = [(39, 146)] * 32
WARM = 0.3  # seconds of calls before those that are timed, on a GPU


def random_edges(nodes, edges, seed=0):
    """Undirected edges in any order, without loops; a few are repeated."""
    rng = np.random.default_rng(seed)
    one = rng.integers(0, nodes, edges // 2)
    other = (one + rng.integers(1, nodes, edges // 2)) % nodes
    ends = np.stack([np.concatenate([one, other]), np.concatenate([other, one])])
    return torch.from_numpy(ends[:, rng.permutation(ends.shape[1])]).contiguous()


def coalesced(edge_index):
    """Sorted by source, then by target, without repetition."""
    return torch.unique(edge_index, dim=1).contiguous()


def csr_and_csc(target, source, weight, nodes):
    """Time SciPy on the same graph."""
    matrix = scipy.sparse.coo_array((weight, (target, source)), shape=(nodes, nodes)).tocsr()
    matrix.sum_duplicates()
    return matrix, matrix.tocsc()


def check(graph, edge_index, weight, nodes):
    """Raise if the lists or the weights are not SciPy's."""
    source, target = edge_index.cpu().numpy()
    matrix, transposed = csr_and_csc(target, source, weight.double().cpu().numpy(), nodes)
    for lists, values, right in (
        (graph.incoming, graph.weight, matrix),
        (graph.outgoing, graph.outgoing_weight, transposed),
    ):
        np.testing.assert_array_equal(lists.rowptr.cpu().numpy(), right.indptr)
        np.testing.assert_array_equal(lists.col.cpu().numpy(), right.indices)
        np.testing.assert_allclose(values.double().cpu().numpy(), right.data, rtol=1e-6)


def milliseconds(function, repeats, device):
    """The median over calls, each with the device idle before and after; clocks have risen by then."""
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    times, warm = [], time.perf_counter() + (WARM if device == "cuda" else 0)
    while time.perf_counter() < warm:
        function()
    for _ in range(repeats + 2):
        wait()
        start = time.perf_counter()
        function()
        wait()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times[2:])


def synchronisations(function):
    """Count how often a call waits for the device."""
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            function()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return sum("called a synchronizing" in str(warning.message) for warning in caught)


def on_the_cpu(repeats):
    echo("| edges | order | Graph, ms | SciPy, ms | ratio |\n|---|---|---|---|---|")
    for name, (nodes, edges) in ON_THE_CPU.items():
        for order, arrange in (("any", lambda ends: ends), ("sorted", coalesced)):
            edge_index = arrange(random_edges(nodes, edges))
            weight = torch.rand(edge_index.size(1), generator=torch.Generator().manual_seed(0))
            check(Graph.from_edge_index(edge_index, weight, nodes), edge_index, weight, nodes)
            (source, target), values = edge_index.numpy(), weight.numpy()
            times = max(5, repeats // (1 + edges // 100_000))
            ours, theirs = [], []
            for _ in range(3):  # in turns, for a machine that others use, too
                ours.append(milliseconds(lambda: Graph.from_edge_index(edge_index, weight, nodes), times, "cpu"))
                theirs.append(milliseconds(lambda: csr_and_csc(target, source, values, nodes), times, "cpu"))
            ratio = min(ours) / min(theirs)
            echo(f"| {name} | {order} | {min(ours):.2f} | {min(theirs):.2f} | {ratio:.2f} |")


def on_a_gpu(repeats):
    need_cuda()
    echo("| graph | call | ms | synchronisations |\n|---|---|---|---|")

    def row(name, call, function):
        function()
        waits = synchronisations(function)
        echo(f"| {name} | {call} | {milliseconds(function, repeats, 'cuda'):.3f} | {waits} |")

    cases = {name: (nodes, random_edges(nodes, edges)) for name, (nodes, edges) in ON_A_GPU.items()}
    parts = [(nodes, coalesced(random_edges(nodes, edges, seed))) for seed, (nodes, edges) in enumerate(PROTEINS)]
    first = np.cumsum([0, *(nodes for nodes, _ in parts)]).tolist()
    batch = torch.cat([ends + offset for (_, ends), offset in zip(parts, first, strict=False)], dim=1)
    cases["32 proteins"] = first[-1], batch
    for name, (nodes, edge_index) in cases.items():
        edge_index = coalesced(edge_index).cuda()
        shuffled = edge_index[:, torch.randperm(edge_index.size(1), device="cuda")]
        weight = torch.rand(edge_index.size(1), device="cuda")
        graph = Graph.from_edge_index(shuffled, weight, nodes)
        check(graph, shuffled, weight, nodes)
        check(Graph.from_edge_index(edge_index, weight, nodes, is_coalesced=True), edge_index, weight, nodes)
        row(name, "from_edge_index", lambda: Graph.from_edge_index(shuffled, weight, nodes))
        row(name, "is_coalesced", lambda: Graph.from_edge_index(edge_index, weight, nodes, is_coalesced=True))
        row(name, 'normalize("symmetric")', lambda: graph.normalize("symmetric"))
    graphs = [Graph.from_edge_index(ends.cuda(), None, nodes) for nodes, ends in parts]
    check(Graph.union(graphs), batch, torch.ones(batch.size(1)), first[-1])
    row("32 proteins", "union of built graphs", lambda: Graph.union(graphs))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--repeats", type=count, default=100, help="calls of each small case")
    options = parser.parse_args()
    torch.set_num_threads(1)
    (on_the_cpu if options.device == "cpu" else on_a_gpu)(options.repeats)


if __name__ == "__main__":
    main()
