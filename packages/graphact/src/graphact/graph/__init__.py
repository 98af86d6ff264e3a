"""Graphs: one frozen, validated sparse shift operator, its constructors and its transformations."""

from graphact.graph.graph import Graph
from graphact.graph.neighborhoods import Neighborhoods

__all__ = ["Graph", "Neighborhoods"]
