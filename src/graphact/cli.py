"""The command line: parse, call, print."""

import argparse
import sys
from collections.abc import Sequence

from graphact import __version__
from graphact.commands import data, listing, report, run

DESCRIPTION = """\
Activation functions that see the graph: the experiments of the paper, by one command each.

  graphact run source-localization          about a minute on a laptop: table, figure and HTML report
  graphact run consensus --preset paper     all of it, resumable: run the same command again after a stop
  graphact report out/consensus-paper       the report again, from the stored results
  graphact list                             experiments, presets, protocols and activations
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; a user's mistake is one line on standard error and exit code 2."""
    from graphact.experiments.store import StoreError
    from graphact.tasks import DataError

    options = make_parser().parse_args(arguments)
    try:
        return int(options.command(options))
    except (ValueError, TypeError, StoreError, DataError, FileNotFoundError, PermissionError) as error:
        sys.stderr.write(f"graphact: {error}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("\ngraphact: stopped; finished cells are kept, run the same command again to go on\n")
        return 130


def make_parser() -> argparse.ArgumentParser:
    """All commands and their options."""
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
