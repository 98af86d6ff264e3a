"""Are networks with Lipschitz activations more robust to perturbed inputs? Noise, attacks and limits, measured.

    python benchmarks/robustness.py             train, perturb, write rows, draw figures, print tables (25 CPU minutes)
    python benchmarks/robustness.py --figures   figures and tables from the rows
    python benchmarks/robustness.py --quick --out out/quick      half a minute, to see that it runs

Source localization: the paper's setting, protocol `converged` (two layers, F = 8, order 4, 400 epochs), one hop, ten
graphs with one split and one node each. Cora: GCNN [1433, 16, 16] of order 1 with 7 outputs on the symmetrically
normalised graph, public split, Adam, rate 0.01, weight decay 5e-4, 100 epochs, the epoch that validated best, ten
seeds. Besides the activations of the library there are three functions of single values as controls: tanh, and two
that are not Lipschitz, x |x| (ever steeper) and sign(x) sqrt |x| (infinitely steep at 0).

A level is the size of a perturbation relative to the root mean square of the signal: the standard deviation of
Gaussian noise, or the radius of the box of uniform noise and of attacks. Attacks are projected gradient ascent in the
infinity norm on each model's own outputs, with restarts. In source localization every test signal is attacked on its
own; on Cora one perturbation of the features of all nodes is sought that changes as many test decisions as possible.

Constrained networks are the trained ones, tuned for some epochs below a limit (lipschitz_constrained); an infinite
limit is tuning alone. Rows are written as they come, and what is there is not measured again. The trained networks lie
in --models.
"""

import argparse
import copy
import json
import time
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import fmean

import torch
from output import echo
from robustness_figures import draw
from robustness_tasks import DONOR, PLAIN, Cora, SourceLocalization

import graphact
from graphact.storage import write_atomically
from graphact.training.malloc import keep_freed_memory

LIBRARY = ("relu", "max-l", "max-ga", "median-l", "median-ga", "kernel-ga")
SWEPT = ("relu", "max-ga")  # the others have the middle limit only
TASKS = {task.name: task for task in (SourceLocalization, Cora)}


@dataclass(frozen=True)
class Effort:
    units: int = 10
    activations: tuple[str, ...] = (*LIBRARY, *PLAIN)
    epochs: int | None = None  # as the protocol says
    tuning: int = 20
    steps: int = 20
    restarts: int = 3
    draws: int = 10


FULL = Effort()
QUICK = Effort(units=2, activations=("relu", "max-ga", "square"), epochs=6, tuning=2, steps=3, restarts=2, draws=2)


# Cells: one activation below one limit, or without one


def cells_of(task, effort):
    """The networks without a limit first: the others start from them."""
    middle = task.levels.limits[1]
    limited = [name for name in effort.activations if name in LIBRARY]
    return [(name, None) for name in effort.activations] + [
        (name, limit) for limit in task.levels.limits for name in limited if limit == middle or name in SWEPT
    ]


class Networks:
    """The trained networks of a task, from files where they exist."""

    def __init__(self, task, folder):
        self.task, self.folder = task, folder
        self.trained = cache(self._trained)

    def _trained(self, activation):
        files = [self.folder / f"{self.task.name}-{activation}-{unit}.safetensors" for unit in self.task.seeds]
        if activation in LIBRARY and all(file.exists() for file in files):
            return [graphact.load(file) for file in files]
        models = self.task.train(activation)
        if activation in LIBRARY:
            for model, file in zip(models, files, strict=True):
                graphact.save(model, file)
        return models

    def below(self, activation, limit):
        models = copy.deepcopy(self.trained(activation))
        return models if limit is None else [self.task.tune(model, unit, limit) for unit, model in enumerate(models)]


