"""Parsers of commands: a command's module is imported when that command is asked for, and no other."""

import argparse
import inspect
import pkgutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

Table = Mapping[str, tuple[str, str]]
"""For each command its line in the help of the parent, after the ``module:function`` that adds its options.

The docstring of that function is the description of the command."""

SHARED: dict[str, dict[str, Any]] = {
    "model": {"type": Path, "metavar": "MODEL", "help": "a model file that graphact.save has written"},
    "graph": {"type": Path, "metavar": "GRAPH", "help": "a graph file that Graph.load reads"},
    "--normalize": {
        "choices": ("spectral", "symmetric", "random_walk", "laplacian"),
        "help": "rescale the shift operator first, as Graph.normalize does",
    },
    "--signals": {"type": Path, "metavar": "FILE"},
    "--data": {
        "type": Path,
        "metavar": "DIR",
        "help": "folder with ml-100k/ and molene/ "
        "(default: the environment variable GRAPHACT_DATA, else downloaded once)",
    },
    "--out": {"type": Path, "metavar": "DIR"},
    "--device": {"choices": ("auto", "cpu", "cuda"), "default": "auto"},
    "--transport": {"choices": ("zenoh", "udp")},
    "--seed": {"type": int, "default": 0, "help": "decides everything random (default: 0)"},
    "--slot": {"type": float, "default": 0.18, "help": "seconds for one round (default: 0.18)"},
}
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


class CommandParser(argparse.ArgumentParser):
    """The parser of one command, without options until it is asked to parse."""

    loads: str | None = None

    def add_commands(self, table: Table) -> None:
        """Add the commands of a table, without their options."""
        commands = self.add_subparsers(title="commands", required=True, metavar="COMMAND", parser_class=CommandParser)
        for name, (function, line) in table.items():
            commands.add_parser(name, help=line).loads = function

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Load the options first; argparse calls this on the parser of the command that was asked for."""
        if self.loads is not None:
            add_options, self.loads = pkgutil.resolve_name(self.loads), None
            self.description = inspect.cleandoc(add_options.__doc__ or "")
            if "\n\n" in self.description:  # examples, to be shown as they are written
                self.formatter_class = argparse.RawDescriptionHelpFormatter
            add_options(self)
        return super().parse_known_args(args, namespace)

    def option(self, name: str, text: str | None = None, **settings: Any) -> None:
        """Add an argument; what is not set is as in the other commands that have it."""
        settings = SHARED.get(name, {}) | settings
        self.add_argument(name, **settings | ({"help": text} if text else {}))

    def shared(self, *names: str) -> None:
        """Add arguments just as other commands have them."""
        for name in names:
            self.option(name)

    def fault_options(self, unit: str) -> None:
        """What goes wrong in a simulated network, during one ``unit`` of work."""
        from graphact.agents.transports.memory import Faults

        for name, default in asdict(Faults()).items():
            text, metavar = FAULTS[name].format(unit), "S" if "seconds" in FAULTS[name] else "P"
            option, text = f"--{name.replace('_', '-')}", f"{text} (default: {default:g})"
            self.option(option, text, type=float, default=default, metavar=metavar)
