"""Graphs: one frozen, validated sparse shift operator, its constructors and its transformations."""

from graphact.graph.graph import Graph
from graphact.graph.neighborhoods import Neighborhoods
from graphact.graph.sensors import points_on_earth

__all__ = ["Graph", "Neighborhoods", "points_on_earth"]
