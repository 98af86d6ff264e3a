"""graphact agents status: what operators see of a running network."""

import argparse
import sys
from pathlib import Path
from typing import Any

from graphact.agents.addresses import Address, status_address
from graphact.agents.agent import STATUS_NAME
from graphact.agents.deployment import read_json
from graphact.agents.status import fetch_status
from graphact.commands.parser import command, option


@command(
    option("where", "folders of nodes, a folder of such folders, or [HOST:]PORT", nargs="+", metavar="WHERE"),
    option("--json", "one line of JSON for each agent", action="store_true"),
)
def status(options: argparse.Namespace) -> int:
    """
    Show how the agents of a network are, those that were started with --status. The exit code is 1 if one does not
    answer, is not healthy, or refuses a neighbour.

      graphact agents status nodes
      graphact agents status 10.0.0.5:9107 10.0.0.6:9107
    """
    import json

    rows, is_well = [], True
    for name, address in find_agents(options.where):
        try:
            found = fetch_status(address)
            trouble = trouble_of(found)
        except (OSError, ValueError) as error:
            found, trouble = {"name": name, "unreachable": str(error)}, f"no answer from {address}"
        is_well = is_well and not trouble
        rows.append(json.dumps(found) if options.json else describe(name, found, trouble))
    if not options.json:
        head = ("agent", "run", "complete", "incomplete", "failed", "skipped", "starts", "peers")
        rows.insert(0, "  ".join((f"{head[0]:16s}", *(f"{each:>10s}" for each in head[1:]), "trouble")))
    sys.stdout.write("".join(f"{row.rstrip()}\n" for row in rows))
    return 0 if is_well else 1


def find_agents(places: list[str]) -> list[tuple[str, Address]]:
    """Names and addresses, in the order they were named; nodes of a folder by their numbers."""
    found = []
    for place in places:
        if not Path(place).is_dir():
            found.append((place, status_address(place)))
            continue
        folders = sorted(Path(place).glob("node-*"), key=lambda f: (len(f.name), f.name)) or [Path(place)]
        for folder in folders:
            if not (folder / STATUS_NAME).is_file():
                raise FileNotFoundError(f"{folder / STATUS_NAME} is missing: no agent was started here with --status")
            found.append((folder.name, Address.parse(read_json(folder / STATUS_NAME).get("status", ""))))
    return found


def trouble_of(found: dict[str, Any]) -> str:
    """What an operator should look at, in a few words; empty if nothing."""
    refused = [f"{j}: {peer['refused']}" for j, peer in found["peers"].items() if peer["refused"]]
    return "; ".join(([] if found["healthy"] else [found["reason"]]) + refused)


def describe(name: str, found: dict[str, Any], trouble: str) -> str:
    """A row of the table."""
    if "unreachable" in found:
        return f"{name:16s}  {trouble}"
    totals = found["totals"]
    counts = (totals[each] for each in ("complete", "incomplete", "failed", "skipped", "starts"))
    there = [j for j, peer in found["peers"].items() if peer["heard_seconds_ago"] is not None]
    peers = f"{len(there)}/{len(found['peers'])}"
    return "  ".join((f"{name:16s}", *(f"{each:>10}" for each in (found["run"], *counts, peers)), trouble))
