"""Options that several commands share."""

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any


def add_data(parser: argparse.ArgumentParser) -> None:
    """Where real data lies."""
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="folder with ml-100k/ and molene/ (default: the environment variable GRAPHACT_DATA, else downloaded once)",
    )


SHARED: dict[str, dict[str, Any]] = {
    "model": {"type": Path, "metavar": "MODEL", "help": "a model file that graphact.save has written"},
    "graph": {"type": Path, "metavar": "GRAPH", "help": "a graph file that Graph.load reads"},
    "--normalize": {
        "choices": ("spectral", "symmetric", "random_walk", "laplacian"),
        "help": "rescale the shift operator first, as Graph.normalize does",
    },
    "--seed": {"type": int, "default": 0, "help": "decides everything random (default: 0)"},
    "--slot": {"type": float, "default": 0.18, "help": "seconds for one round (default: 0.18)"},
}


def add_shared(parser: argparse.ArgumentParser, *names: str) -> None:
    """Arguments that mean the same in several commands."""
    for name in names:
        parser.add_argument(name, **SHARED[name])


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
}


def add_faults(parser: argparse.ArgumentParser, unit: str) -> None:
    """What goes wrong in a simulated network, during one ``unit`` of work."""
    from graphact.agents.transports.memory import Faults

    for name, default in asdict(Faults()).items():
        text = FAULTS[name]
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            type=float,
            default=default,
            metavar="S" if "seconds" in text else "P",
            help=f"{text.format(unit)} (default: {default:g})",
        )
