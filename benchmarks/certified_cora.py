"""Certified radii of a trained classifier of Cora, for every test node, beside what attacks find.

    python benchmarks/certified_cora.py                  train, certify, attack, draw; results/certified-cora
    python benchmarks/certified_cora.py --nodes 50       fewer of the test nodes
    python benchmarks/certified_cora.py --draw           only summary and figure, from the rows that there are

A two-layer GCN of PyG with 16 features and the graph-adaptive max between its convolutions, trained on the public split
(200 epochs, as the GCN's paper does). Norm: the infinity norm over the 1,433 features, either of all nodes together or
of the node alone. Rows are written as they come; a run that was interrupted goes on with the nodes that are left.
"""

import argparse
import csv
import json
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import torch
from arguments import count
from matplotlib.ticker import FuncFormatter
from output import echo
from torch_geometric.nn import GCN

import graphact
from graphact.guarantees import attack_radius, certified_radius
from graphact_lab.data.planetoid import read_planetoid
from graphact_lab.figures import house_style, new_sheet, settle, to_png

ROOT = Path(__file__).parents[1]
MOVING = {"all": "all nodes move", "node": "the node itself moves"}
FIELDS = ("moving", "node", "label", "decision", "rival", "margin", "certified", "pairwise", "constant", "attack")
EPOCHS, HIDDEN, CHUNK = 200, 16, 50
CURVES = {
    "one constant": ("#8b949e", (0, (1, 1.4)), "margin / global constant"),
    "pairwise": ("#0072b2", (0, (4, 1.6)), "margin / constant of the node"),
    "certified": ("#0072b2", "-", "certified"),
    "attack": ("#d55e00", "-", "attack fails"),
}


def make_model():
    act = graphact.nn.GraphAdaptiveMax(features=HIDDEN, start="small")
    return graphact.pyg.PassGraph(GCN(1433, HIDDEN, 2, 7, dropout=0.5, act=act))


def train(data, file):
    """The network after the last epoch, kept beside the rows."""
    torch.manual_seed(0)
    model = make_model()
    train_nodes, _, test_nodes = data.split
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    for _ in range(EPOCHS):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(data.x, data.edge_index)[train_nodes], data.y[train_nodes])
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        right = model(data.x, data.edge_index).argmax(-1) == data.y
    echo(f"test accuracy {right[test_nodes].double().mean():.1%}")
    file.parent.mkdir(parents=True, exist_ok=True)
    torch.save(model.state_dict(), file)


def measure(moving, nodes, file):
    """The rows of a few nodes, and the seconds of the processor for certificates and for attacks."""
    torch.set_num_threads(1)
    data = read_planetoid("cora")
    model = make_model()
    model.load_state_dict(torch.load(file, weights_only=True))
    model = model.double().eval()
    graph = graphact.Graph.from_edge_index(data.edge_index, num_nodes=len(data.x)).to(torch.float64)
    since = time.process_time()
    found = certified_radius(model, graph, data.x.double(), nodes, moving=moving)
    between = time.process_time()
    attacked = attack_radius(model, graph, data.x.double(), nodes, moving=moving, steps=10, restarts=3)
    rows = [
        {
            "moving": moving,
            "node": node,
            "label": data.y[node].item(),
            "decision": found.decisions[i].item(),
            "rival": found.rivals[i].item(),
            "margin": found.margins[i].min().item(),
            "certified": found.radius[i].item(),
            "pairwise": found.from_constants[i].item(),
            "constant": found.constants[i].max().item(),
            "attack": attacked[i].item(),
        }
        for i, node in enumerate(nodes)
    ]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return rows, between - since, time.process_time() - between, memory


