"""graphact list: what there is to run."""

import argparse
import sys
from typing import Any

from graphact.experiments.presets import EXPERIMENTS, PRESETS, find_protocol, protocol_names
from graphact.experiments.protocol import cells_of
from graphact.nn import ACTIVATIONS


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
    for experiment in EXPERIMENTS:
        for preset in PRESETS:
            if preset != "smoke":
                for name in protocol_names(experiment, preset):
                    protocol = find_protocol(experiment, preset, name)
                    cells = len(cells_of(protocol, 0))
                    models = cells * protocol.graphs * protocol.splits * protocol.nodes
                    lines.append(
                        f"{experiment:21s} {preset:7s} {name:10s} {cells:6d} {models:7d} {protocol.training.epochs:7d}"
                    )
    lines.append(f"activations: {', '.join(ACTIVATIONS)}; fir is the linear baseline")
    sys.stdout.write("\n".join(lines) + "\n")
    return 0
