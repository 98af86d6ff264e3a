"""Speed of a fleet beside its models one by one, and beside the limit of the device.

    python benchmarks/fleet.py                on the CPU: 100 source-localization models against a loop over them
    python benchmarks/fleet.py --device cuda  cells of the paper at full size

A speed is reported only for right results: losses of the fleet are first compared with those of models trained alone.
"""

import argparse
import copy
import json
import time
from dataclasses import replace
from pathlib import Path

import torch
from limits import copy_bandwidth, demands, matrix_rate
from output import echo

import graphact
from graphact.training import Fleet
from graphact.training.malloc import keep_freed_memory
from graphact.training.single import SeparateModels, fit
from graphact_lab.descriptions import find_experiment, find_protocol
from graphact_lab.protocols import TrainingJob
from graphact_lab.runner import make_models


def check(models, tasks, device):
    """Refuse to time a fleet whose losses differ from those of its models."""
    tasks, models = tasks[:3], [copy.deepcopy(model).double() for model in models[:3]]
    fleet = Fleet(models, tasks, device=device, dtype=torch.float64)
    positions = torch.arange(20, device=device).expand(3, 20)
    together = fleet.losses(positions)
    for number in range(3):
        task = tasks[number].to(device, torch.float64)
        alone = SeparateModels([copy.deepcopy(models[number]).to(device)], [task], [number]).losses(positions[:1])
        torch.testing.assert_close(together[number : number + 1], alone, rtol=0, atol=1e-9)


def build(experiment, method, hops, features, order, protocol="converged", **changes):
    """Tasks and models of one cell."""
    found = replace(find_protocol(experiment, "paper", protocol), **changes)
    job = TrainingJob(found, method, hops, features, order, seed=0)
    tasks = find_experiment(experiment).make_tasks(found, {}, 0, None)
    return make_models(job, tasks), tasks, found.training


def seconds(function, device):
    """Wall-clock time of a call, device included."""
    begun = time.perf_counter()
    function()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begun


def against_the_loop(device, epochs=2):
    """Models per second of a fleet of 100 against the same models one by one."""
    rows = []
    for method, hops in (("relu", None), ("max-l", 1), ("max-ga", 2), ("median-ga", 2), ("kernel-ga", 1)):
        models, tasks, training = build("source-localization", method, hops, 8, 4, graphs=5, splits=5)
        check(models, tasks, device)
        settings = replace(training, epochs=epochs)
        fleet = Fleet(copy.deepcopy(models), tasks, device=device)
        fleet.train(replace(settings, epochs=1))
        together = min(seconds(lambda: fleet.train(settings), device) for _ in range(2)) / len(tasks)
        sample = range(0, len(tasks), 20)
        fit(copy.deepcopy(models[0]), tasks[0], replace(settings, epochs=1))
        alone = min(
            seconds(lambda: [fit(copy.deepcopy(models[n]), tasks[n], settings) for n in sample], device)
            for _ in range(2)
        ) / len(sample)
        rows.append({"cell": method, "fleet": 1 / together, "one by one": 1 / alone, "ratio": alone / together})
        echo(f"{method:10s} fleet {1 / together:8.2f} models/s, alone {1 / alone:6.2f}, ratio {alone / together:5.1f}")
    return rows


def full_cells(device):
    """The cells that the paper needs most, at full size."""
    rows = []
    cells = [
        ("source-localization", "max-ga", 2, 8, 4, "converged"),
        ("source-localization", "median-ga", 2, 8, 4, "converged"),
        ("source-localization", "kernel-ga", 1, 8, 4, "converged"),
        ("consensus", "max-ga", 1, 32, 35, "paper"),
    ]
    for experiment, method, hops, features, order, protocol in cells:
        models, tasks, training = build(experiment, method, hops, features, order, protocol)
        check(models, tasks, device)
        fleet = Fleet(models, tasks, device=device)
        fleet.train(replace(training, epochs=2))
        share_of_matrix, share_of_memory = shares(fleet, training, device)
        epochs = 20 if experiment == "consensus" else 100
        share = seconds(lambda: fleet.train(replace(training, epochs=epochs)), device)
        whole = share * training.epochs / epochs
        steps = training.epochs * -(-fleet.num_samples // training.batch_size)
        matrix_share, memory_share = share_of_matrix * steps / whole, share_of_memory * steps / whole
        row = {"cell": f"{experiment} {method}", "models": len(tasks), "seconds": whole, "epochs timed": epochs}
        rows.append({**row, "share of matrix rate": matrix_share, "share of copy bandwidth": memory_share})
        echo(
            f"{experiment} {method} hops={hops} F={features} K={order}: {len(tasks)} models, {training.epochs} epochs "
            f"in {whole:.1f} s (timed {epochs}); {matrix_share:.0%} of matrix rate, {memory_share:.0%} of copy rate"
        )
    return rows


def shares(fleet, training, device):
    """The least seconds that a step takes, by its matrix products and by the bytes that its operators touch."""
    positions = torch.arange(training.batch_size, device=device).expand(len(fleet), -1)
    operations, moved = demands(lambda: fleet.losses(positions).sum().backward())
    return operations / matrix_rate(device), moved / copy_bandwidth(device)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    name = torch.cuda.get_device_name() if options.device == "cuda" else f"{torch.get_num_threads()} threads"
    echo(f"graphact {graphact.__version__}, torch {torch.__version__}, {name}")
    keep_freed_memory()
    rows = full_cells("cuda") if options.device == "cuda" else against_the_loop("cpu")
    if options.json:
        options.json.write_text(json.dumps({"device": name, "torch": torch.__version__, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
