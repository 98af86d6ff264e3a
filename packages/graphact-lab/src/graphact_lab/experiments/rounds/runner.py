"""Training of the networks of the experiment, and the rows that come of it."""

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphact.graph import Graph
from graphact.nn import GCNN
from graphact.training import Fleet, Task, TrainingSettings
from graphact_lab.attention import GATv2
from graphact_lab.data.diffused_sources import BLOCKS, source_localization_tasks, with_unseen_sources
from graphact_lab.experiments.rounds.experiment import (
    ACTIVATIONS,
    BANKS,
    BASELINES,
    GATV2,
    LINEAR,
    LINEAR_UNIT,
    LOCALIZATION,
    NAME,
    NEAREST_NOISY,
    NOISE,
    WITHOUT_SHIFT,
    Rounds,
    RoundsJob,
    orders_of,
)
from graphact_lab.job_progress import JobWatcher
from graphact_lab.provenance import provenance
from graphact_lab.splits import data_generator
from graphact_lab.store import Row, Store


class AttentionNetwork(nn.Module):
    """Layers of GATv2 and GELU, with residuals as in the other networks, and a linear readout."""

    def __init__(self, layers: int, width: int, out_features: int) -> None:
        super().__init__()
        pairs = [(1, width), *[(width, width)] * (layers - 1)]
        self.convolutions, self.readout = nn.ModuleList(GATv2(*pair) for pair in pairs), nn.Linear(width, out_features)

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        for number, convolution in enumerate(self.convolutions):
            made = F.gelu(convolution(x, graph))
            x = x + made if number and len(self.convolutions) > 2 else made
        answers: Tensor = self.readout(x)
        return answers


def make_model(job: RoundsJob, width: int, out_features: int = BLOCKS.communities) -> nn.Module:
    """Return a network of a job; layers after the first add their input to their output if there are more than two."""
    if job.method == GATV2:
        return AttentionNetwork(job.rounds, width, out_features)
    orders = orders_of(job.method, job.rounds)
    options: dict[str, Any] = {"order": orders, "bias": True, "out_features": out_features, "residual": len(orders) > 2}
    if ops := {**BANKS, **WITHOUT_SHIFT}.get(job.method):
        options |= {"bank": "adaptive", "ops": ops}
    else:
        options["activation"] = ACTIVATIONS.get(job.method, (1, job.method))[1]
    return GCNN([1, *[width] * len(orders)], **options)


def make_tasks(settings: Rounds, sources: str, seed: int) -> list[Task]:
    """Return the tasks of all graphs, splits and nodes."""
    if settings.task == "consensus":
        from graphact_lab.experiments.consensus.task import consensus_tasks

        return consensus_tasks(settings.graphs, settings.splits, seed)
    if settings.task == "denoising":
        from graphact_lab.experiments.denoising.experiment import PAPER_SNR
        from graphact_lab.experiments.denoising.task import denoising_tasks

        return denoising_tasks(settings.splits, seed, snrs_db=(PAPER_SNR,), noise_from="training hours")
    tasks = source_localization_tasks(settings.graphs, settings.splits, settings.nodes, seed)
    return tasks if sources == "random" else [with_unseen_sources(task) for task in tasks]


def without_weights(tasks: Sequence[Task]) -> list[Task]:
    """Return the tasks on graphs whose shift is 0, with the same neighbours."""
    graphs = {id(task.graph): task.graph for task in tasks}
    bare = {
        key: Graph.from_edge_index(index, 0 * weight, graph.num_nodes)
        for key, graph in graphs.items()
        for index, weight in [graph.to_edge_index()]
    }
    return [replace(task, graph=bare[id(task.graph)]) for task in tasks]


def check_settings(settings: Rounds, store: Store, seed: int) -> None:
    """Raise if the store holds rows of other settings: a report could not tell them apart."""
    wanted = settings.settings(settings.jobs[0], seed)
    store.check_settings({name: wanted[name] for name in wanted.keys() - {"method", "rounds", "sources", "seed"}})


def run(
    settings: Rounds,
    store: Store,
    *,
    seed: int = 0,
    device: str = "cpu",
    watcher: JobWatcher | None = None,
    with_baselines: bool = True,
) -> None:
    """Run whatever is not finished yet; jobs that another process holds are left to it.

    Baselines that read all nodes stand beside the networks.
    """
    watcher = watcher or JobWatcher()
    tasks_of = {sources: make_tasks(settings, sources, seed) for sources in settings.sources}
    finished = sum(store.is_finished(settings.key(job, seed)) for job in settings.jobs)
    watcher.plan(len(settings.jobs), finished, len(tasks_of[settings.sources[0]]))
    for sources, tasks in tasks_of.items():
        for name in BASELINES if with_baselines and settings.task == LOCALIZATION else ():
            job = RoundsJob(name, 0, sources)
            store.fill(settings.key(job, seed), partial(run_baseline, settings, job, tasks, seed))
        for job in settings.jobs:
            if job.sources == sources:
                store.fill(settings.key(job, seed), partial(run_job, settings, job, tasks, seed, device, watcher))


