"""Rows of experiments that are still missing, on one GPU, by processes side by side, as one file.

    python benchmarks/device_rows.py --smoke                          a tiny cell of each kind, on any device
    python benchmarks/device_rows.py --list                           the cells and the seconds they are taken to need
    python benchmarks/device_rows.py --minutes 9 --only a,b --out DIR  train; DIR/rows.zip holds all finished cells
    python benchmarks/device_rows.py --merge DIR/rows.zip             put them into results/

Priorities: a quality at equal rounds, b unseen sources for the methods of Table 1, c lost links in consensus, d banks
and Minesweeper in node classification, e link scheduling. Cells are those of ``graphact-lab run``, with its keys, so
that nothing is trained twice: --work keeps cells, --skip names files of earlier runs. Within a group, the longest cell
starts first. No cell is started that would not end in time, and what is unfinished at the end is stopped.
"""

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
import traceback
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Empty

from arguments import count
from output import echo

ROOT = Path(__file__).parent.parent
ROUNDS_A = (4, 6, 9, 2)
RIVALS = ("gelu", "prelu", "relu", "silu", "leaky-relu", "tanh")
OURS = ("bank-max", "bank-max-min", "bank-pna", "bank-median", "pna", "sage-max", "max-ga-unshifted", "max-ga", "max-l")
FURTHER = ("mean-ga", "bank-mean", "median-l", "median-ga")
GRAPHS = {"graphs": 40, "splits": 1}  # 160 networks, four nodes each; more graphs narrow an interval most
PACK_EVERY = 20


@dataclass(frozen=True)
class DeviceCell:
    """One cell of an experiment: settings that describe nothing else."""

    group: str
    folder: str  # below results/
    settings: object
    seed: int
    seconds: float  # on an H200 beside others, about

    @property
    def titles(self):
        """Return the title of each job by its key; one, unless methods have several hops."""
        from graphact_lab.commands.run import cells_of

        if self.settings.methods:
            return cells_of(self.settings, self.seed)
        return {self.settings.key(None, self.seed): "rules without learning"}  # of scheduling


def rounds_cells():
    """Yield quality at equal rounds: source localization, then consensus and denoising."""
    from graphact_lab.experiments.rounds.experiment import FULL, orders_of

    def cell(group, folder, base, method, rounds, seconds):
        return DeviceCell(group, folder, replace(base, methods=(method,), rounds=(rounds,)), 0, seconds)

    for number, methods in enumerate(((*RIVALS[:2], *OURS), (*RIVALS[2:], *FURTHER))):
        for sources in ("unseen", "random"):
            base = replace(FULL, sources=(sources,), **GRAPHS)
            for rounds in ROUNDS_A:
                for method in filter(lambda one, rounds=rounds: orders_of(one, rounds), methods):
                    yield cell(f"a{1 + number}-{sources}-{rounds}", "rounds", base, method, rounds, 8 + 3 * rounds)
    shapes = {"consensus": {"graphs": 10, "splits": 2, "epochs": 100}, "denoising": {"graphs": 1, "splits": 20}}
    shorter = (*RIVALS[:4], *OURS, "mean-ga", "bank-mean")
    for group, (task, shape) in zip(("a3", "a4"), shapes.items(), strict=True):
        base = replace(FULL, task=task, sources=("random",), nodes=1, **shape)
        for rounds in (2, 4, 6):
            for method in filter(lambda one, rounds=rounds: orders_of(one, rounds), shorter):
                yield cell(group, f"rounds-{task}", base, method, rounds, 5 + 2 * rounds)


def unseen_cells():
    """Yield source localization on unseen sources: every method with F = 8, then those of Table 1 and two rivals."""
    from graphact_lab.descriptions import find_protocol

    base = find_protocol("source-localization", "paper", "converged", (), {"sources": "unseen"})
    for width in (8, 4, 2):
        narrow = width < 8
        kept = ("relu", "prelu", "gelu", "max-l", "max-ga", "median-l", "median-ga", "kernel-ga")
        hops = {"hops": (2,), "localized_hops": (1,)} if narrow else {}
        for settings in single(replace(base, features=(width,), **hops)):
            if narrow and settings.methods[0] not in kept:
                continue
            settings = replace(settings, hops=(1,)) if narrow and settings.methods == ("kernel-ga",) else settings
            yield DeviceCell("b2" if narrow else "b1", "source-localization-unseen", settings, 0, 25)


