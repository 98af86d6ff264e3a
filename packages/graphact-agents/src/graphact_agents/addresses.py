"""Addresses of nodes: one host and port each, for every transport."""

import ipaddress
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Read ``host:port``, or ``[host]:port`` for a host with colons (IPv6); ValueError if it is neither."""
        host, colon, port = text.rpartition(":") if isinstance(text, str) else ("", "", "")
        bracketed = host.startswith("[") and host.endswith("]")
        is_text = host.isprintable() and " " not in host and len(host) < 256
        if (
            not colon
            or not host
            or not is_text
            or not (port.isascii() and port.isdecimal() and len(port) <= 5)
            or (":" in host and not bracketed)
            or int(port) > 65_535
        ):
            raise ValueError(f"an address must be host:port, such as 10.0.0.7:7500 or [fe80::7]:7500, got {text!r:.60}")
        return cls(host[1:-1] if bracketed else host, int(port))

    @property
    def is_loopback(self) -> bool:
        """True if the host is this machine alone."""
        with suppress(ValueError):
            return ipaddress.ip_address(self.canonical.host).is_loopback
        return False

    @property
    def canonical(self) -> "Address":
        """The one spelling of a host that all its spellings have; ``localhost`` is ``127.0.0.1``."""
        host = self.host.lower().removesuffix(".")
        with suppress(ValueError):
            return Address(str(ipaddress.ip_address(host)), self.port)
        return Address("127.0.0.1" if host == "localhost" else host, self.port)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Addresses:
    """The address of a node and those of its neighbours.

    To listen on ``0.0.0.0`` or ``[::]`` is to listen on all interfaces.
    """

    listen: Address
    neighbors: Mapping[int, Address]

    def to_json(self) -> dict[str, Any]:
        return {"listen": str(self.listen), "neighbors": {str(j): str(a) for j, a in self.neighbors.items()}}

    @classmethod
    def from_json(cls, content: Any, neighbors: Sequence[int]) -> "Addresses":
        """Return the addresses in a JSON value; ValueError if they are not those of exactly these neighbours."""
        by_neighbor = {int(j): Address.parse(text) for j, text in content["neighbors"].items()}
        if set(by_neighbor) != set(neighbors):
            raise ValueError(f"addresses must be those of {tuple(neighbors)}, got {tuple(sorted(by_neighbor))}")
        return cls(Address.parse(content["listen"]), by_neighbor)


def status_address(text: str) -> Address:
    """Return the status address that a text stands for: a port of this machine, or ``host:port``."""
    return Address.parse(f"127.0.0.1:{text}" if ":" not in text else text)
