"""Modules: parameters plus one functional call."""

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
from graphact.nn.passing import PassGraph, PerLayer
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
    "clear_graph_cache",
    "make_activation",
    "register",
    "unregister",
]
