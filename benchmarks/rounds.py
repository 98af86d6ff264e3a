"""Quality against rounds: source localization with networks that all exchange equally often with their neighbours.

    python benchmarks/rounds.py --out DIR                         every kind at 2, 4, 6 and 9 rounds: hours on a CPU
    python benchmarks/rounds.py --out DIR --device cuda           the same: minutes
    python benchmarks/rounds.py --out DIR --rounds 4 --nodes 1 --splits 1 --kinds gelu bank-max   a part of it
    python benchmarks/rounds.py --out DIR --table                 the table of what has been run

Every kind has 8 features and spends all its rounds: a pointwise network has one filter of order 1 in each layer, so as
many layers as rounds, and the input of a layer is added to its output in networks of more than two layers. Two step
sizes are tried, and the one that is better on validation samples is reported. ``random`` deals the samples at random,
as the paper does; in ``unseen``, of the ten sources of each community seven train, one validates and two test. Each
cell is written when it ends and not run again. Intervals are of 95 %, paired over the graphs; gains are over the
pointwise network that validates best.
"""

import argparse
import json
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path

import scipy.stats
import torch
from arguments import count, need_cuda
from output import echo

from graphact.graph import Graph
from graphact.nn import GCNN
from graphact.training import Fleet, TrainingSettings
from graphact_lab.experiments.source_localization.task import BLOCKS, STEPS
from graphact_lab.splits import data_generator
from graphact_lab.tasks import source_localization_tasks

WIDTH, RATES, PARTS = 8, (2e-2, 7e-3), (7, 1, 2)
PNA = ["mean", "max", "min", "std"]
BANKS = {  # functions of the adaptive banks, one round a layer
    "bank-mean": ["mean"],
    "bank-max": ["max"],
    "bank-median": ["median"],
    "bank-max-min": ["max", "min"],
    "bank-pna": PNA,
}
NO_SHIFT = {"sage-max": ["max"], "pna": PNA}  # the same on a graph whose weights are 0: own value and functions
POINTWISE = ("gelu", "prelu", "relu", "silu")
PAPER = {  # activations after a filter of order 1: rounds of a layer, options
    "max-l": (2, {"name": "max-l", "hops": 1}),
    "max-ga": (3, {"name": "max-ga", "hops": 1}),
    "max-ga-unshifted": (3, {"name": "max-ga", "hops": 1, "unshifted": True}),
    "max-unshifted-only": (2, {"name": "max-ga", "hops": 0, "unshifted": True}),
}
KINDS = (*POINTWISE, *PAPER, *BANKS, *NO_SHIFT)


def make_model(kind, rounds):
    """Return a network that takes this many rounds; None if its layers cannot."""
    each, activation = PAPER.get(kind, (1, kind))
    if rounds % each:
        return None
    layers = rounds // each
    options = {"order": 1, "bias": True, "out_features": BLOCKS.communities, "residual": layers > 2}
    if kind in BANKS or kind in NO_SHIFT:
        options |= {"bank": "adaptive", "ops": {**BANKS, **NO_SHIFT}[kind]}
    else:
        options["activation"] = activation
    model = GCNN([1, *[WIDTH] * layers], **options)
    assert sum(layer.exchanges for layer in model.layers()) == rounds
    return model


def with_unseen_sources(task):
    """The task with all signals of a source in one part."""
    place = [task.details[name] for name in ("seed", "graph", "split")]
    generator = data_generator("unseen sources of each community", *place)
    parts = [[], [], []]
    for community in range(BLOCKS.communities):
        order = community * BLOCKS.community_size + torch.randperm(BLOCKS.community_size, generator=generator)
        for part, sources in zip(parts, order.split(PARTS), strict=True):
            part.append(sources)
    samples = [(torch.cat(part).unsqueeze(1) * STEPS + torch.arange(STEPS)).flatten() for part in parts]
    return replace(task, **dict(zip(("train", "validation", "test"), samples, strict=True)))


def without_weights(tasks):
    """The tasks on graphs whose shift is 0, with the same neighbours."""
    graphs = {id(task.graph): task.graph for task in tasks}
    bare = {
        key: Graph.from_edge_index(index, 0 * weight, graph.num_nodes)
        for key, graph in graphs.items()
        for index, weight in [graph.to_edge_index()]
    }
    return [replace(task, graph=bare[id(task.graph)]) for task in tasks]


def run_cell(kind, rounds, tasks, options):
    """Train the networks of a cell with each step size; return rows of the better one."""
    tasks, found = without_weights(tasks) if kind in NO_SHIFT else tasks, []
    for rate in RATES:
        torch.manual_seed(options.seed)
        models = [make_model(kind, rounds) for _ in tasks]
        fleet = Fleet(models, tasks, device=options.device, strategy="stacked")
        result = fleet.train(TrainingSettings(epochs=options.epochs, batch_size=100, learning_rate=rate))
        found.append((sum(result.validation) / len(tasks), rate, result))
    _, rate, result = max(found, key=lambda each: each[0])
    return [
        {"graph": task.details["graph"], "node": task.details["community"], "rate": rate, "validation": v, "test": t}
        for task, v, t in zip(tasks, result.validation, result.test, strict=True)
    ]


