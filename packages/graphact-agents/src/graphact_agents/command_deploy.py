"""graphact-agents deploy: the folders of all nodes, from the operator's folder."""

import argparse
import sys
from pathlib import Path

from graphact_agents.network_folder import deploy_network

UNENCRYPTED = "graphact-agents: nothing is encrypted: whoever reaches the links can read all values\n"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("network", type=Path, metavar="NETWORK", help="a folder that graphact-agents init has written")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", required=True, help="a new folder for node-0, node-1 and so on"
    )
    help_ = "reuse the link keys of the last deployment; never after a node was stolen"
    parser.add_argument("--keep-keys", action="store_true", help=help_)


def run(options: argparse.Namespace) -> int:
    """
    Write a complete folder for each node: its row of the shift operator, its neighbours and their addresses, the model,
    settings, new keys of its links and, for zenoh, a new certificate. Copy each folder to its node, restart all
    agents, and delete the folders here. Nothing is read back from nodes.

      graphact-agents deploy network --out nodes
    """
    made = deploy_network(options.network, options.out, keep_keys=options.keep_keys)
    if not made.file.tls and not made.file.is_local:
        sys.stderr.write(UNENCRYPTED)
    if made.left_out:
        names = ", ".join(map(str, made.left_out[:20])) + (", ..." if len(made.left_out) > 20 else "")
        sys.stdout.write(f"not in the network, as no table of network.toml names them: nodes {names}\n")
    sys.stdout.write(
        f"deployment {made.deployment}: {len(made.folders)} nodes, {made.folders[0]} to {made.folders[-1].name}\n"
        f"one inference: {made.cost.rounds} rounds, {made.cost.messages} messages, {made.cost.bytes} bytes in all, "
        f"at most {made.cost.longest:.2f} s\n"
    )
    return 0
