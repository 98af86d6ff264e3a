"""Quality against rounds as an experiment: networks that all exchange equally often with their neighbours. No torch."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from graphact._checks import check_choice, check_integer, check_positive
from graphact_lab.descriptions import BENCHMARK_PRESETS, ROUNDS
from graphact_lab.protocols import changed_settings, file_key

NAME = ROUNDS
PARTS = ("random", "unseen")  # how samples are divided, see runner.with_unseen_sources
LOCALIZATION = "source-localization"
TASKS = (LOCALIZATION, "consensus", "denoising")  # the first has a report
POINTWISE = ("relu", "prelu", "gelu", "silu", "leaky-relu", "tanh")
PNA = ("mean", "max", "min", "std")
# Functions of adaptive filter banks, one round a layer
BANKS: dict[str, tuple[str, ...]] = {
    "bank-max": ("max",),
    "bank-max-min": ("max", "min"),
    "bank-median": ("median",),
    "bank-mean": ("mean",),  # a linear control
    "bank-pna": PNA,
}
# The same on a graph whose weights are 0, so that a layer has the own value and the functions alone
WITHOUT_SHIFT: dict[str, tuple[str, ...]] = {"sage-max": ("max",), "pna": PNA}
# Activations of one hop: rounds of a layer with a filter of order 1, and what builds them
ACTIVATIONS: dict[str, tuple[int, dict[str, Any]]] = {
    "max-l": (2, {"name": "max-l", "hops": 1}),
    "median-l": (2, {"name": "median-l", "hops": 1}),
    "max-ga": (3, {"name": "max-ga", "hops": 1}),
    "median-ga": (3, {"name": "median-ga", "hops": 1}),
    "mean-ga": (3, {"name": "mean-ga", "hops": 1}),  # a linear control
    "max-ga-unshifted": (3, {"name": "max-ga", "hops": 1, "unshifted": True}),
}
# Baselines, which read all nodes: the nearest training signal by angle, also with noise, and least squares
NEAREST, NEAREST_NOISY = "nearest-neighbor", "nearest-neighbor-noisy"
LINEAR, LINEAR_UNIT = "least-squares", "least-squares-unit"  # the latter on signals of norm 1
BASELINES = (NEAREST, NEAREST_NOISY, LINEAR, LINEAR_UNIT)
NOISE = 1e-3  # relative to each value
STACKED = (*POINTWISE, *ACTIVATIONS, *BANKS, *WITHOUT_SHIFT)
GATV2 = "gatv2"  # attention and GELU; its networks are trained one by one, so that presets leave it out
METHODS = (*STACKED, GATV2)


@dataclass(frozen=True)
class RoundsJob:
    """The networks of one method at one number of rounds, one for each graph, split and node."""

    method: str
    rounds: int
    sources: str

    @property
    def title(self) -> str:
        return f"{self.method}, {self.rounds} rounds, {'seen' if self.sources == PARTS[0] else self.sources} sources"


@dataclass(frozen=True)
class Rounds:
    """Everything that decides the results."""

    preset: str
    methods: tuple[str, ...] = STACKED
    rounds: tuple[int, ...] = (2, 4, 6, 9)
    sources: tuple[str, ...] = PARTS
    width: int = 8
    graphs: int = 10
    splits: int = 5
    nodes: int = 4
    epochs: int = 200
    batch_size: int = 100
    rates: tuple[float, ...] = (2e-2, 7e-3)  # the better one on validation samples is reported
    task: str = LOCALIZATION
    experiment = NAME

    def __post_init__(self) -> None:
        for name in ("width", "graphs", "splits", "nodes", "epochs", "batch_size"):
            check_integer(name, getattr(self, name), minimum=1)
        for number in self.rounds:
            check_integer("rounds", number, minimum=1)
        for rate in self.rates:
            check_positive("rates", rate)
        for method in self.methods:
            check_choice("activation", method, METHODS)
        for part in self.sources:
            check_choice("sources", part, PARTS)
        if check_choice("task", self.task, TASKS) != LOCALIZATION and self.sources != PARTS[:1]:
            raise ValueError(f"sources must be ('random',) for {self.task}, which has no sources, got {self.sources}")

    @property
    def jobs(self) -> tuple[RoundsJob, ...]:
        """All jobs; methods whose layers cannot spend all rounds are left out."""
        return tuple(
            RoundsJob(method, rounds, sources)
            for sources in self.sources
            for rounds in self.rounds
            for method in self.methods
            if orders_of(method, rounds)
        )

    def settings(self, job: RoundsJob, seed: int) -> dict[str, Any]:
        """Everything that the result of a job depends on."""
        common = {name: value for name, value in asdict(self).items() if name not in ("preset", "methods")}
        common["rates"] = list(self.rates)
        if self.task == LOCALIZATION:
            del common["task"]  # as in rows from before there was a choice
        return {"experiment": NAME, "protocol": NAME, **common, **asdict(job), "seed": seed}

    def key(self, job: RoundsJob, seed: int) -> str:
        return file_key(f"{job.method}-{job.rounds}-{job.sources}", self.settings(job, seed))


def orders_of(method: str, rounds: int) -> list[int]:
    """Return the filter orders of the layers of a network that spends all rounds; empty if its layers cannot.

    A layer costs K rounds for its filter of order K, plus those of its activation: 0 if pointwise, 1 localized, 2
    graph-adaptive. K is 1 if the cost of a layer then divides the rounds, else 0. A bank's round is that of its filter.
    """
    each, _ = ACTIVATIONS.get(method, (1, {}))
    for order in (1, 0):
        layers, left = divmod(rounds, each - 1 + order)
        if left == 0:
            return [order] * layers
    return []


FULL = Rounds("full")
# The demo: one step size, two nodes and one split of each graph. Small batches make as many steps in half the epochs,
# which leaves time for the second node and so for a narrower interval. Chosen on seed 1.
QUICK = replace(
    FULL,
    preset="quick",
    methods=("relu", "prelu", "gelu", "max-ga", "median-ga", "bank-max-min"),
    rounds=(4,),
    splits=1,
    nodes=2,
    epochs=30,
    batch_size=50,
    rates=(2e-2,),
)
SMOKE = replace(
    FULL,
    preset="smoke",
    methods=("relu", "max-l", "bank-max", "sage-max"),
    rounds=(4,),
    width=2,
    graphs=2,
    splits=1,
    nodes=1,
    epochs=2,
    rates=(2e-2,),
)
CHANGED = ("rounds", "sources", "width", "graphs", "splits", "nodes", "epochs", "batch_size", "rates")


def find_settings(preset: str, methods: Sequence[str] = (), changes: Mapping[str, str] | None = None) -> Rounds:
    """Return the settings of a preset, limited to some methods and with changes given as text.

    Example:
        >>> [job.title for job in find_settings("full", ("gelu",), {"rounds": "4", "sources": "unseen"}).jobs]
        ['gelu, 4 rounds, unseen sources']
    """
    found = {"quick": QUICK, "full": FULL, "smoke": SMOKE}[check_choice("preset", preset, BENCHMARK_PRESETS)]
    made: Rounds = changed_settings(found, methods, changes, CHANGED)
    return made
