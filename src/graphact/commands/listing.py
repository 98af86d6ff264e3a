"""graphact list: what there is to run."""

import argparse
import sys
from typing import Any

from graphact.experiments.protocol import jobs_of
from graphact.experiments.registry import EXPERIMENTS, PRESETS, find_experiment
from graphact.registry import names


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "list", help="list experiments, presets, protocols and activations"
    )
    parser.set_defaults(command=listing)


def listing(options: argparse.Namespace) -> int:
    """Print one line for everything that can be run."""
    del options
    lines = ["experiment            preset  protocol    cells  models  epochs"]
    for name in EXPERIMENTS:
        experiment = find_experiment(name)
        for preset in PRESETS[:-1]:  # smoke is for tests
            for protocol in experiment.protocols_at(preset).values():
                cells = len(jobs_of(protocol, 0))
                models = cells * protocol.graphs * protocol.splits * protocol.nodes
                counts = f"{cells:6d} {models:7d} {protocol.training.epochs:7d}"
                lines.append(f"{name:21s} {preset:7s} {protocol.name:10s} {counts}")
    lines.append(f"activations: {', '.join(names())}; fir is the linear baseline")
    sys.stdout.write("\n".join(lines) + "\n")
    return 0
