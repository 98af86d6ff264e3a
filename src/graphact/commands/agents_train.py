"""graphact agents train: agents in a simulated network learn together."""

import argparse
import math
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphact.commands.options import FAULTS, add_faults, add_shared

if TYPE_CHECKING:
    from graphact.agents import Deployment
    from graphact.agents.learning import Learning, Training
    from graphact.agents.messages import Array

DESCRIPTION = """\
Let simulated agents train a model together: each knows its own signals and targets and talks to its neighbours alone.
Gradients go back over the links that signals came by; then neighbours mix their parameters.
"""


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    from graphact.agents.learning.mixing import ALGORITHMS, OPTIMIZERS
    from graphact.agents.learning.vjp import OBJECTIVES

    parser: argparse.ArgumentParser = commands.add_parser(
        "train", help="let simulated agents learn together", description=DESCRIPTION
    )
    add_shared(parser, "model", "graph")
    parser.add_argument("--signals", type=Path, required=True, metavar="FILE", help=".npy of shape (M, N, F)")
    parser.add_argument(
        "--targets", type=Path, required=True, metavar="FILE", help=".npy of shape (M, N, O); NaN asks for nothing"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="where the trained model goes")
    parser.add_argument("--algorithm", choices=ALGORITHMS, default="push-pull", help="default: push-pull")
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="adam", help="default: adam")
    parser.add_argument("--rate", type=float, default=0.01, help="step size (default: 0.01)")
    parser.add_argument("--steps", type=int, default=300, help="steps in all (default: 300)")
    parser.add_argument("--batch", type=int, metavar="B", help="samples a step (default: all)")
    parser.add_argument("--objective", choices=tuple(OBJECTIVES), default="mse", help="default: mse")
    parser.add_argument(
        "--checkpoint", type=Path, metavar="FILE", help="written as it goes; the same command goes on from it"
    )
    parser.add_argument(
        "--compare", action="store_true", help="also train in one place with the same optimizer, and compare"
    )
    add_shared(parser, "--slot", "--seed")
    add_faults(parser, "step")
    parser.set_defaults(command=train)


def train(options: argparse.Namespace) -> int:
    """Train, save, print."""
    from graphact import Graph, agents, load
    from graphact.agents.learning import Learning, simulate_training
    from graphact.agents.learning.simulated import identity_of, read_training, write_training
    from graphact.agents.learning.state import to_vector

    model, graph = load(options.model), Graph.load(options.graph)
    nodes = agents.deploy(model, graph, epoch=options.seed)
    check_connected(nodes)
    plain = nodes[0].model
    signals, targets = read_samples(options.signals), read_samples(options.targets)
    learning = Learning(
        options.algorithm, options.optimizer, options.rate, options.objective, options.batch, options.seed
    )
    faults = agents.Faults(**{name: getattr(options, name) for name in FAULTS})
    described = {"learning": asdict(learning), "faults": asdict(faults), "slot": options.slot}
    described |= {"model": [plain.module, dict(plain.config)], "rows": [describe_row(node) for node in nodes]}
    identity = identity_of(described, to_vector(plain.parameters, plain), signals, targets)
    begun = None if options.checkpoint is None else read_training(options.checkpoint, identity)
    meter = Meter(options.steps, 0 if begun is None else len(begun.losses))

    def watch(training: "Training") -> None:
        if options.checkpoint is not None:
            write_training(training, options.checkpoint, identity)
        meter.show(len(training.losses), training.losses[-1])

    training = simulate_training(
        nodes,
        signals,
        targets,
        learning,
        steps=options.steps,
        faults=faults,
        timing=agents.Timing(slot=options.slot),
        seed=options.seed,
        progress=watch,
        begun=begun,
    )
    agents.save_model(training.model(plain), options.out)
    lines = summarize(training, nodes, learning, signals, options.slot)
    if options.compare:
        lines += compare(options, signals, targets, learning)
    sys.stdout.write("".join(f"{label:28s}{text}\n" for label, text in lines))
    return 0


def read_samples(path: Path) -> "Array":
    """The numbers of a file, as float64."""
    import numpy as np

    try:
        samples = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path}: not an .npy file: {error}") from error
    if not isinstance(samples, np.ndarray) or samples.ndim != 3 or samples.dtype.kind not in "fiu":
        came = f"{samples.dtype} of shape {samples.shape}" if isinstance(samples, np.ndarray) else "an archive"
        raise ValueError(f"{path} must hold numbers of shape (M, N, F), got {came}")
    return samples.astype(np.float64)


def check_connected(nodes: "list[Deployment]") -> None:
    """Raise if there are nodes that no chain of neighbours connects: they could not agree on one model."""
    reached, frontier = {0}, [0]
    while frontier:
        new = set(nodes[frontier.pop()].links.neighbors) - reached
        reached |= new
        frontier += new
    if len(reached) < len(nodes):
        apart = min(set(range(len(nodes))) - reached)
        raise ValueError(f"GRAPH must be connected for its nodes to agree on one model, got no way from 0 to {apart}")


def describe_row(node: "Deployment") -> list[Any]:
    """Row and neighbours of a node, for comparison."""
    return [node.row.hears, node.row.weights.tolist(), node.row.diagonal, node.links.heard_by]


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


def summarize(
    training: "Training", nodes: "list[Deployment]", learning: "Learning", signals: "Array", slot: float
) -> list[tuple[str, str]]:
    """Losses, messages and crashes, a line each."""
    from graphact.agents.learning import cost_of_step

    edges, pairs = (sum(len(getattr(node.links, name)) for node in nodes) for name in ("hears", "neighbors"))
    batch = min(learning.batch or len(signals), len(signals))
    cost = cost_of_step(nodes[0].model, learning, edges, pairs, batch, slot=slot, features=signals.shape[-1])
    counters = training.counters
    awaited = counters.links_used + counters.links_missed
    return [
        (
            "loss",
            f"{training.losses[0]:.6g} at first, {training.losses[-1]:.6g} in the last of {len(training.losses)} steps",
        ),
        ("copies differ by at most", f"{training.disagreement:.3g}"),
        ("a step without faults", f"{cost.rounds} rounds, {cost.messages} messages, {cost.bytes} bytes"),
        ("data messages", f"{counters.data_sent}, {counters.data_bytes_sent} bytes"),
        ("retransmissions", f"{counters.resent}, asked for {counters.requests_sent} times"),
        ("links missed", f"{counters.links_missed} of {awaited} ({counters.links_missed / max(1, awaited):.3g})"),
        ("crashes", f"{training.crashes}"),
    ]


def compare(
    options: argparse.Namespace, signals: "Array", targets: "Array", learning: "Learning"
) -> list[tuple[str, str]]:
    """The losses of the agents' model and of one trained in one place, over all samples."""
    import torch

    from graphact import Graph, load
    from graphact.agents.learning import train_centrally
    from graphact.agents.learning.simulated import mean_loss

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
        ("difference", f"{by_agents / in_one_place - 1:+.3%}"),
    ]
