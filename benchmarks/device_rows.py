"""Rows of experiments that are still missing, on one GPU, by processes side by side, as one file.

    python benchmarks/device_rows.py --smoke                 a tiny cell of each kind, on any device
    python benchmarks/device_rows.py --list > cells.txt      the cells that results/ lacks, in the order of their start
    python benchmarks/device_rows.py --cells cells.txt --minutes 9 --out DIR    train; DIR/rows.zip has what is finished
    python benchmarks/device_rows.py --only a1 --out DIR     train a group
    python benchmarks/device_rows.py --cells cells.txt --known EARLIER.zip   go on from an earlier run, and its rates
    python benchmarks/device_rows.py --merge DIR/rows.zip    put them into results/
    python benchmarks/device_rows.py --list --repeat         a tenth of the cells that results/ has, drawn at random
    python benchmarks/device_rows.py --compare DIR/rows.zip  what has been trained again beside results/

All but training need pyarrow. Groups: a quality at equal rounds (a1 at four rounds, a2 at
nine, a3 at six, a4 attention, a5 consensus and denoising), b unseen sources for the methods of Table 1, c lost links in
consensus, d banks and Minesweeper in node classification, e link scheduling, f what changes least: further activations
and two rounds. Cells are those of ``graphact-lab run``, with its keys, so that nothing is trained twice; ``--only a,b``
takes some groups, ``--work DIR`` keeps cells. The longest cell of a group starts first. No cell is started that would
not end in time, and what is unfinished at the end is stopped.
"""

import argparse
import json
import multiprocessing
import os
import random
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
RIVALS = ("gelu", "prelu", "bank-max", "bank-max-min", "bank-pna", "sage-max", "pna")  # of every conclusion
LINEAR = ("mean-ga", "bank-mean")  # controls
FURTHER = ("relu", "silu", "leaky-relu", "tanh", "bank-median", "max-ga-unshifted", "max-ga", "max-l")
LEAST = ("median-l", "median-ga")
GRAPHS = {"graphs": 40, "splits": 1}  # 160 networks, four nodes each; more graphs narrow an interval most
ATTENTION_GRAPHS = {"graphs": 16, "splits": 1, "nodes": 1}  # networks of attention are trained one by one
# Seconds of a layer of 160 networks on an H200 beside fourteen other processes
LAYER_SECONDS = dict.fromkeys(("gelu", "prelu", *FURTHER[:4]), 15) | {"bank-max-min": 24, "bank-pna": 30, "pna": 30}
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
        """Return the title of each job by its key; one, unless a method of scheduling has several shapes."""
        from graphact_lab.commands.run import cells_of

        if self.settings.methods:
            return cells_of(self.settings, self.seed)
        return {self.settings.key(None, self.seed): "rules without learning"}  # of scheduling


def rounds_cells():
    """Yield quality at equal rounds: source localization, then attention, consensus and denoising."""
    from graphact_lab.experiments.rounds.experiment import FULL, GATV2, LOCALIZATION, orders_of

    def cells(group, methods, rounds, task=LOCALIZATION, parts=("random", "unseen"), share=1.0, **shape):
        folder = {"a4": "rounds/attention"}.get(group, "rounds" if task == LOCALIZATION else f"rounds-{task}")
        for method in filter(lambda one: orders_of(one, rounds), methods):
            seconds = share * (10 + LAYER_SECONDS.get(method, 20) * len(orders_of(method, rounds)))
            for sources in parts:
                settings = replace(
                    FULL, task=task, sources=(sources,), methods=(method,), rounds=(rounds,), **(GRAPHS | shape)
                )
                yield DeviceCell(group, folder, settings, 0, 300 if method == GATV2 else seconds)

    for group, rounds in (("a1", 4), ("a2", 9), ("a3", 6)):
        yield from cells(group, (*RIVALS, *LINEAR), rounds)
    yield from cells("a4", (GATV2, *RIVALS), 4, share=0.5, **ATTENTION_GRAPHS)
    everything = (*RIVALS, *LINEAR, *FURTHER)
    for group, rounds in (("a5", 4), ("f3", 2), ("f3", 6)):
        for task, shape in (
            ("consensus", {"graphs": 10, "splits": 2, "epochs": 100}),
            ("denoising", {"graphs": 1, "splits": 20}),
        ):
            yield from cells(group, everything, rounds, task, parts=("random",), share=0.5, nodes=1, **shape)
    for rounds in (4, 9, 6):
        yield from cells("f1", (*FURTHER, *LEAST), rounds)
    yield from cells("f2", (*everything, *LEAST), 2)


