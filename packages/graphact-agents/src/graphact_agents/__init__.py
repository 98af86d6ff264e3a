"""A network that runs on its own nodes: each computes its output from messages of its neighbours alone.

Agents need NumPy and safetensors alone. They know a trained model by its file (:mod:`graphact_agents.model_file`) and a
graph by its file (:mod:`graphact_agents.graph_file`).
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.3.0"

if TYPE_CHECKING:
    from graphact_agents.deployment import Deployment, deploy, split
    from graphact_agents.graph_file import ShiftOperator, load_graph
    from graphact_agents.inference import infer
    from graphact_agents.links import Links, ShiftRow
    from graphact_agents.log import FileLog, MemoryLog, read_log
    from graphact_agents.model import Cost, IncompatibleModelError, Model, cost_of_inference
    from graphact_agents.model_file import load_model, save_model
    from graphact_agents.node import Node
    from graphact_agents.program import Direction, Exchange, Program, Received
    from graphact_agents.runs import Limits, RunResult, Timing
    from graphact_agents.simulated import simulate_inference
    from graphact_agents.transports.memory import Faults
    from graphact_agents.transports.transport import drive

__version__ = "0.3.0"
HOMES = {
    "deployment": "Deployment deploy split",
    "graph_file": "ShiftOperator load_graph",
    "inference": "infer",
    "links": "Links ShiftRow",
    "log": "FileLog MemoryLog read_log",
    "model": "Cost Model IncompatibleModelError cost_of_inference",
    "model_file": "load_model save_model",
    "node": "Node",
    "program": "Direction Exchange Program Received",
    "runs": "Limits RunResult Timing",
    "simulated": "simulate_inference",
    "transports.transport": "drive",
    "transports.memory": "Faults",
}
"""Public names by module, which is imported when one of them is first used: the command line starts fast."""

__all__ = [
    "Cost",
    "Deployment",
    "Direction",
    "Exchange",
    "Faults",
    "FileLog",
    "IncompatibleModelError",
    "Limits",
    "Links",
    "MemoryLog",
    "Model",
    "Node",
    "Program",
    "Received",
    "RunResult",
    "ShiftOperator",
    "ShiftRow",
    "Timing",
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


def __getattr__(name: str) -> Any:
    for home, names in HOMES.items():
        if name in names.split():
            value = getattr(importlib.import_module(f"graphact_agents.{home}"), name)
            globals()[name] = value
            return value
    try:
        return importlib.import_module(f"graphact_agents.{name}")
    except ModuleNotFoundError:
        raise AttributeError(f"module 'graphact_agents' has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return sorted(__all__)