def lost_links_cells():
    """Yield consensus with lost links: pointwise activations with prepared inputs, and two that lack raw ones."""
    from graphact_lab.descriptions import find_protocol

    prepared = find_protocol("consensus", "best", None, ("silu", "gelu", "tanh", "prelu", "leaky-relu", "elu", "abs"))
    for settings in single(prepared):
        yield DeviceCell("c", "consensus-best", settings, 1, 35)
    raw = find_protocol("consensus", "paper", "converged", ("elu", "abs"), {"orders": "20", "splits": "5"})
    for settings in single(raw):
        yield DeviceCell("c", "consensus-converged", settings, 0, 60)


def node_cells():
    """Yield Minesweeper with seven activations and banks, and banks on two graphs of papers and on Squirrel."""
    from graphact_lab.descriptions import find_protocol

    def cells(group, folder, seconds, protocol, methods, **changes):
        found = find_protocol("node-classification", "full", protocol, methods, changes)
        for settings in single(replace(found, hops=(1,))):
            yield DeviceCell(group, f"benchmarks/{folder}", settings, 0, seconds)

    seven = ("relu", "prelu", "gelu", "tanh", "max-l", "max-ga", "median-ga")
    three = ("relu", "prelu", "gelu")
    banks = ("bank-max", "bank-pna")
    yield from cells("d1", "residual", 30, "residual", seven, dataset="minesweeper")
    for bank in banks:
        yield from cells("d1", f"residual-{bank}", 35, "residual", three, dataset="minesweeper", convolution=bank)
        yield from cells("d1", f"residual-{bank}", 25, "residual", three, dataset="squirrel_filtered", convolution=bank)
        for name in ("cora", "citeseer"):
            yield from cells("d1", f"gcn-{bank}", 30, "gcn", three, dataset=name, convolution=bank)
    yield from cells("d2", "tuned-minesweeper", 150, "tuned-minesweeper", ("gelu", "prelu", *seven[3:]))
    for bank in banks:
        options = {"dataset": "minesweeper", "convolution": bank}
        yield from cells("d2", f"tuned-minesweeper-{bank}", 150, "tuned-minesweeper", ("relu", "gelu"), **options)


def scheduling_cells():
    """Yield the jobs of link scheduling; the group e1 chooses the rate of each method, and e2 needs it."""
    from graphact_lab.experiments.scheduling.experiment import FULL, NARROW, WIDTH

    yield DeviceCell("e1", "scheduling/full", replace(FULL, methods=()), 0, 100)
    for setting in FULL.settings_run:
        for rounds in FULL.rounds:
            for method in FULL.methods:
                settings = replace(FULL, methods=(method,), rounds=(rounds,), settings_run=(setting,))
                if settings.jobs:
                    seconds = len(settings.jobs) * (60 if setting == NARROW else 25)
                    is_first = rounds == 3 and setting == WIDTH
                    yield DeviceCell(
                        "e1" if is_first else "e2", "scheduling/full", settings, 0, seconds + 40 * is_first
                    )


def single(protocol):
    """Yield the protocol with one method, one number of hops and one condition each."""
    from graphact_lab.protocols import hops_of

    for condition in protocol.conditions:
        for method in protocol.methods:
            for hops in hops_of(protocol, method):
                one = {} if hops is None else {"localized_hops" if method.endswith("-l") else "hops": (hops,)}
                yield replace(protocol, methods=(method,), conditions=(condition,), sweep=(), **one)


def all_cells():
    """Return all cells in the order in which they start."""
    makers = (rounds_cells, unseen_cells, lost_links_cells, node_cells, scheduling_cells)
    return [cell for make in makers for cell in make()]


