"""The command line of the agents: ``graphact-agents split``, ``run``, ``simulate``, ``learn``, ``status``.

A command is a :class:`Subcommand` in a module ``command_*.py``, which is imported when it is asked for.
"""

import argparse
import difflib
import inspect
import os
import pkgutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from graphact_agents import __version__

Option = Callable[[Any], object]
"""Adds an argument to a parser."""
Run = Callable[[argparse.Namespace], int]

DESCRIPTION = """
Run a trained network on the nodes of its graph: each node computes its own output from messages of its neighbours.

  {prog} split model.safetensors graph.npz --out nodes    one folder for each node
  {prog} run nodes/node-7 --sensor COMMAND --period 60    the agent of one node
  {prog} status nodes                                     how all of them are
  {prog} simulate model.safetensors graph.npz --loss 0.1  how it would go, with faults
  {prog} learn nodes/node-7                               the agent of one node that learns
"""
COMMANDS = {
    "split": ("graphact_agents.command_run:split", "write one folder for each node"),
    "run": ("graphact_agents.command_run:run", "run the agent of one node"),
    "status": ("graphact_agents.command_status:status", "show how the agents of a network are"),
    "simulate": ("graphact_agents.command_simulate:simulate", "simulate agents in a network with faults"),
    "learn": ("graphact_agents.command_learn:learn", "let the agent of one node learn with its neighbours"),
}
"""For each command ``module:name``, and its line in the help."""

MAX_SEED = 2**63 - 1


def seed(word: str) -> int:
    """Return the seed that a word stands for."""
    if not word.isdecimal() or int(word) > MAX_SEED:
        raise argparse.ArgumentTypeError(f"must be an integer from 0 to {MAX_SEED}, got {word!r}")
    return int(word)


SHARED: dict[str, dict[str, Any]] = {
    "model": {"type": Path, "metavar": "MODEL", "help": "a model file that graphact.save has written"},
    "graph": {"type": Path, "metavar": "GRAPH", "help": "a graph file (.npz) that graphact.Graph.save has written"},
    "--out": {"type": Path, "metavar": "DIR"},
    "--signals": {"type": Path, "metavar": "FILE"},
    "--transport": {"choices": ("zenoh", "udp")},
    "--seed": {"type": seed, "default": 0, "help": "decides everything random (default: 0)"},
    "--slot": {"type": float, "default": 0.18, "help": "seconds for one round (default: 0.18)"},
}


class Subcommand(NamedTuple):
    """A command: what it does, its description, and what adds its options."""

    run: Run
    description: str
    options: tuple[Option, ...]


def command(*options: str | Option) -> Callable[[Run], Subcommand]:
    """Make a function with its docstring a command; an option by its name alone is as in :data:`SHARED`."""
    added = tuple(option(each) if isinstance(each, str) else each for each in options)
    return lambda run: Subcommand(run, run.__doc__ or "", added)


def option(name: str, text: str | None = None, **settings: Any) -> Option:
    """Return what adds an argument; what is not set is as in :data:`SHARED`."""
    settings = SHARED.get(name, {}) | settings | ({"help": text} if text else {})
    return lambda parser: parser.add_argument(name, **settings)


def one_of(*options: Option) -> Option:
    """Return what adds options of which at most one may be given."""

    def add(parser: argparse.ArgumentParser) -> None:
        group = parser.add_mutually_exclusive_group()
        for each in options:
            each(group)

    return add


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, and whose options are added when it is asked to parse."""

    target: str | None = None

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if self.target is not None:
            found, self.target = pkgutil.resolve_name(self.target), None
            self.description = inspect.cleandoc(found.description)
            self.formatter_class = argparse.RawDescriptionHelpFormatter
            self.set_defaults(command=found.run)
            for add in found.options:
                add(self)
        found, unknown = super().parse_known_args(args, namespace)
        if unknown and self._subparsers is None:
            near = difflib.get_close_matches(unknown[0].partition("=")[0], self._option_string_actions, n=1)
            self.error(
                f"unrecognized arguments: {' '.join(unknown)}" + (f"; did you mean {near[0]!r}?" if near else "")
            )
        return found, unknown

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\nsee {self.prog} --help\n")


def make_parser(prog: str = "graphact-agents") -> Parser:
    """Return the parser of all commands."""
    description = DESCRIPTION.format(prog=prog)
    parser = Parser(prog=prog, description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="version", version=f"graphact-agents {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND", parser_class=Parser)
    for name, (target, line) in COMMANDS.items():
        commands.add_parser(name, help=line).target = target
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; a user's mistake is one line on standard error and exit code 2."""
    try:
        options = make_parser().parse_args(arguments)
        return int(options.command(options))
    except KeyboardInterrupt:
        sys.stderr.write("\ngraphact-agents: stopped\n")
        return 130
    except BrokenPipeError:  # whoever read the output has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, TypeError, OSError, ModuleNotFoundError) as error:
        if isinstance(error, ModuleNotFoundError) and (error.name or "").startswith("graphact"):
            raise  # a part of this package
        sys.stderr.write(f"graphact-agents: {error}\n")
        return 2


if __name__ == "__main__":
    raise SystemExit(main())