def unseen_cells():
    """Yield source localization on unseen sources: every method with F = 8, then those of Table 1 and two rivals."""
    from graphact_lab.descriptions import find_protocol

    base = find_protocol("source-localization", "paper", "converged", (), {"sources": "unseen"})
    for width in (8, 4, 2):
        narrow = width < 8
        kept = ("relu", "prelu", "gelu", "max-l", "max-ga", "median-l", "median-ga", "kernel-ga")
        hops = {"hops": (2,), "localized_hops": (1,)} if narrow else {}
        for settings in single(replace(base, features=(width,), **hops)):
            method = settings.methods[0]
            if narrow and method not in kept:
                continue
            settings = replace(settings, hops=(1,)) if narrow and method == "kernel-ga" else settings
            seconds = 30 if not method.endswith(("-l", "-ga")) else 90 if method.startswith("median") else 60
            yield DeviceCell("b2" if narrow else "b1", "source-localization-unseen", settings, 0, seconds)


def lost_links_cells():
    """Yield consensus with lost links: pointwise activations with prepared inputs, and two that lack raw ones."""
    from graphact_lab.descriptions import find_protocol

    prepared = find_protocol("consensus", "best", None, ("silu", "gelu", "tanh", "prelu", "leaky-relu", "elu", "abs"))
    for settings in single(prepared):
        yield DeviceCell("c", "consensus-best", settings, 1, 50)
    raw = find_protocol("consensus", "paper", "converged", ("elu", "abs"), {"orders": "20", "splits": "5"})
    for settings in single(raw):
        yield DeviceCell("c", "consensus-converged", settings, 0, 80)


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
    yield from cells("d1", "residual", 50, "residual", seven, dataset="minesweeper")
    for bank in banks:
        yield from cells("d1", f"residual-{bank}", 60, "residual", three, dataset="minesweeper", convolution=bank)
        yield from cells("d1", f"residual-{bank}", 25, "residual", three, dataset="squirrel_filtered", convolution=bank)
        for name in ("cora", "citeseer"):
            yield from cells("d1", f"gcn-{bank}", 30, "gcn", three, dataset=name, convolution=bank)
    yield from cells("d2", "tuned-minesweeper", 300, "tuned-minesweeper", ("gelu", "prelu", *seven[3:]))
    for bank in banks:
        options = {"dataset": "minesweeper", "convolution": bank}
        yield from cells("d2", f"tuned-minesweeper-{bank}", 300, "tuned-minesweeper", ("relu", "gelu"), **options)


def scheduling_cells():
    """Yield the jobs of link scheduling; the group e1 chooses the rate of each method, and e2 needs it."""
    from graphact_lab.experiments.scheduling.experiment import FULL, NARROW, WIDTH

    yield DeviceCell("e1", "scheduling/full", replace(FULL, methods=()), 0, 410)
    for setting in FULL.settings_run:
        for rounds in FULL.rounds:
            for method in FULL.methods:
                settings = replace(FULL, methods=(method,), rounds=(rounds,), settings_run=(setting,))
                if settings.jobs:
                    seconds = len(settings.jobs) * (70 if setting == NARROW else 45)
                    is_first = rounds == 3 and setting == WIDTH  # which tunes, too
                    group = "e1" if is_first else "e2"
                    yield DeviceCell(group, "scheduling/full", settings, 0, seconds + 370 * is_first)


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


def in_order(cells):
    """Return cells by group, the longest one of a group first."""
    return sorted(cells, key=lambda cell: (cell.group, -cell.seconds))


def key_of(cell):
    """Return the key of a cell; of several jobs, that of the first."""
    return next(iter(cell.titles))


def published(cells, results):
    """Return the cells that a folder of results holds."""
    from graphact_lab.store import Store

    known = {folder: set(Store(results / folder).keys()) for folder in {cell.folder for cell in cells}}
    return [cell for cell in cells if known[cell.folder].issuperset(cell.titles)]


def listed(cells, file):
    """Return the cells whose keys are in a list, in its order."""
    by_key = {key_of(cell): cell for cell in cells}
    lines = [line.split() for line in file.read_text().splitlines()]
    keys = [line[2] for line in lines if len(line) > 2 and line[0] != "#"]
    if unknown := [key for key in keys if key not in by_key]:
        sys.exit(
            f"{file} names {len(unknown)} cells that do not exist, such as {unknown[0]}: make it again with --list"
        )
    return [by_key[key] for key in keys]


