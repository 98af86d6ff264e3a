"""A model as a node holds it: configuration and parameters in NumPy, and the stages made of them."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graphact._plain_checks import check_choice
from graphact.agents.messages import Array
from graphact.agents.program import Program
from graphact.agents.row import Row
from graphact.agents.stages import Filter, Mixed, Readout, Relu, Stage
from graphact.storage import digest

ACTIVATION_OPERATIONS = {
    "relu": None,
    "max-l": "max",
    "median-l": "median",
    "max-ga": "max",
    "median-ga": "median",
    "kernel-ga": "kernel",
}
MODULE_ACTIVATIONS = {
    "ReLU": "relu",
    "LocalizedMax": "max-l",
    "LocalizedMedian": "median-l",
    "GraphAdaptiveMax": "max-ga",
    "GraphAdaptiveMedian": "median-ga",
    "GraphAdaptiveKernel": "kernel-ga",
}


@dataclass(frozen=True)
class Model:
    """The stages of a GCNN, a FIR, a filter bank or an activation.

    Args:
        module: the class of the model, such as ``GCNN``.
        config: the arguments of its constructor.
        parameters: its parameters by name, as ``state_dict`` names them, all of one dtype.
    """

    module: str
    config: Mapping[str, Any]
    parameters: Mapping[str, Array]
    stages: tuple[Stage, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "stages", make_stages(self.module, self.config, self.parameters))

    @property
    def dtype(self) -> np.dtype[Any]:
        """The floating-point type of the computation."""
        return next((p.dtype for p in self.parameters.values()), np.dtype(float))

    @property
    def digest(self) -> bytes:
        """What tells this model, with the values of its parameters, from every other one."""
        parameters = {name: digest(np.asarray(value, order="C")) for name, value in self.parameters.items()}
        described = [self.module, dict(self.config), parameters]
        return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).digest()

    @property
    def in_features(self) -> int | None:
        """The features of the input; None if any number will do."""
        features = self.config.get("in_features", self.config.get("features"))
        return features[0] if isinstance(features, (list, tuple)) else features

    @property
    def rounds(self) -> int:
        """How many exchanges an inference takes."""
        return sum(stage.rounds for stage in self.stages)

    def widths(self, features: int | None = None) -> list[int]:
        """The number of features that each exchange of an inference carries."""
        width = features or self.in_features or 1
        widths: list[int] = []
        for stage in self.stages:
            widths += stage.widths(width)
            width = stage.features(width)
        return widths

    def out_features(self, features: int) -> int:
        """The number of features that come out, for this many input features."""
        for stage in self.stages:
            features = stage.features(features)
        return features


def infer(model: Model, row: Row, signal: Array) -> Program[Array]:
    """The program of one inference at one node.

    Args:
        model: the model, the same at every node.
        row: the node's row of S.
        signal: the node's signal, ``(F,)`` or, for a batch, ``(..., F)``; all nodes must use the same shape.

    Raises:
        ValueError: the signal has the wrong number of features.
    """
    x = np.ascontiguousarray(signal, model.dtype)
    if x.ndim < 1 or (model.in_features is not None and x.shape[-1] != model.in_features):
        raise ValueError(f"signal must have the shape (..., {model.in_features or 'F'}), got {np.shape(signal)}")
    for stage in model.stages:
        x = yield from stage(x, row)
    return x


def make_stages(module: str, config: Mapping[str, Any], parameters: Mapping[str, Array]) -> tuple[Stage, ...]:
    """The stages of a model of graphact, from its configuration and parameters."""
    if module == "GraphFilter":
        return (make_filter(parameters, ""),)
    if module == "GraphAdaptive":
        return (make_mixed(config, parameters, "", str(config["op"]), adaptive=True),)
    if module in MODULE_ACTIVATIONS:
        return (make_activation(MODULE_ACTIVATIONS[module], config, parameters, ""),)
    if module not in ("GCNN", "FIR"):
        raise ValueError(f"module must be GCNN, FIR, GraphFilter or an activation of graphact, got {module!r}")
    stages: list[Stage] = []
    for layer in range(len(config["features"]) - 1):
        stages.append(make_filter(parameters, f"filters.{layer}."))
        if module == "GCNN":
            stages.append(make_activation(config["activation"], config, parameters, f"activations.{layer}."))
    if config["out_features"] is not None:
        stages.append(Readout(parameters["readout.weight"], parameters.get("readout.bias")))
    return tuple(stages)


def make_filter(parameters: Mapping[str, Array], prefix: str) -> Filter:
    """A filter bank from its parameters."""
    return Filter(parameters[f"{prefix}taps"], parameters.get(f"{prefix}bias"))


def make_activation(name: str, config: Mapping[str, Any], parameters: Mapping[str, Array], prefix: str) -> Stage:
    """An activation from its name, configuration and parameters."""
    op = ACTIVATION_OPERATIONS[check_choice("activation", name, tuple(ACTIVATION_OPERATIONS))]
    if op is None:
        return Relu()
    return make_mixed(config, parameters, prefix, op, adaptive=name.endswith("-ga"))


def make_mixed(
    config: Mapping[str, Any], parameters: Mapping[str, Array], prefix: str, op: str, *, adaptive: bool
) -> Mixed:
    """A localized or graph-adaptive activation from its parameters."""
    log_gamma = parameters.get(f"{prefix}log_gamma")
    return Mixed(
        op,
        adaptive,
        float(parameters[f"{prefix}beta"]),
        parameters[f"{prefix}weights"],
        float(config.get("gamma", 0.1)) if log_gamma is None else float(np.exp(log_gamma)),
        bool(config["closed"]),
    )
