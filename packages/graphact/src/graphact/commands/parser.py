"""Commands and their options. Modules of commands import what is heavy when the command is called."""

import argparse
import inspect
import os
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from graphact._checks import UserError, check_seed, did_you_mean

Option = Callable[[Any], object]
"""Adds something to a parser."""
Run = Callable[[argparse.Namespace], int]

SHARED: dict[str, dict[str, Any]] = {
    "model": {"type": Path, "metavar": "MODEL", "help": "a model file that graphact.save has written"},
    "graph": {"type": Path, "metavar": "GRAPH", "help": "a graph file that Graph.load reads"},
    "--normalize": {
        "choices": ("spectral", "symmetric", "gcn", "random_walk", "laplacian"),
        "metavar": "KIND",
        "help": "rescale the shift operator first, as Graph.normalize does: spectral, symmetric, gcn, random_walk or "
        "laplacian",
    },
    "--signals": {"type": Path, "metavar": "FILE"},
    "--import": {
        "action": "append",
        "default": [],
        "dest": "imports",
        "metavar": "MODULE",
        "help": "import a module first, from this folder or installed (repeatable): "
        "activations that it registers with graphact.nn.register are then known by name",
    },
    "--out": {"type": Path, "metavar": "DIR"},
    "--device": {"choices": ("auto", "cpu", "cuda"), "default": "auto"},
    "--json": {"action": "store_true", "help": "print the results as one JSON value, and nothing else"},
    "--seed": {"type": int, "default": 0, "help": "decides everything random (default: 0)"},
}


class Command(NamedTuple):
    """A command. A description that has paragraphs is shown as it is written, another one is filled."""

    run: Run
    description: str
    options: tuple[str | Option, ...]


def command(*options: str | Option) -> Callable[[Run], Command]:
    """Make a function with its docstring a command; an option by its name alone is as in :data:`SHARED`."""
    return lambda run: Command(run, run.__doc__ or "", options)


def option(name: str, text: str | None = None, **settings: Any) -> Option:
    """Return a function that adds an argument; settings that are left out are those of :data:`SHARED`."""
    settings = SHARED.get(name, {}) | settings | ({"help": text} if text else {})
    return lambda parser: parser.add_argument(name, **settings)


def print_json(value: Any) -> int:
    """Print a value as JSON for other programs; NaN and infinity become null."""
    import json
    import math

    def plain(part: Any) -> Any:
        if isinstance(part, Mapping):
            return {str(name): plain(each) for name, each in part.items()}
        if isinstance(part, list | tuple):
            return [plain(each) for each in part]
        return None if isinstance(part, float) and not math.isfinite(part) else part

    sys.stdout.write(json.dumps(plain(value), indent=1) + "\n")
    return 0


def import_modules(modules: Iterable[str]) -> None:
    """Import modules that a user names; those in the working folder are found, too."""
    import importlib
    import traceback

    for module in modules:
        folder = str(Path.cwd())
        if folder not in sys.path:
            sys.path.insert(0, folder)
        try:
            importlib.import_module(module)
        except Exception as error:
            if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
                raise ValueError(
                    f"--import must name a module of {folder} or of an installed package, such as my_activations for "
                    f"my_activations.py, got {module!r}"
                ) from error
            last = traceback.extract_tb(error.__traceback__)[-1]
            place = "" if isinstance(error, SyntaxError) else f" ({Path(last.filename).name}, line {last.lineno})"
            raise ValueError(f"--import {module} failed: {type(error).__name__}: {error}{place}") from error


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Leave names with hyphens in one piece, and descriptions that have paragraphs as they are written."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_on_hyphens=False)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if "\n\n" in text else textwrap.fill(text, width, initial_indent=indent, subsequent_indent=indent)


class CommandParser(argparse.ArgumentParser):
    """A parser that answers a mistake in one line, with the name that may have been meant."""

    def add_commands(self, table: Mapping[str, tuple[Command, str]]) -> None:
        """Add commands by their names, each with its line in the help."""
        commands = self.add_subparsers(title="commands", required=True, metavar="COMMAND", parser_class=CommandParser)
        for name, (command, line) in table.items():
            description = inspect.cleandoc(command.description)
            parser = commands.add_parser(name, help=line, description=description, formatter_class=HelpFormatter)
            parser.set_defaults(command=command.run)
            for each in command.options:
                (option(each) if isinstance(each, str) else each)(parser)
            group = parser.add_mutually_exclusive_group()
            group.add_argument("--quiet", action="store_true", help="no progress, only results and errors")
            group.add_argument("--verbose", action="store_true", help="show the traceback of an error")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse unknown options here, where those of the command are known; argparse calls this on its parser."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown and self._subparsers is None:
            first = unknown[0].partition("=")[0]
            self.error(f"unrecognized arguments: {' '.join(unknown)}{did_you_mean(first, self._option_string_actions)}")
        return found, unknown

    def error(self, message: str) -> NoReturn:
        """One line, and where to read on; argparse would print the whole usage first."""
        self.exit(2, f"{self.prog}: {message}\nsee {self.prog} --help\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            meant = did_you_mean(value, action.choices)
            listed = "" if meant else f", choose from {', '.join(map(str, action.choices))}"
            raise argparse.ArgumentError(action, f"invalid choice {value!r}{listed}{meant}")


def new_parser(prog: str, version: str, description: str, table: Mapping[str, tuple[Command, str]]) -> CommandParser:
    """Return the parser of a program with its commands; the description is shown as it is written."""
    parser = CommandParser(prog=prog, description=description, formatter_class=HelpFormatter)
    parser.add_argument("--version", action="version", version=f"{prog} {version}")
    parser.add_commands(table)
    return parser


def run_command(
    parser: CommandParser,
    arguments: Sequence[str] | None = None,
    *,
    stopped: Callable[[Sequence[str]], str] = lambda _: "",
) -> int:
    """Parse, call, print: without words the help, for a mistake of the user one line on standard error and exit code 2.

    Args:
        parser: has all commands.
        arguments: words of the command line; None takes those of the process.
        stopped: what to advise after Ctrl-C, from the words of the command line.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if not words:
            parser.print_help()
            return 0
        options = parser.parse_args(arguments)
        options.parser = parser
        check_seed("--seed", getattr(options, "seed", 0))
        return int(options.command(options))
    except KeyboardInterrupt:
        sys.stderr.write(f"\n{parser.prog}: stopped{stopped(words)}\n")
        return 130
    except BrokenPipeError:  # the reader of the output has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, TypeError, OSError, ModuleNotFoundError, UserError) as error:
        own = isinstance(error, ModuleNotFoundError) and (error.name or "").startswith("graphact")
        if own or "--verbose" in words:
            raise
        sys.stderr.write(f"{parser.prog}: {error}\n")
        return 2
