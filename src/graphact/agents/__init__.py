"""A network that runs on its own nodes: each computes its output from messages of its neighbours alone.

Agents need NumPy and safetensors alone. They know a trained model by its file (:mod:`graphact.agents.model_file`) and a
graph by its file (:mod:`graphact.agents.graph_file`).
"""

from graphact.agents.deployment import Deployment
from graphact.agents.graph_file import ShiftOperator, load_graph
from graphact.agents.inference import infer
from graphact.agents.links import Links, Row
from graphact.agents.log import FileLog, MemoryLog, read_log
from graphact.agents.model import Cost, Model, UnsupportedModelError, cost_of_inference
from graphact.agents.model_file import load_model, save_model
from graphact.agents.node import Node
from graphact.agents.program import Direction, Exchange, Program, Received
from graphact.agents.runs import Limits, RunResult, Timing
from graphact.agents.simulated import simulate_inference
from graphact.agents.split import deploy, split
from graphact.agents.transports.base import drive
from graphact.agents.transports.memory import Faults

__all__ = [
    "Cost",
    "Deployment",
    "Direction",
    "Exchange",
    "Faults",
    "FileLog",
    "Limits",
    "Links",
    "MemoryLog",
    "Model",
    "Node",
    "Program",
    "Received",
    "Row",
    "RunResult",
    "ShiftOperator",
    "Timing",
    "UnsupportedModelError",
    "cost_of_inference",
    "deploy",
    "drive",
    "infer",
    "load_graph",
    "load_model",
    "read_log",
    "save_model",
    "simulate_inference",
    "split",
]
