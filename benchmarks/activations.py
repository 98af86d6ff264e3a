"""How fast activations are against PyG's aggregations composed, and how near they come to the memory limit.

    python benchmarks/activations.py                  on the CPU: the paper's graph and a large random one, one hop
    python benchmarks/activations.py --device cuda    a million nodes, random and with hubs, two hops, and peak memory
    python benchmarks/activations.py --out DIR        also write DIR/activations-cpu.json and .md

A time is reported only for a right result: values and gradients are first compared with the reference, PyG's with ours.
Shares are of the copy bandwidth measured in the same run: the gather floor reads a row for every edge in each pass, the
compulsory traffic moves every number once. Times are medians (fastest..slowest).
"""

import argparse
import json
import sys
import time
from pathlib import Path

import torch
from limits import copy_bandwidth

import graphact
from graphact import Graph
from graphact.benchmarking import peers
from graphact.benchmarking.activations import OPERATIONS, Bench
from graphact.benchmarking.table import markdown


def weighted(source, target, nodes, edges):
    """A graph of so many of the given edges, each once and without loops, with weights that keep a signal's size."""
    key = torch.unique((target * nodes + source)[source != target])
    key = key[torch.randperm(len(key), device=key.device)[:edges]]
    weight = torch.rand(len(key), device=key.device) * 2 * nodes / len(key)
    return Graph.from_edge_index(torch.stack([key % nodes, key // nodes]), weight, num_nodes=nodes)


def random_graph(nodes, edges, device):
    """Every node hears a few others, chosen at random."""
    source, target = torch.randint(nodes, (2, edges + edges // 50 + 10), device=device)
    return weighted(source, target, nodes, edges)


def power_law_graph(nodes, edges, device, hub=0.1):
    """Few nodes hear very many, the first a tenth of all, and most hear few; hubs lie anywhere."""
    steepness = torch.log(torch.tensor(float(nodes))) / torch.log(torch.tensor(edges / (hub * nodes)))
    drawn = 2 if nodes < 10_000 else 1.1
    rank = torch.rand(int(drawn * edges), device=device, dtype=torch.float64) ** steepness.item()
    target = torch.randperm(nodes, device=device)[(rank * nodes).long()]
    return weighted(torch.randint(nodes, target.shape, device=device), target, nodes, edges)


def paper_graph(device):
    """The stochastic block model of the paper's consensus experiment."""
    generator = torch.Generator().manual_seed(0)
    return Graph.stochastic_block_model([20] * 5, p=0.8, q=0.1, generator=generator).normalize("spectral").to(device)


def run_case(title, graph, features, hops, operations, options, bandwidth, against_pyg=True):
    """Measure one graph; say each row as it comes."""
    begun = time.perf_counter()
    bench = Bench(graph, features, hops, options.repeats)
    rows = [bench.shift()]
    for op in operations:
        rows.append(bench.activation(op, against_pyg=against_pyg and peers.is_installed()))
        say(f"  {title}: {op} measured, {time.perf_counter() - begun:.0f} s")
    case = {"case": title, "nodes": graph.num_nodes, "edges": graph.num_edges, "features": features, "hops": hops}
    case["longest list"] = graph.incoming.groups[-1][0]
    case["rows"] = [row.as_dict(bandwidth) for row in rows]
    if graph.device.type == "cuda":
        case["peak extra memory, signals"] = bench.peak_memory("max") / bench.x.nbytes
    return case


def on_cpu(options, bandwidth):
    """One hop on the paper's graph and on a large sparse one."""
    yield run_case("SBM", paper_graph("cpu"), 3200 // options.shrink, 1, OPERATIONS, options, bandwidth)
    nodes, edges = 200_000 // options.shrink, 3_600_000 // options.shrink
    graph = random_graph(nodes, edges, "cpu")
    yield run_case("random", graph, 32, 1, ("max", "median"), options, bandwidth)


def on_cuda(options, bandwidth):
    """Two hops on a million nodes: neighbours at random, and hubs with a hundred thousand neighbours."""
    nodes, edges, device = 1_000_000 // options.shrink, 16_000_000 // options.shrink, options.device
    yield run_case("random", random_graph(nodes, edges, device), 64, 2, OPERATIONS, options, bandwidth)
    graph = power_law_graph(nodes, edges, device)
    yield run_case("power law", graph, 64, 2, OPERATIONS, options, bandwidth, against_pyg=False)


def describe(case):
    """A title and a table."""
    sizes = f"{case['nodes']:,} nodes, {case['edges']:,} edges (longest list {case['longest list']:,})"
    text = (
        f"### {case['case']}: {sizes}, {case['features']} features, {case['hops']} hops\n\n{markdown(case['rows'])}\n"
    )
    if "peak extra memory, signals" in case:
        peak = case["peak extra memory, signals"]
        text += f"\nPeak extra memory of training max-ga: {peak:.2f} times the signal (N x C x 4 bytes).\n"
    return text


def against_random(cases):
    """How much longer the graph with hubs takes."""
    by_title = {case["case"]: {row["name"]: row for row in case["rows"]} for case in cases}
    if "power law" not in by_title:
        return ""
    lines = []
    for name, row in by_title["power law"].items():
        other = by_title["random"][name]
        ratios = [row[what]["median"] / other[what]["median"] for what in ("forward", "training")]
        lines.append(f"- {name}: {ratios[0]:.2f} forward, {ratios[1]:.2f} with backward")
    return "Time on the power-law graph over time on the random one:\n\n" + "\n".join(lines) + "\n"


def say(line):
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--out", type=Path, metavar="DIR", help="write the figures here, as JSON and Markdown")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--shrink", type=int, default=1, help="divide the sizes by this, to try the command out")
    parser.add_argument("--cases", choices=("cpu", "cuda"), help="the cases of another device")
    options = parser.parse_args()
    torch.manual_seed(0)
    name = torch.cuda.get_device_name() if options.device == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    bandwidth = copy_bandwidth(options.device)
    title = f"graphact {graphact.__version__}, torch {torch.__version__}, {name}, copies at {bandwidth / 1e9:.0f} GB/s"
    say(title)
    cases = []
    for case in {"cpu": on_cpu, "cuda": on_cuda}[options.cases or options.device](options, bandwidth):
        cases.append(case)
        say("\n" + describe(case))
    say(against_random(cases))
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        file = options.out / f"activations-{options.device}"
        figures = {"device": name, "torch": torch.__version__, "copy bytes a second": bandwidth, "cases": cases}
        file.with_suffix(".json").write_text(json.dumps(figures, indent=1) + "\n")
        text = "\n".join([f"{title}.\n", *(describe(case) for case in cases), against_random(cases)])
        file.with_suffix(".md").write_text(text.rstrip() + "\n")


if __name__ == "__main__":
    main()
