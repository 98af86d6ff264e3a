"""The one description of all experiments: what the runner, the report and the command line know of them.

It needs no torch: what makes tasks is imported when it is called.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from graphact._checks import check_choice
from graphact.experiments.preparation import PREPARATIONS, prepared
from graphact.experiments.protocol import Condition, Protocol, TrainingJob

if TYPE_CHECKING:
    from graphact.data import Task
    from graphact.training import Fleet

PRESETS = ("quick", "paper", "best", "smoke")

Tasks = list["Task"]
Figures = dict[str, float]


@dataclass(frozen=True)
class Experiment:
    """One experiment.

    Attributes:
        name: its name on the command line and in rows.
        title: its name in a heading.
        metric: "accuracy" or "rmse".
        protocols: all protocols of the presets "paper", "best" and "quick", in the order in which they are listed.
        make_tasks: (protocol, condition, seed, data directory) -> the tasks of all replicas, signals as they come.
        baselines: (task in float64, filter order) -> the test metric of simple methods, by name.
        default_protocol: the protocol to run where a preset has several.
        dataset: the data set it reads, if any; see :func:`graphact.data.locate`.
        overlap: test samples over training samples, where one data set is split again and again; None where every
            graph has samples of its own.
        make_prepared: (protocol, condition, seed, data directory) -> the tasks as networks see them, where their
            preparation is not one of :func:`graphact.tasks.prepared`.
        prepared_baselines: (prepared task in float64, preparation, filter order) -> what prepared signals are worth
            without a network, by name.
        evaluate_further: (job, trained fleet, tasks with signals as they come) -> further conditions, such as lost
            links, each with the test metric of every model.
    """

    name: str
    title: str
    metric: str
    protocols: tuple[Protocol, ...]
    make_tasks: Callable[[Protocol, Condition, int, Path | None], Tasks]
    baselines: "Callable[[Task, int], Figures]"
    default_protocol: str = "paper"
    dataset: str | None = None
    overlap: float | None = None
    make_prepared: Callable[[Protocol, Condition, int, Path | None], Tasks] | None = None
    prepared_baselines: "Callable[[Task, str, int], Figures]" = lambda *_: {}
    evaluate_further: "Callable[[TrainingJob, Fleet, Tasks], list[tuple[Condition, list[float]]]]" = lambda *_: []

    def prepare_tasks(
        self, protocol: Protocol, condition: Condition, plain: Tasks, seed: int, data: Path | None
    ) -> Tasks:
        """The tasks ``plain`` of :attr:`make_tasks` as networks see them."""
        if self.make_prepared is None or protocol.preparation in PREPARATIONS:
            return prepared(plain, protocol.preparation)
        return self.make_prepared(protocol, condition, seed, data)

    def protocols_at(self, preset: str) -> dict[str, Protocol]:
        """The protocols of a preset by name; "smoke" runs as little of "quick" and "best" as possible."""
        if check_choice("preset", preset, PRESETS) == "smoke":
            found = {**self.protocols_at("quick"), **self.protocols_at("best")}
            return {name: protocol.smallest() for name, protocol in found.items()}
        return {protocol.name: protocol for protocol in self.protocols if protocol.preset == preset}

    def find_protocol(self, preset: str, name: str | None = None, methods: tuple[str, ...] = ()) -> Protocol:
        """A protocol by its name, limited to some methods where they are given."""
        found = self.protocols_at(preset)
        if name is None:
            name = next(iter(found)) if len(found) == 1 else self.default_protocol
        protocol = found[check_choice("protocol", name, tuple(found))]
        return replace(protocol, methods=methods) if methods else protocol
