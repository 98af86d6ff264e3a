"""graphact-agents learn: the agent of one node that learns with its neighbours."""

import argparse
from pathlib import Path

import numpy as np

from graphact_agents.command_simulate import read_numbers
from graphact_agents.deployment import check_folder
from graphact_agents.learning.networked import learn
from graphact_agents.transports.transport import TRANSPORTS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add = parser.add_argument
    add("folder", type=Path, metavar="FOLDER", help="the folder of the node, with its learning.json")
    help_ = ".npy of shape (M, F), its own (default: signals.npy of the folder)"
    add("--signals", type=Path, metavar="FILE", help=help_)
    help_ = ".npy of shape (M, O), its own (default: targets.npy of the folder)"
    add("--targets", type=Path, metavar="FILE", help=help_)
    add("--transport", choices=TRANSPORTS, default="zenoh", help="default: zenoh")
    add("--slot", type=float, default=5.0, help="seconds for one round (default: 5)")


def run(options: argparse.Namespace) -> int:
    """
    Let the agent of one node learn with its neighbours, and write trained.safetensors into its folder.

    learning.json of the folder says how, the same at all nodes:
      {"learning": {"algorithm": "push-pull", "rate": 0.01}, "steps": 300, "first": 0}
    first is the number of its first run, higher for another training in the same folder. Where it stands is in
    state.npz: started again it goes on, with the step that its neighbours are in.
    """
    check_folder(options.folder)
    files = (options.signals or options.folder / "signals.npy", options.targets or options.folder / "targets.npy")
    signals, targets = (read_numbers(path, "(M, F)", lambda x: x.ndim == 2).astype("float64") for path in files)
    with np.errstate(over="ignore", invalid="ignore"):
        learn(options.folder, signals, targets, transport=options.transport, slot=options.slot)
    return 0
