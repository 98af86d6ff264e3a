"""A network that runs on its own nodes: each computes its output from messages of its neighbours alone.

Agents need NumPy and safetensors alone. They know a trained model by its file (:mod:`graphact_agents.model_file`) and a
graph by its file (:mod:`graphact_agents.graph_file`).
"""

from graphact_agents.deployment import Deployment, deploy
from graphact_agents.graph_file import ShiftOperator, load_graph
from graphact_agents.inference import infer
from graphact_agents.links import Links, ShiftRow
from graphact_agents.log import FileLog, MemoryLog, read_log
from graphact_agents.model import Cost, IncompatibleModelError, Model, cost_of_inference
from graphact_agents.model_file import load_model, save_model
from graphact_agents.node import Node
from graphact_agents.program import Direction, Exchange, Program, Received
from graphact_agents.runs import Limits, RunResult, Timing
from graphact_agents.simulation import simulate_inference
from graphact_agents.transports.memory import Faults
from graphact_agents.transports.transport import drive

__version__ = "0.3.0"

__all__ = [
    "Cost", "Deployment", "Direction", "Exchange", "Faults", "FileLog", "IncompatibleModelError", "Limits",
    "Links", "MemoryLog", "Model", "Node", "Program", "Received", "RunResult", "ShiftOperator", "ShiftRow",
    "Timing", "cost_of_inference", "deploy", "drive", "infer", "load_graph", "load_model", "read_log",
    "save_model", "simulate_inference",
]  # fmt: skip
