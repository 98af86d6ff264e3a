"""Options that several commands share."""

import argparse
from pathlib import Path


def add_data(parser: argparse.ArgumentParser) -> None:
    """Where real data lies."""
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="folder with ml-100k/ and molene/ (default: the environment variable GRAPHACT_DATA, else downloaded once)",
    )
