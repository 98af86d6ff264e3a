"""All experiments by name, and the one description that runner, report and command line have of them.

Nothing here needs torch: what makes tasks is imported when it is called.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from graphact._checks import check_choice
from graphact.experiments.preparation import PREPARATIONS, prepared
from graphact.experiments.protocol import Condition, Protocol, TrainingJob

if TYPE_CHECKING:
    from graphact.data import Task
    from graphact.training import Fleet

# Each has a folder of its name, with the description EXPERIMENT in experiment.py
EXPERIMENTS = ("source-localization", "consensus", "denoising", "recommendation")
PRESETS = ("quick", "paper", "best", "smoke")

Tasks = list["Task"]
Figures = dict[str, float]  # the test metric of simple methods, by name
MakeTasks = Callable[[Protocol, Condition, int, Path | None], Tasks]  # of all replicas; from seed and data directory


@dataclass(frozen=True)
class Experiment:
    """One experiment."""

    name: str  # on the command line and in rows
    title: str  # in a heading
    metric: str  # "accuracy" or "rmse"
    protocols: tuple[Protocol, ...]  # of the presets "paper", "best" and "quick", in the order in which they are listed
    make_tasks: MakeTasks  # signals as they come
    baselines: "Callable[[Task, int], Figures]"  # of a task in float64, with the order of linear filters
    default_protocol: str = "paper"  # the one to run where a preset has several
    dataset: str | None = None  # the data set it reads, if any; see graphact.data.locate
    # Test samples over training samples, where one data set is split again and again; None where every graph has
    # samples of its own
    overlap: float | None = None
    make_prepared: MakeTasks | None = None  # as networks see them, where their preparation is none of graphact.tasks
    # What prepared signals are worth without a network: of a prepared task in float64, its preparation, filter order
    prepared_baselines: "Callable[[Task, str, int], Figures]" = lambda *_: {}
    # Further conditions, such as lost links, each with the test metric of every model of a trained fleet; from tasks
    # with signals as they come
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


@cache
def find_experiment(name: str) -> Experiment:
    """The experiment of a name."""
    check_choice("experiment", name, EXPERIMENTS)
    found: Experiment = resolve_name(f"graphact.experiments.{name.replace('-', '_')}.experiment:EXPERIMENT")
    return found


def find_protocol(
    experiment: str, preset: str = "quick", name: str | None = None, methods: tuple[str, ...] = ()
) -> Protocol:
    """The protocol of an experiment, limited to some methods where they are given."""
    described = find_experiment(experiment)
    found = described.protocols_at(preset)
    if name is None:
        name = next(iter(found)) if len(found) == 1 else described.default_protocol
    protocol = found[check_choice("protocol", name, tuple(found))]
    return replace(protocol, methods=methods) if methods else protocol
