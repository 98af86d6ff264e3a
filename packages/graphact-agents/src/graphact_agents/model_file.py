"""Model files: safetensors with one JSON object that describes the layers, as ``graphact.save`` writes them.

Nothing in a file is executed. ``model.schema.json`` beside this module describes the header; ``docs/model-file.md``
explains it.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from graphact_agents.disk import hash_json, one_line, write_atomically
from graphact_agents.messages import Array
from graphact_agents.model import PRECISION_ADVICE, IncompatibleModelError, Model

FORMAT = "graphact"
VERSION = 1


def load_model(path: str | os.PathLike[str]) -> Model:
    """Read a model file; float32 and float64 only.

    Raises:
        FileNotFoundError: there is no such file.
        IncompatibleModelError: agents cannot run the model; the error names the part. It is a ValueError.
        ValueError: the file is damaged or not a model of graphact; the message names what is wrong.
    """
    header, tensors = read_tensors(Path(path))
    try:
        return Model(header["module"], header["config"], tensors, header["layers"], header.get("frozen", ()))
    except IncompatibleModelError as error:
        raise IncompatibleModelError(f"{path}: {error.part}" if error.part else str(path), error.reason) from error
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise ValueError(f"{path}: the description does not fit the tensors: {one_line(error)}") from error


def save_model(model: Model, path: str | os.PathLike[str]) -> None:
    """Write a model so that :func:`load_model` and ``graphact.load`` can read it."""
    write_atomically(Path(path), model_bytes(model))


def model_bytes(model: Model) -> bytes:
    """Return the content of the file of a model."""
    from safetensors.numpy import save

    tensors = {name: np.asarray(value, order="C") for name, value in model.parameters.items()}
    header: dict[str, Any] = {"format": FORMAT, "version": VERSION, "module": model.module}
    header |= {"config": dict(model.config), "layers": list(model.description), "frozen": list(model.frozen)}
    header["sha256"] = {name: hash_tensor(tensor) for name, tensor in tensors.items()}
    header["header_sha256"] = hash_json(header, "header_sha256")
    return save(tensors, metadata={FORMAT: json.dumps(header, sort_keys=True)})


def read_tensors(path: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return the header and the tensors of a file, both checked; ValueError says what is wrong."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise FileNotFoundError(f"no model file at {path}")
    try:
        with safe_open(path, framework="np") as file:
            metadata = file.metadata() or {}
            for name in file.keys():  # noqa: SIM118, the file is no dict
                if (dtype := file.get_slice(name).get_dtype()) not in ("F32", "F64"):
                    reason = f"agents compute in float32 or float64, got {dtype}; {PRECISION_ADVICE}"
                    raise IncompatibleModelError(str(path), reason)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except IncompatibleModelError:
        raise
    except (SafetensorError, OSError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: not a readable safetensors file, perhaps truncated: {one_line(error)}") from error
    try:
        header = json.loads(metadata.get(FORMAT, "null"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: its graphact header is not valid JSON: {error}") from error
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ValueError(f"{path}: a safetensors file, but without the header of a graphact model")
    if header.get("version") != VERSION:
        raise ValueError(f"{path}: format version must be {VERSION}, got {header.get('version')!r:.60}")
    if not isinstance(header.get("sha256"), dict) or header.get("header_sha256") != hash_json(header, "header_sha256"):
        raise ValueError(f"{path}: the header is damaged: its SHA-256 differs from the one recorded")
    if not isinstance(header.get("module"), str) or not isinstance(header.get("config"), dict):
        raise ValueError(f"{path}: module must be the name of a class, and config an object with its arguments")
    for name, tensor in tensors.items():
        if header["sha256"].get(name) != hash_tensor(tensor):
            raise ValueError(f"{path}: tensor {name!r} is damaged: its SHA-256 differs from the one recorded")
    return header, tensors


def hash_tensor(tensor: Array) -> str:
    """Return the SHA-256 of type, shape and bytes; the types are named as torch does."""
    return hashlib.sha256(f"torch.{tensor.dtype.name} {tuple(tensor.shape)}".encode() + tensor.tobytes()).hexdigest()
