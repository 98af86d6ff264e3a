"""Size and homophily of the graphs of node classification, which docs/tables/node-classification.csv has beside gains.

    python benchmarks/graph_statistics.py        write results/benchmarks/graphs.json

Edge homophily is the share of edges between nodes of one class. Adjusted homophily (Platonov et al. 2023) subtracts
what edges drawn at random between the same degrees would have: 0 where classes say nothing about edges, 1 where all
edges stay inside a class.
"""

import argparse
import json
import sys
from pathlib import Path

import torch
from output import echo

from graphact.storage import write_atomically
from graphact_lab.data.download import DataError
from graphact_lab.data.node_sets import NodeData, read_nodes
from graphact_lab.experiments.node_classification.experiment import OVERLAP

FILE = Path(__file__).parents[1] / "results" / "benchmarks" / "graphs.json"


def statistics_of(data: NodeData) -> dict[str, float]:
    """Nodes, undirected edges, classes, and both kinds of homophily; edges of nodes without a class do not count."""
    ends, _ = data.graph.to_edge_index()
    ends = ends[:, data.has_label[ends].all(0)]
    first, second = data.y[ends]
    same = (first == second).double().mean()
    by_chance = (torch.bincount(first).double() / first.numel()).square().sum()
    return {
        "nodes": data.graph.num_nodes,
        "edges": data.graph.num_edges // 2,
        "classes": data.num_classes,
        "homophily": round(same.item(), 4),
        "adjusted_homophily": round(((same - by_chance) / (1 - by_chance)).item(), 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=FILE)
    options = parser.parse_args()
    found = {}
    for name in sorted(OVERLAP):
        try:
            found[name] = statistics_of(read_nodes(name))
        except DataError as error:
            sys.exit(str(error))
        echo(f"{name}: {found[name]}")
    write_atomically(options.out, (json.dumps(found, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
