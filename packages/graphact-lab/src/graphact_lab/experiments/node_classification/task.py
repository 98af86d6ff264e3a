"""Training of one cell: all splits and grid points of one activation on one graph, as fleets."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphact._checks import check_choice, check_flag
from graphact.training.fleet import FleetResult
from graphact.training.splits import Split
from graphact_lab.data.nodes import NodeData, read_nodes
from graphact_lab.experiments.node_classification.convolutions import NodeGraph, node_graph
from graphact_lab.experiments.node_classification.networks import NodeNetwork
from graphact_lab.fleets.active import in_parts
from graphact_lab.fleets.features import SparseFeatures
from graphact_lab.fleets.nodes import NodeFleet
from graphact_lab.protocol import RIVALS, TrainingJob, run_seed
from graphact_lab.selection import Trial, grid, nested

SPLITS = ("random", "given", "public", "fifth")
LIVE_TENSORS = 24  # signals of a layer that are held at once, about
MEMORY = {"cuda": 48 * 2**30, "cpu": 2 * 2**30}
NETWORK_OPTIONS = ("convolution", "norm", "skip", "readout", "feature_dropout", "biases", "linear_start")


def dataset_of(job: TrainingJob) -> str:
    """The data set of a cell: what it varies, or else the name of its protocol."""
    return str(job.condition.get("dataset", job.protocol.name))


@cache
def read_once(name: str, directory: Path | None, raw: bool) -> NodeData:
    """A data set, read once; ``raw``: words are counts."""
    return read_nodes(name, directory, normalize_features=not raw)


def data_of(job: TrainingJob, directory: Path | None) -> NodeData:
    """The data set of a cell."""
    raw = check_flag("raw_features", job.protocol.task_options.get("raw_features", False))
    return read_once(dataset_of(job), directory, raw)


@lru_cache(maxsize=1)
def on_device(data: NodeData, convolution: str, device: str) -> tuple[Tensor | SparseFeatures, NodeGraph]:
    """Features and shift operators, moved to the device once for all activations."""
    dtype = torch.float32
    return data.x.to(device, dtype), node_graph(data.graph, convolution).to(device, dtype)


def split_of(job: TrainingJob, data: NodeData, replica: int) -> Split:
    """The split of a replica; with the public split, replicas differ in their seeds alone."""
    kind = check_choice("split", job.protocol.task_options.get("split", "random"), SPLITS)
    if kind == "fifth":
        return data.fifth(replica)
    if kind != "public":
        return data.split(replica)
    if data.public is None:
        raise ValueError(f"split must be 'random' or 'given' for {data.name}, which has no public split, got 'public'")
    return data.public


def make_network(job: TrainingJob, data: NodeData, replica: int) -> NodeNetwork:
    """The network of a replica, drawn from its seed, which is the same for every activation and grid point."""
    protocol, options = job.protocol, dict(job.protocol.task_options)
    activation = job.method
    if job.method in RIVALS:
        activation, options["convolution"] = "relu", job.method.removesuffix("-gcn")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(run_seed("replica", job.seed, replica))
        return NodeNetwork(
            data.x.size(1),
            job.features,
            data.num_classes,
            layers=protocol.layers,
            activation=activation,
            hops=job.hops or 1,
            start=protocol.start,
            **{name: options[name] for name in NETWORK_OPTIONS if name in options},
        )


def decayed_by(options: Mapping[str, Any]) -> Callable[[str], bool] | None:
    """Which parameters the decay concerns, by name; None for the usual ones."""
    every, first = (check_flag(name, options.get(name, False)) for name in ("decay_all", "decay_first"))
    if every:
        return lambda _: True
    return (lambda name: name.startswith("convolutions.0.maps")) if first else None


def train_trials(
    job: TrainingJob, trials: Sequence[Trial], device: str, directory: Path | None, *, keep: bool = False
) -> tuple[FleetResult, list[NodeFleet]]:
    """Train models of a job as few fleets, as large as memory allows; with ``keep``, fleets know their best models."""
    data = data_of(job, directory)
    convolution = job.protocol.task_options.get("convolution", "gcn")
    networks = {replica: make_network(job, data, replica) for replica in {trial.replica for trial in trials}}
    x, graph = on_device(data, convolution, device)
    bytes_each = 4 * len(data.y) * job.features * LIVE_TENSORS * job.protocol.layers
    size = max(1, MEMORY[torch.device(device).type] // bytes_each)
    settings, window = job.protocol.training, job.protocol.task_options.get("window")

    def train(part: slice) -> tuple[FleetResult, NodeFleet]:
        own = trials[part]
        fleet = NodeFleet(
            [networks[trial.replica] for trial in own],
            x,
            graph,
            data.y,
            [split_of(job, data, trial.replica) for trial in own],
            seeds=[run_seed("dropout", job.seed, trial.replica) for trial in own],
            rates=[trial.point.rate for trial in own],
            decays=[trial.point.decay for trial in own],
            dropouts=[trial.point.dropout for trial in own],
            metric=data.metric,
            is_decayed=decayed_by(job.protocol.task_options),
            device=device,
        )
        return fleet.train(settings.epochs, settings.patience, keep=keep, window=window), fleet

    results, fleets = zip(*in_parts(len(trials), size, train), strict=True)
    return FleetResult.joined(results), list(fleets)


def run_job(job: TrainingJob, device: str, directory: Path | None) -> list[dict[str, Any]]:
    """Choose the settings of an activation on one graph and report with them: the rows of its reported splits."""
    protocol, data = job.protocol, data_of(job, directory)
    points = grid(protocol.rates, protocol.decays, protocol.dropouts)
    tuning = range(protocol.tuning_splits)
    reporting = range(protocol.tuning_splits, protocol.tuning_splits + protocol.splits)

    def train(trials: Sequence[Trial]) -> FleetResult:
        return train_trials(job, trials, device, directory)[0]

    outcomes, validation = nested(train, points, tuning, reporting)
    network = make_network(job, data, reporting[0])
    common = {
        "metric": data.metric,
        "parameters": sum(parameter.numel() for parameter in network.parameters()),
        "exchanges": network.exchanges,
        "beta": None,
        "weights": None,
    }
    rows = [{**common, **outcome.row()} for outcome in outcomes]
    rows[0]["tuning"] = validation  # of each grid point on each split that chooses
    if protocol.task_options.get("split") == "fifth":  # nothing validated what was chosen on the reported nodes
        rows = [row | {"validation": None, "tuning": []} for row in rows]
    return rows
