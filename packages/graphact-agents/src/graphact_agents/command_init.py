"""graphact-agents init: the operator's folder of a network."""

import argparse
import sys
from pathlib import Path

from graphact_agents.network import NETWORK_NAME
from graphact_agents.network_folder import init_network


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("model", type=Path, metavar="MODEL", help="a model file that graphact.save has written")
    parser.add_argument("graph", type=Path, metavar="GRAPH", help="a graph file (.npz) of graphact.Graph.save")
    parser.add_argument("--out", type=Path, metavar="NETWORK", required=True, help="the folder to write")
    help_ = "HOST:PORT of every node, {node} is its number (default: ports of this machine from 7500 on)"
    parser.add_argument("--address", metavar="PATTERN", help=help_)


def run(options: argparse.Namespace) -> int:
    """
    Write the folder from which an operator runs a network: model.safetensors, graph.npz and network.toml, which names
    the nodes, their addresses and the settings. Edit it, then deploy.

      graphact-agents init model.safetensors graph.npz --out network
      graphact-agents init model.safetensors graph.npz --out network \\
          --address 'sensor-{node}.local:7500'
    """
    cost = init_network(options.model, options.graph, options.out, options.address)
    sys.stdout.write(
        f"{options.out / NETWORK_NAME}: edit it, then graphact-agents deploy {options.out} --out nodes\n"
        f"one inference: {cost.rounds} rounds, {cost.messages} messages, {cost.bytes} bytes in all\n"
    )
    return 0
