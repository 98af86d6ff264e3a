"""Modules: parameters plus one functional call."""

from graphact.nn.activation import (
    GraphAdaptive,
    GraphAdaptiveKernel,
    GraphAdaptiveMax,
    GraphAdaptiveMedian,
    Localized,
    LocalizedMax,
    LocalizedMedian,
    ReLU,
)
from graphact.nn.base import GraphModule
from graphact.nn.filter import GraphFilter
from graphact.nn.gcnn import FIR, GCNN
from graphact.nn.names import ACTIVATIONS, make_activation, register, unregister
from graphact.nn.parts import Residual, Sequential
from graphact.nn.passing import PassGraph, PerLayer

__all__ = [
    "ACTIVATIONS",
    "FIR",
    "GCNN",
    "GraphAdaptive",
    "GraphAdaptiveKernel",
    "GraphAdaptiveMax",
    "GraphAdaptiveMedian",
    "GraphFilter",
    "GraphModule",
    "Localized",
    "LocalizedMax",
    "LocalizedMedian",
    "PassGraph",
    "PerLayer",
    "ReLU",
    "Residual",
    "Sequential",
    "make_activation",
    "register",
    "unregister",
]
