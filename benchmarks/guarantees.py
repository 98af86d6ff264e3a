"""Tightness and cost of the guarantees, and the effect of lost links, in the paper's source localization.

    python benchmarks/guarantees.py tightness   certified constants of trained networks against products and searches
    python benchmarks/guarantees.py topology    six activations under lost links and noisy weights (figures)

Two layers, F = 8, order 4, protocol `converged`. Trained networks are kept in --out and not trained again.
"""

import argparse
import itertools
import json
import math
from dataclasses import replace
from pathlib import Path

import torch
from guarantees_figures import topology_figure
from output import echo

import graphact
from graphact.guarantees import (
    EdgeNoise,
    LostLinks,
    empirical_lipschitz,
    empirical_topology,
    lipschitz_bound,
    topology_bound,
)
from graphact.training import Fleet
from graphact.training.malloc import keep_freed_memory
from graphact_lab.descriptions import find_experiment, find_protocol
from graphact_lab.protocols import TrainingJob
from graphact_lab.runner import make_models
from graphact_lab.style import Variant

VARIANTS = tuple(
    Variant(*pair)
    for pair in (("relu", None), ("max-l", 1), ("max-ga", 2), ("median-l", 1), ("median-ga", 2), ("kernel-ga", 1))
)
PROTOCOL = replace(find_protocol("source-localization", "paper", "converged"), graphs=2, splits=1, nodes=4)
LOST = (1, 2, 4, 8, 16)
NOISE = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
SIGNALS = 12


def trained(variant, directory):
    """Eight networks of one kind (two graphs, four nodes) with their tasks, in float64; from files where they exist."""
    tasks = find_experiment(PROTOCOL.experiment).make_tasks(PROTOCOL, {}, 0, None)
    models = make_models(TrainingJob(PROTOCOL, variant.method, variant.hops, 8, 4, seed=0), tasks)
    files = [directory / "models" / f"{variant.method}-{number}.safetensors" for number in range(len(models))]
    if not all(file.exists() for file in files):
        Fleet(models, tasks).train(PROTOCOL.training)
        for model, file in zip(models, files, strict=True):
            graphact.save(model, file)
    tasks = [task.to(dtype=torch.float64) for task in tasks]
    return [graphact.load(file).double() for file in files], tasks


def geometric_mean(numbers):
    return math.exp(sum(map(math.log, numbers)) / len(numbers))


def tightness(options):
    """One row for each activation: geometric means over eight networks."""
    echo("| activation | product of layers | certified | found by search | product / certified | certified / found |")
    echo("|---|---|---|---|---|---|")
    rows = []
    for variant in VARIANTS:
        numbers = []
        for model, task in zip(*trained(variant, options.out), strict=True):
            bound = lipschitz_bound(model, task.graph)
            generator = torch.Generator().manual_seed(0)
            found = empirical_lipschitz(model, task.graph, task.inputs, starts=8, generator=generator)
            if found.value > bound.value:
                raise AssertionError(f"{variant.label}: found {found.value}, certified {bound.value}")
            numbers.append((bound.composed, bound.value, found.value))
        composed, value, found = (geometric_mean(column) for column in zip(*numbers, strict=True))
        gains = [row[0] / row[1] for row in numbers]
        slacks = [row[1] / row[2] for row in numbers]
        echo(
            f"| {variant.label} | {composed:,.0f} | {value:,.0f} | {found:,.0f} | {composed / value:.1f} "
            f"({min(gains):.1f} to {max(gains):.1f}) | {value / found:.1f} ({min(slacks):.1f} to {max(slacks):.1f}) |"
        )
        rows.append({"activation": variant.label, "numbers": numbers})
    return rows


def topology(options):
    """Certified and found changes of outputs, in units of the spread of the outputs, and decisions that stay."""
    rows = []
    for variant in VARIANTS:
        models, tasks = trained(variant, options.out)
        for model, task in list(zip(models, tasks, strict=True))[: options.models]:
            for kind, strengths in (("lost", LOST), ("noise", NOISE)):
                rows += perturbed_rows(variant, model, task, kind, strengths)
    for kind, strengths in (("lost", LOST), ("noise", NOISE)):
        echo(f"\n| activation | {kind} | certified change | found change | decisions kept |\n|---|---|---|---|---|")
        for variant, strength in itertools.product(VARIANTS, strengths):
            some = [row for row in rows if row["method"] == variant.method and row.get(kind) == strength]
            certified, found = (geometric_mean([row[name] for row in some]) for name in ("certified", "found"))
            stay = sum(row["kept"] for row in some) / len(some)
            echo(f"| {variant.label} | {strength:g} | {certified:,.3g} | {found:.3g} | {stay:.1%} |")
        topology_figure(rows, VARIANTS, kind, strengths, options.out / f"guarantees-{kind}.png")
    (options.out / "topology.json").write_text(json.dumps(rows, indent=1))


def perturbed_rows(variant, model, task, kind, strengths):
    """One network under perturbations of growing strength; what a weaker one does, a stronger one can do."""
    x = task.inputs[task.test][:SIGNALS]
    with torch.no_grad():
        size = model(x, task.graph).std().item()
    found = torch.zeros(())
    for strength in strengths:
        perturbation = LostLinks(strength) if kind == "lost" else EdgeNoise(strength)
        generator = torch.Generator().manual_seed(0)
        bound = topology_bound(model, task.graph, perturbation, x).value
        new = empirical_topology(model, task.graph, x, perturbation, draws=20, generator=generator)
        found = torch.maximum(found, new.max())
        if found > bound:
            raise AssertionError(f"{variant.label}, {perturbation}: found {found}, certified {bound}")
        row = {"method": variant.method, "hops": variant.hops, kind: strength, "kept": kept(model, task, perturbation)}
        yield {**row, "certified": bound / size, "found": found.item() / size}


@torch.no_grad()
def kept(model, task, perturbation, draws=10):
    """The share of test decisions at the node that random perturbations do not change."""
    x, generator = task.inputs[task.test], torch.Generator().manual_seed(0)
    before = task.read(model(x, task.graph)).argmax(-1)
    after = [task.read(model(x, perturbation.draw(task.graph, generator))).argmax(-1) for _ in range(draws)]
    return (torch.stack(after) == before).double().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = {"tightness": tightness, "topology": topology}
    parser.add_argument("command", choices=tuple(commands))
    parser.add_argument("--models", type=int, default=2, help="networks for each point of a figure (default: 2)")
    parser.add_argument("--out", type=Path, default=Path("out/guarantees"), help="default: out/guarantees")
    options = parser.parse_args()
    keep_freed_memory()
    options.out.mkdir(parents=True, exist_ok=True)
    commands[options.command](options)


if __name__ == "__main__":
    main()
