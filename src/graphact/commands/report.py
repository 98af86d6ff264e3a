"""graphact report: the report of stored results."""

import argparse
from pathlib import Path
from typing import Any


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "report",
        help="write the report of stored results",
        description="Write tables, figures and the HTML page again.",
    )
    parser.add_argument("directory", type=Path, metavar="DIR", help="a folder that graphact run has written")
    parser.set_defaults(command=report)


def report(options: argparse.Namespace) -> int:
    """Read the rows, write the report."""
    from graphact.commands.run import finish
    from graphact.experiments.store import Store

    return finish(Store(options.directory))