def rows_of(task, networks, activation, limit):
    """Train and perturb the networks of a cell: one row for each graph or seed."""
    models = networks.below(activation, limit)
    columns, reaches = task.measure(models, networks.trained(DONOR))
    known = activation in LIBRARY
    constants = task.constants(models) if known else [(None, None)] * len(models)
    for unit, ((constant, local), reach) in enumerate(zip(constants, reaches, strict=True)):
        if limit is not None and constant > limit:
            raise AssertionError(f"{task.name}, {activation}: the limit is {limit}, the constant {constant}")
        row = {"task": task.name, "activation": activation, "limit": limit, "unit": unit, "constant": constant}
        row |= {name: values[unit] for name, values in columns.items()}
        if known:  # right, and further from every other class than a perturbation of that size can go
            radii = reach.cpu() / local
            row["certified"] = [100 * (radii > level).double().mean().item() for level in task.levels.attack]
        yield {name: rounded(value) for name, value in row.items()}


def rounded(value):
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def read_rows(options):
    file = options.out / "rows.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def measure(options, effort):
    """Every cell that has no rows yet; the file of rows is replaced as a whole after each."""
    rows, file = read_rows(options), options.out / "rows.jsonl"
    done = {(row["task"], row["activation"], row["limit"]) for row in rows}
    tasks = [TASKS[name](effort, options) for name in options.tasks]
    networks = {task.name: Networks(task, options.models) for task in tasks}
    left = [(task, cell) for task in tasks for cell in cells_of(task, effort) if (task.name, *cell) not in done]
    begun = time.monotonic()
    for number, (task, (activation, limit)) in enumerate(left, start=1):
        new = list(rows_of(task, networks[task.name], activation, limit))
        rows += new
        write_atomically(file, "".join(json.dumps(row) + "\n" for row in rows).encode())
        spent = time.monotonic() - begun
        clean = fmean(row["accuracy"] for row in new)
        attacked = " ".join(f"{fmean(column):.0f}" for column in zip(*(row["attack"] for row in new), strict=True))
        echo(
            f"[{number}/{len(left)}] {task.name}, {activation}, limit {limit or 'none'}: {clean:.1f} %, "
            f"attacked {attacked}; {spent:.0f} s, about {spent / number * (len(left) - number):.0f} s left"
        )
    return rows


def attack_harder(options, rows):
    """Attack two networks of each kind with five times as many steps, and compare with the rows."""
    effort = replace(FULL, units=2, steps=5 * FULL.steps)
    known = {(row["task"], row["activation"], row["limit"], row["unit"]): row["attack"] for row in rows}
    for task in (TASKS[name](effort, options) for name in options.tasks):
        networks, gains = Networks(task, options.models), []
        for activation in LIBRARY:
            columns, _ = task.measure(networks.below(activation, None), networks.trained(DONOR))
            for unit, attack in enumerate(columns["attack"]):
                before = known[task.name, activation, None, unit]
                gains += [old - new for old, new in zip(before, attack, strict=True)]
        mean, most = fmean(gains), max(gains)
        echo(f"{task.name}: five times the steps lower accuracy by {mean:.2f} points, {most:.2f} at most")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few networks, trained for a moment; needs its own --out")
    parser.add_argument("--figures", action="store_true", help="only draw and print what the rows say")
    parser.add_argument("--harder", action="store_true", help="only look what five times as many steps would find")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=[*TASKS], metavar="TASK", help=", ".join(TASKS))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data", type=Path, help="folder with planetoid/")
    parser.add_argument("--out", type=Path, default=Path("results/robustness"), help="folder of the rows")
    parser.add_argument("--models", type=Path, help="folder of the trained networks (default: out/robustness)")
    parser.add_argument("--draw", type=Path, help="folder of the figures (default: docs/figures)")
    options = parser.parse_args()
    effort = QUICK if options.quick else FULL
    if options.quick and options.out == Path("results/robustness"):
        parser.error("--quick needs an --out of its own")
    options.models = options.models or (options.out / "models" if options.quick else Path("out/robustness"))
    options.draw = options.draw or (options.out if options.quick else Path("docs/figures"))
    keep_freed_memory()
    torch.set_num_threads(1)
    options.models.mkdir(parents=True, exist_ok=True)
    if options.harder:
        attack_harder(options, read_rows(options))
        return
    rows = read_rows(options) if options.figures else measure(options, effort)
    draw(rows, {name: task.levels for name, task in TASKS.items()}, options.draw)


if __name__ == "__main__":
    main()
