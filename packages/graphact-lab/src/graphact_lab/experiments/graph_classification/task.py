"""Training of one cell: all folds and grid points of one activation on one set of graphs, as fleets."""

from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import torch

from graphact._checks import check_integer
from graphact.training.fleet import FleetResult
from graphact_lab.data.graph_sets import GraphBatch, GraphSet, read_graphs
from graphact_lab.experiments.graph_classification.experiment import OPTIMISTIC
from graphact_lab.experiments.graph_classification.gin import GINNetwork
from graphact_lab.fleets.active import in_parts, models_at_once, trial_options
from graphact_lab.fleets.graphs import GraphFleet
from graphact_lab.protocols import TrainingJob, run_seed
from graphact_lab.selection import TrainingTrial, grid, nested_rows, network_row
from graphact_lab.splits import Split

PARTITIONS = 2  # ways to deal the graphs into batches, which take turns


@cache
def data_of(name: str, directory: Path | None) -> GraphSet:
    """A data set, read once."""
    return read_graphs(name, directory)


@lru_cache(maxsize=1)
def batches_of(name: str, directory: Path | None, size: int, seed: int, device: str) -> list[list[GraphBatch]]:
    """The batches, moved to the device once for all activations."""
    data = data_of(name, directory)
    numbers = [run_seed("batches", seed, number) >> 32 for number in range(PARTITIONS)]
    return [[batch.to(device, torch.float32) for batch in data.batches(size, number)] for number in numbers]


def batch_size(job: TrainingJob, graphs: int) -> int:
    """At most the batch size of the training, and small enough for so many batches in an epoch."""
    least = check_integer("least_batches", job.protocol.task_options["least_batches"], minimum=1)
    return min(job.protocol.training.batch_size, -(-graphs // least))


def make_network(job: TrainingJob, data: GraphSet, fold: int) -> GINNetwork:
    """The network of a fold, drawn from its seed, which is the same for every activation and grid point."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(run_seed("replica", job.seed, fold))
        return GINNetwork(
            data.x.size(1),
            job.features,
            data.num_classes,
            layers=job.protocol.layers,
            activation=job.method,
            hops=job.hops or 1,
            start=job.protocol.start,
        )


def train_trials(
    job: TrainingJob, trials: Sequence[TrainingTrial], splits: Sequence[Split], device: str, directory: Path | None
) -> tuple[FleetResult, torch.Tensor]:
    """Train models of a job as few fleets, as large as memory allows; also the test curves ``(R, epochs)``."""
    data = data_of(job.condition["dataset"], directory)
    partitions = batches_of(data.name, directory, batch_size(job, len(data.y)), job.seed, device)
    networks = {fold: make_network(job, data, fold) for fold in {trial.replica for trial in trials}}
    nodes = max(len(batch.x) for batches in partitions for batch in batches)

    def train(part: slice) -> tuple[FleetResult, torch.Tensor]:
        own = trials[part]
        fleet = GraphFleet(
            [networks[trial.replica] for trial in own],
            partitions,
            data.y,
            splits[part],
            **trial_options(job, own),
            device=device,
        )
        result = fleet.train(job.protocol.training.epochs, job.protocol.training.patience, keep=False)
        return result, fleet.curves.cpu()

    results, curves = zip(*in_parts(len(trials), models_at_once(job, nodes, device), train), strict=True)
    return FleetResult.joined(results), torch.cat(curves)


def train_cell(job: TrainingJob, device: str, directory: Path | None) -> list[dict[str, Any]]:
    """Return the rows of an activation on one set: nested selection, and apart from it the optimistic protocol."""
    data = data_of(job.condition["dataset"], directory)

    def train(trials: Sequence[TrainingTrial]) -> FleetResult:
        return train_trials(job, trials, [data.split(trial.replica) for trial in trials], device, directory)[0]

    network = make_network(job, data, job.protocol.tuning_splits)
    rows = nested_rows(job, train, network, "accuracy")
    if job.protocol.task_options["optimistic"]:
        common = network_row(network, "accuracy")
        rows += [common | row for row in optimistic_rows(job, data, device, directory)]
    return rows


def optimistic_rows(job: TrainingJob, data: GraphSet, device: str, directory: Path | None) -> list[dict[str, Any]]:
    """Return the rows that the field usually reports: of the grid point and epoch that are best on the held-out folds.

    Models train on all other folds, validation graphs included; what is chosen on a fold is reported on it.
    """
    protocol = job.protocol
    points = grid(protocol.rates, protocol.decays, protocol.dropouts)
    folds = range(protocol.tuning_splits, protocol.tuning_splits + protocol.splits)
    trials = [TrainingTrial(point, fold) for point in points for fold in folds]
    parts = [data.split(trial.replica) for trial in trials]
    splits = [Split(torch.cat([part.train, part.validation]).sort().values, *part[1:]) for part in parts]
    curves = train_trials(job, trials, splits, device, directory)[1].view(len(points), len(folds), -1)
    means = curves.mean(1).nan_to_num(nan=-torch.inf)  # (points, epochs)
    point, epoch = divmod(int(means.argmax()), means.size(1))
    return [
        {
            "split": fold,
            "value": curves[point, place, epoch].item(),
            "validation": None,
            "best_epoch": epoch + 1,
            "chosen": points[point]._asdict(),
            "condition": {"dataset": f"{data.name}{OPTIMISTIC}"},
        }
        for place, fold in enumerate(folds)
    ]
