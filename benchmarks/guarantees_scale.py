"""Cost of a Lipschitz constant over the number of nodes, the kind of graph, and the number of layers.

    python benchmarks/guarantees_scale.py                       all rows of the tables in docs/guarantees.md
    python benchmarks/guarantees_scale.py --only cora           rows whose name contains a word

GCNN with 16 features in every layer, order 1, graph-adaptive max over one hop, 7 outputs, weights as they are drawn,
symmetric normalisation. Every row is a process of its own, so that its memory is its own (the largest resident size);
seconds of the processor are given beside those of the clock, since other work may share the machine.
"""

import argparse
import json
import math
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch
from output import echo
from scipy.spatial import KDTree

import graphact
from graphact.guarantees import lipschitz_bound
from graphact_lab.data.planetoid import read_planetoid

SIZES = (100, 1000, 5000, 20000)
LAYERS = (1, 2, 3, 4)
DEGREE = 10
CORA = (2708, 10556)


def geometric(nodes, edges):
    """Points in a square that hear each other within a radius, such that there are so many edges in both directions."""
    points = np.random.default_rng(0).random((nodes, 2))
    pairs = KDTree(points).query_pairs(2 * math.sqrt(edges / (nodes * nodes * math.pi)), output_type="ndarray").T
    nearest = np.linalg.norm(points[pairs[0]] - points[pairs[1]], axis=-1).argsort()
    pairs = pairs[:, nearest[: edges // 2]]
    return both_directions(torch.from_numpy(pairs.astype(np.int64)), nodes)


def random(nodes, edges):
    """Pairs of nodes, drawn uniformly."""
    pairs = torch.randint(nodes, (2, edges // 2), generator=torch.Generator().manual_seed(0))
    return both_directions(pairs[:, pairs[0] != pairs[1]], nodes)


def both_directions(pairs, nodes):
    edge_index = torch.unique(torch.cat([pairs, pairs.flip(0)], 1), dim=1)
    return graphact.Graph.from_edge_index(edge_index, num_nodes=nodes)


def cora(nodes, _):
    return graphact.Graph.from_edge_index(read_planetoid("cora").edge_index, num_nodes=nodes)


def rows():
    """Name, kind of graph, nodes, edges, layers."""
    yield "Cora", "cora", *CORA, 2
    yield "random, Cora's size", "random", *CORA, 2
    for kind in ("geometric", "random"):
        for size in SIZES:
            yield f"{kind} {size}", kind, size, DEGREE * size, 2
    for layers in LAYERS:
        yield f"depth geometric {layers}", "geometric", 1000, DEGREE * 1000, layers


def measure(name, kind, nodes, edges, layers):
    graph = {"cora": cora, "geometric": geometric, "random": random}[kind](nodes, edges).normalize("symmetric")
    torch.manual_seed(0)
    model = graphact.nn.GCNN([16] * (layers + 1), order=1, activation="max-ga", hops=1, out_features=7, start="uniform")
    wall, processor = time.perf_counter(), time.process_time()
    bound = lipschitz_bound(model, graph)
    return {
        "name": name,
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "layers": layers,
        "constant": bound.value,
        "product": bound.composed,
        "forms": bound.uses_forms,
        "seconds": time.perf_counter() - wall,
        "processor": time.process_time() - processor,
        "gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--out", type=Path, default=Path("out/guarantees/scale.json"))
    parser.add_argument("--row", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.row is not None:
        echo(json.dumps(measure(*json.loads(options.row))))
        return
    echo("| graph | nodes | edges | layers | constant | product | product / constant | forms | s | CPU s | GB |")
    echo("|---|---|---|---|---|---|---|---|---|---|---|")
    found = []
    for row in rows():
        if options.only.lower() in row[0].lower():
            command = [sys.executable, __file__, "--row", json.dumps(row)]
            found.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
            one = found[-1]
            echo(
                f"| {one['name']} | {one['nodes']:,} | {one['edges']:,} | {one['layers']} | {one['constant']:.4g} | "
                f"{one['product']:.4g} | {one['product'] / one['constant']:.2f} | {'yes' if one['forms'] else 'no'} | "
                f"{one['seconds']:.1f} | {one['processor']:.1f} | {one['gigabytes']:.2f} |"
            )
            options.out.parent.mkdir(parents=True, exist_ok=True)
            options.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
