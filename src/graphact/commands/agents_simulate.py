"""graphact agents simulate: agents in a simulated network with faults, against the centralised run."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphact.commands.options import FAULTS, add_faults, add_shared

if TYPE_CHECKING:
    from graphact.agents import Cost
    from graphact.agents.messages import Array
    from graphact.agents.simulation import Outcome


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "simulate",
        help="simulate agents in a network with faults",
        description="Let simulated agents work on signals, with a virtual clock and seeded faults, and compare with "
        "the centralised run.",
    )
    add_shared(parser, "model", "graph")
    parser.add_argument(
        "--signals", type=Path, metavar="FILE", help=".npy of shape (runs, ..., N, F); drawn from N(0, 1) if left out"
    )
    parser.add_argument("--runs", type=int, default=10, help="inferences, without --signals (default: 10)")
    parser.add_argument("--batch", type=int, default=1, help="signals an inference, without --signals (default: 1)")
    add_shared(parser, "--slot", "--seed")
    add_faults(parser, "inference")
    parser.set_defaults(command=simulate)


def simulate(options: argparse.Namespace) -> int:
    """Simulate, compare, print."""
    import torch

    from graphact import Graph, agents, load
    from graphact.agents.replay import replay_inference

    model, graph = load(options.model), Graph.load(options.graph)
    nodes = agents.deploy(model, graph, epoch=options.seed)
    plain = nodes[0].model
    signals = read_signals(options, graph.num_nodes, plain.in_features or 1).astype(plain.dtype)
    faults = agents.Faults(**{name: getattr(options, name) for name in FAULTS})
    timing = agents.Timing(slot=options.slot)
    answer = agents.simulate_inference(nodes, signals, faults=faults, timing=timing, seed=options.seed)
    dtype = torch.from_numpy(signals).dtype
    with torch.no_grad():
        central = model.to(dtype)(torch.from_numpy(signals), graph.to(dtype=dtype)).numpy()
    replayed = replay_inference(nodes, signals, answer.outcome)
    cost = agents.cost_of_inference(
        plain, graph.num_edges, signals.shape[1:-2], slot=options.slot, features=signals.shape[-1]
    )
    lines = [
        *compare(answer.outputs, central, replayed),
        *summarize(answer.outcome, cost, len(signals), graph.num_nodes),
    ]
    sys.stdout.write("".join(f"{label:28s}{text}\n" for label, text in lines))
    return 0


def read_signals(options: argparse.Namespace, num_nodes: int, features: int) -> "Array":
    """The signals of a file, or random ones."""
    import numpy as np

    from graphact._checks import check_integer

    if options.signals is None:
        runs, batch = (check_integer(f"--{name}", getattr(options, name), minimum=1) for name in ("runs", "batch"))
        return np.random.default_rng(options.seed).normal(size=(runs, batch, num_nodes, features))
    signals = np.load(options.signals, allow_pickle=False)
    if signals.ndim < 3 or signals.shape[-2] != num_nodes or signals.dtype.kind not in "fiu":
        raise ValueError(
            f"{options.signals} must hold numbers of shape (runs, ..., {num_nodes}, F), "
            f"got {signals.dtype} of shape {signals.shape}"
        )
    return np.asarray(signals)


def compare(outputs: "Array", central: "Array", replayed: "Array") -> list[tuple[str, str]]:
    """How far agents are from the centralised run, with all links and with those that answered."""
    import numpy as np

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


def summarize(outcome: "Outcome", cost: "Cost", runs: int, num_nodes: int) -> list[tuple[str, str]]:
    """Messages, losses and crashes, a line each."""
    counters, network = outcome.counters, outcome.network
    awaited = counters.links_used + counters.links_missed
    complete = {run for run in range(runs) if all((run, i) in outcome.results for i in range(num_nodes))}
    complete -= {run for (run, _), result in outcome.results.items() if not result.complete}
    refused = {name: getattr(counters, name) for name in ("malformed", "foreign", "forged", "stale", "duplicate")}
    return [
        ("inferences", f"{runs}, of which {len(complete)} with every link in every round"),
        ("rounds an inference", f"{cost.rounds}"),
        ("links missed", f"{counters.links_missed} of {awaited} ({counters.links_missed / max(1, awaited):.3g})"),
        ("data messages", f"{counters.data_sent} (without faults: {cost.messages * runs})"),
        ("bytes in data messages", f"{counters.data_bytes_sent} (without faults: {cost.bytes * runs})"),
        ("retransmissions", f"{counters.resent}, asked for {counters.requests_sent} times"),
        ("all bytes sent", f"{counters.bytes_sent}"),
        ("refused", ", ".join(f"{count} {name}" for name, count in refused.items())),
        ("network", f"{network.sent} datagrams sent, {network.lost} lost, {network.duplicated} duplicated"),
        ("crashes", f"{outcome.crashes}"),
    ]
