"""Estimators on disk: settings and what was fitted as JSON, parameters as safetensors; nothing is executed."""

import numbers
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from graphact.storage import check_tensors, load_tensors, save_tensors

NOT_IN_JSON = ("model_", "graph_")  # of what was fitted: tensors, and what every call is given
ARRAYS = ("classes_", "feature_names_in_")
TUPLE, DEVICE = "__tuple__", "__device__"  # what JSON has no word for


def write(path: Path, estimator: Any) -> None:
    """Write a fitted estimator.

    Raises:
        TypeError: a setting is no JSON value.
    """
    settings = {name: plain(name, value) for name, value in estimator.get_params(deep=False).items()}
    found = {name: value for name, value in vars(estimator).items() if name.endswith("_") and name not in NOT_IN_JSON}
    fitted = {name: plain(name, value) for name, value in found.items()}
    header = {"estimator": type(estimator).__name__, "settings": settings, "fitted": fitted, **estimator._describe()}
    tensors = {name: tensor.cpu().contiguous() for name, tensor in estimator.model_.state_dict().items()}
    save_tensors(path, tensors, header)


def read(path: Path, kinds: Sequence[type]) -> Any:
    """Read an estimator, which must be one of some kinds.

    Raises:
        ValueError: the file is damaged, or holds something else.
    """
    header, tensors = load_tensors(path)
    check_tensors(path, header, tensors)
    known: dict[Any, Any] = {kind.__name__: kind for kind in kinds}
    if header.get("estimator") not in known:
        raise ValueError(f"{path}: must hold one of {', '.join(known)}, got {header.get('estimator')!r:.60}")
    estimator = known[header["estimator"]](**from_plain(header["settings"]))
    for name, value in header["fitted"].items():
        kind = object if name == "feature_names_in_" else None
        setattr(estimator, name, np.array(value, kind) if name in ARRAYS else value)
    estimator.model_ = estimator._build(*estimator._sizes())
    estimator.model_.load_state_dict(tensors)
    estimator.model_.eval()
    return estimator


def plain(name: str, value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, tuple):
        return {TUPLE: plain(name, list(value))}
    if isinstance(value, list):
        return [plain(name, one) for one in value]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: plain(name, one) for key, one in value.items()}
    if isinstance(value, torch.device):
        return {DEVICE: str(value)}
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | str | numbers.Number):
        return value
    raise TypeError(f"{name} must be a JSON value to be saved, got {type(value).__name__}")


def from_plain(value: Any) -> Any:
    """The inverse of :func:`plain`."""
    if isinstance(value, list):
        return [from_plain(one) for one in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {TUPLE}:
        return tuple(from_plain(value[TUPLE]))
    return torch.device(value[DEVICE]) if value.keys() == {DEVICE} else {k: from_plain(v) for k, v in value.items()}
