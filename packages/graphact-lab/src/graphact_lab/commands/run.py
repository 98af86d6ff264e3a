"""graphact-lab run and report: an experiment, from data to report."""

import argparse
import shlex
import signal
import sys
from contextlib import nullcontext
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from graphact._extras import require
from graphact.commands.parser import command, import_modules, option, print_json
from graphact.registry import FURTHER, POINTWISE
from graphact_lab.data.sources import SOURCE_DESCRIPTIONS
from graphact_lab.descriptions import (
    BENCHMARK_PRESETS,
    EVERY_EXPERIMENT,
    FLOCKING_PRESETS,
    NETWORKS_OF_ROUNDS,
    PRESETS,
    ROUNDS,
    STANDALONE,
    find_experiment,
    find_protocol,
)
from graphact_lab.protocols import METHODS, RIVALS, Protocol, jobs_of

if TYPE_CHECKING:
    from graphact_lab.store import Store

Settings = Any  # a Protocol, or the settings of an experiment with a runner of its own
PRESET_NAMES = tuple(dict.fromkeys((*PRESETS, *BENCHMARK_PRESETS, *FLOCKING_PRESETS)))
REPORT_PACKAGES = ("jinja2", "matplotlib", "pandas")
DATA = option(
    "--data",
    f"folder with {'/, '.join(SOURCE_DESCRIPTIONS)}/, of which only those in use are needed "
    "(default: the environment variable GRAPHACT_DATA, else downloaded once)",
    type=Path,
    metavar="DIR",
)


@command(
    option("experiment", ", ".join(EVERY_EXPERIMENT), choices=EVERY_EXPERIMENT, metavar="EXPERIMENT"),
    option(
        "--preset",
        "quick: a minute or two on a CPU (default); paper, or full for experiments beyond the paper: all of it; "
        "best: better settings, found on seed 0; medium, for flocking: between quick and full; "
        "smoke: a few seconds, to check that a command works",
        choices=PRESET_NAMES,
        default="quick",
    ),
    option(
        "--protocol",
        "paper: its text, verbatim; converged: trained until the figures settle; readout-bias, for consensus: the text "
        "with a constant in the readout (graphact-lab list experiments: which preset has which)",
    ),
    option(
        "--activation",
        f"train this one alone (repeatable). Of the paper: {', '.join(METHODS)}. Pointwise: {', '.join(POINTWISE)}. "
        f"Others: {', '.join(FURTHER)}. Of robustness: {', '.join(RIVALS)}. "
        f"Of rounds besides: {', '.join(NETWORKS_OF_ROUNDS)}. "
        "Several by one name: compared, pointwise, every",
        action="append",
        default=[],
        metavar="NAME",
    ),
    "--import",
    option(
        "--set",
        "change a setting of the protocol, its training or its tasks (repeatable): features=2,4 orders=5 hops=1,2 "
        "localized_hops=1,2 layers=3 shift=laplacian p=0.6 epochs=100 learning_rate=0.01 preparation=local-contrast",
        action="append",
        default=[],
        metavar="NAME=VALUE",
    ),
    option("--device", "device to train on (default: cuda where available)"),
    option(
        "--out",
        "folder for results (default: out/EXPERIMENT-PRESET, with -NAME-VALUE added for each --set and -seed-N for a "
        "seed other than 0)",
    ),
    "--seed",
    option("--seeds", "run this many seeds, from --seed on (default: 1)", type=int, default=1, metavar="N"),
    option(
        "--rows-only",
        "only train; run the same command without it to add baselines and the report",
        action="store_true",
    ),
    option(
        "--threads",
        "CPU threads (default: OMP_NUM_THREADS if set, else one or all cores, whichever trains faster in the first "
        "steps)",
        type=int,
        metavar="N",
    ),
    DATA,
    "--json",
)
def run(options: argparse.Namespace) -> int:
    """Run an experiment: draw or read the data, train all networks of a setting as one batch, write results as they
    come, then write the report. Run the same command again after a stop: finished cells are not repeated, a
    half-finished one of the paper's four experiments resumes from its last checkpoint, one of others starts again.
    Processes that run the same command share the cells.
    """
    from graphact._checks import check_integer
    from graphact.training.malloc import keep_freed_memory
    from graphact_lab.store import Store

    import_modules(options.imports)
    protocol = find_settings(options)
    if options.threads is not None:
        check_integer("--threads", options.threads, minimum=1)
    seeds = range(options.seed, options.seed + check_integer("--seeds", options.seeds, minimum=1))
    device = pick_device(options.device)
    if not options.rows_only:
        require("graphact-lab run needs", *REPORT_PACKAGES)
    store = Store(options.out or default_folder(options))
    check_run(protocol, store, seeds, options.data)
    store.create(command_line(options))
    keep_freed_memory()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C
    train(protocol, store, seeds, device, options)
    cells = {key: title for seed in seeds for key, title in cells_of(protocol, seed).items()}
    left = [title for key, title in cells.items() if not store.is_finished(key)]
    if left:
        sys.stderr.write(f"graphact-lab: another process is still working on {len(left)} cells, such as {left[0]}\n")
    return int(bool(left)) if options.rows_only else finish(store, as_json=options.json) or bool(left)


