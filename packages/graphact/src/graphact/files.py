"""Model files: a tensor file whose header says which module it holds.

Nothing in a file is executed. The header names a module of graphact, or a registered one, and the arguments of its
constructor; the module is built without allocating memory, and its parameters must match the file's tensors in name,
shape and hash. The header also describes the layers, so that agents read the file without torch.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from graphact import nn
from graphact.nn.graph_network import CONVOLUTIONS
from graphact.spec import UnsupportedModelError, structure, to_json
from graphact.storage import (
    check_tensors,
    digest,
    header_digest,
    load_tensors,
    one_line,
    save_tensors,
    write_atomically,
)

__all__ = ["digest", "header_digest", "load", "save", "write_atomically"]

NETWORKS: dict[str, type[nn.GraphModule]] = {
    module.__name__: module
    for module in (
        *(nn.GCNN, nn.FIR, nn.GraphNetwork, nn.GraphAdaptive, *CONVOLUTIONS.values()),
        *(nn.ScaledNetwork, nn.Standardize, nn.Rescale),
    )
}


def modules() -> dict[str, type[nn.GraphModule]]:
    """Return the classes that a file can hold, by name: those of graphact and the registered activations."""
    return {**NETWORKS, **{module.__name__: module for module in nn.ACTIVATIONS.values()}}


def save(model: nn.GraphModule, path: str | os.PathLike[str]) -> None:
    """Write a module of graphact to a file, which is complete or, if writing was interrupted, absent.

    Args:
        model: a :class:`~graphact.nn.GCNN`, :class:`~graphact.nn.FIR`, filter bank or activation.
        path: where to write, conventionally ending in ``.safetensors``.

    Raises:
        UnsupportedModelError: the module is not one of graphact's, holds a Python function or parameters of several
            dtypes, or was changed in a way that its configuration does not tell: a file would hold another model. It is
            a TypeError.

    Example:
        >>> import graphact, tempfile, pathlib
        >>> model = graphact.nn.GCNN(features=[1, 4], order=1, activation="median-ga")
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "model.safetensors"
        >>> graphact.save(model, path)
        >>> graphact.load(path).config() == model.config()
        True
    """
    header = describe_model(model)
    tensors = {key: value.detach().cpu().contiguous() for key, value in coefficients(model).items()}
    if len(dtypes := {str(tensor.dtype) for tensor in tensors.values()}) > 1:
        raise UnsupportedModelError("", f"parameters must have one dtype to be saved, got {', '.join(sorted(dtypes))}")
    save_tensors(Path(path), tensors, header)


def coefficients(model: nn.GraphModule) -> dict[str, torch.Tensor]:
    """Return the state of a model except integers, which follow from its configuration."""
    return {key: value for key, value in model.state_dict().items() if value.is_floating_point()}


def describe_model(model: nn.GraphModule) -> dict[str, Any]:
    """Return the header of a model's file: module, configuration, layers, frozen parameters; raise as :func:`save`."""
    name, known = type(model).__name__, modules()
    if known.get(name) is not type(model):
        raise UnsupportedModelError(
            "", f"model must be one of {', '.join(known)}, got {name}; save others by their state_dict"
        )
    layers, config = model.layers(), model.config()
    names: dict[int, str] = {}
    for key, parameter in model.named_parameters(remove_duplicate=False):
        if names.setdefault(id(parameter), key) != key:
            reason = f"it is the same parameter as {names[id(parameter)]}, and a file would make two of it"
            raise UnsupportedModelError(key, reason)
    described = to_json(layers, names)
    try:
        like = rebuild(known[name], config)
    except (TypeError, ValueError) as error:
        raise UnsupportedModelError("", f"{name} holds a part that its configuration does not name: {error}") from error
    if structure(like.layers()) != structure(layers) or like.state_dict().keys() != model.state_dict().keys():
        raise UnsupportedModelError(
            "", f"{name} was changed after it was made: a file would hold {like}, which is another model"
        )
    frozen = [key for key, parameter in model.named_parameters() if not parameter.requires_grad]
    return {"module": name, "config": config, "layers": described, "frozen": frozen}


def rebuild(module: type[nn.GraphModule], config: Mapping[str, Any]) -> nn.GraphModule:
    """Construct a module from its configuration on the meta device, where parameters take no memory."""
    with torch.device("meta"):
        return module(**config)


def load(path: str | os.PathLike[str], device: torch.device | str = "cpu") -> nn.GraphModule:
    """Read a module that :func:`save` wrote. Safe for untrusted files.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is damaged, incomplete or not a graphact model; the message says what is wrong.
    """
    header, tensors = load_tensors(Path(path))
    model = build(header, len(tensors), path)
    expected = coefficients(model)
    if sorted(expected) != sorted(tensors):
        odd = sorted(set(expected) ^ set(tensors))
        raise ValueError(f"{path}: tensors do not fit the configuration: {odd[0]!r} is on one side only")
    for name, tensor in tensors.items():
        shape, found = tuple(expected[name].shape), tuple(tensor.shape)
        if shape != found:
            raise ValueError(f"{path}: tensor {name!r} should have the shape {shape}, got {found}")
        if not tensor.is_floating_point():
            raise ValueError(f"{path}: tensor {name!r} should hold floating-point numbers, got {tensor.dtype}")
    check_tensors(Path(path), header, tensors)
    if len(dtypes := {str(tensor.dtype) for tensor in tensors.values()}) > 1:
        raise ValueError(f"{path}: tensors should have one dtype, got {sorted(dtypes)}")
    model.load_state_dict(tensors, assign=True)
    frozen = header.get("frozen", [])
    if not isinstance(frozen, list) or not all(name in list(expected) for name in frozen):
        raise ValueError(f"{path}: frozen must list names of parameters, got {frozen!r:.60}")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name not in frozen)
    return model.to(device)


def build(header: dict[str, Any], num_tensors: int, path: str | os.PathLike[str]) -> nn.GraphModule:
    """Construct the module of a header on the meta device."""
    name, config, known = header.get("module"), header.get("config"), modules()
    if not isinstance(name, str) or name not in known:
        raise ValueError(f"{path}: module must be one of {', '.join(known)}, got {name!r:.60}")
    if not isinstance(config, dict):
        raise ValueError(f"{path}: config must be a JSON object, got {type(config).__name__}")
    features = config.get("features")
    if isinstance(features, list) and len(features) - 1 > num_tensors:
        raise ValueError(f"{path}: the configuration has {len(features) - 1} layers, the file {num_tensors} tensors")
    try:
        return rebuild(known[name], config)
    except (TypeError, ValueError, RuntimeError, OverflowError, AttributeError) as error:
        raise ValueError(f"{path}: the configuration of {name} is not valid: {one_line(error)}") from error
