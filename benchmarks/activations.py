"""Time activations beside PyG's aggregations composed, and beside the memory limit.

    python benchmarks/activations.py              on the CPU: the paper's graph and a large random one, one hop
    python benchmarks/activations.py --out DIR    also write DIR/activations-cpu.json and .md

For a GPU there is activations_gpu.py.

A time is reported only for a right result: values and gradients are first compared with the reference, PyG's with ours.
The gather floor is the time to read a row for every edge in each pass, at the copy bandwidth measured in the same run.
Times are medians (fastest..slowest).
"""

import argparse
import json
import time
from pathlib import Path

import torch
from limits import copy_bandwidth
from output import echo

import graphact
from graphact import Graph
from graphact._extras import is_installed
from graphact.benchmarking import OPERATIONS, Bench, markdown


def weighted(source, target, nodes, edges):
    """A graph of so many of the given edges, each once and without loops, with weights that keep a signal's size."""
    key = torch.unique((target * nodes + source)[source != target])
    key = key[torch.randperm(len(key))[:edges]]
    weight = torch.rand(len(key)) * 2 * nodes / len(key)
    return Graph.from_edge_index(torch.stack([key % nodes, key // nodes]), weight, num_nodes=nodes)


def random_graph(nodes, edges):
    """Every node hears a few others, chosen at random."""
    source, target = torch.randint(nodes, (2, edges + edges // 50 + 10))
    return weighted(source, target, nodes, edges)


def paper_graph():
    """The stochastic block model of the paper's consensus experiment."""
    generator = torch.Generator().manual_seed(0)
    return Graph.stochastic_block_model([20] * 5, p=0.8, q=0.1, generator=generator).normalize("spectral")


def run_case(title, graph, features, hops, operations, options, bandwidth, against_pyg=True):
    """Measure one graph; say each row as it comes."""
    begun = time.perf_counter()
    bench = Bench(graph, features, hops, bandwidth, options.repeats)
    rows = [bench.shift()]
    for op in operations:
        rows.append(bench.activation(op, against_pyg=against_pyg and is_installed("torch_geometric")))
        echo(f"  {title}: {op} measured, {time.perf_counter() - begun:.0f} s")
    case = {"case": title, "nodes": graph.num_nodes, "edges": graph.num_edges, "features": features, "hops": hops}
    case["longest list"] = graph.incoming.groups[-1][0]
    case["rows"] = rows
    return case


def measured_cases(options, bandwidth):
    """One hop on the paper's graph and on a large sparse one."""
    yield run_case("SBM", paper_graph(), 3200 // options.shrink, 1, OPERATIONS, options, bandwidth)
    nodes, edges = 200_000 // options.shrink, 3_600_000 // options.shrink
    graph = random_graph(nodes, edges)
    yield run_case("random", graph, 32, 1, ("max", "median"), options, bandwidth)


def describe(case):
    """A title and a table."""
    sizes = f"{case['nodes']:,} nodes, {case['edges']:,} edges (longest list {case['longest list']:,})"
    return (
        f"### {case['case']}: {sizes}, {case['features']} features, {case['hops']} hops\n\n{markdown(case['rows'])}\n"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, metavar="DIR", help="write the figures here, as JSON and Markdown")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--shrink", type=int, default=1, help="divide the sizes by this, to try the command out")
    options = parser.parse_args()
    torch.manual_seed(0)
    name = f"CPU, {torch.get_num_threads()} threads"
    bandwidth = copy_bandwidth("cpu")
    title = f"graphact {graphact.__version__}, torch {torch.__version__}, {name}, copies at {bandwidth / 1e9:.0f} GB/s"
    echo(title)
    cases = []
    for case in measured_cases(options, bandwidth):
        cases.append(case)
        echo("\n" + describe(case))
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        file = options.out / "activations-cpu"
        figures = {"device": name, "torch": torch.__version__, "copy bytes a second": bandwidth, "cases": cases}
        file.with_suffix(".json").write_text(json.dumps(figures, indent=1) + "\n")
        text = "\n".join([f"{title}.\n", *(describe(case) for case in cases)])
        file.with_suffix(".md").write_text(text.rstrip() + "\n")


if __name__ == "__main__":
    main()
