"""The file that describes a network: its nodes, their addresses, and settings. An operator edits it.

.. code-block:: toml

    [network]
    period = 60.0
    sensor = "read-temperature --json"

    [nodes.3]
    address = "10.0.0.5:7500"
    sensor = "read-temperature --json --scale 0.1"

Settings are the options of ``graphact-agents run`` by their names; those of a node go before those of the network.
"""

import ipaddress
import os
import re
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphact_agents.addresses import Address, status_address
from graphact_agents.arguments import check_choice
from graphact_agents.disk import one_line
from graphact_agents.messages import MAX_FIELD
from graphact_agents.transports.transport import TRANSPORTS

NETWORK_NAME = "network.toml"
MAX_BYTES = 2**24
AGREED: dict[str, type] = {
    "transport": str,
    "tls": bool,
    "slot": float,
    "period": float,
    "origin": float,
    "dynamic": bool,
}
"""Settings that are those of all nodes, and what they hold."""
OWN: dict[str, type] = {
    "signals": str,
    "sensor": str,
    "lead": float,
    "repeat": bool,
    "status": str,
    "durable": bool,
}
"""Settings that nodes may have of their own."""
SETTINGS = AGREED | OWN
"""All options of ``graphact-agents run`` that the file may set."""
DEFAULTS: dict[str, Any] = {
    "signals": "-",
    "lead": 0.5,
    "origin": 0.0,
    "slot": 0.18,
    "transport": "udp",
    **dict.fromkeys(("tls", "repeat", "dynamic", "durable"), False),
}
"""Settings of an agent where neither its folder nor the command line has one."""
KINDS = {str: "text", float: "a number", int: "a whole number", bool: "true or false", dict: "a table"}
"""Types of values as those who edit the file know them."""
VALID_DAYS = 365
SOURCES = ("signals", "sensor")
"""Settings that name a source of signals; the one nearest to the node is used."""
RANGES = {"slot": (1e-6, 86_400.0), "period": (0.0, 1e9), "origin": (-1e12, 1e12), "lead": (0.0, 1e9)}
"""The smallest and the largest value of numbers."""
MAX_DAYS = 36_500
UNSPECIFIED = ("0.0.0.0", "::")
HOST_NAME = re.compile(r"(?=.*[A-Za-z])[\w-]+(\.[\w-]+)*\.?", re.ASCII)


@dataclass(frozen=True)
class NetworkFile:
    """The nodes of a network by number, with their settings, and those that all share.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not TOML, or it names what does not exist, or holds a value that cannot be; one line says
            which.
    """

    path: Path
    shared: Mapping[str, Any]
    nodes: Mapping[int, Mapping[str, Any]]
    valid_days: int = VALID_DAYS

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "NetworkFile":
        path = Path(path)
        try:
            with path.open("rb") as stream:
                text = stream.read(MAX_BYTES + 1)
            if len(text) > MAX_BYTES:
                raise ValueError(f"it has more than {MAX_BYTES} bytes")
            content = tomllib.loads(text.decode())
        except (ValueError, RecursionError) as error:  # also TOMLDecodeError and UnicodeDecodeError
            raise ValueError(f"{path}: not valid TOML: {one_line(error)}") from error
        check_table(path, content, {"network": dict, "nodes": dict})
        shared = check_table(path, content.get("network", {}), SETTINGS | {"valid_days": int}, "network")
        if not 0 < (days := shared.pop("valid_days", VALID_DAYS)) <= MAX_DAYS:
            raise ValueError(f"{path}: network.valid_days must lie between 1 and {MAX_DAYS}, got {str(days)[:20]}")
        nodes: dict[int, dict[str, Any]] = {}
        for name, table in content.get("nodes", {}).items():
            if not name.isascii() or not name.isdecimal() or name != str(int(name[:10])):
                raise ValueError(f"{path}: nodes must be tables by number, such as [nodes.3], got [nodes.{name!r:.60}]")
            if int(name) > MAX_FIELD["sender"]:
                raise ValueError(f"{path}: nodes must have numbers below 2^32, got {name}")
            nodes[int(name)] = check_table(path, table, OWN | {"address": str}, f"nodes.{name}")
        file = cls(path, shared, dict(sorted(nodes.items())), days)
        file._check()
        return file

    def _check(self) -> None:
        """Raise ValueError for values that are impossible by themselves or together."""
        if not self.nodes:
            raise ValueError(f"{self.path}: at least one node must be there, such as [nodes.0] with its address")
        for where, table in [("network", self.shared), *((f"nodes.{i}", node) for i, node in self.nodes.items())]:
            if {*SOURCES} <= {*table}:
                raise ValueError(f"{self.path}: {where}: signals and sensor exclude each other, got both")
            for name, value in table.items():
                try:
                    check_value(name, value)
                except ValueError as error:
                    raise ValueError(f"{self.path}: {where}: {one_line(error)}") from error
        if missing := [i for i, node in self.nodes.items() if "address" not in node]:
            raise ValueError(f"{self.path}: nodes.{missing[0]} must have an address, such as 10.0.0.7:7500")
        if self.shared.get("tls") and self.transport == "udp":
            raise ValueError(f'{self.path}: network: tls = true needs transport = "zenoh", got udp')
        by_place: dict[object, int] = {}
        for i, address in self.addresses.items():
            if (first := by_place.setdefault(address.canonical, i)) != i:
                raise ValueError(f"{self.path}: nodes.{first} and nodes.{i} have the same address, {address}")
            if (status := self.settings(i).get("status")) and (found := status_address(status)).port:
                host = (found if address.is_loopback and found.is_loopback else address).canonical.host
                if (first := by_place.setdefault((host, found.port), i)) != i:
                    raise ValueError(f"{self.path}: nodes.{first} and nodes.{i} have the same status, {found}")

    @property
    def addresses(self) -> dict[int, Address]:
        """The address of each node."""
        return {i: Address.parse(node["address"]) for i, node in self.nodes.items()}

    @property
    def is_local(self) -> bool:
        """True if all addresses are of this machine alone."""
        return all(address.is_loopback for address in self.addresses.values())

    @property
    def transport(self) -> str:
        """UDP on one machine and Zenoh between machines, if the file does not say."""
        return str(self.shared.get("transport", "udp" if self.is_local else "zenoh"))

    @property
    def tls(self) -> bool:
        """Encryption, which Zenoh has unless the file says otherwise."""
        return self.transport == "zenoh" and bool(self.shared.get("tls", True))

    def settings(self, node: int) -> dict[str, Any]:
        """Return the settings of a node; the address is none of them."""
        own = {name: value for name, value in self.nodes[node].items() if name != "address"}
        shared = {name: value for name, value in self.shared.items() if name not in SOURCES or not {*SOURCES} & {*own}}
        return shared | own | {"transport": self.transport, "tls": self.tls}

    def status_address(self, node: int) -> Address:
        """Return the address at which to ask for the status of a node from this machine.

        ValueError if no status is set, or it is a port alone, which is open to the machine of the node only.
        """
        settings, host = self.settings(node), self.addresses[node].host
        if "status" not in settings:
            raise ValueError(f"no status is set for node {node} in {self.path}")
        found = status_address(settings["status"])
        if found.port == 0:
            raise ValueError(f"node-{node} takes any port for its status; set one in {self.path}")
        if found.is_loopback and not self.addresses[node].is_loopback:
            advice = f'status = "0.0.0.0:{found.port}" lets others ask'
            raise ValueError(f"node-{node} listens for status on its own machine only, {host}; {advice}")
        return Address(host, found.port) if found.host in UNSPECIFIED else found


