"""graphact-agents learn: the agent of one node that learns with its neighbours."""

import argparse
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path

import numpy as np

from graphact_agents.certificates import TLS_FOLDER
from graphact_agents.command_simulate import read_numbers
from graphact_agents.deployment import Deployment, check_folder
from graphact_agents.disk import one_line, read_json
from graphact_agents.events import EventWriter
from graphact_agents.learning.learner import Learner
from graphact_agents.learning.mixing import Learning
from graphact_agents.learning.networked import PLAN, STATE, TRAINED, NodeTraining
from graphact_agents.learning.state import from_vector
from graphact_agents.model_file import save_model
from graphact_agents.runs import Timing
from graphact_agents.transports.transport import TRANSPORTS, open_transport


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add = parser.add_argument
    add("folder", type=Path, metavar="FOLDER", help="the folder of the node, with its learning.json")
    help_ = ".npy of shape (M, F), its own (default: signals.npy of the folder)"
    add("--signals", type=Path, metavar="FILE", help=help_)
    help_ = ".npy of shape (M, O), its own (default: targets.npy of the folder)"
    add("--targets", type=Path, metavar="FILE", help=help_)
    add("--transport", choices=TRANSPORTS, help="the same at all nodes (default: that of network.toml)")
    add("--slot", type=float, default=5.0, help="seconds for one round (default: 5)")


def run(options: argparse.Namespace) -> int:
    """
    Train the network at one node, together with its neighbours, and write trained.safetensors into the node's folder.

    learning.json of the folder has the settings, the same at all nodes:

      {"learning": {"rate": 0.01}, "steps": 300, "first": 0}

    first is the number of the first run; give a higher one for another training in the same folder. Progress is kept in
    state.npz: an agent that is started again continues with the step that its neighbours are in.
    """
    check_folder(options.folder)
    files = (options.signals or options.folder / "signals.npy", options.targets or options.folder / "targets.npy")
    signals, targets = (read_numbers(path, "(M, F)", lambda x: x.ndim == 2).astype("float64") for path in files)
    plan, deployment = read_json(options.folder / PLAN), Deployment.load(options.folder)
    try:
        learning, steps, first = Learning(**plan["learning"]), int(plan["steps"]), int(plan["first"])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{options.folder / PLAN}: damaged: {one_line(error)}") from error
    learner = Learner(deployment, learning, signals, targets, options.folder / STATE)
    transport = options.transport or deployment.settings.get("transport", "udp")
    with ExitStack() as opened:
        opened.enter_context(np.errstate(over="ignore", invalid="ignore"))
        has_tls = transport == "zenoh" and deployment.settings.get("tls", False)
        tls = options.folder / TLS_FOLDER if has_tls else None
        network = open_transport(transport, deployment.links, deployment.reached, tls)
        opened.callback(network.close)
        events = opened.enter_context(EventWriter())
        training = NodeTraining(options.folder, learner, network, Timing(slot=options.slot), first, events.flush)
        opened.enter_context(closing(training.log))
        events.write({"event": "ready", "node": deployment.node, "step": learner.state.steps})
        training.prepare()
        training.train(steps, events.write)
        counters, made = asdict(training.node.counters), learner.state.steps
        save_model(from_vector(learner.state.parameters, learner.model), options.folder / TRAINED)
        events.write({"event": "trained", "node": deployment.node, "steps": made, "counters": counters})
        training.linger(max(2 * options.slot, 1.0))
    return 0
