"""The one interface of all experiments: what the runner, the report and the command line know of them.

A description needs no torch; what makes tasks is imported when it is called.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from graphact._plain_checks import check_choice
from graphact.experiments.preparation import prepared
from graphact.experiments.protocol import Condition, Protocol, TrainingJob

if TYPE_CHECKING:
    from graphact.data import Task
    from graphact.training import Fleet

PRESETS = ("quick", "paper", "best", "smoke")


@dataclass(frozen=True)
class Experiment(ABC):
    """One experiment.

    Attributes:
        name: its name on the command line and in rows.
        title: its name in a sentence or a heading.
        metric: "accuracy" or "rmse".
        protocols: all protocols of the presets "paper", "best" and "quick", in the order in which they are listed.
        default_protocol: the protocol to run where a preset has several.
        dataset: the data set it reads, if any; see :func:`graphact.data.locate`.
        overlap: test samples over training samples, where one data set is split again and again; None where every
            graph has samples of its own.
    """

    name: str
    title: str
    metric: str
    protocols: tuple[Protocol, ...]
    default_protocol: str = "paper"
    dataset: str | None = None
    overlap: float | None = None

    @abstractmethod
    def make_tasks(self, protocol: Protocol, condition: Condition, seed: int, data: Path | None = None) -> "list[Task]":
        """The tasks of all replicas of a condition, with signals as they come.

        Args:
            protocol: how many graphs, splits and nodes, and options of the tasks.
            condition: one of the conditions of the protocol.
            seed: decides everything random.
            data: folder of the data sets; see :func:`graphact.data.locate`.
        """

    def prepare_tasks(
        self, protocol: Protocol, condition: Condition, plain: "list[Task]", seed: int, data: Path | None = None
    ) -> "list[Task]":
        """The same tasks as networks see them; ``plain`` are those of :meth:`make_tasks`."""
        del condition, seed, data
        return prepared(plain, protocol.preparation)

    @abstractmethod
    def baselines(self, task: "Task", order: int) -> dict[str, float]:
        """The test metric of simple methods, by name; ``task`` is on the CPU in float64."""

    def prepared_baselines(self, task: "Task", preparation: str, order: int) -> dict[str, float]:
        """What prepared signals are worth without a network; ``task`` is on the CPU in float64."""
        del task, preparation, order
        return {}

    def evaluate_further(
        self, job: TrainingJob, fleet: "Fleet", plain: "list[Task]"
    ) -> list[tuple[Condition, list[float]]]:
        """The test metric of each trained model under further conditions, such as lost links."""
        del job, fleet, plain
        return []

    def protocol_names(self, preset: str) -> tuple[str, ...]:
        """The protocols that it has at a preset."""
        return tuple(protocol.name for protocol in self._at(preset))

    def find_protocol(self, preset: str, name: str | None = None, methods: tuple[str, ...] = ()) -> Protocol:
        """A protocol by its name, limited to some methods where they are given."""
        found = {protocol.name: protocol for protocol in self._at(check_choice("preset", preset, PRESETS))}
        if name is None:
            name = next(iter(found)) if len(found) == 1 else self.default_protocol
        protocol = found[check_choice("protocol", name, tuple(found))]
        return replace(protocol, methods=methods) if methods else protocol

    def _at(self, preset: str) -> list[Protocol]:
        if preset == "smoke":
            return [protocol.smallest() for protocol in (*self._at("quick"), *self._at("best"))]
        return [protocol for protocol in self.protocols if protocol.preset == preset]
