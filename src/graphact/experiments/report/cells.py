"""Cells: the runs that differ in their replica alone, and so share one mean."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from graphact.experiments.report.rows import Condition, Run
from graphact.experiments.report.summary import Summary, summarize


@dataclass(frozen=True)
class Cell:
    """All runs of one method in one setting; its replicas are graphs, splits, nodes, realizations and seeds."""

    experiment: str
    preset: str
    protocol: str
    kind: str
    method: str
    hops: int | None
    features: int | None
    order: int | None
    condition: Condition
    runs: tuple[Run, ...]

    @cached_property
    def summary(self) -> Summary:
        """The test metric over the replicas."""
        return summarize(run.value for run in self.runs)

    @cached_property
    def validation(self) -> Summary:
        """The validation metric over the replicas."""
        return summarize(run.validation for run in self.runs)

    @property
    def is_model(self) -> bool:
        """Whether this is a trained network and not a baseline."""
        return self.kind == "model"

    def level(self, name: str, default: float) -> float:
        """The value of a condition, or the default where the condition does not name it."""
        return float(dict(self.condition).get(name, default))


def gather(runs: Iterable[Run]) -> list[Cell]:
    """Group runs into cells.

    Raises:
        ValueError: two runs are the same replica of the same cell, which would count twice.
    """
    groups: dict[tuple[object, ...], list[Run]] = defaultdict(list)
    for run in runs:
        setting = (run.hops, run.features, run.order, run.condition)
        groups[(run.experiment, run.preset, run.protocol, run.kind, run.method, *setting)].append(run)
    for group in groups.values():
        check_no_repetition(group)
    return [
        Cell(
            experiment=first.experiment,
            preset=first.preset,
            protocol=first.protocol,
            kind=first.kind,
            method=first.method,
            hops=first.hops,
            features=first.features,
            order=first.order,
            condition=first.condition,
            runs=tuple(group),
        )
        for group in groups.values()
        for first in group[:1]
    ]


def check_no_repetition(runs: list[Run]) -> None:
    """Refuse runs that share a replica."""
    seen = set()
    for run in runs:
        if run.replica in seen:
            raise ValueError(
                f"rows must hold every run once, got two of {run.experiment}, {run.method!r}, hops {run.hops}, "
                f"F {run.features}, K {run.order}, {dict(run.condition)}, graph {run.graph}, split {run.split}, "
                f"node {run.node}, realization {run.realization}, seed {run.seed}"
            )
        seen.add(run.replica)
