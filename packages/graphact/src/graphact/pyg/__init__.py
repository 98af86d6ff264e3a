"""PyG: graphs in its data objects, and its models with activations that read the graph."""

from typing import TYPE_CHECKING

from graphact._lazy import lazy_names
from graphact.pyg.graph_adaptive_conv import GraphAdaptiveConv
from graphact.pyg.pass_graph import PassGraph, PerLayer, bind_graph

if TYPE_CHECKING:
    from graphact.pyg.aggregations import (
        MaxAggregation,
        MeanAggregation,
        MedianAggregation,
        MinAggregation,
        MultiAggregation,
        StdAggregation,
    )
    from graphact.pyg.data import AttachGraph, GraphData
    from graphact.pyg.fused_convs import ConvReport, accelerate, report, restore

__all__ = [
    "AttachGraph",
    "ConvReport",
    "GraphAdaptiveConv",
    "GraphData",
    "MaxAggregation",
    "MeanAggregation",
    "MedianAggregation",
    "MinAggregation",
    "MultiAggregation",
    "PassGraph",
    "PerLayer",
    "StdAggregation",
    "accelerate",
    "bind_graph",
    "report",
    "restore",
]

if not TYPE_CHECKING:
    HOMES = {  # of names that need PyG
        "graphact.pyg.aggregations": (
            "MaxAggregation MeanAggregation MedianAggregation MinAggregation MultiAggregation StdAggregation"
        ),
        "graphact.pyg.data": "AttachGraph GraphData",
        "graphact.pyg.fused_convs": "ConvReport accelerate report restore",
    }
    __getattr__ = lazy_names(__name__, HOMES)
