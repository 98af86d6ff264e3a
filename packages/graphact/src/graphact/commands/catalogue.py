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
    """List activations and convolutions, with a one-line description of each."""
    import_modules(options.imports)
    lines_of = {"activations": {name: line_of(name) for name in names()}, "convolutions": CONVOLUTIONS}
    shown = {part: entries for part, entries in lines_of.items() if options.part in (None, part)}
    if options.json:
        return print_json(shown)
    lines = []
    for part, entries in shown.items():
        lines += ["", part, *(f"  {name:20s} {line}".rstrip() for name, line in entries.items())]
    sys.stdout.write("\n".join(lines[1:]) + "\n")
    return 0