def show(cells, jobs):
    """Print a line for each cell, and what each group needs."""
    for cell in cells:
        echo(f"{cell.group:3} {cell.seconds:4.0f}s {key_of(cell)} {cell.folder}: {'; '.join(cell.titles.values())}")
    for group in dict.fromkeys(cell.group for cell in cells):
        own = [cell.seconds for cell in cells if cell.group == group]
        echo(f"# {group}: {len(own)} cells, {sum(own) / 60 / jobs:.1f} minutes with {jobs} processes")


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


def compare(file, results):
    """Print how far the rows of a file are from those of a folder of results."""
    from graphact_lab.statistics import place_of
    from graphact_lab.store import Store

    def values(rows):
        return {(*place_of(row), json.dumps(row.get("condition"))): row["value"] for row in rows}

    with zipfile.ZipFile(file) as archive:
        for name in filter(lambda one: "/rows/" in one, archive.namelist()):
            folder, _, key = name.removesuffix(".json").partition("/rows/")
            again, before = values(json.loads(archive.read(name))), values(Store(results / folder).cells()[key])
            apart = [again[place] - before[place] for place in before]
            largest, mean = max(map(abs, apart)), sum(apart) / len(apart)
            verdict = "equal" if largest == 0 else f"up to {largest:.3g} apart"
            echo(f"{key}: {len(apart)} values, {verdict}, mean {mean:+.3g}")


def data_folder(given):
    """Return the folder of the data sets: the argument, GRAPHACT_DATA, or the one beside or within the repository."""
    places = [given, os.environ.get("GRAPHACT_DATA"), ROOT / "shared" / "data", ROOT.parent / "shared" / "data"]
    for place in filter(None, places):
        if Path(place).is_dir():
            return Path(place).resolve()
    sys.exit("no data found: give --data DIR, or set GRAPHACT_DATA")


def chosen_cells(options):
    """Return the cells that the options name, in the order in which they start."""
    cells = [cell for cell in all_cells() if not options.only or cell.group.startswith(tuple(options.only))]
    if options.smoke:
        return in_order(one_of_each(cells))
    if options.cells:
        return listed(cells, options.cells)
    known = published(cells, options.results)
    if options.repeat:
        return in_order(random.Random(0).sample(known, -(-len(known) // 10)))
    return in_order(cell for cell in cells if cell not in known)


def run(options):
    """Train the cells that are wanted; return 1 if some are not finished."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    data = data_folder(options.data)
    os.environ.update(GRAPHACT_DATA=str(data), OMP_NUM_THREADS="1")
    cells = chosen_cells(options)
    folder = options.work or Path(tempfile.mkdtemp(prefix="device-rows-"))
    folder.mkdir(parents=True, exist_ok=True)
    if options.known:
        with zipfile.ZipFile(options.known) as archive:
            archive.extractall(folder)
    options.out.mkdir(parents=True, exist_ok=True)
    known = {path.stem for path in folder.glob("**/rows/*.json")}
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
    parser.add_argument("--list", action="store_true", help="print the cells that results/ lacks and train nothing")
    parser.add_argument("--cells", type=Path, metavar="FILE", help="train what --list has written, in its order")
    parser.add_argument("--repeat", action="store_true", help="with --list: published cells, to train them again")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="compare the rows of FILE with those in results/")
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument(
        "--only", type=lambda text: text.split(","), default=[], help="groups by how they begin, such as a1,b,d1"
    )
    parser.add_argument("--jobs", type=count, default=10)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder of rows.zip")
    parser.add_argument("--work", type=Path, help="folder of finished cells (default: a new one)")
    parser.add_argument("--known", type=Path, metavar="FILE", help="the rows.zip of an earlier run, to go on from")
    parser.add_argument("--merge", type=Path, metavar="FILE", help="put the rows of FILE into results/")
    parser.add_argument("--results", type=Path, default=ROOT / "results")
    options = parser.parse_args()
    for file in filter(None, (options.known, options.merge, options.compare)):
        if not zipfile.is_zipfile(file):
            parser.error(f"{file} is not the rows.zip of a run")
    if options.merge or options.compare:
        return (merge if options.merge else compare)(options.merge or options.compare, options.results)
    if options.list:
        return show(chosen_cells(options), options.jobs)
    if not (options.smoke or options.cells or options.only):
        sys.stderr.write(
            "device_rows.py: every missing cell takes hours; give --smoke, --list, --only or --cells FILE\n"
        )
        return 2
    return run(options)


if __name__ == "__main__":
    sys.exit(main())
