"""Effect of the choices that the paper leaves open in source localization, one at a time.

    python benchmarks/choices.py --device cuda --out DIR           all graphs, splits and nodes of the paper
    python benchmarks/choices.py --graphs 8 --splits 1 --epochs 150   less, for a CPU

Every line changes one thing of the converged protocol (order 4, biases, weights shared by all features, open
neighbourhoods, learning rate 2e-2, the epoch that validates best). Models of all lines see the same graphs, splits and
nodes; differences are paired, with 95 % intervals over the graphs.
"""

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path

import torch
from arguments import count, need_cuda
from output import echo

from graphact.nn import GCNN
from graphact.training import Fleet
from graphact_lab.descriptions import find_experiment, find_protocol
from graphact_lab.protocols import run_seed
from graphact_lab.statistics import difference

FEATURES = 8
CHOICES = {
    "converged": {},
    "order 1": {"order": 1},
    "order 2": {"order": 2},
    "order 8": {"order": 8},
    "weights for each feature": {"per_feature": True},
    "closed neighbourhoods": {"closed": True},
    "no biases": {"bias": False},
    "learning rate 5e-3": {"learning_rate": 5e-3},
    "learning rate 1e-3": {"learning_rate": 1e-3},
    "a quarter of the epochs": {"share": 0.25},
    "the last epoch": {"last": True},
}


def accuracies(activation, hops, tasks, settings, device, choice):
    """Test accuracy of each model."""
    network = {"order": 4, "bias": True, "per_feature": False, "closed": False}
    network |= {name: value for name, value in choice.items() if name in network}
    training = replace(
        settings,
        learning_rate=choice.get("learning_rate", settings.learning_rate),
        epochs=max(1, round(settings.epochs * choice.get("share", 1))),
    )
    models, seeds = [], [run_seed("replica", 0, replica) for replica in range(len(tasks))]
    for seed in seeds:
        torch.manual_seed(seed)
        models.append(
            GCNN(
                [1, FEATURES, FEATURES],
                activation=activation,
                hops=hops,
                out_features=tasks[0].out_features,
                start="uniform",
                **network,
            )
        )
    if choice.get("last"):
        none = torch.zeros(0, dtype=torch.int64)
        tasks = [replace(task, validation=none) for task in tasks]
    return Fleet(models, tasks, seeds, device=device).train(training).test


def rows_of(tasks, values):
    return [
        {"graph": task.details["graph"], "split": task.details["split"], "node": task.node, "value": value}
        for task, value in zip(tasks, values, strict=True)
    ]


def table(results, activations):
    """Accuracies and differences as Markdown."""
    names = [name if hops is None else f"{name} ({hops})" for name, hops in activations]
    lines = [
        f"| choice | {' | '.join(f'{name} | difference' for name in names)} |",
        "|---" * (1 + 2 * len(names)) + "|",
    ]
    for choice in CHOICES:
        cells = []
        for name in names:
            rows = results.get((name, choice))
            if rows is None:
                cells += ["-", "-"]
                continue
            mean = sum(row["value"] for row in rows) / len(rows)
            against = "" if choice == "converged" else paired(rows, results[name, "converged"])
            cells += [f"{mean:.1f}", against]
        lines.append(f"| {choice} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def paired(rows, others):
    found = difference(rows, others)
    return f"{found.mean:+.1f} ± {found.margin:.1f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--graphs", type=count, default=10)
    parser.add_argument("--splits", type=count, default=10)
    parser.add_argument("--epochs", type=count, default=400)
    parser.add_argument("--out", type=Path, help="write choices.json and choices.md here")
    options = parser.parse_args()
    if options.device == "cuda":
        need_cuda()
    protocol = find_protocol("source-localization", "paper", "converged")
    protocol = replace(protocol, graphs=options.graphs, splits=options.splits)
    settings = replace(protocol.training, epochs=options.epochs)
    tasks = find_experiment(protocol.experiment).make_tasks(protocol, {}, 0, None)
    activations = [("relu", None), ("max-ga", 2)]
    results, begun = {}, time.perf_counter()
    echo(f"{len(tasks)} models a line, {options.epochs} epochs, F = {FEATURES}, {options.device}")
    for activation, hops in activations:
        name = activation if hops is None else f"{activation} ({hops})"
        for choice, changes in CHOICES.items():
            if activation == "relu" and changes.keys() & {"per_feature", "closed"}:
                continue  # has no such weights, and looks at no neighbourhood
            values = accuracies(activation, hops or 1, tasks, settings, options.device, changes)
            results[name, choice] = rows_of(tasks, values)
            mean = sum(values) / len(values)
            echo(f"  {name}, {choice}: {mean:.1f} % ({time.perf_counter() - begun:.0f} s)")
    found = table(results, activations)
    echo("\n" + found)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "choices.md").write_text(found)
        stored = [{"activation": name, "choice": choice, "rows": rows} for (name, choice), rows in results.items()]
        (options.out / "choices.json").write_text(json.dumps(stored))


if __name__ == "__main__":
    main()
