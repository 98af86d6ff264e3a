"""graphact agents train and learn: agents that train a model together, simulated, as processes, or each at its node."""

import argparse
import math
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

import numpy as np

from graphact import agents
from graphact.agents import Deployment
from graphact.agents.learning import Learning, Training, cost_of_step, simulate_training, train_centrally
from graphact.agents.learning.mixing import ALGORITHMS, OPTIMIZERS
from graphact.agents.learning.networked import train_on_processes
from graphact.agents.learning.simulated import identity_of, mean_loss, read_training, write_training
from graphact.agents.learning.state import to_vector
from graphact.agents.learning.vjp import OBJECTIVES
from graphact.agents.messages import Array
from graphact.commands.agents_simulated import (
    NOT_IN_LEARNING,
    Lines,
    faults,
    links_missed,
    load_network,
    read_numbers,
    retransmissions,
    tell,
)
from graphact.commands.parser import command, option
from graphact.storage import check_writable


@command(
    "model",
    "graph",
    option("--signals", ".npy of shape (M, N, F)", required=True),
    option("--targets", ".npy of shape (M, N, O); NaN asks for nothing", type=Path, required=True, metavar="FILE"),
    option("--out", "where the trained model goes", required=True, metavar="FILE"),
    option("--algorithm", "default: push-pull", choices=ALGORITHMS, default="push-pull"),
    option("--optimizer", "default: adam", choices=OPTIMIZERS, default="adam"),
    option("--rate", "step size (default: 0.01)", type=float, default=0.01),
    option("--steps", "steps in all (default: 300)", type=int, default=300),
    option("--batch", "samples a step (default: all)", type=int, metavar="B"),
    option("--objective", "default: mse", choices=tuple(OBJECTIVES), default="mse"),
    option("--checkpoint", "written as it goes; the same command goes on from it", type=Path, metavar="FILE"),
    option(
        "--transport",
        "one process for each node, over a network of this machine; simulated if left out",
        choices=("udp", "zenoh"),
    ),
    option("--compare", "also train in one place with the same optimizer, and compare", action="store_true"),
    option("--slot", "seconds for one round (default: 0.18; 5 with --transport)", default=None),
    "--seed",
    *faults("step"),
)
def train(options: argparse.Namespace) -> int:
    """Let agents train a model together: each knows its own signals and targets and talks to its neighbours alone.
    Gradients go back over the links that signals came by; then neighbours mix their parameters. Agents are simulated,
    with faults as asked for, or with --transport processes that talk over a network.
    """
    options.slot = (0.18 if options.transport is None else 5.0) if options.slot is None else options.slot
    for file in (options.out, options.checkpoint):
        if file is not None:
            check_writable(file.parent)
    _, _, nodes, network = load_network(options)
    check_connected(nodes)
    plain = nodes[0].model
    signals, targets = (
        read_numbers(path, "(M, N, F)", lambda x: x.ndim == 3).astype("float64")
        for path in (options.signals, options.targets)
    )
    learning = Learning(
        options.algorithm, options.optimizer, options.rate, options.objective, options.batch, options.seed
    )
    met = {name: value for name, value in asdict(network["faults"]).items() if name not in NOT_IN_LEARNING}
    described = {"learning": asdict(learning), "faults": met, "slot": options.slot}
    rows = [[n.row.hears, n.row.weights.tolist(), n.row.diagonal, n.links.heard_by] for n in nodes]
    described |= {"model": [plain.module, dict(plain.config)], "rows": rows}
    identity = identity_of(described, to_vector(plain.parameters, plain), signals, targets)
    if options.transport is not None:
        return train_on_network(options, nodes, signals, targets, learning, identity)
    begun = None if options.checkpoint is None else read_training(options.checkpoint, identity)
    meter = Meter(options.steps, 0 if begun is None else len(begun.losses))

    def watch(training: Training) -> None:
        if options.checkpoint is not None:
            write_training(training, options.checkpoint, identity)
        meter.show(len(training.losses), training.losses[-1])

    with np.errstate(over="ignore", invalid="ignore"):  # a gradient that is not finite is an error
        training = simulate_training(
            nodes, signals, targets, learning, steps=options.steps, progress=watch, begun=begun, **network
        )
    return tell_training(options, nodes, training, signals, targets, learning)


def tell_training(
    options: argparse.Namespace,
    nodes: list[Deployment],
    training: Training,
    signals: Array,
    targets: Array,
    learning: Learning,
) -> int:
    """Save the model, and tell what it took."""
    plain = nodes[0].model
    agents.save_model(training.model(plain), options.out)
    edges, pairs = (sum(len(getattr(node.links, name)) for node in nodes) for name in ("hears", "neighbors"))
    batch = min(learning.batch or len(signals), len(signals))
    cost = cost_of_step(plain, learning, edges, pairs, batch, slot=options.slot, features=signals.shape[-1])
    losses, counters = training.losses, training.counters
    lines = [
        ("loss", f"{losses[0]:.6g} at first, {losses[-1]:.6g} in the last of {len(losses)} steps"),
        ("copies differ by at most", f"{training.disagreement:.3g}"),
        ("a step without faults", f"{cost.rounds} rounds, {cost.messages} messages, {cost.bytes} bytes"),
        ("data messages", f"{counters.data_sent}, {counters.data_bytes_sent} bytes"),
        retransmissions(counters),
        links_missed(counters),
        ("crashes", f"{training.crashes}"),
    ]
    return tell(lines + (compare_losses(options, signals, targets, learning) if options.compare else []))


