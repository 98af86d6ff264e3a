"""The command graphact list."""

import argparse
import sys

from graphact.commands.parser import command, import_modules, option, print_json
from graphact.registry import CONVOLUTIONS, line_of, names

PARTS = ("activations", "convolutions")


@command(
    option("part", ", ".join(PARTS) + " (default: both)", nargs="?", choices=PARTS, metavar="PART"),
    "--import",
    "--json",
)
def list_all(options: argparse.Namespace) -> int:
    """List activations and convolutions, each with a line."""
    import_modules(options.imports)
    shown = {part: entries for part, entries in catalogue().items() if options.part in (None, part)}
    if options.json:
        return print_json(shown)
    lines = []
    for part, entries in shown.items():
        lines += ["", part, *(f"  {name:20s} {line}".rstrip() for name, line in entries.items())]
    sys.stdout.write("\n".join(lines[1:]) + "\n")
    return 0


def catalogue() -> dict[str, dict[str, str]]:
    """Return a line for each activation and convolution."""
    return {"activations": {name: line_of(name) for name in names()}, "convolutions": dict(CONVOLUTIONS)}
