"""Modules: parameters plus one functional call."""

from typing import TYPE_CHECKING

from graphact.nn.activation import (
    GraphAdaptive,
    GraphAdaptiveKernel,
    GraphAdaptiveMax,
    GraphAdaptiveMean,
    GraphAdaptiveMedian,
    GraphAdaptiveSoftMaximum,
    GraphAdaptiveTrimmedMean,
    GraphAdaptiveWeightedMean,
    Localized,
    LocalizedMax,
    LocalizedMedian,
)
from graphact.nn.base import GraphModule, clear_graph_cache
from graphact.nn.convolutions import ARMA, Chebyshev, EdgeNet, GraphAttention
from graphact.nn.filter import GraphFilter
from graphact.nn.gcnn import FIR, GCNN
from graphact.nn.mixture import GraphAdaptiveMixture
from graphact.nn.names import ACTIVATIONS, make_activation, register, unregister
from graphact.nn.network import GraphNetwork
from graphact.nn.others import DiGRAF, GReLU, MaxK, ShiftlessMax, ShiftlessMedian
from graphact.nn.parts import Residual, Sequential
from graphact.nn.passing import PassGraph, PerLayer, bind_graph
from graphact.nn.pointwise import ELU, GELU, Abs, Identity, LeakyReLU, Maxout, PReLU, ReLU, SiLU, Tanh

__all__ = [
    "ACTIVATIONS",
    "ARMA",
    "ELU",
    "FIR",
    "GCNN",
    "GELU",
    "Abs",
    "Chebyshev",
    "DiGRAF",
    "EdgeNet",
    "GReLU",
    "GraphAdaptive",
    "GraphAdaptiveKernel",
    "GraphAdaptiveMax",
    "GraphAdaptiveMean",
    "GraphAdaptiveMedian",
    "GraphAdaptiveMixture",
    "GraphAdaptiveSoftMaximum",
    "GraphAdaptiveTrimmedMean",
    "GraphAdaptiveWeightedMean",
    "GraphAttention",
    "GraphFilter",
    "GraphModule",
    "GraphNetwork",
    "Identity",
    "LeakyReLU",
    "Localized",
    "LocalizedMax",
    "LocalizedMedian",
    "MaxK",
    "Maxout",
    "PReLU",
    "PassGraph",
    "PerLayer",
    "ReLU",
    "Residual",
    "Sequential",
    "ShiftlessMax",
    "ShiftlessMedian",
    "SiLU",
    "Tanh",
    "bind_graph",
    "clear_graph_cache",
    "make_activation",
    "register",
    "unregister",
]

if not TYPE_CHECKING:  # a checker would take any name for one that is there

    def __getattr__(name: str) -> object:
        """Say what may have been meant: a class, or the class of an activation whose name in tables was given."""
        from graphact._checks import did_you_mean
        from graphact.registry import BUILT_IN

        plain = name.replace("_", "").lower()
        classes = {label.replace("-", ""): kind for label, kind in BUILT_IN.items()}
        classes |= {kind.lower(): kind for kind in __all__}
        meant = f"; did you mean {classes[plain]!r}?" if plain in classes else did_you_mean(name, __all__)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{meant}", name=name)
