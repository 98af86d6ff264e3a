"""From a cell to the tasks and models of its fleet."""

import hashlib
from pathlib import Path
from typing import Any

import torch

from graphact.experiments.protocol import Cell, Protocol
from graphact.nn import FIR, GCNN, GraphModule
from graphact.tasks import (
    Task,
    consensus_tasks,
    denoising_tasks,
    locate,
    prepared,
    recommendation_tasks,
    source_localization_tasks,
)


def find_data(protocol: Protocol, data: Path | None) -> None:
    """Find, or download, the data set of an experiment that has one.

    Raises:
        DataError: it is missing or damaged.
    """
    needed = {"denoising": "molene", "recommendation": "ml-100k"}.get(protocol.experiment)
    if needed:
        locate(needed, data)


def make_tasks(protocol: Protocol, condition: dict[str, Any], seed: int, data: Path | None) -> list[Task]:
    """The tasks of all replicas of a cell, with signals as they come."""
    options = protocol.task_options
    if protocol.experiment == "source-localization":
        return source_localization_tasks(protocol.graphs, protocol.splits, protocol.nodes, seed, **options)
    if protocol.experiment == "consensus":
        return consensus_tasks(protocol.graphs, protocol.splits, seed, **options)
    if protocol.experiment == "denoising":
        return denoising_tasks(protocol.splits, seed, snrs_db=(condition["snr_db"],), directory=data, **options)
    return recommendation_tasks((condition["film"],), protocol.splits, seed, directory=data, **options)


def prepare_tasks(
    protocol: Protocol, condition: dict[str, Any], plain: list[Task], seed: int, data: Path | None
) -> list[Task]:
    """The same tasks as networks see them."""
    if protocol.preparation == "fill-in":
        options = {**protocol.task_options, "inputs": "filled in"}
        return recommendation_tasks((condition["film"],), protocol.splits, seed, directory=data, **options)
    return prepared(plain, protocol.preparation)


def make_models(cell: Cell, tasks: list[Task]) -> list[GraphModule]:
    """One model a replica, each drawn from a seed of its own, the same for every method."""
    models = []
    with torch.random.fork_rng(devices=[]):
        for replica in range(len(tasks)):
            torch.manual_seed(seed_of("replica", cell.seed, replica))
            models.append(make_model(cell, tasks[0].inputs.size(-1), tasks[0].out_features))
    return models


def make_model(cell: Cell, in_features: int, out_features: int) -> GraphModule:
    """A network of the shape of a cell."""
    protocol = cell.protocol
    features = [in_features, *[cell.features] * protocol.layers]
    later = cell.order if protocol.later_order is None else protocol.later_order
    order = [cell.order, *[later] * (protocol.layers - 1)]
    if cell.method == "fir":
        return FIR(features, order=order, out_features=out_features, bias=protocol.bias)
    return GCNN(
        features,
        order=order,
        activation=cell.method,
        hops=cell.hops or 1,
        out_features=out_features,
        bias=protocol.bias,
        per_feature=protocol.per_feature,
    )


def seed_of(*what: object) -> int:
    """A seed for one purpose, unlike those of all others."""
    digest = hashlib.sha256(" ".join(map(str, what)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
