"""The command line: parse, call, print."""

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse

DESCRIPTION = """\
Activation functions that see the graph: the experiments of the paper, by one command each.

  graphact run source-localization          about a minute on a laptop: table, figure and HTML report
  graphact run consensus --preset paper     all of it, resumable: run the same command again after a stop
  graphact report out/consensus-paper       the report again, from the stored results
  graphact list                             experiments, presets, protocols and activations
  graphact certify MODEL --graph G          what is guaranteed of a trained model on a graph
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
    arguments = sys.argv[1:] if arguments is None else arguments
    options = make_parser(agents_only=list(arguments[:1]) == ["agents"]).parse_args(arguments)
    try:
        return int(options.command(options))
    except RuntimeError as error:
        from graphact.data.datasets.download import DataError
        from graphact.experiments.store import StoreError

        if isinstance(error, (StoreError, DataError)):
            raise ValueError(error) from error
        raise


def make_parser(*, agents_only: bool = False) -> "argparse.ArgumentParser":
    """All commands and their options; those of agents alone load without torch, which a small node may not have."""
    import argparse

    from graphact import __version__
    from graphact.commands import agents

    selected: tuple[Any, ...] = (agents,)
    if not agents_only:
        from graphact.commands import bench, certify, data, listing, partition, report, run

        selected = (run, report, data, listing, certify, bench, partition, agents)

    parser = argparse.ArgumentParser(
        prog="graphact", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action="version", version=f"graphact {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for command in selected:
        command.add_to(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
