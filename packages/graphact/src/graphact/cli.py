"""The command line of graphact."""

import sys
from collections.abc import Sequence

from graphact import __version__
from graphact.commands.bench import bench
from graphact.commands.catalogue import list_all
from graphact.commands.certify import certify
from graphact.commands.export import export
from graphact.commands.parser import CommandParser, new_parser, run_command
from graphact.commands.partition import partition

DESCRIPTION = """\
Neighbourhood functions for graph neural networks.

  graphact list activations
  graphact certify model.safetensors --graph graph.npz
  graphact export model.safetensors --graph graph.npz --out model.onnx
  graphact bench graph.npz
  graphact partition graph.npz --parts 4 --out parts
"""
COMMANDS = {
    "list": (list_all, "list activations and convolutions"),
    "certify": (certify, "certify a trained model on a graph: equivariance, Lipschitz constant, safe radius"),
    "export": (export, "write a trained model as an ONNX file"),
    "bench": (bench, "time activations on a graph"),
    "partition": (partition, "cut a graph into files, one for each process"),
}


def make_parser() -> CommandParser:
    """Return the parser of all commands."""
    return new_parser("graphact", __version__, DESCRIPTION, COMMANDS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command."""
    return run_command(make_parser(), arguments)


if __name__ == "__main__":
    sys.exit(main())
