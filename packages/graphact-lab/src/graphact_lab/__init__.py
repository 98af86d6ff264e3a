"""The experiments of graph-adaptive activation functions: tasks, protocols, benchmarks and reports."""

__version__ = "0.3.0"
