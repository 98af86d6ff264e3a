"""Datagrams over Zenoh: no broker, links that come back by themselves, TLS. Needs the extra ``zenoh``.

Each node is a Zenoh peer that knows its neighbours' addresses and nothing else. Of two neighbours the one with the
higher number connects. Scouting and gossip are off, since they would introduce nodes that are not neighbours, and peers
do not pass on what is not for them.

Every link is a pair: TCP, which carries Zenoh's own traffic, and UDP, which carries our datagrams. TCP alone
waits for a lost packet longer than a round lasts, and UDP alone can lose the subscription. With TLS there is one
encrypted link instead.

Whoever connects may publish and subscribe to the keys of neighbours alone, with TLS each neighbour to its own, by the
name in its certificate. Longer messages than a datagram are refused by Zenoh before they are put together.
"""

import importlib
import json
import os
import queue
import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graphact_agents.addresses import Address, Addresses
from graphact_agents.certificates import common_name
from graphact_agents.messages import MAX_DATAGRAM

QUEUE_BYTES, OBJECT_BYTES = 2**21, 128
"""Bytes of datagrams that wait for the node at most, of each sender, and what one takes beside its content; what does
not fit is lost."""
ENVELOPE = 1024
"""Bytes that Zenoh adds to a datagram at most."""
HANDSHAKE_MS = 3000
"""Milliseconds that a peer may take to authenticate."""

ONE_THREAD = (
    "(rx: (worker_threads: 1), app: (handover: rx), tx: (handover: rx), net: (handover: rx), acc: (handover: rx))"
)
"""Zenoh works in one thread instead of a dozen: a node has a handful of links, and often a small processor."""


class ZenohTransport:
    """The Zenoh session of one node.

    The epoch of the deployment is part of all keys, so that two deployments on one network do not meet. ``tls`` is the
    folder of the certificates for encrypted links, which both ends show (mutual TLS).

    Attributes:
        dropped: datagrams that were not let in, by reason: too long (``malformed``), or the queue of their sender was
            full (``overflow``).

    Raises:
        FileNotFoundError: a file of ``tls`` is missing.
        ModuleNotFoundError: Zenoh is not installed.
        OSError: it cannot listen on its address.
    """

    def __init__(self, node: int, epoch: int, addresses: Addresses, tls: Path | None = None) -> None:
        os.environ.setdefault("ZENOH_RUNTIME", ONE_THREAD)
        try:
            zenoh = importlib.import_module("zenoh")
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                "the transport zenoh needs the package eclipse-zenoh: pip install 'graphact-agents[zenoh]', or use udp"
            ) from error
        self._arrived: queue.SimpleQueue[tuple[str, bytes]] = queue.SimpleQueue()
        self._waiting: Counter[str] = Counter()  # bytes in the queue, by sender
        self._lock = threading.Lock()  # of what threads of Zenoh count
        self._closed = False
        self._dropped: Counter[str] = Counter()
        prefix, settings = key_prefix(epoch), zenoh.Config()
        for name, value in make_settings(node, epoch, addresses, tls).items():
            settings.insert_json5(name, json.dumps(value))
        try:
            self._session = zenoh.open(settings)
        except zenoh.ZError as error:
            raise OSError(f"Zenoh cannot listen on {addresses.listen}: {error}") from error
        self._subscriber = self._session.declare_subscriber(f"{prefix}/to/{node}/from/*", self._on_sample)
        quality: dict[str, Any] = {
            "congestion_control": zenoh.CongestionControl.DROP,  # BLOCK would wait for a neighbour that stands still
            "reliability": zenoh.Reliability.BEST_EFFORT,
            "express": True,
        }
        self._publishers = {
            j: self._session.declare_publisher(f"{prefix}/to/{j}/from/{node}", **quality) for j in addresses.neighbors
        }

    def _on_sample(self, sample: Any) -> None:
        """Called by a thread of Zenoh."""
        size, sender = len(sample.payload), str(sample.key_expr).rpartition("/")[2]
        with self._lock:
            is_full = self._waiting[sender] + size + OBJECT_BYTES > QUEUE_BYTES
            if size > MAX_DATAGRAM or is_full:
                self._dropped["malformed" if size > MAX_DATAGRAM else "overflow"] += 1
                return
            self._waiting[sender] += size + OBJECT_BYTES
        self._arrived.put((sender, sample.payload.to_bytes()))

    @property
    def dropped(self) -> Mapping[str, int]:
        with self._lock:
            return dict(self._dropped)

    def send(self, to: int, datagram: bytes) -> None:
        publisher = self._publishers[to]
        if not self._closed:
            publisher.put(datagram)

    def receive(self, timeout: float) -> bytes | None:
        if self._closed:
            return None
        try:
            if timeout <= 0:
                sender, datagram = self._arrived.get_nowait()
            else:
                sender, datagram = self._arrived.get(timeout=min(timeout, 3600.0))
                os.sched_yield()  # where others wait for the processor, let them send first: one wake-up for many
        except queue.Empty:
            return None
        with self._lock:
            self._waiting[sender] -= len(datagram) + OBJECT_BYTES
        return datagram

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._session.close()


