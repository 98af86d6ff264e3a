"""Models of version 0.1, whose files name a module and its arguments but do not describe its layers.

The only place where the names of 0.1's modules, arguments and tensors are spelled out.
"""

from collections.abc import Collection, Mapping
from typing import Any

MODULES = {
    "ReLU": "relu",
    "LocalizedMax": "max-l",
    "LocalizedMedian": "median-l",
    "GraphAdaptiveMax": "max-ga",
    "GraphAdaptiveMedian": "median-ga",
    "GraphAdaptiveKernel": "kernel-ga",
}
"""Activations by the class of a module that is one."""
READS = {"l": "hops", "ga": "shifted"}


def describe_layers(module: str, config: Mapping[str, Any], tensors: Collection[str]) -> list[dict[str, Any]]:
    """The layers as files of today describe them; KeyError or ValueError if version 0.1 had no such model."""

    def describe(kind: str, prefix: str, arrays: Collection[str], **settings: Any) -> dict[str, Any]:
        """One layer, with those of its arrays that there are."""
        found = {name: f"{prefix}{name}" for name in arrays if f"{prefix}{name}" in tensors}
        return {"kind": kind, **settings, "arrays": found}

    def describe_activation(name: str, prefix: str) -> dict[str, Any]:
        if name == "relu":
            return describe("pointwise", prefix, (), function="relu")
        operation, reads = name.rsplit("-", 1)
        settings = {"operation": operation, "reads": READS[reads], "closed": bool(config["closed"]), "constants": {}}
        if operation == "kernel" and f"{prefix}log_gamma" not in tensors:  # gamma is a tensor where it was trained
            settings["constants"] = {"gamma": float(config.get("gamma", 0.1))}
        return describe("hop-mixture", prefix, ("beta", "weights", "log_gamma"), **settings)

    if module == "GraphFilter":
        return [describe("filter", "", ("taps", "bias"))]
    if module == "GraphAdaptive":
        return [describe_activation(f"{config['op']}-ga", "")]
    if module in MODULES:
        return [describe_activation(MODULES[module], "")]
    if module not in ("GCNN", "FIR"):
        raise ValueError(f"module must be GCNN, FIR, GraphFilter or an activation of graphact, got {module!r}")
    if module == "GCNN" and config["activation"] not in MODULES.values():
        raise ValueError(f"activation must be one of version 0.1, got {config['activation']!r}")
    layers = []
    for number in range(len(config["features"]) - 1):
        layers.append(describe("filter", f"filters.{number}.", ("taps", "bias")))
        if module == "GCNN":
            layers.append(describe_activation(config["activation"], f"activations.{number}."))
    if config["out_features"] is not None:
        layers.append(describe("linear", "readout.", ("weight", "bias")))
    return layers
