"""Run cells of published results again, drawn at random, and compare them with what is kept, run by run.

    python benchmarks/repeat.py results/recommendation-best                     one cell, on the device of the results
    python benchmarks/repeat.py results/source-localization-best --cells 3 --draw 7

The protocol, preset and seed are those of the command kept with the results.
"""

import argparse
import random
import shlex
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from arguments import count
from output import echo

from graphact_lab.cli import make_parser
from graphact_lab.commands.run import find_settings, pick_device
from graphact_lab.protocols import jobs_of
from graphact_lab.runner import run_protocol
from graphact_lab.store import Store, StoreError
from graphact_lab.tasks import DataError


def published(store):
    """The protocol, seed and device of the one command that made a store."""
    commands = store.commands()
    words = shlex.split(commands[0]) if len(commands) == 1 else []
    if words[:2] not in (["graphact-lab", "run"], ["graphact", "run"]):  # its name when the first rows were made
        sys.exit(f"{store.directory} must come from one call of graphact-lab run, got {commands}")
    options = make_parser().parse_args(words[1:])
    return find_settings(options), options.seed, pick_device(options.device)


def alone(protocol, cell):
    """The protocol with one cell only, which keeps its key."""
    protocol = replace(protocol, methods=(cell.method,), features=(cell.features,), orders=(cell.order,))
    if cell.hops is not None:
        protocol = replace(protocol, hops=(cell.hops,), localized_hops=(cell.hops,))
    return replace(protocol, conditions=(cell.condition,), sweep=())


def values(rows, cell):
    """Return the result of each run of a cell, by where it ran."""
    place = ("graph", "split", "node")
    return {
        (tuple(row.get(name) for name in place), str(sorted(row["condition"].items()))): row["value"]
        for row in rows
        if row.get("settings") == cell.settings()
    }


def repeat(store, cell, protocol, seed, device, data):
    """Run a cell again, and say how its runs differ."""
    before = values(store.rows(), cell)
    with tempfile.TemporaryDirectory() as folder:
        again = Store(Path(folder))
        again.create("")
        run_protocol(alone(protocol, cell), again, seed=seed, device=device, data=data)
        after = values(again.rows(), cell)
    if not before or before.keys() != after.keys():
        sys.exit(f"{cell.title}: {len(before)} runs are kept, {len(after)} were made")
    same = sum(before[key] == after[key] for key in before)
    means = [sum(some.values()) / len(some) for some in (before, after)]
    far = max(abs(before[key] - after[key]) for key in before)
    return (
        f"{cell.title}: {same} of {len(before)} figures equal to the last bit; mean {means[0]:.6g}, "
        f"now {means[1]:.6g}; largest difference of one {far:.3g}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="folder of results")
    parser.add_argument("--cells", type=count, default=1, help="how many cells (default: 1)")
    parser.add_argument("--draw", type=int, default=0, help="seed of the draw (default: 0)")
    parser.add_argument("--data", type=Path, help="folder of the data sets (default: as graphact-lab run)")
    options = parser.parse_args()
    store = Store(options.results)
    try:
        protocol, seed, device = published(store)
        cells = [cell for cell in jobs_of(protocol, seed) if store.is_finished(cell.key)]
        for cell in random.Random(options.draw).sample(cells, min(options.cells, len(cells))):
            echo(repeat(store, cell, protocol, seed, device, options.data))
    except (StoreError, DataError, ValueError) as problem:
        sys.exit(str(problem))


if __name__ == "__main__":
    main()
