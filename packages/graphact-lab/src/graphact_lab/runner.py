"""Running the training jobs of a protocol and writing their rows as they come."""

import math
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from graphact.nn import FIR, GCNN, GraphModule
from graphact.spec import HopMixture
from graphact.training import Fleet, Task
from graphact_lab.baselines import baselines, prepared_baselines
from graphact_lab.descriptions import find_experiment
from graphact_lab.job_progress import JobWatcher
from graphact_lab.protocols import Condition, Protocol, TrainingJob, jobs_of, key_of_baselines, run_seed
from graphact_lab.provenance import provenance
from graphact_lab.store import Row, Store, StoreError

CHECKPOINT_SECONDS = 20.0
GAMMA = 0.1  # of the kernel activation
FITTED_ORDER = 35  # of the linear filter in closed form; lower orders come out alike


def run_protocol(
    protocol: Protocol,
    store: Store,
    *,
    seed: int = 0,
    device: str = "cpu",
    data: Path | None = None,
    watcher: JobWatcher | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    with_baselines: bool = True,
) -> None:
    """Run whatever is not finished yet. Jobs that another process holds are left to it.

    ``data`` is the folder of the data sets (see :func:`graphact_lab.data.download.locate`); a half-finished job is
    written to disk every ``checkpoint_seconds``. Without baselines, networks are trained and no more.
    """
    watcher, experiment = watcher or JobWatcher(), find_experiment(protocol.experiment)
    jobs, train_cell = jobs_of(protocol, seed), experiment.train_cell
    watcher.plan(len(jobs), sum(store.is_finished(job.key) for job in jobs))
    made_for: Condition | None = None
    data_seed = seed if protocol.data_seed is None else protocol.data_seed
    plain, tasks = list[Task](), list[Task]()
    for job in jobs:
        baseline_key = key_of_baselines(protocol, job.condition, seed)
        needs_baselines = with_baselines and train_cell is None and not store.is_finished(baseline_key)
        if store.is_finished(job.key) and not needs_baselines:
            continue
        if train_cell is None and job.condition != made_for:
            made_for, plain = job.condition, experiment.make_tasks(protocol, job.condition, data_seed, data)
            tasks = experiment.prepare_tasks(protocol, job.condition, plain, data_seed, data)
        if needs_baselines:
            store.fill(baseline_key, partial(run_baselines, protocol, job.condition, plain, tasks, seed))
        with store.claim(job.key) as mine:
            if mine and not store.is_finished(job.key):
                watcher.start(job.title, protocol.training.epochs)
                if train_cell is None:
                    saving = {"checkpoint": store.checkpoint(job.key), "every": timer(checkpoint_seconds)}
                    rows = run_job(job, plain, tasks, device, progress=lambda epoch, *_: watcher.epoch(epoch), **saving)
                else:
                    rows = rows_of_custom_training(job, train_cell, device, data)
                store.finish(job.key, rows)
                watcher.finish(job.title, summary_of(job, rows))


def check_settings(protocol: Protocol, store: Store, seed: int) -> None:
    """Raise if the store holds a job of this protocol with other settings: a report could not tell the two apart."""
    identity = ("experiment", "protocol", "method", "hops", "features", "order", "condition", "seed")
    jobs = [(job.title, job.settings()) for job in jobs_of(protocol, seed)]
    wanted = {tuple(str(settings[name]) for name in identity): (title, settings) for title, settings in jobs}
    for row in store.first_rows():
        settings = row.get("settings")
        if settings is None or row.get("preset") != protocol.preset:
            continue
        title, new = wanted.get(tuple(str(settings.get(name)) for name in identity), ("", settings))
        for name in sorted(new.keys() | settings.keys()):
            if new.get(name) != settings.get(name):
                change = f"{name} {settings.get(name)} instead of {new.get(name)}"
                raise StoreError(
                    f"{store.directory} holds results of other settings ({title}: {change}); choose another --out"
                )


def make_models(job: TrainingJob, tasks: list[Task]) -> list[GraphModule]:
    """One model a replica, each drawn from a seed of its own, the same for every method."""
    protocol = job.protocol
    features = [tasks[0].inputs.size(-1), *[job.features] * protocol.layers]
    later = job.order if protocol.later_order is None else protocol.later_order
    order = [job.order, *[later] * (protocol.layers - 1)]
    shape: dict[str, Any] = {"order": order, "out_features": tasks[0].out_features, "bias": protocol.bias}
    shape["readout_bias"] = protocol.readout_bias
    activation: dict[str, Any] = {"activation": job.method, "hops": job.hops or 1, "per_feature": protocol.per_feature}
    activation |= {"start": protocol.start, "gamma": GAMMA}
    models: list[GraphModule] = []
    with torch.random.fork_rng(devices=[]):
        for replica in range(len(tasks)):
            torch.manual_seed(run_seed("replica", job.seed, replica))
            models.append(FIR(features, **shape) if job.method == "fir" else GCNN(features, **shape, **activation))
    return models


def timer(seconds: float) -> Callable[[], bool]:
    """Return a function that is true once every so many seconds."""
    last = time.monotonic()

    def is_due() -> bool:
        nonlocal last
        due = time.monotonic() - last >= seconds
        last = time.monotonic() if due else last
        return due

    return is_due


