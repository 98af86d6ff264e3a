"""What touches PyG: graphs in its data objects, and its models with activations that see the graph."""

from graphact.nn.passing import PassGraph, PerLayer
from graphact.pyg.data import AttachGraph, GraphData

__all__ = ["AttachGraph", "GraphData", "PassGraph", "PerLayer"]
