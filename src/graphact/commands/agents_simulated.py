"""graphact agents simulate and train: agents in a simulated network with faults, beside the centralised model."""

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphact import agents
from graphact._checks import check_integer
from graphact.agents import Cost, Deployment
from graphact.agents.learning import Learning, Training, cost_of_step, simulate_training, train_centrally
from graphact.agents.learning.mixing import ALGORITHMS, OPTIMIZERS
from graphact.agents.learning.networked import train_on_processes
from graphact.agents.learning.simulated import identity_of, mean_loss, read_training, write_training
from graphact.agents.learning.state import to_vector
from graphact.agents.learning.vjp import OBJECTIVES
from graphact.agents.messages import Array
from graphact.agents.replay import replay_inference
from graphact.agents.runs import Counters
from graphact.agents.simulation import Outcome
from graphact.commands.parser import Option, command, option
from graphact.storage import check_writable, read_array

if TYPE_CHECKING:
    from graphact import Graph
    from graphact.nn import GraphModule

Lines = list[tuple[str, str]]
FAULTS = {
    "loss": "probability that a datagram is lost",
    "link_loss": "probability that a link is lost for a whole {}, both directions (the paper's model)",
    "delay": "seconds a datagram travels at least",
    "jitter": "seconds it travels longer at most",
    "reorder": "probability that a datagram is held back",
    "duplicate": "probability that a datagram comes twice",
    "corrupt": "probability that a bit of a datagram is flipped",
    "replay": "probability that a stranger sends an old datagram again",
    "forge": "probability that a stranger sends a datagram with a wrong key",
    "crash": "probability that a node dies during one {}",
    "downtime": "seconds until it is back at most",
    "partition": "probability that the network falls into two halves during one {}",
    "partition_time": "seconds until they meet again at most",
    "skew": "seconds by which the clocks of nodes differ at most",
    "clock": "probability that the clock of a node is set by some runs, or right again, before one {}",
    "poison": "probability that a captured node sends what cannot be true during one {}",
}

NOT_IN_LEARNING = ("clock", "poison")
"""Steps follow one another, and what a captured node sends of learning is not told from what is true."""


def faults(unit: str) -> list[Option]:
    """What goes wrong in a simulated network, during one ``unit`` of work."""
    options = []
    for name, default in asdict(agents.Faults()).items():
        if name in NOT_IN_LEARNING and unit == "step":
            continue
        text, metavar = FAULTS[name].format(unit), "S" if "seconds" in FAULTS[name] else "P"
        flag, text = f"--{name.replace('_', '-')}", f"{text} (default: {default:g})"
        options.append(option(flag, text, type=float, default=default, metavar=metavar))
    return options


@command(
    "model",
    "graph",
    option("--signals", ".npy of shape (runs, ..., N, F); drawn from N(0, 1) if left out"),
    option("--runs", "inferences, without --signals (default: 10)", type=int, default=10),
    option("--batch", "signals an inference, without --signals (default: 1)", type=int, default=1),
    "--slot",
    "--seed",
    *faults("inference"),
)
def simulate(options: argparse.Namespace) -> int:
    """Let simulated agents work on signals, with a virtual clock and seeded faults, and compare with the centralised
    run.
    """
    import torch

    model, graph, nodes, network = load_network(options)
    plain = nodes[0].model
    if options.signals is None:
        runs, batch = (check_integer(f"--{name}", getattr(options, name), minimum=1) for name in ("runs", "batch"))
        shape = (runs, batch, graph.num_nodes, plain.in_features or 1)
        signals = np.random.default_rng(options.seed).normal(size=shape)
    else:
        expected = f"(runs, ..., {graph.num_nodes}, F)"
        signals = read_numbers(options.signals, expected, lambda x: x.ndim >= 3 and x.shape[-2] == graph.num_nodes)
    signals = signals.astype(plain.dtype)
    answer = agents.simulate_inference(nodes, signals, **network)
    dtype = torch.from_numpy(signals).dtype
    with torch.no_grad():
        central = model.to(dtype)(torch.from_numpy(signals), graph.to(dtype=dtype)).numpy()
    replayed = replay_inference(nodes, signals, answer.outcome)
    cost = agents.cost_of_inference(
        plain, graph.num_edges, signals.shape[1:-2], slot=options.slot, features=signals.shape[-1]
    )
    return tell(
        compare_outputs(answer.outputs, central, replayed)
        + summarize_inference(answer.outcome, cost, len(signals), graph.num_nodes)
    )


