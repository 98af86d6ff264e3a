"""Activation functions that see the graph, and graph neural networks built from them.

Names are loaded when they are first used, so that what needs no torch (``graphact.agents``) does not import it.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphact import analysis, functional, nn
    from graphact.files import load, save
    from graphact.graph import Graph
    from graphact.kernels.backends import backend

__version__ = "0.1.0"

__all__ = ["Graph", "__version__", "analysis", "backend", "functional", "load", "nn", "save"]

_HOMES = {
    "Graph": "graphact.graph",
    "backend": "graphact.kernels.backends",
    "load": "graphact.files",
    "save": "graphact.files",
}
_MODULES = ("agents", "analysis", "files", "functional", "graph", "kernels", "nn")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"graphact.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'graphact' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
