"""Count the files of graphact that a reader opens to follow one forward pass, and one Lipschitz bound.

    python benchmarks/files_visited.py            one line for each activation, one for the bound
    python benchmarks/files_visited.py --list     with the files, in the order of the first call into each

Counts the distinct files in which a Python function is called during a forward pass in eager mode on the CPU. Exit code
1 if an activation of the paper takes more than 12, or another one, which is composed of more steps, more than 16.
A bound evaluates the network, to check it against its layers: files beyond those of the forward pass count, at most 15.
"""

import argparse
import itertools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch

import graphact
from graphact.guarantees import lipschitz_bound
from graphact.registry import COMPARED

MAX_FILES, MAX_OTHER_FILES, MAX_BOUND_FILES = 12, 16, 15
HOPS = 2
ROOT = Path(graphact.__file__).parent


def files_visited(function: Callable[[], Any]) -> tuple[list[str], int]:
    """The files of graphact that a call visits, in the order of the first visit, and how often the file changes."""
    visits: list[str] = []

    def profile(frame: FrameType, event: str, _: Any) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(f"{ROOT}{os.sep}"):
            visits.append(os.path.relpath(path, ROOT))

    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(None)
    changes = sum(a != b for a, b in itertools.pairwise(visits))
    return list(dict.fromkeys(visits)), changes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="print the files")
    options = parser.parse_args()
    graph = graphact.Graph.stochastic_block_model([10, 10], 0.8, 0.1).normalize("spectral")
    x = torch.randn(4, graph.num_nodes, 3)
    too_many = []
    for name in graphact.nn.ACTIVATIONS:
        activation = graphact.nn.make_activation(name, hops=HOPS, features=x.size(-1))
        activation(x, graph)  # compiles, and finds the neighbours of several hops
        files, changes = files_visited(lambda: activation(x, graph))
        limit = MAX_FILES if name in COMPARED else MAX_OTHER_FILES
        too_many += [f"{name} visits {len(files)} files, more than {limit}\n"] if len(files) > limit else []
        sys.stdout.write(f"{name:<12} {len(files):3} files, {changes:3} changes of file\n")
        if options.list:
            sys.stdout.writelines(f"    {file}\n" for file in files)
    model = graphact.nn.GCNN([3, 4, 4], activation="max-ga", hops=HOPS, out_features=2)
    forward, _ = files_visited(lambda: model(x, graph))
    files, changes = files_visited(lambda: lipschitz_bound(model, graph))
    files = [file for file in files if file not in forward]
    sys.stdout.write(f"{'bound':<12} {len(files):3} files, {changes:3} changes of file\n")
    if options.list:
        sys.stdout.writelines(f"    {file}\n" for file in files)
    if len(files) > MAX_BOUND_FILES:
        too_many.append(
            f"lipschitz_bound visits {len(files)} files beyond the forward pass, more than {MAX_BOUND_FILES}\n"
        )
    sys.stdout.writelines(too_many)
    return int(bool(too_many))


if __name__ == "__main__":
    sys.exit(main())
