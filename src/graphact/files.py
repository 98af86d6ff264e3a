"""Model files: one safetensors file whose JSON header says which module it holds.

Nothing in a file is executed. The header names one of the modules below and the arguments of its constructor; the
module is built without allocating memory, and its parameters must match the file's tensors in name, shape and hash.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphact import nn
from graphact._atomic import write_atomically

__all__ = ["load", "save", "write_atomically"]

FORMAT = "graphact"
VERSION = 1
MODULES: dict[str, type[nn.GraphModule]] = {
    module.__name__: module for module in (nn.GCNN, nn.FIR, nn.GraphFilter, nn.GraphAdaptive, *nn.ACTIVATIONS.values())
}


def save(model: nn.GraphModule, path: str | os.PathLike[str]) -> None:
    """Write a module of graphact to a file. The file is complete or, if writing was interrupted, not there.

    Args:
        model: a :class:`~graphact.nn.GCNN`, :class:`~graphact.nn.FIR`, filter bank or activation.
        path: where to write, conventionally ending in ``.safetensors``.

    Raises:
        TypeError: the module is not one of graphact's, or holds a Python function, which a file cannot carry.

    Example:
        >>> import graphact, tempfile, pathlib
        >>> model = graphact.nn.GCNN(features=[1, 4], order=1, activation="median-ga")
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "model.safetensors"
        >>> graphact.save(model, path)
        >>> graphact.load(path).config() == model.config()
        True
    """
    from safetensors.torch import save as to_bytes

    name = type(model).__name__
    if MODULES.get(name) is not type(model):
        raise TypeError(f"model must be one of {', '.join(MODULES)}, got {name}; save others by their state_dict")
    config = model.config()
    if callable(config.get("op")):
        raise TypeError("model holds a Python function as its op, which a file cannot carry; save its state_dict")
    tensors = {key: value.detach().cpu().contiguous() for key, value in model.state_dict().items()}
    header: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "module": name,
        "config": config,
        "sha256": {key: digest(tensor) for key, tensor in tensors.items()},
    }
    header["header_sha256"] = header_digest(header)
    write_atomically(Path(path), to_bytes(tensors, metadata={FORMAT: json.dumps(header, sort_keys=True)}))


def load(path: str | os.PathLike[str], device: torch.device | str = "cpu") -> nn.GraphModule:
    """Read a module that :func:`save` wrote. Safe for files from strangers.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is damaged, incomplete or not a graphact model; the message says what is wrong.
    """
    header, tensors = read(Path(path))
    model = build(header, len(tensors), path)
    expected = model.state_dict()
    if sorted(expected) != sorted(tensors):
        odd = sorted(set(expected) ^ set(tensors))
        raise ValueError(f"{path}: tensors do not fit the configuration: {odd[0]!r} is on one side only")
    for name, tensor in tensors.items():
        if tensor.shape != expected[name].shape:
            raise ValueError(
                f"{path}: tensor {name!r} should have the shape {tuple(expected[name].shape)}, "
                f"got {tuple(tensor.shape)}"
            )
        if not tensor.is_floating_point():
            raise ValueError(f"{path}: tensor {name!r} should hold floating-point numbers, got {tensor.dtype}")
        if header["sha256"].get(name) != digest(tensor):
            raise ValueError(f"{path}: tensor {name!r} is damaged: its SHA-256 differs from the one recorded")
    if len({tensor.dtype for tensor in tensors.values()}) > 1:
        raise ValueError(
            f"{path}: tensors should have one dtype, got {sorted({str(t.dtype) for t in tensors.values()})}"
        )
    model.load_state_dict(tensors, assign=True)
    return model.to(device)


def read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The header and the tensors of a file."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise FileNotFoundError(f"no model file at {path}")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, the file is no dict
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path}: not a readable safetensors file, perhaps truncated: {error}") from error
    try:
        header = json.loads(metadata.get(FORMAT, "null"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: its graphact header is not valid JSON: {error}") from error
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ValueError(f"{path}: a safetensors file, but without the header of a graphact model")
    if header.get("version") != VERSION:
        raise ValueError(f"{path}: format version must be {VERSION}, got {header.get('version')!r}")
    if not isinstance(header.get("sha256"), dict) or header.get("header_sha256") != header_digest(header):
        raise ValueError(f"{path}: the header is damaged: its SHA-256 differs from the one recorded")
    return header, tensors


def build(header: dict[str, Any], num_tensors: int, path: str | os.PathLike[str]) -> nn.GraphModule:
    """The module a header describes, on the meta device, where parameters take no memory."""
    name, config = header.get("module"), header.get("config")
    if not isinstance(name, str) or name not in MODULES:
        raise ValueError(f"{path}: module must be one of {', '.join(MODULES)}, got {name!r}")
    if not isinstance(config, dict):
        raise ValueError(f"{path}: config must be a JSON object, got {type(config).__name__}")
    features = config.get("features")
    if isinstance(features, list) and len(features) - 1 > num_tensors:
        raise ValueError(f"{path}: the configuration has {len(features) - 1} layers, the file {num_tensors} tensors")
    try:
        with torch.device("meta"):
            return MODULES[name](**config)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise ValueError(f"{path}: the configuration of {name} is not valid: {error}") from error


def header_digest(header: dict[str, Any]) -> str:
    """SHA-256 over everything else in a header."""
    rest = {name: value for name, value in header.items() if name != "header_sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def digest(tensor: Tensor) -> str:
    """SHA-256 over type, shape and bytes."""
    described = f"{tensor.dtype} {tuple(tensor.shape)}".encode()
    return hashlib.sha256(described + tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()).hexdigest()
