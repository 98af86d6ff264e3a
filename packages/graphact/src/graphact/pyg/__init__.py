"""What touches PyG: graphs in its data objects, and its models with activations that see the graph."""

from graphact.nn.passing import PassGraph, PerLayer
from graphact.pyg.data import AttachGraph, GraphData

__all__ = ["AttachGraph", "GraphData", "PassGraph", "PerLayer"]


def __getattr__(name: str) -> object:
    from graphact._checks import did_you_mean

    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{did_you_mean(name, __all__)}", name=name)
