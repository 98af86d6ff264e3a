"""Commands and their options; the module of a command is imported when that command is asked for, and no other."""

import argparse
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

Table = Mapping[str, tuple[str, str]]
"""For each command ``module:name`` of its :class:`Command`, and its line in the help of the parent."""
Option = Callable[[Any], object]
"""Adds something to a parser."""
Run = Callable[[argparse.Namespace], int]

SHARED: dict[str, dict[str, Any]] = {
    "model": {"type": Path, "metavar": "MODEL", "help": "a model file that graphact.save has written"},
    "graph": {"type": Path, "metavar": "GRAPH", "help": "a graph file that Graph.load reads"},
    "--normalize": {
        "choices": ("spectral", "symmetric", "gcn", "random_walk", "laplacian"),
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


class Command(NamedTuple):
    """A command. A description that has paragraphs is shown as it is written, another one is filled."""

    run: Run | None
    description: str
    options: tuple[str | Option, ...]


def command(*options: str | Option) -> Callable[[Run], Command]:
    """A function with its docstring as a command; an option by its name alone is as in :data:`SHARED`."""
    return lambda run: Command(run, run.__doc__ or "", options)


def option(name: str, text: str | None = None, **settings: Any) -> Option:
    """An argument; what is not set is as in :data:`SHARED`."""
    settings = SHARED.get(name, {}) | settings | ({"help": text} if text else {})
    return lambda parser: parser.add_argument(name, **settings)


def one_of(*options: Option) -> Option:
    """At most one of these."""

    def add(parser: argparse.ArgumentParser) -> None:
        group = parser.add_mutually_exclusive_group()
        for each in options:
            each(group)

    return add


class CommandParser(argparse.ArgumentParser):
    """The parser of one command, without options until it is asked to parse."""

    target: str | None = None

    def add_commands(self, table: Table) -> None:
        commands = self.add_subparsers(title="commands", required=True, metavar="COMMAND", parser_class=CommandParser)
        for name, (target, line) in table.items():
            commands.add_parser(name, help=line).target = target

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Import the command first; argparse calls this on the parser of the command that was asked for."""
        if self.target is not None:
            found, self.target = pkgutil.resolve_name(self.target), None
            self.description = inspect.cleandoc(found.description)
            if "\n\n" in self.description:
                self.formatter_class = argparse.RawDescriptionHelpFormatter
            self.set_defaults(command=found.run)
            for each in found.options:
                (option(each) if isinstance(each, str) else each)(self)
        return super().parse_known_args(args, namespace)
