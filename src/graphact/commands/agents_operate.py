"""graphact agents status, update, add, remove, rekey: a running network as its operators see and change it."""

import argparse
import sys
from pathlib import Path
from typing import Any

from graphact.agents.addresses import Address, status_address
from graphact.agents.daemon import STATUS_NAME
from graphact.agents.deployment import Deployment, read_json
from graphact.agents.model import load_model
from graphact.agents.network import NetworkFile
from graphact.agents.renewal import renew, with_node, without_node
from graphact.agents.rollout import Network
from graphact.agents.status_server import fetch_status
from graphact.commands.parser import command, option
from graphact.storage import one_line


@command(
    option("where", "folders of nodes or of such folders, [HOST:]PORT, or network.toml", nargs="+", metavar="WHERE"),
    option("--json", "one line of JSON for each agent", action="store_true"),
)
def status(options: argparse.Namespace) -> int:
    """
    Show how the agents of a network are, those that were started with --status. The exit code is 1 if one does not
    answer, is another than the one that was asked for, or has trouble.

      graphact agents status nodes
      graphact agents status 10.0.0.5:9107 10.0.0.6:9107
    """
    import json

    rows, is_well = [], True
    for name, node, address in find_agents(options.where):
        found, trouble = ask(name, node, address)
        is_well = is_well and not trouble
        rows.append(json.dumps(found) if options.json else describe(name, found, trouble))
    if not options.json:
        head = ("agent", "run", "complete", "incomplete", "failed", "skipped", "starts", "peers")
        rows.insert(0, "  ".join((f"{head[0]:16s}", *(f"{each:>10s}" for each in head[1:]), "trouble")))
    sys.stdout.write("".join(f"{row.rstrip()}\n" for row in rows))
    return 0 if is_well else 1


def find_agents(places: list[str]) -> list[tuple[str, int | None, Address | str]]:
    """Names, expected nodes and addresses (or why there is none), in the order they were named."""
    found: list[tuple[str, int | None, Address | str]] = []
    for place in places:
        if place.endswith(".toml"):
            file = NetworkFile.load(place)
            found += [(f"node-{i}", i, address_in(file, i)) for i in sorted(file.nodes)]
            continue
        if not Path(place).is_dir():
            found.append((place, None, status_address(place)))
            continue
        folders = sorted(Path(place).glob("node-*"), key=lambda f: (len(f.name), f.name)) or [Path(place)]
        for folder in folders:
            if not (folder / STATUS_NAME).is_file():
                raise FileNotFoundError(f"{folder / STATUS_NAME} is missing: no agent was started here with --status")
            found.append((folder.name, read_json(folder / "node.json").get("node"), status_in(folder)))
    return found


def status_in(folder: Path) -> Address:
    """Where the agent that was started in a folder answers."""
    return Address.parse(read_json(folder / STATUS_NAME).get("status", ""))


def address_in(file: NetworkFile, node: int) -> Address | str:
    """Where a node of a file answers, or why that is not known; a port that it took itself is in its folder."""
    try:
        address = file.status_address(node)
        return address if address.port else status_in(Path(file.settings(node).get("folder", "")))
    except (OSError, ValueError) as error:
        return one_line(error)


def ask(name: str, node: int | None, address: Address | str) -> tuple[dict[str, Any], str]:
    """The status of an agent, and what an operator should look at, in a few words; empty if nothing."""
    if isinstance(address, str):
        return {"name": name, "unreachable": address}, address
    try:
        found = fetch_status(address)
        if node is None or found["node"] == node:
            return found, printable("; ".join(found["trouble"]))
        trouble = f"another agent, of node {found['node']}, answers at {address}"
        return {"name": name, "unreachable": trouble}, trouble
    except (OSError, ValueError) as error:
        return {"name": name, "unreachable": str(error)}, f"no answer from {address}"


def printable(text: str) -> str:
    """Text from elsewhere without what a terminal would obey."""
    return "".join(each if each.isprintable() else "?" for each in text)


def describe(name: str, found: dict[str, Any], trouble: str) -> str:
    """A row of the table."""
    if "unreachable" in found:
        return f"{name:16s}  {trouble}"
    totals = found["totals"]
    counts = (totals[each] for each in ("complete", "incomplete", "failed", "skipped", "starts"))
    there = [j for j, peer in found["peers"].items() if peer["heard_seconds_ago"] is not None]
    peers = f"{len(there)}/{len(found['peers'])}"
    return "  ".join((f"{name:16s}", *(f"{each:>10}" for each in (found["run"], *counts, peers)), trouble))


