"""graphact-agents status: how the agents of a network are."""

import argparse
import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphact_agents.addresses import Address, status_address
from graphact_agents.deployment import NODE
from graphact_agents.disk import one_line, read_json
from graphact_agents.network import NETWORK_NAME, NetworkFile
from graphact_agents.network_folder import current_deployment
from graphact_agents.status import OUTCOMES, STATUS_NAME
from graphact_agents.status_server import fetch_status

ASKED_TOGETHER = 16
"""Agents that are asked at the same time: those that do not answer take two seconds each."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    help_ = "the operator's folder, folders of nodes or of such folders, or [HOST:]PORT"
    parser.add_argument("where", nargs="+", metavar="WHERE", help=help_)
    parser.add_argument("--json", action="store_true", help="one line of JSON for each agent")
    help_ = "report an agent as well while its loop runs, whatever its neighbours do"
    parser.add_argument("--alive", action="store_true", help=help_)


def run(options: argparse.Namespace) -> int:
    """
    Show the state of the agents that have the setting status. The exit code is 1 if an agent does not answer, another
    agent answers in its place, it runs an older deployment, or it reports trouble.

      graphact-agents status network
      graphact-agents status 10.0.0.5:9107 10.0.0.6:9107
    """
    agents = list(find_agents(options.where))
    with ThreadPoolExecutor(ASKED_TOGETHER) as pool:
        answers = list(pool.map(lambda agent: agent.ask(alone=options.alive), agents))
    if options.json:
        rows = [json.dumps(found) for found, _ in answers]
    else:
        head = ("agent", "run", *OUTCOMES, "peers")
        rows = ["  ".join((f"{head[0]:16s}", *(f"{each:>10s}" for each in head[1:]), "trouble"))]
        rows += [describe(agent.name, *answer) for agent, answer in zip(agents, answers, strict=True)]
    sys.stdout.write("".join(f"{row.rstrip()}\n" for row in rows))
    return 1 if any(trouble for _, trouble in answers) else 0


@dataclass(frozen=True)
class AgentPlace:
    """The address of an agent, or why it is unknown, and the node and the deployment that are expected there."""

    name: str
    address: Address | str
    node: int | None = None
    deployment: str | None = None

    def ask(self, *, alone: bool = False) -> tuple[dict[str, Any], str]:
        """Return its status, and what an operator should look at, in a few words; empty if nothing."""
        if isinstance(self.address, str):
            return {"name": self.name, "unreachable": self.address}, self.address
        try:
            found = fetch_status(self.address)
        except (OSError, ValueError) as error:
            return {"name": self.name, "unreachable": str(error)}, f"no answer from {self.address}"
        if self.node not in (None, found["node"]):
            trouble = f"another agent, of node {found['node']}, answers at {self.address}"
            return {"name": self.name, "unreachable": trouble}, trouble
        if alone:
            return found, "" if found["alive"] else "its loop stands still"
        trouble = "; ".join(found["trouble"])
        if self.deployment not in (None, found["deployment"]):
            trouble = f"of deployment {found['deployment']:.16}, not {self.deployment}{trouble and f'; {trouble}'}"
        return found, one_line(trouble)


def find_agents(places: list[str]) -> Iterator[AgentPlace]:
    """Yield the agents of all places, in the order they were named."""
    for place in places:
        folder = Path(place)
        if (folder / NETWORK_NAME).is_file():
            file, deployment = NetworkFile.load(folder / NETWORK_NAME), current_deployment(folder)
            for node in file.nodes:
                try:
                    address: Address | str = file.status_address(node)
                except ValueError as error:
                    address = one_line(error)
                yield AgentPlace(f"node-{node}", address, node, deployment)
        elif folder.is_dir():
            for each in sorted(folder.glob("node-*"), key=lambda f: (len(f.name), f.name)) or [folder]:
                if not (each / STATUS_NAME).is_file():
                    raise FileNotFoundError(f"{each / STATUS_NAME} is missing: no agent was started here with --status")
                answers_at = Address.parse(read_json(each / STATUS_NAME).get("status", ""))
                yield AgentPlace(each.name, answers_at, read_json(each / NODE).get("node"))
        else:
            try:
                yield AgentPlace(place, status_address(place))
            except ValueError as error:
                raise ValueError(f"{place!r} is neither a folder nor an address: {error}") from error


def describe(name: str, found: dict[str, Any], trouble: str) -> str:
    """A row of the table."""
    if "unreachable" in found:
        return f"{name:16s}  {trouble}"
    counts = (found["counters"][each] for each in OUTCOMES)
    there = [j for j, peer in found["peers"].items() if peer["heard_seconds_ago"] is not None]
    peers = f"{len(there)}/{len(found['peers'])}"
    return "  ".join((f"{name:16s}", *(f"{each:>10}" for each in (found["run"], *counts, peers)), trouble))
