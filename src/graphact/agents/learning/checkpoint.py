"""A simulated training in one file, to go on with after a stop."""

import hashlib
import io
import json
import os
import zipfile
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np

from graphact.agents.counters import Counters
from graphact.agents.learning.simulated import Training
from graphact.agents.learning.state import State
from graphact.agents.messages import Array
from graphact.storage import write_atomically

VERSION = 2  # parameters stand layer by layer; in version 1 as torch names them


def write_training(training: Training, path: str | os.PathLike[str], identity: str) -> None:
    """Write a file that is complete or, if writing was interrupted, the one before.

    Args:
        training: where the agents stand.
        path: the file.
        identity: tells trainings apart; see :func:`identity_of`.
    """
    described = {
        "version": VERSION,
        "identity": identity,
        "nodes": len(training.states),
        "counters": asdict(training.counters),
        "crashes": training.crashes,
    }
    arrays: dict[str, Any] = {"losses": training.losses, "described": np.array(json.dumps(described))}
    for i, state in enumerate(training.states):
        arrays |= {f"{i} {field.name}": np.asarray(getattr(state, field.name)) for field in fields(State)}
    content = io.BytesIO()
    np.savez(content, **arrays)
    write_atomically(Path(path), content.getvalue())


def read_training(path: str | os.PathLike[str], identity: str) -> Training | None:
    """Read a file; None if there is none.

    Raises:
        ValueError: it is damaged, or of another training.
    """
    if not Path(path).exists():
        return None
    try:
        with np.load(io.BytesIO(Path(path).read_bytes()), allow_pickle=False) as content:
            described = json.loads(str(content["described"]))
            states = [
                {field.name: content[f"{i} {field.name}"] for field in fields(State)} for i in range(described["nodes"])
            ]
            training = Training(
                tuple(State(int(state.pop("steps")), **state) for state in states),
                content["losses"],
                Counters(**described["counters"]),
                int(described["crashes"]),
            )
            found = described["version"], described["identity"]
    except (KeyError, TypeError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path}: not the checkpoint of a training: {error}") from error
    if found[0] != VERSION:
        raise ValueError(f"{path}: a checkpoint of version {found[0]}, not {VERSION}; name another file, or delete it")
    if found[1] != identity:
        raise ValueError(
            f"{path}: the checkpoint of another training (other model, graph, samples or options); "
            "name another file, or delete it"
        )
    return training


def identity_of(described: Any, *arrays: Array) -> str:
    """SHA-256 over what makes a training what it is."""
    digest = hashlib.sha256(json.dumps(described, sort_keys=True).encode())
    for array in arrays:
        digest.update(f"{array.dtype} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
