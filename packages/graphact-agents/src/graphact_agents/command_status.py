"""graphact-agents status: how the agents of a network are."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from graphact_agents.addresses import Address, status_address
from graphact_agents.disk import one_line, read_json
from graphact_agents.network import NetworkFile
from graphact_agents.status import OUTCOMES
from graphact_agents.status_server import STATUS_NAME, fetch_status


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    help_ = "folders of nodes or of such folders, [HOST:]PORT, or network.toml"
    parser.add_argument("where", nargs="+", metavar="WHERE", help=help_)
    parser.add_argument("--json", action="store_true", help="one line of JSON for each agent")


def run(options: argparse.Namespace) -> int:
    """
    Show how the agents of a network are, those that were started with --status. The exit code is 1 if one does not
    answer, is another than the one that was asked for, or has trouble.

      graphact-agents status nodes
      graphact-agents status 10.0.0.5:9107 10.0.0.6:9107
    """
    rows, is_well = [], True
    for name, node, address in find_agents(options.where):
        found, trouble = ask(name, node, address)
        is_well = is_well and not trouble
        rows.append(json.dumps(found) if options.json else describe(name, found, trouble))
    if not options.json:
        head = ("agent", "run", *OUTCOMES, "peers")
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
    """Return the status address of the agent that was started in a folder."""
    return Address.parse(read_json(folder / STATUS_NAME).get("status", ""))


def address_in(file: NetworkFile, node: int) -> Address | str:
    """Return the status address of a node of a file, or why it is unknown; a port that it took is in its folder."""
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
    counts = (found["counters"][each] for each in OUTCOMES)
    there = [j for j, peer in found["peers"].items() if peer["heard_seconds_ago"] is not None]
    peers = f"{len(there)}/{len(found['peers'])}"
    return "  ".join((f"{name:16s}", *(f"{each:>10}" for each in (found["run"], *counts, peers)), trouble))
