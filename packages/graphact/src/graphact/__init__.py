"""Neighbourhood functions for graph neural networks, as activations and filter banks, and networks built from them.

Names are loaded when they are first used.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphact import distributed, functional, guarantees, nn, pyg, training
    from graphact import estimators as estimators
    from graphact import files as files
    from graphact import graph as graph
    from graphact import kernels as kernels
    from graphact import onnx as onnx
    from graphact import spec as spec
    from graphact.files import load, save
    from graphact.graph import Graph
    from graphact.kernels.dispatch import backend
    from graphact.onnx import export_onnx
del TYPE_CHECKING

__version__ = "0.3.0"

__all__ = [
    "Graph",
    "__version__",
    "backend",
    "distributed",
    "estimators",
    "export_onnx",
    "functional",
    "guarantees",
    "load",
    "nn",
    "pyg",
    "save",
    "spec",
    "training",
]

# the modules of names in __all__; a name that is not here is a module of its own
_HOMES = {"Graph": "graph", "backend": "kernels.dispatch", "export_onnx": "onnx", "load": "files", "save": "files"}
_FURTHER_MODULES = ["files", "graph", "kernels", "onnx", "registry", "storage"]


def __getattr__(name: str) -> object:
    import importlib

    if name in _HOMES:
        value = getattr(importlib.import_module(f"graphact.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    if name in __all__ or name in _FURTHER_MODULES:
        return importlib.import_module(f"graphact.{name}")
    from graphact._checks import did_you_mean

    home = None if name.startswith("_") else _home_of(name)
    meant = f"; did you mean graphact.{home}.{name}?" if home else did_you_mean(name, [*__all__, *_FURTHER_MODULES])
    raise AttributeError(f"module 'graphact' has no attribute {name!r}{meant}", name=name)


def _home_of(name: str) -> str | None:
    """Return the subpackage whose ``__all__`` holds a name."""
    import importlib

    subpackages = ("nn", "functional", "training", "pyg", "spec", "guarantees", "distributed", "estimators")
    for home in subpackages:
        try:
            if name in importlib.import_module(f"graphact.{home}").__all__:
                return home
        except ModuleNotFoundError:  # of an extra
            continue
    return None


def __dir__() -> list[str]:
    return sorted(__all__)