def key_prefix(epoch: int) -> str:
    """Return the prefix of all keys of a deployment."""
    return f"graphact/{epoch:016x}"


def make_settings(node: int, epoch: int, addresses: Addresses, tls: Path | None) -> dict[str, Any]:
    """The configuration of a session: explicit links to neighbours, nothing else."""
    connect = [address for j, address in addresses.neighbors.items() if j < node]
    settings: dict[str, Any] = {
        "mode": "peer",
        "listen/endpoints": endpoints(addresses.listen, tls),
        "listen/exit_on_failure": True,
        "connect/endpoints": [each for address in connect for each in endpoints(address, tls)],
        "connect/exit_on_failure": False,
        "connect/timeout_ms": -1,  # try for ever, in the background; 0 makes opening hang
        "connect/retry": {"period_init_ms": 100, "period_max_ms": 1000, "period_increase_factor": 2},
        "open/return_conditions/connect_scouted": False,
        "scouting/multicast/enabled": False,
        "scouting/gossip/enabled": False,
        "transport/unicast/max_links": 2 if tls is None else 1,
        "transport/unicast/max_sessions": 2 * len(addresses.neighbors) + 8,
        "transport/unicast/accept_timeout": HANDSHAKE_MS,
        "transport/link/rx/max_message_size": MAX_DATAGRAM + ENVELOPE,
        "transport/shared_memory/enabled": False,
        "access_control": make_access_control(node, epoch, addresses, by_certificate=tls is not None),
    }
    if tls is not None:
        files = authority, certificate, key = [str(tls / name) for name in ("ca.pem", "cert.pem", "key.pem")]
        if missing := [file for file in files if not Path(file).is_file()]:
            raise FileNotFoundError(f"{missing[0]} is missing; TLS needs ca.pem, cert.pem and key.pem in {tls}")
        settings["transport/link/tls"] = {
            "root_ca_certificate": authority,
            "listen_certificate": certificate,
            "listen_private_key": key,
            "connect_certificate": certificate,
            "connect_private_key": key,
            "enable_mtls": True,
            "verify_name_on_connect": True,
        }
    return settings


def make_access_control(node: int, epoch: int, addresses: Addresses, *, by_certificate: bool) -> dict[str, Any]:
    """Zenoh's rules: neighbour j publishes what is from j to this node, and hears what is from this node to j."""
    prefix, rules, subjects, policies = key_prefix(epoch), [], [], []
    for j in addresses.neighbors:
        allowed = {
            "says": ("ingress", "put", f"{prefix}/to/{node}/from/{j}"),
            "listens": ("ingress", "declare_subscriber", f"{prefix}/to/{j}/from/*"),
            "is told": ("egress", "put", f"{prefix}/to/{j}/from/{node}"),
        }
        for name, (flow, message, key) in allowed.items():
            rule = {"id": f"{j} {name}", "permission": "allow", "flows": [flow], "messages": [message]}
            rules.append({**rule, "key_exprs": [key]})
        subject: dict[str, Any] = {"id": f"{j}"}
        subjects.append({**subject, "cert_common_names": [common_name(j)]} if by_certificate else subject)
        policies.append({"rules": [f"{j} {name}" for name in allowed], "subjects": [f"{j}"]})
    hear = {"id": "hear", "permission": "allow", "flows": ["egress"], "messages": ["declare_subscriber"]}
    rules.append({**hear, "key_exprs": [f"{prefix}/to/{node}/from/*"]})
    subjects.append({"id": "all"})
    policies.append({"rules": ["hear"], "subjects": ["all"]})
    lists = {"rules": rules, "subjects": subjects, "policies": policies}
    return {"enabled": True, "default_permission": "deny", **lists}


def endpoints(address: Address, tls: Path | None) -> list[str]:
    """Return the endpoints to listen on or connect to: TCP for itself and UDP for datagrams, or TLS for both."""
    return [f"tls/{address}"] if tls is not None else [f"tcp/{address}?rel=1", f"udp/{address}?rel=0"]
