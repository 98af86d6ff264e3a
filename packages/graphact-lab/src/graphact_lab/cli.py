"""The command line of graphact-lab."""

import sys
from collections.abc import Sequence

from graphact.commands.parser import CommandParser, new_parser, run_command
from graphact_lab import __version__
from graphact_lab.commands.overview import data, list_all
from graphact_lab.commands.run import report, run

DESCRIPTION = """\
The experiments of the paper and the benchmarks beyond it: one command each.

  graphact-lab run rounds                     two minutes: table, HTML report
  graphact-lab run consensus --preset paper   all of it; repeat to resume
  graphact-lab report out/consensus-paper     the report again, without training
"""
COMMANDS = {
    "run": (run, "run an experiment and write its report"),
    "report": (report, "rewrite the report from stored results"),
    "data": (data, "fetch or check the data sets"),
    "list": (list_all, "list experiments, their presets and data sets"),
}


def make_parser() -> CommandParser:
    """Return the parser of all commands."""
    return new_parser("graphact-lab", __version__, DESCRIPTION, COMMANDS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command."""
    return run_command(make_parser(), arguments, stopped=advice)


def advice(words: Sequence[str]) -> str:
    """Return what to do after Ctrl-C."""
    return "; finished cells are kept, run the same command again to resume" if list(words[:1]) == ["run"] else ""


if __name__ == "__main__":
    sys.exit(main())
