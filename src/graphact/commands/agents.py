"""graphact agents: a network that runs on its own nodes. One file a sub-command, ``agents_NAME.py``."""

import argparse
from typing import Any

from graphact.commands.loading import add_commands

SUBCOMMANDS = {
    "split": ("graphact.commands.agents_split", "write one folder for each node"),
    "run": ("graphact.commands.agents_run", "run the agent of one node"),
    "simulate": ("graphact.commands.agents_simulate", "simulate agents in a network with faults"),
    "train": ("graphact.commands.agents_train", "let simulated agents learn together"),
    "demo": ("graphact.commands.agents_demo", "watch agents work, one process each, on this machine"),
}
DESCRIPTION = """\
Run a trained network on the nodes of its graph: each node computes its own output from messages of its neighbours.

  graphact agents split model.safetensors graph.npz --out nodes    one folder for each node
  graphact agents run nodes/node-7 --sensor COMMAND --period 60    the agent of one node
  graphact agents simulate model.safetensors graph.npz --loss 0.1  how it would go, with faults
  graphact agents demo                                             watch 20 of them on this machine
  graphact agents train model.safetensors graph.npz --signals x.npy --targets y.npy --out trained.safetensors
"""


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "agents",
        help="run a network on its own nodes",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_commands(parser, SUBCOMMANDS)
