"""A node's part of a network: its row, its neighbours, its keys and the shared model, in memory and as a folder."""

import json
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from graphact_agents.addresses import Address, Addresses
from graphact_agents.certificates import can_make_certificates, make_certificates
from graphact_agents.disk import check_private, one_line, read_json, write_atomically
from graphact_agents.graph_file import ShiftOperator, load_graph
from graphact_agents.links import Links, ShiftRow
from graphact_agents.messages import KEY_BYTES, link_key
from graphact_agents.model import Model
from graphact_agents.model_file import load_model, save_model

FilePath = str | os.PathLike[str]
FORMAT = "graphact node"
VERSION = 1
OWNED = ("node.json", "model.safetensors", "addresses.json", "log.jsonl", "log.jsonl.1", "learning.json", "tls")
"""Files of a node's folder that its owner alone may write to."""


@dataclass(frozen=True)
class Deployment:
    """One node of a deployed network.

    In a folder it is three files: ``node.json`` (number, epoch, row, neighbours), ``keys.json`` (readable by its owner
    alone) and ``model.safetensors`` (a model file of graphact). Whatever else lies in the folder, such as addresses and
    the write-ahead log ``log.jsonl``, belongs to the daemon.
    """

    links: Links
    row: ShiftRow
    model: Model

    @property
    def node(self) -> int:
        return self.links.node

    def save(self, folder: str | os.PathLike[str]) -> None:
        folder = Path(folder)
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)  # nobody else writes there, whatever the umask
        links, row = self.links, self.row
        described = {
            "format": FORMAT,
            "version": VERSION,
            "node": links.node,
            "epoch": links.epoch,
            "hears": links.hears,
            "weights": row.weights.tolist(),
            "diagonal": row.diagonal,
            "heard_by": links.heard_by,
        }
        if row.name:
            described["name"] = row.name
        save_model(self.model, folder / "model.safetensors")
        write_atomically(folder / "node.json", json.dumps(described, indent=1).encode())
        keys = {j: key.hex() for j, key in links.keys.items()}
        write_atomically(folder / "keys.json", json.dumps(keys).encode(), mode=0o600)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> "Deployment":
        """Read a folder; FileNotFoundError or ValueError, which name the file, if one is missing or damaged."""
        folder = Path(folder)
        described, keys = read_json(folder / "node.json"), read_json(folder / "keys.json")
        if described.get("format") != FORMAT or described.get("version") != VERSION:
            raise ValueError(f"{folder / 'node.json'}: not a node of a network, version {VERSION}")
        model = load_model(folder / "model.safetensors")
        try:
            hears, heard_by = tuple(map(int, described["hears"])), tuple(map(int, described["heard_by"]))
            by_neighbor = {int(j): bytes.fromhex(key) for j, key in keys.items()}
            links = Links(int(described["node"]), int(described["epoch"]), hears, heard_by, by_neighbor)
            weights = np.array(described["weights"], model.dtype)
            row = ShiftRow(hears, weights, float(described["diagonal"]), str(described.get("name", "")))
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise ValueError(f"{folder}: damaged: {one_line(error)}") from error
        return cls(links, row, model)


def check_folder(folder: Path) -> None:
    """Raise PermissionError if others than their owner may use the keys of a node's folder, or change its files."""
    if os.name == "posix" and folder.is_dir():
        for place in (folder, *(folder / name for name in OWNED if (folder / name).exists())):
            mode = place.stat().st_mode & 0o777
            if mode & 0o022:
                raise PermissionError(
                    f"{place} must be writable by its owner alone, as after chmod go-w, got the mode {mode:o}"
                )
    if (folder / "keys.json").is_file():
        check_private(folder / "keys.json")


def check_one_model(deployments: Sequence[Deployment]) -> Model:
    """Return the model that all nodes hold; ValueError if one holds another, or other parameters."""
    model = deployments[0].model
    for deployment in deployments:
        if deployment.model is not model and deployment.model.digest != model.digest:
            raise ValueError(f"all nodes must hold one model, and that of node {deployment.node} differs")
    return model


# From a model file and a graph file to the folders of all nodes


def resolve_model(model: Model | FilePath) -> Model:
    """Return a model, read from its file if it is given by that; TypeError for anything else, such as a torch model."""
    if isinstance(model, Model | str | os.PathLike):
        return model if isinstance(model, Model) else load_model(model)
    raise TypeError(f"model must be the path of a file that graphact.save wrote, got {type(model).__name__}")