def find_settings(options: argparse.Namespace) -> Settings:
    """Return the protocol that the options of a run describe, or the settings of a standalone experiment."""
    for change in options.set:
        if "=" not in change:
            raise ValueError(f"--set must be NAME=VALUE, got {change!r}")
    changes = dict(change.split("=", 1) for change in options.set)
    is_standalone = options.experiment in STANDALONE
    if is_standalone and options.protocol is not None:
        raise ValueError(f"{options.experiment} has no protocols, got --protocol {options.protocol}")
    try:
        if is_standalone:
            find = part_of(options.experiment, "experiment:find_settings")
            return find(options.preset, options.activation, changes)
        return find_protocol(options.experiment, options.preset, options.protocol, tuple(options.activation), changes)
    except ValueError as error:
        text = str(error)
        if not text.startswith(("activation must be", "preset must be")):
            raise
        is_unknown = text.startswith("activation") and "did you mean" not in text and not is_standalone
        hint = "; your own activation is known after --import MODULE" if is_unknown else ""
        raise ValueError(f"--{text}{hint}") from error


def part_of(experiment: str, name: str) -> Any:
    """Return a part of an experiment with a runner of its own, such as "report:write_page"."""
    return resolve_name(f"graphact_lab.experiments.{experiment.replace('-', '_')}.{name}")


def check_run(protocol: Settings, store: "Store", seeds: range, data: Path | None) -> None:
    """Raise if the folder holds results of other settings, or data is missing, before anything is trained."""
    if isinstance(protocol, Protocol):
        from graphact_lab.data.download import locate
        from graphact_lab.runner import check_settings

        for seed in seeds:
            check_settings(protocol, store, seed)
        experiment = find_experiment(protocol.experiment)
        for dataset in (*([] if experiment.dataset is None else [experiment.dataset]), *experiment.datasets(protocol)):
            locate(dataset, data)
    else:
        for seed in seeds:
            part_of(protocol.experiment, "runner:check_settings")(protocol, store, seed)


def train(protocol: Settings, store: "Store", seeds: range, device: str, options: argparse.Namespace) -> None:
    """Train whatever is not finished yet, with the number of threads that is given or measured to be fastest."""
    import torch

    from graphact.training import threads
    from graphact_lab.job_progress import JobWatcher

    if options.threads is not None:
        torch.set_num_threads(options.threads)
    is_measured = device == "cpu" and options.threads is None and not threads.are_set()
    for seed in seeds:
        watcher = JobWatcher(shows=not (options.quiet or options.json))
        with threads.measured_threads() if is_measured else nullcontext():
            shared: dict[str, Any] = {"seed": seed, "device": device, "watcher": watcher}
            shared["with_baselines"] = not options.rows_only
            if isinstance(protocol, Protocol):
                from graphact_lab.runner import run_protocol

                run_protocol(protocol, store, data=options.data, **shared)
            else:
                part_of(protocol.experiment, "runner:run")(protocol, store, **shared)


def cells_of(protocol: Settings, seed: int) -> dict[str, str]:
    """Return the title of each cell, by key."""
    if isinstance(protocol, Protocol):
        return {job.key: job.title for job in jobs_of(protocol, seed)}
    return {protocol.key(job, seed): job.title for job in protocol.jobs}


def default_folder(options: argparse.Namespace) -> Path:
    """Return a folder for each experiment, preset, changed setting and seed."""
    changed = "".join(f"-{change}" for change in options.set).replace("=", "-").replace("/", "-")
    folder = Path("out") / f"{options.experiment}-{options.preset}{changed}"
    return folder.with_name(f"{folder.name}-seed-{options.seed}") if options.seed else folder


def finish(store: "Store", *, as_json: bool) -> int:
    """Print the table and write the report."""
    rows = store.rows()
    standalone = next((name for name in STANDALONE if rows[0].get("experiment") == name), None)
    try:
        if standalone is not None:
            page = part_of(standalone, "report:write_page")(rows, store.directory, store.commands())
            table = part_of(standalone, "report:terminal_table")(rows) if standalone == ROUNDS else ""
        else:
            require("reports need", *REPORT_PACKAGES)
            from graphact_lab.report.page import terminal_table, write_report

            page = write_report(rows, store.directory, command="\n".join(store.commands()))
            table = terminal_table(rows)
    except ModuleNotFoundError as error:
        raise ValueError(f"{error}; results are kept: graphact-lab report {store.directory}") from error
    except KeyError as error:
        raise ValueError(
            f"a row in {store.directory} has no {error}: it is damaged or of another version; run into another --out"
        ) from error
    if as_json:
        return print_json({"folder": str(store.directory), "report": str(page), "rows": rows})
    sys.stdout.write(f"\nreport: {page}\n" + (f"\n{table}\n" if table else ""))  # the conclusion stands last
    return 0


def pick_device(name: str) -> str:
    """Return the device to train on."""
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError("--device cuda needs a CUDA device, and torch finds none")
    return name


def command_line(options: argparse.Namespace) -> str:
    """Return the command that repeats this run, without what concerns this machine alone."""
    words = ["graphact-lab", "run", options.experiment, "--preset", options.preset]
    words += ["--protocol", options.protocol] if options.protocol else []
    for name, values in (("--import", options.imports), ("--activation", options.activation), ("--set", options.set)):
        words += [word for value in values for word in (name, value)]
    words += ["--device", options.device, "--seed", str(options.seed)]
    return shlex.join([*words, *(["--seeds", str(options.seeds)] if options.seeds > 1 else [])])


@command(
    option("directory", "a folder that graphact-lab run has written", type=Path, metavar="DIR"),
    option("--publish", "move the rows into one file, DIR/rows.parquet, to keep or share them", action="store_true"),
    "--json",
)
def report(options: argparse.Namespace) -> int:
    """Rewrite tables, figures and the HTML page from stored results."""
    from graphact_lab.store import Store

    store = Store(options.directory)
    if options.publish:
        store.publish()
    return finish(store, as_json=options.json)
