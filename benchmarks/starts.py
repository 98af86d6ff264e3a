"""Accuracy from each start of an activation's weights and of the kernel's gamma, beside ReLU.

    python benchmarks/starts.py cora citeseer pubmed source-localization --data DATA --out out/starts.jsonl
    python benchmarks/starts.py cora --only relu max-ga --seeds 3      less, to see that it runs
    python benchmarks/starts.py --out out/starts.jsonl                 the tables of what was measured

Node classification: the GCN of the README, of two GCNConv layers of PyG, 64 wide, with the activation
and dropout 0.5 between them; public split, Adam, rate 0.01, weight decay 5e-4, 200 epochs; test accuracy at the epoch
with the best validation accuracy. A seed decides the convolutions' first weights and all dropout, for all activations
alike. The activation is called with the edge_index, normalised by its default. `cora-deep` and `citeseer-deep` are the
same with five layers.

Source localization: the experiment's preset `quick`, with 6 graphs and seed 7, which no table uses; a line is 48
networks, and its interval is over the means of the graphs.

Intervals are 95 % (Student's t). What is in the file of --out is not measured again.
"""

import argparse
import itertools
import json
import math
import statistics
import time
from dataclasses import replace
from pathlib import Path

import scipy.stats
import torch
from arguments import count
from output import echo
from torch import nn
from torch_geometric.nn import GCNConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import to_torch_csr_tensor

from graphact import Graph
from graphact.functional import graph_filter
from graphact.nn import GCNN, make_activation
from graphact.training import Fleet
from graphact_lab.data.planetoid import read_planetoid
from graphact_lab.descriptions import find_experiment, find_protocol
from graphact_lab.protocols import run_seed

CITATIONS = ("cora", "citeseer", "pubmed", "cora-deep", "citeseer-deep")
DEEP = 5  # layers
EVERY = (*CITATIONS, "source-localization")
WIDTH, DROPOUT, EPOCHS, RATE, DECAY = 64, 0.5, 200, 0.01, 5e-4
DENSE_FROM = 0.05  # of the features not zero: a dense product is faster
SEED = 7
GAMMAS = {  # constant or learned, from where; None: the root mean square distance to a node's neighbours at the start
    "gamma 1": {"gamma": 1.0},
    "gamma learned from 1": {"gamma": 1.0, "learn_gamma": True},
    "gamma learned from the data": {"gamma": None, "learn_gamma": True},
}
CASES = {
    "relu": ("relu", {}),
    **{
        f"{name}, {start}": (name, {"start": start})
        for name in ("max-ga", "median-ga", "kernel-ga", "max-l")
        for start in ("uniform", "small", "zero")
    },
    **{
        f"kernel-ga, {start}, {gamma}": ("kernel-ga", {"start": start, **options})
        for start in ("uniform", "zero")
        for gamma, options in GAMMAS.items()
    },
    **{
        f"raw weights, max-ga, {start}": ("max-ga", {"start": start, "normalize": None})
        for start in ("uniform", "zero")
    },
}


class Features(nn.Module):
    """The linear map of the first convolution on features that are mostly zero."""

    def __init__(self, weight, sparse):
        super().__init__()
        self.weight, self.sparse = weight, sparse

    def forward(self, x):
        return x @ self.weight.T if self.sparse is None else torch.sparse.mm(self.sparse, self.weight.T)


def distance(x, edge_index):
    """The root mean square distance of a shifted value to all neighbours of its node."""
    source, target = edge_index
    graph = Graph.from_edge_index(edge_index, num_nodes=len(x)).normalize("symmetric")
    shifted = graph_filter(x, graph, torch.tensor([0.0, 1.0]))
    apart = torch.zeros_like(x).index_add_(0, target, (shifted[source] - shifted[target]).square())
    return apart.mean().sqrt().item()


def citation_data(name, folder):
    """Data, the features as a sparse tensor where that is faster, and the operator of GCNConv."""
    data = read_planetoid(name, folder)
    nodes = len(data.x)
    sparse = data.x.to_sparse_csr() if (data.x != 0).double().mean() < DENSE_FROM else None
    edge_index, weight = gcn_norm(data.edge_index, None, nodes)
    return data, sparse, to_torch_csr_tensor(edge_index.flip(0), weight, size=(nodes, nodes))