def run(options, folder):
    data = read_planetoid("cora")
    weights, file = ROOT / "out/certified-cora/model.pt", folder / "nodes.csv"
    folder.mkdir(parents=True, exist_ok=True)
    if not weights.exists():
        train(data, weights)
    done = {(row["moving"], int(row["node"])) for row in read(file)}
    every = data.split[2].tolist()[: options.nodes]
    jobs = []
    for moving in MOVING:
        left = [node for node in every if (moving, node) not in done]
        jobs += [(moving, left[i : i + CHUNK]) for i in range(0, len(left), CHUNK)]
    with ProcessPoolExecutor(options.jobs) as pool, file.open("a", newline="") as sheet:
        writer = csv.DictWriter(sheet, FIELDS)
        if not done:
            writer.writeheader()
        pending = [pool.submit(measure, *job, weights) for job in jobs]
        spent = np.zeros(2)
        for number, future in enumerate(pending):
            rows, *seconds, memory = future.result()
            writer.writerows(rows)
            sheet.flush()
            spent += seconds
            echo(f"{number + 1}/{len(jobs)}: {spent[0]:.0f} s certifying, {spent[1]:.0f} s attacking, {memory:.2f} GB")


def read(file):
    if not file.exists():
        return []
    with file.open(newline="") as sheet:
        return list(csv.DictReader(sheet))


def columns(rows, moving):
    """Numbers of the rows of one kind, and what one constant, the largest of all, would certify."""
    chosen = [row for row in rows if row["moving"] == moving]
    table = {name: np.array([float(row[name]) for row in chosen]) for name in FIELDS[1:]}
    return table | {"one constant": table["margin"] / table["constant"].max()}


def summary(rows):
    """Medians over the test nodes of each kind."""
    found = {}
    for moving in MOVING:
        table = columns(rows, moving)
        ratio = table["certified"] / table["attack"]
        found[moving] = {
            "nodes": len(ratio),
            "accuracy": float(np.mean(table["label"] == table["decision"])),
            **{name: float(np.median(table[name])) for name in ("certified", "one constant", "pairwise", "attack")},
            "certified / one constant": float(np.median(table["certified"] / table["one constant"])),
            "certified / attack": float(np.median(ratio)),
            "certified / attack, tenths": [float(np.quantile(ratio, share)) for share in (0.1, 0.9)],
            "largest certified / attack": float(ratio.max()),
            "attacked": float(np.mean(np.isfinite(table["attack"]))),
        }
    return found


def draw(rows, file):
    """The share of test nodes whose class holds, over the radius."""
    with house_style():
        sheet = new_sheet(4.8)
        for axes, moving in zip(sheet.subplots(2), MOVING, strict=True):
            table = columns(rows, moving)
            for name, (color, dashes, label) in CURVES.items():
                ends = np.sort(table[name])
                share = 100 * (1 - np.arange(1, len(ends) + 1) / len(ends))
                axes.step(ends, share, where="post", color=color, linestyle=dashes, linewidth=1.4, label=label)
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.set_xlim(np.quantile(table["one constant"], 0.03), 1.2 * np.quantile(table["attack"], 0.99))
            axes.set_ylim(0, 100)
            axes.set_ylabel("Class holds (% of test nodes)")
            axes.set_xlabel(f"Largest change of a feature ({MOVING[moving]})")
            axes.grid(axis="y")
        sheet.axes[0].legend(loc="lower left", bbox_to_anchor=(-0.1, 1.02), ncols=2, borderpad=0)
        settle(sheet)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(to_png(sheet))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=count, default=1000, help="how many of the test nodes")
    parser.add_argument("--jobs", type=count, default=2, help="processes")
    parser.add_argument("--draw", action="store_true", help="only summary and figure")
    parser.add_argument("--out", type=Path, default=ROOT / "results/certified-cora", help="folder of the rows")
    parser.add_argument("--figure", type=Path, default=ROOT / "docs/figures/certified-cora.png")
    options = parser.parse_args()
    if not options.draw:
        run(options, options.out)
    rows = read(options.out / "nodes.csv")
    text = json.dumps(summary(rows), indent=1)
    (options.out / "summary.json").write_text(text + "\n")
    echo(text)
    draw(rows, options.figure)


if __name__ == "__main__":
    main()