def load_network(options: argparse.Namespace) -> "tuple[GraphModule, Graph, list[Deployment], dict[str, Any]]":
    """Model and graph, what every node holds, and the arguments of the network that is simulated."""
    from graphact import Graph, load

    model, graph = load(options.model), Graph.load(options.graph)
    failures = agents.Faults(**{name: getattr(options, name) for name in FAULTS if hasattr(options, name)})
    network = {"faults": failures, "timing": agents.Timing(slot=options.slot), "seed": options.seed}
    return model, graph, agents.deploy(model, graph, epoch=options.seed), network


def read_numbers(path: Path, shape: str, fits: Callable[[Array], bool]) -> Array:
    """The numbers of a NumPy file."""
    array = read_array(path)
    if array.dtype.kind not in "fiu" or not fits(array):
        raise ValueError(f"{path} must hold numbers of shape {shape}, got {array.dtype} of shape {array.shape}")
    return array


def tell(lines: Lines) -> int:
    """Print labels and values in two columns."""
    sys.stdout.write("".join(f"{label:28s}{text}\n" for label, text in lines))
    return 0


def compare_outputs(outputs: Array, central: Array, replayed: Array) -> Lines:
    """How far agents are from the centralised run, with all links and with those that answered."""
    there = ~np.isnan(outputs).any(-1)
    if not there.any():
        return [("outputs", "none: no node was up from beginning to end")]
    error, size = outputs[there] - central[there], np.sqrt(np.square(central).mean())
    lines = [
        ("outputs", f"{there.sum()} of {there.size}"),
        ("error, all links", f"RMS {np.sqrt(np.square(error).mean()):.3g}, largest {np.abs(error).max():.3g}"),
        ("RMS of centralised outputs", f"{size:.3g}"),
        ("error, links that answered", f"largest {np.abs(outputs[there] - replayed[there]).max():.3g}"),
    ]
    if outputs.shape[-1] > 1:
        same = (outputs[there].argmax(-1) == central[there].argmax(-1)).mean()
        lines.append(("same largest output", f"{same:.2%}"))
    return lines


def summarize_inference(outcome: Outcome, cost: Cost, runs: int, num_nodes: int) -> Lines:
    """Messages, losses and crashes, a line each."""
    counters, network = outcome.counters, outcome.network
    complete = {run for run in range(runs) if all((run, i) in outcome.results for i in range(num_nodes))}
    complete -= {run for (run, _), result in outcome.results.items() if not result.complete}
    refused = {name: getattr(counters, name) for name in ("malformed", "foreign", "forged", "stale", "duplicate")}
    return [
        ("inferences", f"{runs}, of which {len(complete)} with every link in every round"),
        ("rounds an inference", f"{cost.rounds}"),
        links_missed(counters),
        ("data messages", f"{counters.data_sent} (without faults: {cost.messages * runs})"),
        ("bytes in data messages", f"{counters.data_bytes_sent} (without faults: {cost.bytes * runs})"),
        retransmissions(counters),
        ("all bytes sent", f"{counters.bytes_sent}"),
        ("refused", ", ".join(f"{count} {name}" for name, count in refused.items())),
        ("network", f"{network.sent} datagrams sent, {network.lost} lost, {network.duplicated} duplicated"),
        ("crashes", f"{outcome.crashes}"),
    ]


def links_missed(counters: Counters) -> tuple[str, str]:
    """The line of simulations and trainings alike."""
    awaited = counters.links_used + counters.links_missed
    return "links missed", f"{counters.links_missed} of {awaited} ({counters.links_missed / max(1, awaited):.3g})"


def retransmissions(counters: Counters) -> tuple[str, str]:
    """The line of simulations and trainings alike."""
    return "retransmissions", f"{counters.resent}, asked for {counters.requests_sent} times"


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
    option("--encrypt", "encrypt what goes over UDP (needs the package cryptography)", action="store_true"),
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
    settings = {"transport": options.transport, "slot": options.slot, "encrypt": options.encrypt}
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
        ("difference", f"{by_agents / in_one_place - 1:+.3%}"),
    ]