def train_on_network(
    options: argparse.Namespace,
    nodes: list[Deployment],
    signals: Array,
    targets: Array,
    learning: Learning,
    identity: str,
) -> int:
    """The same by processes; what they need to go on lies in a folder beside the checkpoint."""
    met = [
        f"--{name.replace('_', '-')}"
        for name, value in asdict(agents.Faults()).items()
        if getattr(options, name, value) != value
    ]
    if met:
        raise ValueError(f"{met[0]} is a fault of simulations, and --transport takes a real network")
    with ExitStack() as opened:
        if options.checkpoint is None:
            folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        else:
            folder = options.checkpoint.with_name(f"{options.checkpoint.name}.nodes")
        meter = Meter(options.steps, 0)
        training = train_on_processes(
            nodes,
            signals,
            targets,
            learning,
            folder,
            steps=options.steps,
            transport=options.transport,
            slot=options.slot,
            identity=identity,
            progress=meter.show,
        )
    return tell_training(options, nodes, training, signals, targets, learning)


@command(
    option("folder", "the folder of the node, with its learning.json", type=Path, metavar="FOLDER"),
    option("--signals", ".npy of shape (M, F), its own (default: signals.npy of the folder)"),
    option("--targets", ".npy of shape (M, O), its own (default: targets.npy of the folder)", type=Path),
    option("--transport", "default: zenoh", default="zenoh"),
    option("--slot", "seconds for one round (default: 5)", default=5.0),
)
def learn(options: argparse.Namespace) -> int:
    """Let the agent of one node learn with its neighbours. How, and how many steps, says learning.json of its folder,
    {"learning": {"algorithm": "push-pull", "rate": 0.01}, "steps": 300, "first": 0}, the same at all nodes; first is
    the number of its first run, higher for another training in the same folder. Where it
    stands is in state.npz. Started again it goes on, with the step that its neighbours are in.
    """
    from graphact.agents.certificates import TLS_FOLDER
    from graphact.agents.deployment import check_folder, check_private
    from graphact.agents.learning.networked import learn as learn_at_node

    check_folder(options.folder)
    if (key := options.folder / TLS_FOLDER / "key.pem").is_file() and options.transport == "zenoh":
        check_private(key)
    files = (options.signals or options.folder / "signals.npy", options.targets or options.folder / "targets.npy")
    signals, targets = (read_numbers(path, "(M, F)", lambda x: x.ndim == 2).astype("float64") for path in files)
    settings = {"transport": options.transport, "slot": options.slot}
    with np.errstate(over="ignore", invalid="ignore"):
        learn_at_node(options.folder, signals, targets, **settings)
    return 0


def check_connected(nodes: list[Deployment]) -> None:
    """Raise if there are nodes that no chain of neighbours connects: they could not agree on one model."""
    reached, frontier = {0}, [0]
    while frontier:
        new = set(nodes[frontier.pop()].links.neighbors) - reached
        reached |= new
        frontier += new
    if len(reached) < len(nodes):
        apart = min(set(range(len(nodes))) - reached)
        raise ValueError(f"GRAPH must be connected for its nodes to agree on one model, got no way from 0 to {apart}")


class Meter:
    """Where a training stands and the time left: one line in a terminal, a line now and then elsewhere."""

    def __init__(self, steps: int, done: int) -> None:
        self.steps, self.first = steps, done
        self.begun = self.shown = time.monotonic()

    def show(self, done: int, loss: float) -> None:
        """After ``done`` steps."""
        now, alive = time.monotonic(), sys.stderr.isatty()
        if not alive and now - self.shown < 10 and done < self.steps:
            return
        self.shown = now
        left = math.ceil((now - self.begun) / max(1, done - self.first) * (self.steps - done))
        text = f"step {done} of {self.steps}, loss {loss:.6g}, {left // 60}:{left % 60:02d} left"
        end = "\n" if not alive or done == self.steps else ""
        sys.stderr.write(f"\r\033[K{text}{end}" if alive else f"{text}\n")
        sys.stderr.flush()


def compare_losses(options: argparse.Namespace, signals: Array, targets: Array, learning: Learning) -> Lines:
    """The losses of the agents' model and of one trained in one place, over all samples."""
    import torch

    from graphact import Graph, load

    central, trained, graph = load(options.model), load(options.out), Graph.load(options.graph)
    train_centrally(central, graph, signals, targets, learning, options.steps)
    dtype = next(central.parameters()).dtype
    x, t = (torch.from_numpy(samples).to(dtype) for samples in (signals, targets))
    with torch.no_grad():
        by_agents, in_one_place = (
            mean_loss(learning.objective, model(x, graph.to(dtype=dtype)), t).item() for model in (trained, central)
        )
    return [
        ("loss over all samples", f"{by_agents:.6g} by agents, {in_one_place:.6g} in one place"),
        ("difference", f"{by_agents / in_one_place - 1:+.3%}" if in_one_place else f"{by_agents:+.6g}"),
    ]
