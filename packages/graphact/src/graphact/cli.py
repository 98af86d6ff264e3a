"""The command line: parse, call, print. Only the module of the command that is asked for is imported."""

import argparse
import os
import sys
from collections.abc import Sequence

from graphact import __version__
from graphact._checks import check_seed
from graphact.commands.parser import CommandParser

DESCRIPTION = """\
Activation functions that see the graph: the experiments of the paper, by one command each.

  graphact run source-localization          a minute or two on a laptop: table, figure and HTML report
  graphact run consensus --preset paper     all of it, resumable: run the same command again after a stop
  graphact report out/consensus-paper       the report again, from the stored results
  graphact list                             activations, convolutions, data sets and experiments
  graphact certify MODEL --graph G          what is guaranteed of a trained model on a graph
"""
COMMANDS = {
    "run": ("graphact_lab.commands.run:run", "run an experiment and write its report"),
    "report": ("graphact_lab.commands.run:report", "write the report of stored results"),
    "data": ("graphact.commands.catalogue:data", "fetch or check the data sets"),
    "list": ("graphact.commands.catalogue:list_all", "list activations, convolutions, data sets and experiments"),
    "certify": (
        "graphact.commands.certify:certify",
        "certify a trained model on a graph: equivariance, Lipschitz constant, safe radius",
    ),
    "bench": ("graphact.commands.bench:bench", "how fast activations run on a graph"),
    "partition": ("graphact.commands.partition:partition", "cut a graph into files, one for each process"),
    "agents": ("graphact.commands.agents:agents", "run a network on its own nodes"),
    "completion": ("graphact.commands.completion:completion", "a script that completes commands in a shell"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; a user's mistake is one line on standard error and exit code 2."""
    try:
        parser = make_parser()
        options = parser.parse_args(arguments)
        options.parser = parser
        check_seed("--seed", getattr(options, "seed", 0))
        return int(options.command(options))
    except KeyboardInterrupt:
        is_run = list(sys.argv[1:] if arguments is None else arguments)[:1] == ["run"]
        advice = "; finished cells are kept, run the same command again to go on" if is_run else ""
        sys.stderr.write(f"\ngraphact: stopped{advice}\n")
        return 130
    except BrokenPipeError:  # whoever read the output has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, TypeError, OSError, ModuleNotFoundError, RuntimeError) as error:
        words = sys.argv[1:] if arguments is None else arguments
        if is_bug(error) or "--verbose" in words:
            raise
        sys.stderr.write(f"graphact: {error}\n")
        return 2


def is_bug(error: Exception) -> bool:
    """Whether the user can do nothing about it: no package to install, no file of results or data to mend."""
    if isinstance(error, RuntimeError):
        from graphact_lab.data.download import DataError
        from graphact_lab.store import StoreError

        return not isinstance(error, StoreError | DataError)
    return isinstance(error, ModuleNotFoundError) and (error.name or "").startswith("graphact")


def make_parser() -> CommandParser:
    """All commands; the options of a command are added when it is asked for."""
    parser = CommandParser(
        prog="graphact", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action="version", version=f"graphact {__version__}")
    parser.add_commands(COMMANDS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
