"""Modules: parameters plus one functional call."""

from typing import TYPE_CHECKING

from graphact.nn.adaptive_filter_bank import AdaptiveFilterBank
from graphact.nn.call import clear_graph_cache
from graphact.nn.digraf import DiGRAF
from graphact.nn.edge_net import EdgeNet
from graphact.nn.gcnn import FIR, GCNN
from graphact.nn.graph_adaptive import (
    GraphAdaptive,
    GraphAdaptiveKernel,
    GraphAdaptiveMax,
    GraphAdaptiveMean,
    GraphAdaptiveMedian,
    GraphAdaptiveSoftMaximum,
    GraphAdaptiveTrimmedMean,
    GraphAdaptiveWeightedMean,
)
from graphact.nn.graph_adaptive_mixture import GraphAdaptiveMixture
from graphact.nn.graph_filter import GraphFilter
from graphact.nn.graph_network import GraphNetwork
from graphact.nn.grelu import GReLU
from graphact.nn.localized import Localized, LocalizedMax, LocalizedMedian
from graphact.nn.lookup import ACTIVATIONS, make_activation, register, unregister
from graphact.nn.maxk import MaxK
from graphact.nn.module import GraphModule
from graphact.nn.pointwise import ELU, GELU, Abs, Identity, LeakyReLU, Maxout, PReLU, ReLU, SiLU, Tanh
from graphact.nn.scaled_network import Rescale, ScaledNetwork, Standardize
from graphact.nn.sequential import Residual, Sequential
from graphact.nn.shiftless import ShiftlessMax, ShiftlessMedian

__all__ = [
    "ACTIVATIONS",
    "ELU",
    "FIR",
    "GCNN",
    "GELU",
    "Abs",
    "AdaptiveFilterBank",
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
    "ReLU",
    "Rescale",
    "Residual",
    "ScaledNetwork",
    "Sequential",
    "ShiftlessMax",
    "ShiftlessMedian",
    "SiLU",
    "Standardize",
    "Tanh",
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
