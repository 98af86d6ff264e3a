"""PyG: graphs in its data objects, and its models with activations that read the graph."""

from typing import TYPE_CHECKING

from graphact._lazy import lazy_names
from graphact.pyg.graph_adaptive_conv import GraphAdaptiveConv
from graphact.pyg.pass_graph import PassGraph, PerLayer, bind_graph

if TYPE_CHECKING:
    from graphact.pyg.data import AttachGraph, GraphData

__all__ = ["AttachGraph", "GraphAdaptiveConv", "GraphData", "PassGraph", "PerLayer", "bind_graph"]

if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, {"graphact.pyg.data": "AttachGraph GraphData"})  # these need PyG
