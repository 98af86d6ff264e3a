"""Models of version 0.1, whose files name a module and its arguments but do not describe its layers.

The only place where the names of 0.1's modules, arguments and tensors are spelled out.
"""

from collections.abc import Collection, Mapping
from typing import Any

Entry = dict[str, Any]

ACTIVATIONS: dict[str, tuple[str, str] | None] = {
    "relu": None,
    "max-l": ("max", "hops"),
    "median-l": ("median", "hops"),
    "max-ga": ("max", "shifted"),
    "median-ga": ("median", "shifted"),
    "kernel-ga": ("kernel", "shifted"),
}
"""Operation and what it reads, by name of the activation."""
MODULES = {
    "ReLU": "relu",
    "LocalizedMax": "max-l",
    "LocalizedMedian": "median-l",
    "GraphAdaptiveMax": "max-ga",
    "GraphAdaptiveMedian": "median-ga",
    "GraphAdaptiveKernel": "kernel-ga",
}
"""Activations by the class of a module that is one."""


def describe_layers(module: str, config: Mapping[str, Any], tensors: Collection[str]) -> list[Entry]:
    """The layers as files of today describe them; KeyError or ValueError if version 0.1 had no such model."""
    if module == "GraphFilter":
        return [describe("filter", "", ("taps", "bias"), tensors)]
    if module == "GraphAdaptive":
        return [describe_mixture(str(config["op"]), "shifted", config, "", tensors)]
    if module in MODULES:
        return [describe_activation(MODULES[module], config, "", tensors)]
    if module not in ("GCNN", "FIR"):
        raise ValueError(f"module must be GCNN, FIR, GraphFilter or an activation of graphact, got {module!r}")
    layers = []
    for number in range(len(config["features"]) - 1):
        layers.append(describe("filter", f"filters.{number}.", ("taps", "bias"), tensors))
        if module == "GCNN":
            layers.append(describe_activation(config["activation"], config, f"activations.{number}.", tensors))
    if config["out_features"] is not None:
        layers.append(describe("linear", "readout.", ("weight", "bias"), tensors))
    return layers


def describe_activation(name: str, config: Mapping[str, Any], prefix: str, tensors: Collection[str]) -> Entry:
    """An activation by its name."""
    known = ACTIVATIONS[name]
    if known is None:
        return describe("pointwise", prefix, (), tensors, function="relu")
    return describe_mixture(*known, config, prefix, tensors)


def describe_mixture(
    operation: str, reads: str, config: Mapping[str, Any], prefix: str, tensors: Collection[str]
) -> Entry:
    """A localized or graph-adaptive activation; the kernel's gamma is a tensor where it was trained."""
    is_constant = operation == "kernel" and f"{prefix}log_gamma" not in tensors
    constants = {"gamma": float(config.get("gamma", 0.1))} if is_constant else {}
    settings = {"operation": operation, "reads": reads, "closed": bool(config["closed"]), "constants": constants}
    return describe("hop-mixture", prefix, ("beta", "weights", "log_gamma"), tensors, **settings)


def describe(kind: str, prefix: str, arrays: Collection[str], tensors: Collection[str], **settings: Any) -> Entry:
    """One layer, with those of its arrays that there are."""
    found = {name: f"{prefix}{name}" for name in arrays if f"{prefix}{name}" in tensors}
    return {"kind": kind, **settings, "arrays": found}
