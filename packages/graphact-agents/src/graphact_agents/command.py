"""The command line of the agents; each command is a module with ``add_arguments`` and ``run``."""

import argparse
import difflib
import importlib
import inspect
import os
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Any, NoReturn

from graphact_agents import __version__
from graphact_agents.disk import one_line

DESCRIPTION = """
Run a trained network on the nodes of its graph: each node computes its own
output from messages of its neighbours.

  {prog} simulate model.safetensors graph.npz --loss 0.1
  {prog} init model.safetensors graph.npz --out network
  {prog} deploy network --out nodes
  {prog} run nodes/node-7
  {prog} status network
"""
COMMANDS = {
    "init": ("graphact_agents.command_init", "write the operator's folder of a network"),
    "deploy": ("graphact_agents.command_deploy", "write a folder for each node from the operator's folder"),
    "run": ("graphact_agents.command_run", "run the agent of one node"),
    "status": ("graphact_agents.command_status", "show the state of the agents of a network"),
    "simulate": ("graphact_agents.command_simulate", "simulate agents in a network with faults"),
    "learn": ("graphact_agents.command_learn", "train the network at one node, together with its neighbours"),
}


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line; the module of a command is imported when it is asked for."""

    module = ""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if self.module:
            module, self.module = importlib.import_module(self.module), ""
            self.description = fill_paragraphs(inspect.cleandoc(module.run.__doc__ or ""))
            module.add_arguments(self)
            self.set_defaults(command=module.run)
        found, unknown = super().parse_known_args(args, namespace)
        if unknown and self._subparsers is None:
            near = difflib.get_close_matches(unknown[0].partition("=")[0], self._option_string_actions, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return found, unknown

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\nsee {self.prog} --help\n")


def fill_paragraphs(text: str) -> str:
    """Wrap the paragraphs of a text to the width of the terminal; those that are indented keep their lines."""
    width = shutil.get_terminal_size().columns - 2
    paragraphs = text.split("\n\n")
    return "\n\n".join(each if each.startswith(" ") else textwrap.fill(each, width) for each in paragraphs)


def make_parser(prog: str = "graphact-agents") -> Parser:
    """Return the parser of all commands."""
    plain = argparse.RawDescriptionHelpFormatter
    parser = Parser(prog=prog, description=DESCRIPTION.format(prog=prog), formatter_class=plain)
    parser.add_argument("--version", action="version", version=f"graphact-agents {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND", parser_class=Parser)
    for name, (module, line) in COMMANDS.items():
        commands.add_parser(name, help=line, formatter_class=plain).module = module
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, or print the help; a user's mistake is one line on standard error and exit code 2."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        parser = make_parser()
        if not words:
            parser.print_help()
            return 0
        options = parser.parse_args(words)
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
        sys.stderr.write(f"graphact-agents: {one_line(error)}\n")
        return 2


if __name__ == "__main__":
    raise SystemExit(main())