def run_job(job: TrainingJob, plain: list[Task], tasks: list[Task], device: str, **training: Any) -> list[Row]:
    """Train the fleet of a job and evaluate it; further arguments are those of ``Fleet.train``."""
    begun = time.perf_counter()
    models, protocol = make_models(job, tasks), job.protocol
    seeds = [run_seed("replica", job.seed, replica) for replica in range(len(tasks))]
    fleet = Fleet(models, tasks, seeds, device=device)
    result = fleet.train(protocol.training, **training)
    further = find_experiment(protocol.experiment).evaluate_conditions(job, fleet, plain)
    common = {
        **stamp_of_job(job, device),
        **cost(models[0]),
        "seconds": (result.seconds_before + time.perf_counter() - begun) / len(tasks),
    }
    rows = []
    for replica, (model, task) in enumerate(zip(models, tasks, strict=True)):
        row = {
            **common,
            **replica_of(task),
            "condition": dict(job.condition),
            "metric": task.metric,
            "value": result.test[replica],
            "validation": result.validation[replica],
            "best_epoch": result.best_epoch[replica],
            **learned(model),
        }
        rows.append(row)
        for condition, values in further:  # what was learned is written once
            again = {"condition": {**job.condition, **condition}, "value": values[replica]}
            rows.append({**row, **again, "beta": None, "weights": None})
    return rows


def rows_of_custom_training(
    job: TrainingJob, train_cell: Callable[[TrainingJob, str, Path | None], list[Row]], device: str, data: Path | None
) -> list[Row]:
    """Return the rows of a job with custom training."""
    begun = time.perf_counter()
    found = train_cell(job, device, data)
    common = {
        **stamp_of_job(job, device),
        **dict.fromkeys(("graph", "split", "node", "realization")),
        "condition": dict(job.condition),
        "seconds": (time.perf_counter() - begun) / len(found),
    }
    return [{**common, **row} for row in found]


def run_baselines(
    protocol: Protocol, condition: Condition, plain: list[Task], tasks: list[Task], seed: int
) -> list[Row]:
    """The honest baselines on the same graphs and splits, also of what nodes make of their signals."""
    begun = time.perf_counter()
    figures = [
        baselines(task, order=FITTED_ORDER) | prepared_baselines(prepared, protocol.preparation, FITTED_ORDER)
        for task, prepared in zip(plain, tasks, strict=True)
    ]
    further = find_experiment(protocol.experiment).evaluate_baselines(protocol, plain, seed)
    labels = {name: name.replace("FIR", f"FIR of order {FITTED_ORDER}") for name in figures[0]}
    common = {**stamp(protocol, "cpu"), "kind": "baseline", "hops": None, "features": None, "order": None, "seed": seed}
    untrained = dict.fromkeys(("validation", "best_epoch", "epochs", "beta", "weights"))
    seconds = (time.perf_counter() - begun) / len(plain)
    return [
        {
            **common,
            **replica_of(task),
            "condition": {**condition, **more},
            "method": labels[name],
            "metric": task.metric,
        }
        | {"value": value, **untrained, "seconds": seconds}
        for more, figures_there in [({}, figures), *further]
        for task, figure in zip(plain, figures_there, strict=True)
        for name, value in figure.items()
    ]


def stamp(protocol: Protocol, device: str) -> Row:
    """Return the provenance of rows: preset, versions, device and time."""
    return {
        "experiment": protocol.experiment,
        "preset": protocol.preset,
        "protocol": protocol.name,
        **provenance(device),
    }


def stamp_of_job(job: TrainingJob, device: str) -> Row:
    """Return what all rows of a job have in common: provenance and settings."""
    return {
        **stamp(job.protocol, device),
        "kind": "model",
        **{name: getattr(job, name) for name in ("method", "hops", "features", "order", "seed")},
        "epochs": job.protocol.training.epochs,
        "settings": job.settings(),
    }


def replica_of(task: Task) -> Row:
    """Return the replica of a task: graph, split and node."""
    return {name: task.details.get(name) for name in ("graph", "split")} | {"node": task.node, "realization": None}


def learned(model: GraphModule) -> Row:
    """The trained coefficients of the activations, layer by layer; None where there is no activation."""
    activations = [layer for layer in model.layers() if isinstance(layer, HopMixture)]
    beta = [layer.beta.item() for layer in activations]
    weights = [layer.weights.detach().view(layer.hops, -1).tolist() for layer in activations]
    return {"beta": beta or None, "weights": weights or None}


def cost(model: GraphModule) -> Row:
    """Return the number of parameters of a network, and of exchanges between neighbours for an answer."""
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return {"parameters": parameters, "exchanges": sum(layer.exchanges for layer in model.layers())}


def summary_of(job: TrainingJob, rows: list[Row]) -> str:
    """The result of a job in one line, without evaluations under other conditions than it was trained in."""
    own = [row for row in rows if row["condition"] == job.condition]
    values = [row["value"] for row in own if math.isfinite(row["value"])]
    diverged = f", {len(own) - len(values)} diverged" if len(values) < len(own) else ""
    if not values:
        return f"all {len(own)} runs diverged"
    spread = f" ± {statistics.stdev(values):.3g}" if len(values) > 1 else ""
    unit = "RMSE" if own[0]["metric"] == "rmse" else "%"
    return f"{statistics.fmean(values):.3g}{spread} {unit} over {len(values)} runs{diverged}"