def run_baseline(settings: Rounds, job: RoundsJob, tasks: Sequence[Task], seed: int) -> list[Row]:
    """Return the rows of a classifier that knows all nodes' values and has seen the signals of training."""
    rows = []
    for task in tasks:
        answers = (least_squares if job.method in (LINEAR, LINEAR_UNIT) else nearest)(job.method, task)
        right = (answers == task.targets[task.test]).double().mean().item()
        rows.append(stamp(settings, job, seed, "cpu") | place_of(task) | {"kind": "baseline", "value": 100 * right})
    return rows


def nearest(method: str, task: Task) -> Tensor:
    """Return the classes of the training signals at the smallest angle, with or without noise on all signals."""
    signals = task.inputs.double().flatten(1)
    if method == NEAREST_NOISY:
        generator = data_generator("noise of a baseline", *(task.details[name] for name in ("seed", "graph", "split")))
        signals = signals * (1 + NOISE * torch.randn(signals.shape, generator=generator, dtype=signals.dtype))
    signals = F.normalize(signals, dim=1)
    return task.targets[task.train[(signals[task.test] @ signals[task.train].T).argmax(1)]]


def least_squares(method: str, task: Task) -> Tensor:
    """Return the classes of the largest scores of a linear map with a constant, fitted to one-hot classes."""
    signals = task.inputs.double().flatten(1)
    signals = F.normalize(signals, dim=1) if method == LINEAR_UNIT else signals
    signals = torch.cat([signals, signals.new_ones(len(signals), 1)], 1)
    wanted = F.one_hot(task.targets[task.train], task.out_features).double()
    scores = signals[task.test] @ torch.linalg.lstsq(signals[task.train], wanted, driver="gelsd").solution
    return scores.argmax(1)


def run_job(
    settings: Rounds, job: RoundsJob, tasks: Sequence[Task], seed: int, device: str, watcher: JobWatcher
) -> list[Row]:
    """Train the networks of a job with each step size; return the rows of the better one on validation samples."""
    watcher.start(job.title, settings.epochs * len(settings.rates))
    begun = time.perf_counter()
    tasks = without_weights(tasks) if job.method in WITHOUT_SHIFT else tasks
    found = []
    for number, rate in enumerate(settings.rates):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            models = [make_model(job, settings.width, tasks[0].out_features) for _ in tasks]
        training = TrainingSettings(epochs=settings.epochs, batch_size=settings.batch_size, learning_rate=rate)
        fleet = Fleet(models, tasks, device=device)
        result = fleet.train(
            training, progress=lambda epoch, *_, before=number: watcher.epoch(before * settings.epochs + epoch)
        )
        score = sum(result.validation) if tasks[0].metric == "accuracy" else -sum(result.validation)
        found.append((score if math.isfinite(score) else -math.inf, rate, result))
    _, rate, result = max(found, key=lambda each: each[0])
    common = stamp(settings, job, seed, device) | {
        "kind": "model",
        "metric": tasks[0].metric,
        "rate": rate,
        "parameters": sum(parameter.numel() for parameter in models[0].parameters()),
        "exchanges": job.rounds,
        "seconds": (time.perf_counter() - begun) / len(models),
    }
    mean = sum(result.test) / len(models)
    watcher.finish(job.title, f"{mean:.1f} % right" if tasks[0].metric == "accuracy" else f"RMSE {mean:.4g}")
    return [
        common | place_of(task) | {"value": value, "validation": validation}
        for task, validation, value in zip(tasks, result.validation, result.test, strict=True)
    ]


def stamp(settings: Rounds, job: RoundsJob, seed: int, device: str) -> Row:
    """Return the provenance of rows: settings, versions, device and time."""
    return {
        "experiment": NAME,
        "preset": settings.preset,
        **asdict(job),
        "metric": "accuracy",
        "seed": seed,
        "settings": settings.settings(job, seed),
        **provenance(device),
    }


def place_of(task: Task) -> Row:
    """Return which graph, split and node a task is of."""
    return {"graph": task.details.get("graph"), "split": task.details["split"], "node": task.node}