def resolve_graph(graph: ShiftOperator | FilePath) -> ShiftOperator:
    """Return a shift operator, read from its file if it is given by that; TypeError for anything else."""
    if isinstance(graph, ShiftOperator | str | os.PathLike):
        return graph if isinstance(graph, ShiftOperator) else load_graph(graph)
    raise TypeError(f"graph must be the path of a file that graphact.Graph.save wrote, got {type(graph).__name__}")


def deploy(
    model: Model | FilePath,
    graph: ShiftOperator | FilePath,
    *,
    epoch: int | None = None,
    secret: bytes | None = None,
) -> list[Deployment]:
    """Return what each node of a graph holds, to run a model together.

    Args:
        model: a model file, as ``graphact.save`` writes it, or a :class:`Model`.
        graph: a graph file, as ``graphact.Graph.save`` writes it, or a shift operator; its weights are converted to the
            dtype of the model.
        epoch: number of the deployment; drawn at random when left out.
        secret: 32 bytes from which the keys of the links are derived; drawn at random, and forgotten, when left out.

    Raises:
        IncompatibleModelError: agents cannot run the model; the error names the part.

    Example:
        >>> import numpy as np
        >>> from graphact_agents import Model, deploy
        >>> from graphact_agents.graph_file import build_operator
        >>> ends = np.array([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> path = build_operator(ends[0], ends[1], np.ones(4), num_nodes=3)
        >>> filters = {"kind": "filter", "arrays": {"taps": "taps"}}
        >>> nodes = deploy(Model("GraphFilter", {}, {"taps": np.ones((3, 1, 8))}, [filters]), path)
        >>> nodes[1].links.hears, nodes[2].links.hears
        ((0, 2), (1,))
    """
    plain, operator = resolve_model(model), resolve_graph(graph)
    epoch = secrets.randbits(63) if epoch is None else epoch
    secret = secrets.token_bytes(KEY_BYTES) if secret is None else secret
    if len(secret) != KEY_BYTES:
        raise ValueError(f"secret must have {KEY_BYTES} bytes, got {len(secret)}")
    weights, listeners = operator.weight.astype(plain.dtype), operator.heard_by()
    names = plain.node_names or ("",) * operator.num_nodes
    if len(names) != operator.num_nodes:
        raise ValueError(
            f"graph must have the {len(names)} nodes that the model has a scaling for, got {operator.num_nodes}"
        )
    nodes = []
    for i in range(operator.num_nodes):
        entries = slice(operator.rowptr[i], operator.rowptr[i + 1])
        hears, heard_by = operator.hears(i), listeners[i]
        keys = {j: link_key(secret, i, j) for j in sorted({*hears, *heard_by})}
        row = ShiftRow(hears, weights[entries], float(operator.diagonal[i]), names[i])
        nodes.append(Deployment(Links(i, epoch, hears, heard_by, keys), row, plain))
    return nodes


def split(
    model: Model | FilePath,
    graph: ShiftOperator | FilePath,
    out: str | os.PathLike[str],
    *,
    epoch: int | None = None,
    addresses: Sequence[Address | str] | None = None,
    tls: bool | None = None,
) -> list[Path]:
    """Write one folder for each node, ``out/node-0`` and so on; see :class:`~graphact_agents.Deployment`.

    Args:
        model: the model, as in :func:`deploy`.
        graph: the graph, likewise.
        out: folder for the folders.
        epoch: number of the deployment; drawn at random when left out.
        addresses: where each node is reached; a node is given its own and those of its neighbours.
        tls: make a certificate for each node, which names the host of its address. None does so if there are addresses
            and the package cryptography.

    Raises:
        FileExistsError: ``out`` holds nodes already; their keys and run numbers must not be mixed with new ones.
    """
    operator = resolve_graph(graph)
    if any(Path(out).glob("node-*")):
        raise FileExistsError(f"{out} holds nodes already; choose another folder")
    if addresses is not None and len(addresses) != operator.num_nodes:
        raise ValueError(f"addresses must be {operator.num_nodes}, one for each node, got {len(addresses)}")
    places = [each if isinstance(each, Address) else Address.parse(each) for each in addresses or ()]
    folders = []
    for deployment in deploy(model, operator, epoch=epoch):
        folders.append(Path(out) / f"node-{deployment.node}")
        deployment.save(folders[-1])
        if places:
            neighbors = {j: places[j] for j in deployment.links.neighbors}
            Addresses(places[deployment.node], neighbors).save(folders[-1])
    if places and (can_make_certificates() if tls is None else tls):
        make_certificates(folders, [place.host for place in places])
    return folders