def check_table(path: Path, table: Any, allowed: Mapping[str, type], where: str = "") -> dict[str, Any]:
    """Return a table whose names are known and whose values are of their kind; whole numbers are numbers."""
    if not isinstance(table, dict):
        raise ValueError(f"{path}: {where} must be a table, got {table!r:.60}")
    checked: dict[str, Any] = {}
    for name, value in table.items():
        label = f"{where}.{name!r:.60}".replace("'", "") if where else f"{name!r:.60}"
        if name not in allowed:
            hint = " of the whole network" if name in SETTINGS else ""
            raise ValueError(f"{path}: {label} is not a setting{hint}; there are {', '.join(allowed)}")
        kind = allowed[name]
        is_number = kind is float and type(value) is int and abs(value) < 2**60
        if type(value) is not kind and not is_number:
            raise ValueError(f"{path}: {label} must be {KINDS[kind]}, got {value!r:.60}")
        checked[name] = float(value) if is_number else value
    return checked


def check_value(name: str, value: Any) -> None:
    """Raise ValueError if a setting of the right kind cannot be meant."""
    if name in RANGES:
        least, most = RANGES[name]
        if not least <= value <= most:  # NaN, too
            raise ValueError(f"{name} must lie between {least:g} and {most:g} seconds, got {value:g}")
    if isinstance(value, str) and not (value and value.isprintable()):
        raise ValueError(f"{name} must be printable text, got {value!r:.60}")
    if name == "transport":
        check_choice(name, value, TRANSPORTS)
    if name == "sensor":
        try:
            words = shlex.split(value)
        except ValueError as error:
            raise ValueError(f"sensor must be a command, got {value!r:.60}: {error}") from error
        if not words:
            raise ValueError(f"sensor must be a command, got {value!r:.60}")
    if name == "status":
        status_address(value)
    if name == "address":
        address = Address.parse(value)
        if address.port == 0 or not is_reachable(address.host):
            raise ValueError(f"address must be where others reach the node, got {value!r:.60}")


def is_reachable(host: str) -> bool:
    """Return whether a host is the name or the address of one machine."""
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return HOST_NAME.fullmatch(host) is not None
    return not (found.is_unspecified or found.is_multicast or str(found) == "255.255.255.255")


def check_schedule(settings: Mapping[str, Any], rounds: int, *, is_symmetric: bool) -> float:
    """Return the period of runs, as long as one may take if none is set; ValueError if runs do not fit into it.

    Args:
        settings: ``slot``, ``period`` and ``dynamic``, defaults where one is missing.
        rounds: exchanges of one inference.
        is_symmetric: whether all links go both ways, which runs without a clock need.
    """
    slot, is_dynamic = settings.get("slot", DEFAULTS["slot"]), settings.get("dynamic", False)
    longest = (rounds + is_dynamic) * slot  # a slot for announcements
    period = settings.get("period")
    if period is None:
        return float(longest) or 1.0
    if period == 0 and is_dynamic:
        raise ValueError("dynamic needs a period above 0: neighbours announce themselves in the slot before a run")
    if period == 0 and not is_symmetric:
        raise ValueError(
            "a period of 0 needs links in both directions: a node that hears fewer than hear it would run ahead"
        )
    if period != 0 and period < longest * (1 - 1e-9):  # 3 rounds of 0.2 s fit into 0.6 s
        raise ValueError(
            f"period must be at least {longest:g} s, as long as {rounds} rounds of {slot:g} s"
            f"{' and a slot before them' if is_dynamic else ''} may take, got {period:g}; "
            "0 lets runs follow one another"
        )
    return float(period)
