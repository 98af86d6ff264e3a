"""graphact agents split: from a model and a graph to one folder for each node."""

import argparse
import sys
from pathlib import Path
from typing import Any

from graphact.commands.options import add_shared


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "split",
        help="write one folder for each node",
        description="Write one folder for each node: its row of the shift operator, its neighbours, the keys of its "
        "links, their addresses and the model, nothing else. Bring each folder to its node, and delete it here.",
    )
    add_shared(parser, "model", "graph")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for node-0, node-1 and so on")
    parser.add_argument("--host", default="127.0.0.1", help="host of all nodes (default: 127.0.0.1)")
    parser.add_argument(
        "--base-port", type=int, default=7500, metavar="PORT", help="node i listens on PORT + i (default: 7500)"
    )
    parser.add_argument(
        "--addresses", type=Path, metavar="FILE", help='instead: JSON with all addresses, {"0": "10.0.0.5:7500", ...}'
    )
    parser.set_defaults(command=split)


def split(options: argparse.Namespace) -> int:
    """Read, split, print what came out."""
    from graphact import Graph, agents, load
    from graphact.agents.addresses import consecutive_addresses, read_addresses
    from graphact.agents.split import plain_model

    model, graph = load(options.model), Graph.load(options.graph)
    cost = agents.cost_of_inference(plain_model(model), graph.num_edges)
    if options.addresses is None:
        addresses = consecutive_addresses(graph.num_nodes, options.host, options.base_port)
    else:
        addresses = read_addresses(options.addresses, graph.num_nodes)
    folders = agents.split(model, graph, options.out, addresses=addresses)
    sys.stdout.write(
        f"{len(folders)} nodes, {graph.num_edges} directed edges: {folders[0]} to {folders[-1].name}\n"
        f"one inference: {cost.rounds} rounds, {cost.messages} messages, {cost.bytes} bytes in all, "
        f"at most {cost.longest:.2f} s\n"
    )
    return 0