NODES = option(
    "nodes",
    "folder of the folders of all nodes, node-0 and so on, or network.toml that names them",
    type=Path,
    metavar="NODES",
)
CHANGE = (
    option("--timeout", "seconds for all agents to prepare (default: 30)", type=float, default=30.0, metavar="S"),
    option("--lead", "seconds until it takes effect, with a clock (default: 2)", type=float, default=2.0, metavar="S"),
    option("--lead-runs", "the same in runs, with --period 0 (default: 100)", type=int, default=100, metavar="R"),
    option("--absent", "nodes that are down, and change when they come back", type=int, nargs="*", default=[]),
)


@command(NODES, "model", *CHANGE)
def update(options: argparse.Namespace) -> int:
    """
    Give a running network another model. All agents read and check it; if each of them can run it, it takes effect at
    one run for all, otherwise nothing is changed. No run mixes two models.

      graphact agents update nodes better.safetensors
    """
    network = open_network(options.nodes)
    return change(network, renew(network.deployments, model=load_model(options.model)), options)


@command(
    NODES,
    option("--listen", "its address, such as 10.0.0.9:7500", required=True, metavar="HOST:PORT"),
    option(
        "--links", "its neighbours and their weights, in both directions", nargs="+", required=True, metavar="NODE:W"
    ),
    option("--diagonal", "its own weight (default: 0)", type=float, default=0.0, metavar="W"),
    *CHANGE,
)
def add(options: argparse.Namespace) -> int:
    """
    Add a node to a running network. Its folder is written beside the others; bring it to its machine and start its
    agent, which takes part from the run of the change on.

      graphact agents add nodes --listen 10.0.0.9:7500 --links 3:0.25 7:0.5
    """
    network, node_weights = open_network(options.nodes), [link.partition(":") for link in options.links]
    try:
        weights = {int(node): float(weight) for node, _, weight in node_weights}
    except ValueError:
        raise ValueError(f"--links must be NODE:WEIGHT, such as 3:0.25, got {' '.join(options.links)}") from None
    node = max(network.deployments) + 1
    renewed = renew(network.deployments, rows=with_node(network.rows, node, weights, options.diagonal))
    sys.stdout.write(f"node {node}: {network.folder / f'node-{node}'}\n")
    return change(network, renewed, options, listen={node: Address.parse(options.listen)})


@command(NODES, option("node", "its number", type=int, metavar="NODE"), *CHANGE)
def remove(options: argparse.Namespace) -> int:
    """Remove a node from a running network: from one run on its neighbours do without it, and its agent ends."""
    network = open_network(options.nodes)
    return change(network, renew(network.deployments, rows=without_node(network.rows, options.node)), options)


@command(NODES, *CHANGE)
def rekey(options: argparse.Namespace) -> int:
    """Give every link of a running network a new key, at one run for all; the old ones are deleted."""
    network = open_network(options.nodes)
    return change(network, renew(network.deployments), options)


def open_network(place: Path) -> Network:
    """The folders of all nodes in a folder, or those that the file of a network names."""
    if place.suffix != ".toml":
        return Network(place)
    file = NetworkFile.load(place)
    folders = {i: Path(file.settings(i).get("folder", "")) for i in file.nodes}
    other = [i for i, f in folders.items() if f.name != f"node-{i}" or not f.is_dir()]
    if other or len({f.parent for f in folders.values()}) > 1:
        raise ValueError(
            f"{place}: its folders must be on this machine, side by side, as node-0 and so on, and those of the nodes "
            f"{other or sorted(folders)} are not; mount them in one folder, and give that instead of the file"
        )
    return Network(next(iter(folders.values())).parent)


def change(network: Network, renewed: dict[int, Deployment], options: argparse.Namespace, **more: Any) -> int:
    """Roll a change out, and tell how it went."""
    lead = {"timeout": options.timeout, "lead": options.lead, "lead_runs": options.lead_runs, "absent": options.absent}
    run = network.change(renewed, tell=lambda text: sys.stdout.write(f"{text}\n"), **lead, **more)
    sys.stdout.write(f"changed at run {run}\n")
    return 0
