"""graphact-agents simulate: agents in a simulated network with faults, beside the centralised model."""

import argparse
import re
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np

from graphact_agents.arguments import check_integer
from graphact_agents.deployment import deploy
from graphact_agents.disk import read_array
from graphact_agents.graph_file import load_graph
from graphact_agents.messages import Array
from graphact_agents.model import Cost, cost_of_inference
from graphact_agents.model_file import load_model
from graphact_agents.runs import Timing
from graphact_agents.simulation import SimulationOutcome, simulate_inference
from graphact_agents.transports.memory import TIMES, Faults

MAX_SEED = 2**63 - 1
Lines = list[tuple[str, str]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add = parser.add_argument
    add("model", type=Path, metavar="MODEL", help="a model file that graphact.save has written")
    add("graph", type=Path, metavar="GRAPH", help="a graph file (.npz) of graphact.Graph.save")
    help_ = ".npy of shape (runs, ..., N, F); drawn from N(0, 1) if left out"
    add("--signals", type=Path, metavar="FILE", help=help_)
    add("--runs", type=int, default=10, help="inferences, without --signals (default: 10)")
    add("--batch", type=int, default=1, help="signals per inference, without --signals (default: 1)")
    add("--slot", type=float, default=0.18, help="seconds for one round (default: 0.18)")
    add("--seed", type=seed, default=0, help="decides everything random (default: 0)")
    described = dict(re.findall(r"^ +(\w+): (.*)\.$", Faults.__doc__ or "", re.MULTILINE))
    for name, default in asdict(Faults()).items():
        metavar, text = "S" if name in TIMES else "P", f"{described.get(name, name)} (default: {default:g})"
        add(f"--{name.replace('_', '-')}", type=float, default=default, metavar=metavar, help=text)


def seed(word: str) -> int:
    """Return the seed that a word stands for."""
    if not word.isdecimal() or int(word) > MAX_SEED:
        raise argparse.ArgumentTypeError(f"must be an integer from 0 to {MAX_SEED}, got {word!r}")
    return int(word)


def run(options: argparse.Namespace) -> int:
    """Run all agents in memory on signals, with a virtual clock and seeded faults, and compare with the centralised
    model. P is a probability, S are seconds.
    """
    model, graph = load_model(options.model), load_graph(options.graph)
    faults = Faults(**{name: getattr(options, name) for name in asdict(Faults())})
    timing, nodes = Timing(slot=options.slot), deploy(model, graph, epoch=options.seed)
    num_nodes = len(nodes)
    if options.signals is None:
        runs, batch = (check_integer(f"--{name}", getattr(options, name), minimum=1) for name in ("runs", "batch"))
        shape = (runs, batch, num_nodes, model.in_features or 1)
        signals = np.random.default_rng(options.seed).normal(size=shape)
    else:
        expected = f"(runs, ..., {num_nodes}, F)"
        signals = read_numbers(options.signals, expected, lambda x: x.ndim >= 3 and x.shape[-2] == num_nodes)
    signals = signals.astype(model.dtype)
    answer = simulate_inference(nodes, signals, faults=faults, timing=timing, seed=options.seed)
    central = simulate_inference(nodes, signals).outputs
    cost = cost_of_inference(model, graph.num_edges, signals.shape[1:-2], slot=options.slot, features=signals.shape[-1])
    lines = compare_outputs(answer.outputs, central)
    lines += summarize_inference(answer.outcome, cost, len(signals), num_nodes)
    sys.stdout.write("".join(f"{label:28s}{text}\n" for label, text in lines))
    return 0


def read_numbers(path: Path, shape: str, fits: Callable[[Array], bool]) -> Array:
    """The numbers of a NumPy file."""
    array = read_array(path)
    if array.dtype.kind not in "fiu" or not fits(array):
        raise ValueError(f"{path} must hold numbers of shape {shape}, got {array.dtype} of shape {array.shape}")
    return array


def compare_outputs(outputs: Array, central: Array) -> Lines:
    """Return the distance of the outputs from those without faults, which are those of the centralised model."""
    there = ~np.isnan(outputs).any(-1)
    if not there.any():
        return [("outputs", "none: no node was up from beginning to end")]
    error, size = outputs[there] - central[there], np.sqrt(np.square(central).mean())
    lines = [
        ("outputs", f"{there.sum()} of {there.size}"),
        ("error", f"RMS {np.sqrt(np.square(error).mean()):.3g}, largest {np.abs(error).max():.3g}"),
        ("RMS of centralised outputs", f"{size:.3g}"),
    ]
    if outputs.shape[-1] > 1:
        same = (outputs[there].argmax(-1) == central[there].argmax(-1)).mean()
        lines.append(("same largest output", f"{same:.2%}"))
    return lines


def summarize_inference(outcome: SimulationOutcome, cost: Cost, runs: int, num_nodes: int) -> Lines:
    """Messages, losses and crashes, a line each."""
    counters, missed = outcome.counters, outcome.counters.links_missed
    awaited = counters.links_used + missed
    whole = sum(all((run, i) in outcome.results and outcome.results[run, i].complete for i in range(num_nodes))
                for run in range(runs))  # fmt: skip
    refused = ("malformed", "foreign", "forged", "stale", "duplicate")
    return [
        ("inferences", f"{runs}, of which {whole} with every link in every round"),
        ("rounds an inference", f"{cost.rounds}"),
        ("links missed", f"{missed} of {awaited} ({missed / max(1, awaited):.3g})"),
        ("data messages", f"{counters.data_sent} (without faults: {cost.messages * runs})"),
        ("bytes in data messages", f"{counters.data_bytes_sent} (without faults: {cost.bytes * runs})"),
        ("retransmissions", f"{counters.resent}, asked for {counters.requests_sent} times"),
        ("refused", ", ".join(f"{getattr(counters, name)} {name}" for name in refused)),
        ("crashes", f"{outcome.crashes}"),
    ]
