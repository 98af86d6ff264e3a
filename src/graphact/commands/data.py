"""graphact data: fetch and check the data sets."""

import argparse
import sys
from typing import Any

from graphact.commands.options import add_data


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "data",
        help="fetch or check the data sets",
        description="MovieLens 100K and Molène come from their official homes, once, and are checked by hash.",
    )
    parser.add_argument("action", choices=("fetch", "check"), help="download what is missing, or verify what is there")
    add_data(parser)
    parser.set_defaults(command=data)


def data(options: argparse.Namespace) -> int:
    """Fetch or check."""
    from graphact.data.datasets.download import DATASETS, check, fetch
    from graphact.progress import download_bar

    if options.action == "fetch":
        for dataset in DATASETS:
            with download_bar() as progress:
                folder = fetch(dataset, options.data, progress)
            sys.stdout.write(f"{dataset}: {folder}\n")
        return 0
    states = check(options.data)
    for state in states:
        sys.stdout.write(f"{state.status:8s} {state.file}\n")
    return 0 if all(state.status == "ok" for state in states) else 1
