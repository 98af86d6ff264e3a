"""The command line of the agents; each command is a module with its arguments and its function."""

import argparse
import difflib
import inspect
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from graphact_agents import __version__, command_learn, command_run, command_simulate, command_split, command_status

DESCRIPTION = """
Run a trained network on the nodes of its graph: each node computes its own output from messages of its neighbours.

  {prog} split model.safetensors graph.npz --out nodes    one folder for each node
  {prog} run nodes/node-7 --sensor COMMAND --period 60    the agent of one node
  {prog} status nodes                                     how all of them are
  {prog} simulate model.safetensors graph.npz --loss 0.1  how it would go, with faults
  {prog} learn nodes/node-7                               the agent of one node that learns
"""
COMMANDS = {
    "split": (command_split, "write one folder for each node"),
    "run": (command_run, "run the agent of one node"),
    "status": (command_status, "show how the agents of a network are"),
    "simulate": (command_simulate, "simulate agents in a network with faults"),
    "learn": (command_learn, "let the agent of one node learn with its neighbours"),
}


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, with the option that was meant."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, unknown = super().parse_known_args(args, namespace)
        if unknown and self._subparsers is None:
            near = difflib.get_close_matches(unknown[0].partition("=")[0], self._option_string_actions, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return found, unknown

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\nsee {self.prog} --help\n")


def make_parser(prog: str = "graphact-agents") -> Parser:
    """Return the parser of all commands."""
    plain = argparse.RawDescriptionHelpFormatter
    parser = Parser(prog=prog, description=DESCRIPTION.format(prog=prog), formatter_class=plain)
    parser.add_argument("--version", action="version", version=f"graphact-agents {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, (module, line) in COMMANDS.items():
        description = inspect.cleandoc(module.run.__doc__ or "")
        each = commands.add_parser(name, help=line, description=description, formatter_class=plain)
        module.add_arguments(each)
        each.set_defaults(command=module.run)
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
