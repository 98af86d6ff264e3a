"""A node's part of a network: its row, its neighbours, its keys and the shared model, in memory and as a folder."""

import hashlib
import json
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from graphact_agents.addresses import Addresses
from graphact_agents.certificates import TLS_FOLDER
from graphact_agents.disk import check_owner, check_parent, hash_json, one_line, read_json, write_atomically
from graphact_agents.graph_file import ShiftOperator, load_graph
from graphact_agents.links import Links, ShiftRow
from graphact_agents.messages import KEY_BYTES, link_key
from graphact_agents.model import Model
from graphact_agents.model_file import load_model, model_bytes

FilePath = str | os.PathLike[str]
FORMAT = "graphact node"
VERSION = 1
NODE, KEYS, MODEL = "node.json", "keys.json", "model.safetensors"
SECRET = (KEYS, f"{TLS_FOLDER}/key.pem")
"""Files of a node's folder that nobody else may read."""
LEARNING = ("learning.json", "learning.jsonl", "state.npz", "prepared.npz")
OWNED = (NODE, MODEL, TLS_FOLDER, "log.jsonl", "log.jsonl.1", *LEARNING)
"""Other files of a node's folder that nobody else may write to."""


@dataclass(frozen=True)
class Deployment:
    """One node of a deployed network.

    In a folder it is ``node.json`` (number, deployment, row, neighbours, addresses, settings, and the SHA-256 of the
    other files), ``keys.json``, ``model.safetensors`` (a model file of graphact) and, for encrypted links, ``tls``.
    Whatever else lies in the folder, such as the write-ahead log ``log.jsonl``, belongs to the agent.

    Attributes:
        links: whom the node hears and who hears it, with the keys and the number of the deployment.
        row: its row of the shift operator.
        model: the model, the same at all nodes.
        addresses: where it and its neighbours are reached; None in memory.
        settings: options of ``graphact-agents run`` by their names.
    """

    links: Links
    row: ShiftRow
    model: Model
    addresses: Addresses | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def node(self) -> int:
        return self.links.node

    @property
    def reached(self) -> Addresses:
        """The addresses; ValueError if there are none."""
        if self.addresses is None:
            raise ValueError("the folder of a node must have addresses; graphact-agents deploy writes them")
        return self.addresses

    def save(self, folder: FilePath, certificates: Mapping[str, bytes] | None = None) -> None:
        """Write a folder that its owner alone may open; ``certificates`` are further files by name."""
        folder, links, row = Path(folder), self.links, self.row
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        keys = {j: key.hex() for j, key in links.keys.items()}
        content = {KEYS: json.dumps(keys).encode(), MODEL: model_bytes(self.model), **(certificates or {})}
        described = {
            "format": FORMAT,
            "version": VERSION,
            "node": links.node,
            "deployment": links.deployment,
            "hears": links.hears,
            "weights": row.weights.tolist(),
            "diagonal": row.diagonal,
            "heard_by": links.heard_by,
            "addresses": None if self.addresses is None else self.addresses.to_json(),
            "settings": dict(self.settings),
            "files": {name: hashlib.sha256(each).hexdigest() for name, each in content.items()},
        }
        if row.name:
            described["name"] = row.name
        described["sha256"] = hash_json(described, "sha256")
        content[NODE] = json.dumps(described, indent=1).encode()
        for name, each in content.items():
            (folder / name).parent.mkdir(mode=0o700, exist_ok=True)
            write_atomically(folder / name, each, mode=0o600)

    @classmethod
    def load(cls, folder: FilePath) -> "Deployment":
        """Read a folder; FileNotFoundError or ValueError, which name the file, if one is missing or damaged."""
        folder = Path(folder)
        described = read_json(folder / NODE)
        if described.get("format") != FORMAT or described.get("version") != VERSION:
            raise ValueError(f"{folder / NODE}: not a node of a network, version {VERSION}")
        keys, model = read_json(folder / KEYS), load_model(folder / MODEL)
        try:
            hears, heard_by = tuple(map(int, described["hears"])), tuple(map(int, described["heard_by"]))
            by_neighbor = {int(j): bytes.fromhex(key) for j, key in keys.items()}
            epoch, settings = int(described["deployment"], 16), dict(described["settings"])
            links = Links(int(described["node"]), epoch, hears, heard_by, by_neighbor)
            weights = np.array(described["weights"], model.dtype)
            row = ShiftRow(hears, weights, float(described["diagonal"]), str(described.get("name", "")))
            reached = described["addresses"]
            addresses = None if reached is None else Addresses.from_json(reached, links.neighbors)
            files = {str(name): str(digest) for name, digest in described["files"].items()}
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise ValueError(f"{folder}: damaged: {one_line(error)}") from error
        if described.get("sha256") != hash_json(described, "sha256"):
            raise ValueError(f"{folder / NODE}: damaged: its SHA-256 differs from the one recorded")
        check_files(folder, links.deployment, files)
        return cls(links, row, model, addresses, settings)


def check_files(folder: Path, deployment: str, files: Mapping[str, str]) -> None:
    """Raise ValueError if a file is not that of the deployment, as after a delivery that was interrupted."""
    for name, digest in files.items():
        path = folder / name
        if not path.is_file():
            raise FileNotFoundError(f"{path} is missing; deliver the folder again")
        if hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            raise ValueError(f"{path}: damaged, or not of deployment {deployment}; deliver the folder again")


def check_folder(folder: Path) -> None:
    """Raise PermissionError if others than their owner may use the keys of a node's folder, or change its files."""
    check_parent(folder)
    check_owner(folder, *(folder / name for name in OWNED))
    check_owner(*(folder / name for name in SECRET), private=True)


def check_one_model(deployments: Sequence[Deployment]) -> Model:
    """Return the model that all nodes hold; ValueError if one holds another, or other parameters."""
    model = deployments[0].model
    for deployment in deployments:
        if deployment.model is not model and deployment.model.digest != model.digest:
            raise ValueError(f"all nodes must hold one model, and that of node {deployment.node} differs")
    return model


# From a model file and a graph file to what each node holds


def deploy(
    model: Model | FilePath,
    graph: ShiftOperator | FilePath,
    *,
    epoch: int | None = None,
    secret: bytes | None = None,
) -> list[Deployment]:
    """Return what each node of a graph holds, to run a model together.

    ``graphact-agents deploy`` writes it into folders, with addresses and settings.

    Args:
        model: a model file, as ``graphact.save`` writes it, or a :class:`Model`.
        graph: a graph file, as ``graphact.Graph.save`` writes it, or a shift operator; its weights are converted to the
            dtype of the model.
        epoch: number of the deployment; drawn at random when left out.
        secret: 32 bytes from which the keys of the links are derived; drawn at random, and discarded, when left out.

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
    for name, given, kind, writer in (
        ("model", model, Model, "graphact.save"),
        ("graph", graph, ShiftOperator, "graphact.Graph.save"),
    ):
        if not isinstance(given, kind | str | os.PathLike):  # such as a torch model
            raise TypeError(f"{name} must be the path of a file that {writer} wrote, got {type(given).__name__}")
    plain = model if isinstance(model, Model) else load_model(model)
    operator = graph if isinstance(graph, ShiftOperator) else load_graph(graph)
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