def by_graph(rows):
    """The mean test accuracy of each graph."""
    values = {}
    for row in rows:
        values.setdefault(row["graph"], []).append(row["test"])
    return torch.tensor([sum(each) / len(each) for _, each in sorted(values.items())], dtype=torch.float64)


def interval(values):
    """Mean and half the width of its 95 % interval."""
    number = len(values)
    half = scipy.stats.t.ppf(0.975, number - 1) * values.std().item() / number**0.5 if number > 1 else float("nan")
    return values.mean().item(), half


def strongest(cells):
    """Return the pointwise kind that validates best; of equal ones the smaller network, then the first name."""

    def rank(kind):
        return -statistics.fmean(row["validation"] for row in cells[kind]), num_parameters(kind, 12), kind

    return min((kind for kind in POINTWISE if kind in cells), key=rank, default=None)


def num_parameters(kind, rounds):
    """Return the number of trained numbers of a network."""
    return sum(parameter.numel() for parameter in make_model(kind, rounds).parameters())


def lines(folder):
    """Return each cell of a folder with its gain over the strongest pointwise network that takes as many rounds.

    Networks are compared where both have as many runs.
    """
    stored = {tuple(path.stem.split("_")): json.loads(path.read_text()) for path in folder.glob("*_*_*.json")}
    found = []
    for split in ("random", "unseen"):
        for rounds in sorted({int(number) for part, number, _ in stored if part == split}):
            cells = {kind: stored[split, str(rounds), kind] for kind in KINDS if (split, str(rounds), kind) in stored}
            for kind, rows in cells.items():
                mine = by_graph(rows)
                mean, margin = interval(mine)
                line = {"split": split, "rounds": rounds, "kind": kind, "networks": len(rows), "graphs": len(mine)}
                line |= {"parameters": num_parameters(kind, rounds), "rate": rows[0]["rate"]}
                line |= {"values_on_a_link": 1 + (rounds - 1) * WIDTH}
                line |= {"validation": statistics.fmean(row["validation"] for row in rows)}
                line |= {"mean": mean, "margin": margin}
                rival = strongest({name: own for name, own in cells.items() if len(own) == len(rows)})
                if rival and rival != kind:
                    gain, half = interval(mine - by_graph(cells[rival]))
                    line |= {"rival": rival, "gain": gain, "gain_low": gain - half, "gain_high": gain + half}
                found.append(line)
    return found


def table(folder):
    """Return the cells of a folder as Markdown."""
    text = "| split | rounds | kind | networks | accuracy, % | gain |\n|---|---|---|---|---|---|\n"
    for line in lines(folder):
        gain = ""
        if "gain" in line:
            gain = f"{line['gain']:+.1f} ± {line['gain'] - line['gain_low']:.1f} over {line['rival']}"
        accuracy = f"{line['mean']:.1f} ± {line['margin']:.1f}"
        text += f"| {line['split']} | {line['rounds']} | {line['kind']} | {line['networks']} | {accuracy} | {gain} |\n"
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the cells, one JSON file each")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--rounds", nargs="+", type=count, default=(2, 4, 6, 9))
    parser.add_argument("--parts", nargs="+", choices=("random", "unseen"), default=("random", "unseen"))
    parser.add_argument("--graphs", type=count, default=10)
    parser.add_argument("--splits", type=count, default=5)
    parser.add_argument("--nodes", type=count, default=4)
    parser.add_argument("--epochs", type=count, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--table", action="store_true", help="train nothing; print the table")
    options = parser.parse_args()
    if options.device == "cuda":
        need_cuda()
    options.out.mkdir(parents=True, exist_ok=True)
    if not options.table:
        ordinary = source_localization_tasks(options.graphs, options.splits, options.nodes, options.seed)
        split = {"random": ordinary, "unseen": [with_unseen_sources(task) for task in ordinary]}
        echo(f"{len(ordinary)} networks a cell, {options.epochs} epochs, step sizes {RATES}")
        for part in options.parts:
            for rounds in options.rounds:
                for kind in options.kinds:
                    path = options.out / f"{part}_{rounds}_{kind}.json"
                    if path.exists() or make_model(kind, rounds) is None:
                        continue
                    begun = time.perf_counter()
                    rows = run_cell(kind, rounds, split[part], options)
                    path.with_suffix(".part").write_text(json.dumps(rows))
                    path.with_suffix(".part").replace(path)
                    accuracy = by_graph(rows).mean()
                    echo(f"  {part}, {rounds} rounds, {kind}: {accuracy:.1f} ({time.perf_counter() - begun:.0f} s)")
    sys.stdout.write("\n" + table(options.out))


if __name__ == "__main__":
    main()