def in_order(cells, only):
    """Return the cells of some groups; groups in their order, the longest cell of a group first."""
    wanted = only or sorted({cell.group for cell in cells})
    found = [[cell for cell in cells if cell.group.startswith(name)] for name in wanted]
    groups = [
        [cell for cell in own if cell.group == group] for own in found for group in sorted({c.group for c in own})
    ]
    return [cell for own in groups for cell in sorted(own, key=lambda cell: -cell.seconds)]


def smallest(cell):
    """Return a cell with the same code and as little work as possible."""
    from graphact_lab.experiments.rounds.experiment import SMOKE as TINY
    from graphact_lab.experiments.rounds.experiment import Rounds
    from graphact_lab.experiments.scheduling.experiment import SMOKE, Scheduling
    from graphact_lab.protocols import Protocol

    made = cell.settings
    if isinstance(made, Rounds):
        own = {name: getattr(TINY, name) for name in ("graphs", "splits", "nodes", "epochs", "width")}
        made = replace(made, rates=made.rates[:1], **(own | ({"splits": 2} if made.task == "denoising" else {})))
    elif isinstance(made, Scheduling):
        made = replace(SMOKE, preset="full", methods=made.methods, rounds=made.rounds, settings_run=made.settings_run)
    elif isinstance(made, Protocol):
        made = made.smallest()
        made = replace(made, preset="full", rates=made.rates[:1], decays=made.decays[:1]) if made.rates else made
    return replace(cell, settings=made, seconds=1)


def one_of_each(cells):
    """Return the first cell of each folder and method."""
    found = {}
    for cell in cells:
        found.setdefault((cell.folder, cell.settings.methods), smallest(cell))
    return list(found.values())


def train(cell, folder, device, data):
    """Train a cell as ``graphact-lab run --rows-only`` does."""
    from graphact_lab.commands.run import part_of
    from graphact_lab.protocols import Protocol
    from graphact_lab.runner import run_protocol
    from graphact_lab.store import Store

    store = Store(folder / cell.folder)
    store.create(f"python benchmarks/device_rows.py --only {cell.group[0]}")
    shared = {"seed": cell.seed, "device": device}
    if isinstance(cell.settings, Protocol):
        run_protocol(cell.settings, store, data=data, checkpoint_seconds=1e9, with_baselines=False, **shared)
    else:
        with_baselines = cell.folder == "rounds" or not cell.settings.methods
        part_of(cell.settings.experiment, "runner:run")(cell.settings, store, with_baselines=with_baselines, **shared)


def work(queue, folder, device, data, deadline):
    """Train cells of a queue until it is empty; leave out those that would not end in time."""
    import torch

    torch.set_num_threads(1)
    while True:
        try:
            cell = queue.get(timeout=2)
        except Empty:
            return
        title = f"{cell.group} {cell.folder}: {'; '.join(cell.titles.values())}"
        if time.time() + cell.seconds > deadline:
            echo(f"left out for want of time: {title}")
            continue
        begun = time.time()
        try:
            train(cell, folder, device, data)
            echo(f"{time.time() - begun:6.1f} s (expected {cell.seconds:.0f}) {title}")
        except Exception:
            echo(f"failed after {time.time() - begun:.1f} s: {title}\n{traceback.format_exc()}")
        if device == "cuda":
            torch.cuda.empty_cache()


def pack(folder, file):
    """Write all finished cells below a folder into one file; return how many."""
    files = sorted(folder.glob("**/rows/*.json"))
    temporary = file.with_suffix(".part")
    with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in [*files, *sorted(folder.glob("**/run.json"))]:
            archive.writestr(str(path.relative_to(folder)), path.read_bytes())
    temporary.replace(file)
    return len(files)


def keys_in(file):
    """Return the keys of the cells in a file that a run has packed."""
    with zipfile.ZipFile(file) as archive:
        return {Path(name).stem for name in archive.namelist() if "/rows/" in name}


