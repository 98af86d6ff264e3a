"""The commands graphact-lab list and data."""

import argparse
import sys
from importlib import import_module
from typing import Any

from graphact.commands.parser import command, option, print_json
from graphact_lab.commands.run import DATA
from graphact_lab.data.sources import SOURCE_DESCRIPTIONS
from graphact_lab.descriptions import BENCHMARKS, EVERY_EXPERIMENT, EXPERIMENTS, find_experiment
from graphact_lab.protocols import jobs_of

PARTS = ("datasets", "experiments")


@command(
    option("part", ", ".join(PARTS) + " (default: all)", nargs="?", choices=PARTS, metavar="PART"),
    "--json",
)
def list_all(options: argparse.Namespace) -> int:
    """List data sets and experiments, with a one-line description of each."""
    folders = {name: f"graphact_lab.experiments.{name.replace('-', '_')}" for name in EVERY_EXPERIMENT}
    experiments = {name: import_module(folder).__doc__ or "" for name, folder in folders.items()}
    known = {"data sets": dict(SOURCE_DESCRIPTIONS), "experiments": experiments}
    shown = {part: entries for part, entries in known.items() if options.part in (None, part.replace(" ", ""))}
    if options.json:
        return print_json(shown)
    lines = []
    for part, entries in shown.items():
        lines += ["", part, *(f"  {name:20s} {line}".rstrip() for name, line in entries.items())]
        if part == "experiments":
            more = "graphact-lab list experiments adds presets, protocols and how many networks each trains"
            lines += ["", *(presets() if options.part else [more])]
    sys.stdout.write("\n".join(lines[1:]) + "\n")
    return 0


def presets() -> list[str]:
    """Return a line for each preset and protocol, with the number of networks that it trains."""
    from graphact_lab.experiments.faulty_sensors import experiment as faulty
    from graphact_lab.experiments.flocking import experiment as flocking
    from graphact_lab.experiments.rounds import experiment as rounds
    from graphact_lab.experiments.scheduling import experiment as scheduling

    lines = ["experiment            preset  protocol               cells  models  epochs"]
    for name in (*EXPERIMENTS, *BENCHMARKS):
        experiment = find_experiment(name)
        for preset in experiment.presets:
            for called, protocol in experiment.protocols_at(preset).items():
                cells = len(jobs_of(protocol, 0))
                models = cells * protocol.graphs * protocol.splits * protocol.nodes
                counts = f"{cells:6d} {models:7d} {protocol.training.epochs:7d}"
                lines.append(f"{name:21s} {preset:7s} {called:21s} {counts}")
    teams = (flocking.QUICK, flocking.MEDIUM, flocking.FULL)
    links = (scheduling.QUICK, scheduling.FULL)
    standalone: list[tuple[Any, int, int]] = [
        *((one, one.realizations, one.imitation.get("epochs", flocking.EPOCHS)) for one in teams),
        *((one, one.replicas, one.steps) for one in links),
        *((one, one.origins, one.epochs) for one in (faulty.QUICK, faulty.FULL)),
        *((one, one.graphs * one.splits * one.nodes, one.epochs) for one in (rounds.QUICK, rounds.FULL)),
    ]
    for one, replicas, epochs in standalone:
        counts = f"{len(one.jobs):6d} {len(one.jobs) * replicas:7d} {epochs:7d}"
        lines.append(f"{one.experiment:21s} {one.preset:7s} {one.preset:21s} {counts}")
    return lines


@command(
    option("action", "download missing files, or verify those on disk", choices=("fetch", "check")),
    option("datasets", f"only these: {', '.join(SOURCE_DESCRIPTIONS)} (default: all)", nargs="*", metavar="DATASET"),
    DATA,
    "--json",
)
def data(options: argparse.Namespace) -> int:
    """Download data sets (graphact-lab list names them) once, and verify their hashes."""
    from graphact._checks import check_choice
    from graphact_lab.data.download import check, fetch
    from graphact_lab.data.sources import DATASETS

    for dataset in options.datasets:
        check_choice("DATASET", dataset, tuple(DATASETS))
    chosen = options.datasets or list(DATASETS)
    if options.action == "fetch":
        folders = {}
        for dataset in dict.fromkeys(chosen):
            folders[dataset] = str(fetch(dataset, options.data))
            if not options.json:
                sys.stdout.write(f"{dataset}: {folders[dataset]}\n")
        return print_json(folders) if options.json else 0
    states = [state for state in check(options.data) if state.dataset in chosen]
    if options.json:
        print_json({state.file: state.status for state in states})
    else:
        sys.stdout.writelines(f"{state.status:8s} {state.file}\n" for state in states)
    return 0 if all(state.status == "ok" for state in states) else 1
