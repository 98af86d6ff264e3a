"""Activation functions that see the graph, and graph neural networks built from them."""

from graphact import functional, nn
from graphact.files import load, save
from graphact.graph import Graph
from graphact.kernels.backends import backend

__version__ = "0.1.0"

__all__ = ["Graph", "__version__", "backend", "functional", "load", "nn", "save"]
