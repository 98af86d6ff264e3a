"""One file for a whole network, the same on all machines: what is set for all nodes, and for each.

.. code-block:: toml

    [network]
    folder = "/var/lib/graphact/node-{node}"
    transport = "udp"
    period = 60.0
    status = "0.0.0.0:9107"

    [nodes.3]
    address = "10.0.0.5:7500"
    sensor = "read-temperature --json"

Settings are the options of ``graphact-agents run`` by their names; those of a node go before those of the network, and
what the command line says goes before both.
"""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphact_agents.addresses import Address, status_address

SETTINGS: dict[str, type] = {
    "transport": str,
    "signals": str,
    "sensor": str,
    "lead": float,
    "repeat": bool,
    "period": float,
    "origin": float,
    "slot": float,
    "tls": bool,
    "dynamic": bool,
    "status": str,
    "durable": bool,
}
"""Options of ``graphact-agents run``, and what they hold."""
LOOPBACK = ("127.", "::1", "localhost")
SOURCES = ("signals", "sensor")
"""Settings that name a source of signals; the one nearest to the node is used."""


@dataclass(frozen=True)
class NetworkFile:
    """The settings of a network, and of each of its nodes.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no TOML, or names what there is not, or holds the wrong kind of value.
    """

    path: Path
    shared: Mapping[str, Any]
    nodes: Mapping[int, Mapping[str, Any]]

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "NetworkFile":
        path = Path(path)
        try:
            content = tomllib.loads(path.read_text())
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{path}: not valid TOML: {error}") from error
        check_names(path, content, {"network": dict, "nodes": dict})
        nodes = content.get("nodes", {})
        if not nodes or not all(name.isdecimal() and name == str(int(name[:9])) for name in nodes):
            raise ValueError(f"{path}: nodes must be tables by number, such as [nodes.3], got {list(nodes)[:5]}")
        shared = check_names(path, content.get("network", {}), SETTINGS | {"folder": str}, "network")
        allowed = SETTINGS | {"folder": str, "address": str}
        found = {int(name): check_names(path, node, allowed, f"nodes.{name}") for name, node in nodes.items()}
        for table in (shared, *found.values()):
            if {*SOURCES} <= {*table}:
                raise ValueError(f"{path}: signals and sensor exclude each other, got both in one table")
        for node in found.values():
            Address.parse(node.get("address", "127.0.0.1:1"))
        return cls(path, shared, found)

    def settings(self, node: int) -> dict[str, Any]:
        """Return the settings of a node; ``folder`` with its number."""
        if node not in self.nodes:
            raise ValueError(f"{self.path}: node must be one of {sorted(self.nodes)}, got {node}")
        own = self.nodes[node]
        shared = {name: value for name, value in self.shared.items() if name not in SOURCES or not {*SOURCES} & {*own}}
        found = {**shared, **own}
        return found | ({"folder": found["folder"].replace("{node}", str(node))} if "folder" in found else {})

    def addresses(self, count: int) -> list[Address]:
        """The addresses of nodes 0, 1 and so on; ValueError if one is missing, or two are the same."""
        given = {i: node["address"] for i, node in self.nodes.items() if "address" in node}
        if {*given} != {*range(count)}:
            raise ValueError(f"{self.path}: must hold an address for each of the nodes 0 to {count - 1}")
        found = [Address.parse(given[i]) for i in range(count)]
        if len(set(found)) < count:
            raise ValueError(f"{self.path}: two nodes have the same address")
        return found

    def status_address(self, node: int) -> Address:
        """Return the address at which to ask for the status of a node from this machine.

        ValueError if no status is set, or it is a port alone, which is open to the machine of the node only.
        """
        settings = self.settings(node)
        if "status" not in settings:
            raise ValueError(f"no status is set for node {node} in {self.path}")
        found, host = status_address(settings["status"]), Address.parse(settings.get("address", "127.0.0.1:1")).host
        if settings["status"].isdecimal() and not host.startswith(LOOPBACK):
            advice = f'status = "0.0.0.0:{found.port}" lets others ask'
            raise ValueError(f"node-{node} listens for status on its own machine only, {host}; {advice}")
        return Address(host, found.port) if found.host in ("0.0.0.0", "::") else found


def check_names(path: Path, table: Any, allowed: Mapping[str, type], where: str = "") -> dict[str, Any]:
    """A table whose names are known and whose values are of their kind; whole numbers are numbers."""
    if not isinstance(table, dict):
        raise ValueError(f"{path}: {where} must be a table, got {table!r:.60}")
    checked = {}
    for name, value in table.items():
        label = f"{where}.{name}" if where else name
        if name not in allowed:
            raise ValueError(f"{path}: {label} is no setting; there are {', '.join(allowed)}")
        kind = allowed[name]
        value = float(value) if kind is float and type(value) is int else value
        if type(value) is not kind:
            raise ValueError(f"{path}: {label} must be a {kind.__name__}, got {value!r:.60}")
        checked[name] = value
    return checked
