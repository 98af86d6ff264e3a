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
    parser.add_argument("--pack", action="store_true", help="compress the rows as well, to keep or to publish them")
    parser.set_defaults(command=report)


def report(options: argparse.Namespace) -> int:
    """Read the rows, write the report."""
    from graphact.commands.run import finish
    from graphact.experiments.store import Store

    store = Store(options.directory)
    if options.pack:
        store.pack()
    return finish(store)
