"""The operator's folder of a network, and the folders of all its nodes, which are made from it alone."""

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from graphact_agents.addresses import Address, Addresses
from graphact_agents.certificates import AUTHORITY, make_certificates
from graphact_agents.deployment import MODEL, deploy
from graphact_agents.disk import (
    check_owner,
    check_parent,
    check_writable,
    hash_json,
    lock,
    read_json,
    sync,
    write_atomically,
)
from graphact_agents.graph_file import ShiftOperator, load_graph
from graphact_agents.messages import KEY_BYTES
from graphact_agents.model import Cost, Model, cost_of_inference
from graphact_agents.model_file import load_model
from graphact_agents.network import AGREED, DEFAULTS, NETWORK_NAME, NetworkFile, check_schedule

GRAPH, SECRETS, LOCK = "graph.npz", "secrets.json", ".lock"
DRAWN = ".secrets.json.drawn"
"""Secrets of folders that are being written."""
BASE_PORT, STATUS_PORTS = 7500, 1000
"""The port of node 0 on one machine, and how far above the port of a node its status is."""
HEAD = """\
# A network of graphact-agents. Edit this file, or replace {model} or {graph}, then run
#   graphact-agents deploy {folder} --out nodes
# and bring every folder to its node. A node of the graph that has no table here takes no part.

[network]
# transport = "udp"     # default: udp if all addresses are of one machine, otherwise zenoh with TLS
# sensor = "read-temperature --json"   # prints a JSON array before each run; default: standard input
# period = 60.0         # seconds from run to run; default: as long as a run may take; 0: without a clock
slot = 0.18             # seconds for one round
# valid_days = 365      # of the certificates of zenoh
"""
TABLE = """
[nodes.{node}]
address = "{address}"
{comment}status = "{status}"
"""


@dataclass(frozen=True)
class Rollout:
    """Folders of nodes that were written.

    Attributes:
        deployment: the number of the deployment, in hexadecimal.
        folders: the folder of each node.
        file: the settings.
        cost: of one inference.
        left_out: nodes of the graph that take no part.
    """

    deployment: str
    folders: Sequence[Path]
    file: NetworkFile
    cost: Cost
    left_out: Sequence[int]


def init_network(model: Path, graph: Path, out: Path, address: str | None = None) -> Cost:
    """Write an operator's folder, all nodes on this machine or at the addresses of a pattern with ``{node}``.

    Returns the cost of one inference.

    Raises:
        FileExistsError: ``out`` is there already, and not empty.
    """
    plain, operator = load_model(model), load_graph(graph)
    if address is None and operator.num_nodes > STATUS_PORTS:
        raise ValueError(f"--address must be given for more than {STATUS_PORTS} nodes, got {operator.num_nodes}")
    if address is not None and "{node}" not in address and operator.num_nodes > 1:
        raise ValueError(f"--address must hold {{node}}, which stands for the number of a node, got {address!r:.60}")
    text = HEAD.format(model=MODEL, graph=GRAPH, folder=out.name)
    for node in range(operator.num_nodes):
        if address is None:
            places = f"127.0.0.1:{BASE_PORT + node}", f"127.0.0.1:{BASE_PORT + STATUS_PORTS + node}"
        else:
            places = str(Address.parse(address.replace("{node}", str(node)))), "0.0.0.0:9107"
        comment = "" if address is None else "# "  # others on the network may ask: the operator decides
        text += TABLE.format(node=node, address=places[0], status=places[1], comment=comment)
    with new_folder(out) as folder:
        for name, content in ((MODEL, model.read_bytes()), (GRAPH, graph.read_bytes()), (NETWORK_NAME, text.encode())):
            write_atomically(folder / name, content, mode=0o600)
        NetworkFile.load(folder / NETWORK_NAME)
    return cost_of_inference(plain, operator.num_edges, slot=DEFAULTS["slot"])


def deploy_network(folder: Path, out: Path, *, keep_keys: bool = False) -> Rollout:
    """Write the folders of all nodes, ``out/node-0`` and so on, to be delivered.

    All of them appear at once, or none: also when the process is killed.

    Args:
        folder: an operator's folder; see :func:`init_network`.
        out: a new folder, or an empty one.
        keep_keys: keep the keys of the links. A deployment in which nothing changed that nodes must agree upon then
            keeps its number, too; with TLS each deployment has an authority of its own, and so a number of its own.

    Raises:
        FileExistsError: ``out`` is there already, and not empty.
        PermissionError: others than their owner may change the operator's files.
        ValueError: the file of the network, the model or the graph is not usable; the error names it.
    """
    names = (NETWORK_NAME, MODEL, GRAPH)
    if not (folder / NETWORK_NAME).is_file():
        raise FileNotFoundError(f"{folder / NETWORK_NAME} is missing; graphact-agents init writes it")
    check_parent(folder)
    check_parent(out)
    check_owner(folder, *(folder / name for name in names))
    check_owner(folder / SECRETS, private=True)
    with locked(folder):
        file, model = NetworkFile.load(folder / NETWORK_NAME), load_model(folder / MODEL)
        operator = load_graph(folder / GRAPH)
        if strangers := [i for i in file.nodes if i >= operator.num_nodes]:
            size = operator.num_nodes
            raise ValueError(f"{file.path}: nodes.{strangers[0]} is not in {GRAPH}, which has {size} nodes")
        left_out = sorted({*range(operator.num_nodes)} - {*file.nodes})
        operator = operator.among(file.nodes)
        agreed = agreed_settings(file, model, operator)
        certificates: dict[int, dict[str, bytes]] = {}
        if file.tls:
            hosts = {i: address.host for i, address in file.addresses.items()}
            certificates = make_certificates(hosts, file.valid_days)
        authority = next(iter(certificates.values()), {}).get(AUTHORITY, b"")  # the same at all nodes
        shared = fingerprint(file, model, operator, agreed, authority)
        secret, epoch = renew_secrets(folder, shared, keep_keys=keep_keys)
        everywhere, nodes = file.addresses, deploy(model, operator, epoch=epoch, secret=secret)
        with new_folder(out) as built:
            for i in file.nodes:
                addresses = Addresses(everywhere[i], {j: everywhere[j] for j in nodes[i].links.neighbors})
                settings = file.settings(i) | agreed
                replace(nodes[i], addresses=addresses, settings=settings).save(built / f"node-{i}", certificates.get(i))
        (folder / DRAWN).replace(folder / SECRETS)
        sync(folder)
    folders = [out / f"node-{i}" for i in file.nodes]
    cost = cost_of_inference(model, operator.num_edges, slot=agreed["slot"])
    return Rollout(nodes[0].links.deployment, folders, file, cost, left_out)


