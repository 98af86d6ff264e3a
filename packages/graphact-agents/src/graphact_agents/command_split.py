"""graphact-agents split: a folder for each node of a network."""

import argparse
import sys
from pathlib import Path

from graphact_agents.addresses import consecutive_addresses
from graphact_agents.certificates import can_make_certificates
from graphact_agents.deployment import split
from graphact_agents.disk import check_writable
from graphact_agents.graph_file import load_graph
from graphact_agents.model import cost_of_inference
from graphact_agents.model_file import load_model
from graphact_agents.network import NetworkFile
from graphact_agents.runs import Timing


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("model", type=Path, metavar="MODEL", help="a model file that graphact.save has written")
    parser.add_argument("graph", type=Path, metavar="GRAPH", help="a graph file (.npz) of graphact.Graph.save")
    parser.add_argument("--out", type=Path, metavar="DIR", required=True, help="folder for node-0, node-1 and so on")
    parser.add_argument("--host", default="127.0.0.1", help="host of all nodes (default: 127.0.0.1)")
    help_ = "node i listens on PORT + i (default: 7500)"
    parser.add_argument("--base-port", type=int, default=7500, metavar="PORT", help=help_)
    help_ = "instead: a TOML file with all addresses, see graphact-agents run"
    parser.add_argument("--network", type=Path, metavar="FILE", help=help_)
    help_ = "no certificates for the nodes (which need cryptography)"
    parser.add_argument("--no-tls", dest="tls", action="store_false", help=help_)


def run(options: argparse.Namespace) -> int:
    """
    Write one folder for each node: its row of the shift operator, its neighbours, the keys of its links, their
    addresses, a certificate and the model, nothing else. Bring each folder to its node, and delete it here.
    """
    check_writable(options.out)
    if options.tls and not can_make_certificates():
        raise ModuleNotFoundError(
            "the package cryptography, which makes the certificates for TLS, is not installed; --no-tls goes without"
        )
    model, graph = load_model(options.model), load_graph(options.graph)
    slot = Timing().slot
    if options.network is None:
        addresses = consecutive_addresses(graph.num_nodes, options.host, options.base_port)
    else:
        file = NetworkFile.load(options.network)
        addresses, slot = file.addresses(graph.num_nodes), file.shared.get("slot", slot)
    cost = cost_of_inference(model, graph.num_edges, slot=slot)
    folders = split(model, graph, options.out, addresses=addresses, tls=options.tls)
    sys.stdout.write(
        f"{len(folders)} nodes, {graph.num_edges} directed edges: {folders[0]} to {folders[-1].name}\n"
        f"one inference: {cost.rounds} rounds, {cost.messages} messages, {cost.bytes} bytes in all, "
        f"at most {cost.longest:.2f} s (slot {slot:g} s)\n"
    )
    return 0
