"""graphact-agents simulate: agents in a simulated network with faults, beside the centralised model."""

import argparse
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from graphact_agents.arguments import check_integer
from graphact_agents.deployment import Deployment, deploy
from graphact_agents.disk import read_array
from graphact_agents.graph_file import load_graph
from graphact_agents.messages import Array
from graphact_agents.model import Cost, cost_of_inference
from graphact_agents.model_file import load_model
from graphact_agents.replay import replay_complete, replay_inference
from graphact_agents.runs import Counters, Timing
from graphact_agents.simulation import SimulationOutcome, simulate_inference
from graphact_agents.transports.memory import Faults

MAX_SEED = 2**63 - 1
Lines = list[tuple[str, str]]
FAULTS = {
    "loss": "probability that a datagram is lost",
    "link_loss": "probability that a link is lost for a whole inference, both directions (the paper's model)",
    "delay": "seconds a datagram travels at least",
    "jitter": "seconds it travels longer at most",
    "reorder": "probability that a datagram is held back",
    "duplicate": "probability that a datagram comes twice",
    "corrupt": "probability that a bit of a datagram is flipped",
    "replay": "probability that a stranger sends an old datagram again",
    "forge": "probability that a stranger sends a datagram with a wrong key",
    "crash": "probability that a node dies during one inference",
    "downtime": "seconds until it is back at most",
    "partition": "probability that the network falls into two halves during one inference",
    "partition_time": "seconds until they meet again at most",
    "skew": "seconds by which the clocks of nodes differ at most",
    "clock": "probability that the clock of a node is set by some runs, or right again, before one inference",
    "poison": "probability that a captured node sends what cannot be true during one inference",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add = parser.add_argument
    add("model", type=Path, metavar="MODEL", help="a model file that graphact.save has written")
    add("graph", type=Path, metavar="GRAPH", help="a graph file (.npz) of graphact.Graph.save")
    help_ = ".npy of shape (runs, ..., N, F); drawn from N(0, 1) if left out"
    add("--signals", type=Path, metavar="FILE", help=help_)
    add("--runs", type=int, default=10, help="inferences, without --signals (default: 10)")
    add("--batch", type=int, default=1, help="signals an inference, without --signals (default: 1)")
    add("--slot", type=float, default=0.18, help="seconds for one round (default: 0.18)")
    add("--seed", type=seed, default=0, help="decides everything random (default: 0)")
    for name, default in asdict(Faults()).items():
        text, metavar = f"{FAULTS[name]} (default: {default:g})", "S" if "seconds" in FAULTS[name] else "P"
        add(f"--{name.replace('_', '-')}", type=float, default=default, metavar=metavar, help=text)


def seed(word: str) -> int:
    """Return the seed that a word stands for."""
    if not word.isdecimal() or int(word) > MAX_SEED:
        raise argparse.ArgumentTypeError(f"must be an integer from 0 to {MAX_SEED}, got {word!r}")
    return int(word)


def run(options: argparse.Namespace) -> int:
    """Let simulated agents work on signals, with a virtual clock and seeded faults, and compare with the centralised
    run.
    """
    nodes, network = load_network(options)
    model, num_nodes = nodes[0].model, len(nodes)
    num_edges = sum(len(node.links.hears) for node in nodes)
    if options.signals is None:
        runs, batch = (check_integer(f"--{name}", getattr(options, name), minimum=1) for name in ("runs", "batch"))
        shape = (runs, batch, num_nodes, model.in_features or 1)
        signals = np.random.default_rng(options.seed).normal(size=shape)
    else:
        expected = f"(runs, ..., {num_nodes}, F)"
        signals = read_numbers(options.signals, expected, lambda x: x.ndim >= 3 and x.shape[-2] == num_nodes)
    signals = signals.astype(model.dtype)
    answer = simulate_inference(nodes, signals, **network)
    central = replay_complete(nodes, signals)
    replayed = replay_inference(nodes, signals, answer.outcome)
    cost = cost_of_inference(model, num_edges, signals.shape[1:-2], slot=options.slot, features=signals.shape[-1])
    return print_lines(
        compare_outputs(answer.outputs, central, replayed)
        + summarize_inference(answer.outcome, cost, len(signals), num_nodes)
    )


def load_network(options: argparse.Namespace) -> tuple[list[Deployment], dict[str, Any]]:
    """Return what every node holds, and the arguments of the network that is simulated."""
    model, graph = load_model(options.model), load_graph(options.graph)
    failures = Faults(**{name: getattr(options, name) for name in FAULTS if hasattr(options, name)})
    network = {"faults": failures, "timing": Timing(slot=options.slot), "seed": options.seed}
    return deploy(model, graph, epoch=options.seed), network


def read_numbers(path: Path, shape: str, fits: Callable[[Array], bool]) -> Array:
    """The numbers of a NumPy file."""
    array = read_array(path)
    if array.dtype.kind not in "fiu" or not fits(array):
        raise ValueError(f"{path} must hold numbers of shape {shape}, got {array.dtype} of shape {array.shape}")
    return array


def print_lines(lines: Lines) -> int:
    """Print labels and values in two columns."""
    sys.stdout.write("".join(f"{label:28s}{text}\n" for label, text in lines))
    return 0


def compare_outputs(outputs: Array, central: Array, replayed: Array) -> Lines:
    """Return the distance of agents from the centralised run, with all links and with those that answered."""
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


def summarize_inference(outcome: SimulationOutcome, cost: Cost, runs: int, num_nodes: int) -> Lines:
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
