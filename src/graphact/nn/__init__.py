"""Modules: parameters plus one functional call."""

from graphact.nn.activation import (
    GraphAdaptive,
    GraphAdaptiveKernel,
    GraphAdaptiveMax,
    GraphAdaptiveMedian,
    Localized,
    LocalizedMax,
    LocalizedMedian,
)
from graphact.nn.base import GraphModule
from graphact.nn.filter import GraphFilter
from graphact.nn.gcnn import FIR, GCNN
from graphact.nn.names import ACTIVATIONS, make_activation, register, unregister
from graphact.nn.parts import Residual, Sequential
from graphact.nn.passing import PassGraph, PerLayer
from graphact.nn.pointwise import ELU, GELU, Abs, Identity, LeakyReLU, Maxout, PReLU, ReLU, SiLU, Tanh

__all__ = [
    "ACTIVATIONS",
    "ELU",
    "FIR",
    "GCNN",
    "GELU",
    "Abs",
    "GraphAdaptive",
    "GraphAdaptiveKernel",
    "GraphAdaptiveMax",
    "GraphAdaptiveMedian",
    "GraphFilter",
    "GraphModule",
    "Identity",
    "LeakyReLU",
    "Localized",
    "LocalizedMax",
    "LocalizedMedian",
    "Maxout",
    "PReLU",
    "PassGraph",
    "PerLayer",
    "ReLU",
    "Residual",
    "Sequential",
    "SiLU",
    "Tanh",
    "make_activation",
    "register",
    "unregister",
]
