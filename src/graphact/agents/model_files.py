"""Model files without torch: what :func:`graphact.save` writes, read and written by NumPy."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from graphact.agents.messages import Array
from graphact.agents.model import Model
from graphact.storage import write_atomically

FORMAT = "graphact"
VERSION = 1


def save_model(model: Model, path: str | os.PathLike[str]) -> None:
    """Write a model so that :func:`load_model` and :func:`graphact.load` can read it."""
    from safetensors.numpy import save as to_bytes

    tensors = {name: np.asarray(value, order="C") for name, value in model.parameters.items()}
    header: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "module": model.module,
        "config": dict(model.config),
        "sha256": {name: digest(value) for name, value in tensors.items()},
    }
    header["header_sha256"] = header_digest(header)
    write_atomically(Path(path), to_bytes(tensors, metadata={FORMAT: json.dumps(header, sort_keys=True)}))


def load_model(path: str | os.PathLike[str]) -> Model:
    """Read a model file; float32 and float64 only.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is damaged or not a model of graphact; the message says what is wrong.
    """
    from safetensors import SafetensorError, safe_open

    if not Path(path).is_file():
        raise FileNotFoundError(f"no model file at {path}")
    try:
        with safe_open(path, framework="np") as file:
            header = json.loads((file.metadata() or {}).get(FORMAT, "null"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, the file is no dict
    except (SafetensorError, OSError, ValueError, TypeError) as error:
        raise ValueError(f"{path}: not a readable model file: {error}") from error
    if not isinstance(header, dict) or header.get("format") != FORMAT or header.get("version") != VERSION:
        raise ValueError(f"{path}: a safetensors file, but not a graphact model of version {VERSION}")
    if header.get("header_sha256") != header_digest(header):
        raise ValueError(f"{path}: the header is damaged: its SHA-256 differs from the one recorded")
    if header["sha256"] != {name: digest(value) for name, value in tensors.items()}:
        raise ValueError(f"{path}: the tensors are damaged: a SHA-256 differs from the one recorded")
    if len({value.dtype for value in tensors.values()} - {np.dtype("f4"), np.dtype("f8")}) > 0:
        raise ValueError(f"{path}: agents compute in float32 or float64; graphact agents split converts a model")
    try:
        return Model(header["module"], header["config"], tensors)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: the configuration does not fit the tensors: {error}") from error


def header_digest(header: dict[str, Any]) -> str:
    """SHA-256 over everything else in a header."""
    rest = {name: value for name, value in header.items() if name != "header_sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def digest(value: Array) -> str:
    """SHA-256 over type, shape and bytes, the types named as torch does."""
    return hashlib.sha256(f"torch.{value.dtype.name} {value.shape}".encode() + value.tobytes()).hexdigest()