def current_deployment(folder: Path) -> str | None:
    """Return the number of the last deployment of an operator's folder; None before the first."""
    return read_secrets(folder)["deployment"] if (folder / SECRETS).is_file() else None


def agreed_settings(file: NetworkFile, model: Model, operator: ShiftOperator) -> dict[str, Any]:
    """Return the settings that all nodes share; ValueError if runs are impossible with them."""
    is_symmetric = all(operator.hears(i) == heard for i, heard in enumerate(operator.heard_by()))
    given = {name: file.shared[name] for name in AGREED if name in file.shared}
    try:
        check_schedule(given, model.rounds, is_symmetric=is_symmetric)
    except ValueError as error:
        raise ValueError(f"{file.path}: network: {error}") from error
    defaults = {name: DEFAULTS[name] for name in ("slot", "origin", "dynamic")}
    return defaults | given | {"transport": file.transport, "tls": file.tls}


def fingerprint(
    file: NetworkFile, model: Model, operator: ShiftOperator, agreed: dict[str, Any], authority: bytes
) -> str:
    """Return a hash of all that the nodes must agree upon: model, graph, addresses, shared settings, authority."""
    content = hashlib.sha256(model.digest + authority)
    content.update(json.dumps(agreed, sort_keys=True).encode())
    content.update(json.dumps({i: str(address) for i, address in file.addresses.items()}).encode())
    for array in (operator.rowptr, operator.col, operator.weight, operator.diagonal):
        content.update(array.astype(float).tobytes())
    return content.hexdigest()


def renew_secrets(folder: Path, agreed: str, *, keep_keys: bool) -> tuple[bytes, int]:
    """Draw the secret of the links and the number of the deployment, or keep what is to be kept.

    Both are written to a file that becomes that of the secrets when the folders are there. A process that is killed
    between the two leaves new folders and the secrets before: ``keep_keys`` then keeps the keys before.

    The number is a hash of what nodes agree upon and of a number that is drawn, so that no deployment's comes back:
    with the same keys, values of two deployments would have the same tags.
    """
    path = folder / SECRETS
    if keep_keys and not path.is_file():
        raise FileNotFoundError(f"{path} is missing: there are no keys to keep before the first deployment")
    before = read_secrets(folder) if keep_keys else {}
    secret = bytes.fromhex(before["secret"]) if keep_keys else secrets.token_bytes(KEY_BYTES)
    if keep_keys and before["agreed"] == agreed:
        epoch = int(before["deployment"], 16)
    else:
        drawn = secrets.token_bytes(KEY_BYTES)
        epoch = int.from_bytes(hashlib.blake2b(agreed.encode(), key=drawn, digest_size=8).digest(), "big")
    content = {"secret": secret.hex(), "agreed": agreed, "deployment": f"{epoch:016x}"}
    content["sha256"] = hash_json(content, "sha256")
    write_atomically(folder / DRAWN, json.dumps(content, indent=1).encode(), mode=0o600)
    return secret, epoch


def read_secrets(folder: Path) -> dict[str, str]:
    """Return what :func:`renew_secrets` has written; ValueError if it is damaged: other keys would cut a node off."""
    content = read_json(folder / SECRETS)
    if content.get("sha256") != hash_json(content, "sha256"):
        raise ValueError(f"{folder / SECRETS}: damaged: its SHA-256 differs; deploy without --keep-keys")
    return content


# Folders that appear as a whole


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep others from deploying the same network."""
    file = os.open(folder / LOCK, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        lock(file, f"{folder} is in use by another deploy; wait until it has ended")
        yield
    finally:
        os.close(file)


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """Give a folder that becomes ``out`` at the end, at once; FileExistsError if that is there, and not empty."""
    if out.is_symlink() or (out.exists() and (not out.is_dir() or any(out.iterdir()))):
        raise FileExistsError(f"{out} is there already, and is not an empty folder; choose another")
    parent, prefix = out.absolute().parent, f".{out.name}.new-"
    new = parent / f"{prefix}{secrets.token_hex(8)}"
    check_writable(out)
    parent.mkdir(parents=True, exist_ok=True)
    for left in (path for path in parent.iterdir() if path.name.startswith(prefix)):  # by a process that was killed
        shutil.rmtree(left)
    new.mkdir(mode=0o700)
    try:
        yield new
        for folder in (new, *(path for path in new.rglob("*") if path.is_dir())):
            sync(folder)
        new.rename(out)
        sync(parent)
    finally:
        shutil.rmtree(new, ignore_errors=True)
