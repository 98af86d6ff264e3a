"""All experiments by name, and the one description that runner, report and command line have of them.

Nothing here needs torch: what makes tasks is imported when it is called.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, NamedTuple

from graphact._checks import check_choice, did_you_mean
from graphact.registry import POINTWISE
from graphact_lab.preparation import PREPARATIONS, prepared, shifted_by
from graphact_lab.protocols import (
    ACTIVATIONS,
    EVERY_METHOD,
    Condition,
    Protocol,
    TrainingJob,
    changed_protocol,
)

if TYPE_CHECKING:
    from graphact.training import Fleet, Task
    from graphact_lab.report.tables import PublishedTable, Table

# Each has a folder of its name, with the description EXPERIMENT in experiment.py
EXPERIMENTS = ("source-localization", "consensus", "denoising", "recommendation")
# Of the field, with settings chosen by nested selection
BENCHMARKS = ("node-classification", "graph-classification", "robustness")
GROUPS = {"compared": ACTIVATIONS, "pointwise": tuple(POINTWISE), "every": EVERY_METHOD}  # names for several methods
PRESETS = ("quick", "paper", "best", "smoke")
BENCHMARK_PRESETS = ("quick", "full", "smoke")  # also of scheduling, rounds and faulty-sensors
# With settings, a runner and a report of their own
FLOCKING, SCHEDULING, ROUNDS, FAULTY_SENSORS = STANDALONE = ("flocking", "scheduling", "rounds", "faulty-sensors")
FLOCKING_PRESETS = ("quick", "medium", "full", "smoke")
# Networks of the experiment rounds alone, for the help of a command, which imports no other experiment
NETWORKS_OF_ROUNDS = (
    "max-ga-unshifted",
    "bank-max",
    "bank-max-min",
    "bank-median",
    "bank-mean",
    "bank-pna",
    "sage-max",
    "pna",
    "gatv2",
)
EVERY_EXPERIMENT = (*EXPERIMENTS, *BENCHMARKS, *STANDALONE)

Tasks = list["Task"]
Figures = dict[str, float]  # the test metric of simple methods, by name
MakeTasks = Callable[[Protocol, Condition, int, Path | None], Tasks]  # of all replicas; from seed and data directory


class Measure(NamedTuple):
    """A metric of the rows, and how tables, axes and sentences show it."""

    metric: str  # "accuracy" or "rmse"
    axis: str
    digits: int
    higher_is_better: bool = False
    unit: str = ""  # what follows a number in a sentence
    limits: tuple[float, float] = (0.0, math.inf)  # what values can be, at least and at most
    # Test samples over training samples, where one data set is split again and again; None where every graph has
    # samples of its own
    overlap: float | None = None


class Variation(NamedTuple):
    """A condition that an experiment varies besides its networks, such as the noise."""

    name: str  # its key in the condition of a row
    levels: tuple[str, ...] = ()  # all texts that there may be, where they are known


@dataclass(frozen=True)
class Experiment:
    """One experiment: what to run, what to compare it with, and its section of the report."""

    name: str  # on the command line and in rows
    title: str  # in a heading
    # Paragraphs on what is done and what is seen; a setting in braces, such as {layers}, is that of the runs, in words
    explanation: tuple[str, ...]
    measure: Measure
    protocols: tuple[Protocol, ...]  # of all presets but "smoke", in the order in which they are listed
    # Of cells of a preset and protocol, the name that files begin with, and the measure
    make_tables: "Callable[..., list[Table]]"
    make_tasks: MakeTasks = lambda *_: []  # signals as they come
    # Of a task in float64, with the order of linear filters
    baselines: "Callable[[Task, int], Figures]" = lambda *_: {}
    # Custom training of a job, on a device, with a data directory: the parts of its rows that differ
    train_cell: "Callable[[TrainingJob, str, Path | None], list[dict[str, Any]]] | None" = None
    datasets: "Callable[[Protocol], Sequence[str]]" = lambda _: ()  # further ones, which a protocol reads
    default_protocol: str = "paper"  # the one to run where a preset has several
    task_options: tuple[str, ...] = ()  # further arguments of what makes tasks, which a command may give
    usual_options: Mapping[str, Any] = field(default_factory=dict)  # their values where nothing is given
    # The paper's numbers: the argument ``paper`` of ``make_tables`` where the runs have the paper's settings
    published: "PublishedTable | None" = None
    dataset: str | None = None  # the data set it reads, if any; see graphact_lab.data.download.locate
    variation: Variation | None = None
    make_prepared: MakeTasks | None = (
        None  # as networks see them, where their preparation is none of graphact_lab.tasks
    )
    # What prepared signals are worth without a network: of a prepared task in float64, its preparation, filter order
    prepared_baselines: "Callable[[Task, str, int], Figures]" = lambda *_: {}
    # Further conditions, such as lost links, each with the test metric of every model of a trained fleet; from tasks
    # with signals as they come
    evaluate_conditions: "Callable[[TrainingJob, Fleet, Tasks], list[tuple[Condition, list[float]]]]" = lambda *_: []
    # Baselines under those conditions: of the protocol, these tasks and the seed, the figures of each task
    evaluate_baselines: "Callable[[Protocol, Tasks, int], list[tuple[Condition, list[Figures]]]]" = lambda *_: []

    def prepare_tasks(
        self, protocol: Protocol, condition: Condition, plain: Tasks, seed: int, data: Path | None
    ) -> Tasks:
        """The tasks ``plain`` of :attr:`make_tasks` as networks see them."""
        if self.make_prepared is None or protocol.preparation in PREPARATIONS:
            made = prepared(plain, protocol.preparation)
        else:
            made = self.make_prepared(protocol, condition, seed, data)
        return shifted_by(made, protocol.shift)

    @property
    def presets(self) -> tuple[str, ...]:
        """All presets but "smoke", which is for tests."""
        return (BENCHMARK_PRESETS if self.name in BENCHMARKS else PRESETS)[:-1]

    def protocols_at(self, preset: str) -> dict[str, Protocol]:
        """The protocols of a preset by name; "smoke" runs as little of "quick" and "best" as possible."""
        if preset == "smoke":
            found = {**self.protocols_at("quick"), **(self.protocols_at("best") if "best" in self.presets else {})}
            return {name: protocol.smallest() for name, protocol in found.items()}
        check_choice("preset", preset, self.presets)
        return {protocol.name: protocol for protocol in self.protocols if protocol.preset == preset}


@cache
def find_experiment(name: str) -> Experiment:
    """The experiment of a name."""
    check_choice("experiment", name, (*EXPERIMENTS, *BENCHMARKS))
    found: Experiment = resolve_name(f"graphact_lab.experiments.{name.replace('-', '_')}.experiment:EXPERIMENT")
    return found


def find_protocol(
    experiment: str,
    preset: str = "quick",
    name: str | None = None,
    methods: tuple[str, ...] = (),
    changes: Mapping[str, str] | None = None,
) -> Protocol:
    """The protocol of an experiment, limited to some methods and with settings changed where they are given."""
    described = find_experiment(experiment)
    found = described.protocols_at(preset)
    if name is None:
        name = next(iter(found)) if len(found) == 1 else described.default_protocol
    if name not in found:
        raise ValueError(unknown_protocol(described, preset, name))
    protocol = found[name]
    if methods:
        protocol = replace(
            protocol, methods=tuple(dict.fromkeys(one for name in methods for one in GROUPS.get(name, (name,))))
        )
    changes, varied = dict(changes or {}), described.variation
    if experiment in BENCHMARKS and varied is not None and varied.name in changes:
        levels = changes.pop(varied.name).split(",")
        for level in levels if varied.levels else ():
            check_choice(f"--set {varied.name}", level, varied.levels)
        protocol = replace(protocol, conditions=tuple({varied.name: level} for level in levels))
    unread = set() if any(other.nodes > 1 for other in described.protocols) else {"nodes"}  # all nodes answer
    return changed_protocol(protocol, changes, described.task_options, unread)


def unknown_protocol(experiment: Experiment, preset: str, name: str) -> str:
    """The message for a protocol that a preset does not have: what it has, and where the one that was meant is."""
    listed = ", ".join(repr(known) for known in experiment.protocols_at(preset))
    homes = {known: each for each in experiment.presets for known in experiment.protocols_at(each)}
    message = f"protocol must be one of {listed}, got {name!r}"
    if name in homes:
        return f"{message}; --preset {homes[name]} has it"
    meant = did_you_mean(name, homes)
    home = next((each for known, each in homes.items() if repr(known) in meant), preset)
    return message + (meant if home == preset else f"{meant[:-1]}, with --preset {home}?")