def merge(file, results):
    """Put the rows of a file into the folders of results, and publish those."""
    from graphact_lab.store import Store

    with zipfile.ZipFile(file) as archive:
        folders = {}
        for name in archive.namelist():
            if "/rows/" in name:
                folders.setdefault(name.partition("/rows/")[0], []).append(name)
        for folder, names in sorted(folders.items()):
            store = Store(results / folder)
            for command in json.loads(archive.read(f"{folder}/run.json"))["commands"]:
                store.create(command)
            for name in names:
                store.finish(Path(name).stem, json.loads(archive.read(name)))
            store.publish()
            echo(f"{len(names)} cells into {store.directory}")


def data_folder(given):
    """Return the folder of the data sets: the argument, GRAPHACT_DATA, or the one beside or within the repository."""
    places = [given, os.environ.get("GRAPHACT_DATA"), ROOT / "shared" / "data", ROOT.parent / "shared" / "data"]
    for place in filter(None, places):
        if Path(place).is_dir():
            return Path(place).resolve()
    sys.exit("no data found: give --data DIR, or set GRAPHACT_DATA")


def run(options):
    """Train the cells that are wanted; return 1 if some are not finished."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    data = data_folder(options.data)
    os.environ.update(GRAPHACT_DATA=str(data), OMP_NUM_THREADS="1")
    cells = in_order(one_of_each(all_cells()) if options.smoke else all_cells(), options.only)
    folder = options.work or Path(tempfile.mkdtemp(prefix="device-rows-"))
    folder.mkdir(parents=True, exist_ok=True)
    options.out.mkdir(parents=True, exist_ok=True)
    known = {path.stem for path in folder.glob("**/rows/*.json")}.union(*map(keys_in, options.skip))
    cells = [cell for cell in cells if not known.issuperset(cell.titles)]
    deadline = time.time() + 60 * options.minutes
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    for cell in cells:
        queue.put(cell)
    seconds = sum(cell.seconds for cell in cells)
    echo(f"{len(cells)} cells, {seconds / 60:.0f} minutes of processes, {options.jobs} at a time, {device}, {folder}")
    arguments = (queue, folder, device, data, deadline)
    workers = [context.Process(target=work, args=arguments, daemon=True) for _ in range(options.jobs)]
    for worker in workers:
        worker.start()
    packed = 0.0
    while any(worker.is_alive() for worker in workers) and time.time() < deadline:
        time.sleep(0.5)
        if time.time() - packed > PACK_EVERY:
            pack(folder, options.out / "rows.zip")
            packed = time.time()
    for worker in workers:
        worker.kill()
    for worker in workers:
        worker.join()
    queue.cancel_join_thread()
    queue.close()
    made = pack(folder, options.out / "rows.zip")
    finished = {path.stem for path in folder.glob("**/rows/*.json")}
    left = [title for cell in cells for key, title in cell.titles.items() if key not in finished]
    echo(f"{made} cells in {options.out / 'rows.zip'}; not finished: {len(left)}")
    for title in left:
        echo(f"  {title}")
    return int(bool(left))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="as little as possible of each kind")
    parser.add_argument("--list", action="store_true", help="print the cells and train nothing")
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument(
        "--only", type=lambda text: text.split(","), default=[], help="groups by how they begin, such as a1,b,d1"
    )
    parser.add_argument("--jobs", type=count, default=8)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder of rows.zip")
    parser.add_argument("--work", type=Path, help="folder of finished cells (default: a new one)")
    parser.add_argument("--skip", type=Path, action="append", default=[], help="a rows.zip whose cells are finished")
    parser.add_argument("--merge", type=Path, metavar="FILE", help="put the rows of FILE into results/")
    parser.add_argument("--results", type=Path, default=ROOT / "results")
    options = parser.parse_args()
    if options.merge:
        return merge(options.merge, options.results)
    if options.list:
        for cell in in_order(all_cells(), options.only):
            echo(f"{cell.group:3} {cell.seconds:5.0f} s  {cell.folder}: {'; '.join(cell.titles.values())}")
        return 0
    return run(options)


if __name__ == "__main__":
    sys.exit(main())
