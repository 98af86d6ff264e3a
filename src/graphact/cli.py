"""The command line: parse, call, print."""

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

DESCRIPTION = """\
Activation functions that see the graph: the experiments of the paper, by one command each.

  graphact run source-localization          about a minute on a laptop: table, figure and HTML report
  graphact run consensus --preset paper     all of it, resumable: run the same command again after a stop
  graphact report out/consensus-paper       the report again, from the stored results
  graphact list                             experiments, presets, protocols and activations
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; a user's mistake is one line on standard error and exit code 2."""
    try:
        return call(arguments)
    except KeyboardInterrupt:
        sys.stderr.write("\ngraphact: stopped; finished cells are kept, run the same command again to go on\n")
        return 130
    except BrokenPipeError:  # whoever read the output has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, TypeError, OSError) as error:
        sys.stderr.write(f"graphact: {error}\n")
        return 2


def call(arguments: Sequence[str] | None) -> int:
    """Parse and call."""
    from graphact.experiments.store import StoreError
    from graphact.tasks import DataError

    options = make_parser().parse_args(arguments)
    try:
        return int(options.command(options))
    except (StoreError, DataError) as error:
        raise ValueError(error) from error


def make_parser() -> "argparse.ArgumentParser":
    """All commands and their options."""
    import argparse

    from graphact import __version__
    from graphact.commands import data, listing, report, run

    parser = argparse.ArgumentParser(
        prog="graphact", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action="version", version=f"graphact {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for command in (run, report, data, listing):
        command.add_to(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