def node_classification(data, sparse, operator, layers, name, options, seed):
    """Test accuracy of a GCN in percent, at the best validation epoch."""
    torch.manual_seed(seed)
    widths = [data.x.size(1), *[WIDTH] * (layers - 1), data.num_classes]
    convs = nn.ModuleList(GCNConv(*pair, normalize=False) for pair in itertools.pairwise(widths))
    convs[0].lin = Features(convs[0].lin.weight, sparse)
    if options.get("gamma", 1) is None:
        with torch.no_grad():
            options = {**options, "gamma": distance(convs[0](data.x, operator), data.edge_index)}
    activations = nn.ModuleList(make_activation(name, features=WIDTH, **options) for _ in convs[1:])
    torch.manual_seed(seed)
    optimizer = torch.optim.Adam([*convs.parameters(), *activations.parameters()], lr=RATE, weight_decay=DECAY)
    train, validation, test = data.split
    best, found = -1.0, math.nan

    def scores(x, training):
        """Of what the first activation gives."""
        for conv, activation in zip(convs[1:-1], activations[1:], strict=True):
            x = activation(conv(nn.functional.dropout(x, DROPOUT, training), operator), data.edge_index)
        return convs[-1](nn.functional.dropout(x, DROPOUT, training), operator)

    for epoch in range(EPOCHS + 1):
        hidden = activations[0](convs[0](data.x, operator), data.edge_index)
        with torch.no_grad():  # what the step before reached
            right = (scores(hidden, training=False).argmax(1) == data.y).double()
        if epoch > 0 and (reached := right[validation].mean().item()) > best:
            best, found = reached, 100 * right[test].mean().item()
        if epoch < EPOCHS:
            loss = nn.functional.cross_entropy(scores(hidden, training=True)[train], data.y[train])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return found


def source_localization(tasks, protocol, name, options):
    """Test accuracy in percent, a mean over the networks of each graph."""
    [order], [width] = protocol.orders, protocol.features
    shape = {"features": [1, *[width] * protocol.layers], "order": order, "out_features": tasks[0].out_features}
    shape |= {"bias": protocol.bias, "per_feature": protocol.per_feature}
    models, seeds = [], [run_seed("replica", SEED, replica) for replica in range(len(tasks))]
    for seed in seeds:
        torch.manual_seed(seed)
        models.append(GCNN(**shape, activation=name, **options))
    values = Fleet(models, tasks, seeds).train(protocol.training).test
    graphs = [task.details["graph"] for task in tasks]
    return [statistics.fmean(v for v, g in zip(values, graphs, strict=True) if g == graph) for graph in set(graphs)]


def interval(values):
    """Half the width of the 95 % interval of a mean."""
    if len(values) < 2:
        return math.nan
    return scipy.stats.t.ppf(0.975, len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))


def measure(task, cases, options, done, out):
    if task in CITATIONS:
        prepared = (*citation_data(task.split("-")[0], options.data), DEEP if "-" in task else 2)
    else:
        protocol = replace(find_protocol(task, "quick"), graphs=6)
        tasks = find_experiment(task).make_tasks(protocol, {}, SEED, None)
    for case in cases:
        if (task, case) in done:
            continue
        name, settings = CASES[case]
        begun = time.perf_counter()
        if task in CITATIONS:
            values = [node_classification(*prepared, name, settings, seed) for seed in range(options.seeds)]
        elif (
            settings.get("gamma", 1) is None or "normalize" in settings
        ):  # one width for all networks; a Graph is given
            continue
        else:
            values = source_localization(tasks, protocol, name, settings)
        row = {"task": task, "case": case, "values": values}
        reached, seconds = f"{statistics.fmean(values):6.2f} ± {interval(values):.2f}", time.perf_counter() - begun
        echo(f"{task:20} {case:42} {reached}   {seconds:.0f} s")
        done[task, case] = values
        if out is not None:
            with out.open("a") as file:
                file.write(json.dumps(row) + "\n")


def table(done):
    """Markdown: the mean and its interval, and the paired difference to ReLU."""
    tasks = [task for task in EVERY if any(found == task for found, _ in done)]
    echo("| | " + " | ".join(tasks) + " |")
    echo("|---" * (len(tasks) + 1) + "|")
    for case in CASES:
        cells = []
        for task in tasks:
            values, relu = done.get((task, case)), done.get((task, "relu"))
            if values is None:
                cells.append("")
                continue
            cell = f"{statistics.fmean(values):.1f} ± {interval(values):.1f}"
            if relu is not None and case != "relu":
                apart = [a - b for a, b in zip(values, relu, strict=True)]
                cell += f" ({statistics.fmean(apart):+.1f} ± {interval(apart):.1f})"
            cells.append(cell)
        if any(cells):
            echo(f"| {case} | " + " | ".join(cells) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", choices=[*EVERY, []], metavar="TASK", help=", ".join(EVERY))
    parser.add_argument("--only", nargs="+", default=[""], metavar="CASE", help="the lines that begin so")
    parser.add_argument("--seeds", type=count, default=10)
    parser.add_argument("--data", type=Path, help="folder with planetoid/")
    parser.add_argument("--out", type=Path, help="a file of lines of JSON, which is added to")
    options = parser.parse_args()
    torch.set_num_threads(1)
    done = {}
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        rows = options.out.read_text().splitlines() if options.out.exists() else []
        done = {(row["task"], row["case"]): row["values"] for row in map(json.loads, rows)}
    cases = [case for case in CASES if case.startswith(tuple(options.only))]
    for task in options.tasks:
        measure(task, cases, options, done, options.out)
    table(done)


if __name__ == "__main__":
    main()
