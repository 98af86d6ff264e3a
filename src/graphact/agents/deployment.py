"""What one node holds, in memory and as a folder: its row, its neighbours, its keys, the shared model; nothing else."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from graphact.agents.files import one_line, read_json, write_atomically
from graphact.agents.links import Links, Row
from graphact.agents.model import Model
from graphact.agents.model_file import load_model, save_model

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
    row: Row
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
        save_model(self.model, folder / "model.safetensors")
        write_atomically(folder / "node.json", json.dumps(described, indent=1).encode())
        path = folder / "keys.json"
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
            json.dump({j: key.hex() for j, key in links.keys.items()}, stream)

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
            row = Row(hears, np.array(described["weights"], model.dtype), float(described["diagonal"]))
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


def check_private(path: Path) -> None:
    """Raise PermissionError if others than the owner of a file may use it."""
    mode = path.stat().st_mode & 0o777
    if os.name == "posix" and mode & 0o077:
        raise PermissionError(f"{path} must be for its owner alone, as after chmod 600, got the mode {mode:o}")


def check_one_model(deployments: Sequence[Deployment]) -> Model:
    """Return the model that all nodes hold; ValueError if one holds another, or other parameters."""
    model = deployments[0].model
    for deployment in deployments:
        if deployment.model is not model and deployment.model.digest != model.digest:
            raise ValueError(f"all nodes must hold one model, and that of node {deployment.node} differs")
    return model
