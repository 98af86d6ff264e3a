"""Faulty sensors as an experiment: which networks, which faults, and the presets. No torch here."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from graphact._checks import check_choice, check_integer, check_positive, check_probability
from graphact_lab.descriptions import BENCHMARK_PRESETS, FAULTY_SENSORS
from graphact_lab.protocols import changed_settings, file_key

NAME = FAULTY_SENSORS
FAULTS = ("outliers", "drift", "stuck")
METHODS: dict[str, dict[str, Any]] = {
    "gelu": {"bank": "linear", "activation": "gelu"},
    "bank-median": {"bank": "adaptive", "ops": ("median",)},
    "bank-max-min": {"bank": "adaptive", "ops": ("max", "min")},
    "bank-median-max-min": {"bank": "adaptive", "ops": ("median", "max", "min")},
    "bank-mean": {"bank": "adaptive", "ops": ("mean",)},
    "median-l": {"bank": "linear", "activation": "median-l"},
    "max-l": {"bank": "linear", "activation": "max-l"},
    "relu": {"bank": "linear", "activation": "relu"},
    "prelu": {"bank": "linear", "activation": "prelu"},
    "median-ga": {"bank": "linear", "activation": "median-ga"},
    "max-ga": {"bank": "linear", "activation": "max-ga"},
}
"""Settings of :class:`graphact.estimators.SignalRegressor`."""
ROUNDS_OF = {"max-l": 2, "median-l": 2, "max-ga": 3, "median-ga": 3}  # of one layer; others take one
BESIDE_THREE = ("gelu", "bank-median", "median-ga", "max-ga")  # what a layer of graph-adaptive ones stands beside


def training_faults(draws: int, shares: Sequence[float]) -> list[tuple[str, float]]:
    """Return the fault and the share of each draw of a training part; equally many of both make fixed pairs.

    Example:
        >>> training_faults(4, (0.05, 0.1, 0.2))
        [('outliers', 0.05), ('drift', 0.1), ('stuck', 0.2), ('outliers', 0.05)]
    """
    return [(FAULTS[draw % len(FAULTS)], shares[draw % len(shares)]) for draw in range(draws)]


@dataclass(frozen=True)
class SensorJob:
    """A network that is trained at every origin."""

    method: str
    rounds: int

    @property
    def title(self) -> str:
        return f"{self.method}, {self.rounds} rounds"


@dataclass(frozen=True)
class FaultySensors:
    """Everything that decides the results.

    Attributes:
        preset: its name.
        methods: keys of :data:`METHODS`.
        rounds: budgets; a method whose layers do not divide one is left out there.
        origins: rolling origins, at equal distances.
        train_hours: hours of each training part, which slides with the origin.
        gap_hours: hours between a training part and its test.
        test_hours: hours of each test.
        draws: draws of faults of a training part, whose faults and shares take turns, see :func:`training_faults`.
        shares: of the stations that are faulty.
        outlier: size of an outlier, in standard deviations of the training part.
        outlier_share: of the readings of a station with outliers.
        drift: in such deviations an hour, from a random hour on.
        window: readings that a station looks back on.
        width, epochs: of the networks.
    """

    preset: str
    methods: tuple[str, ...] = tuple(METHODS)
    rounds: tuple[int, ...] = (2, 3)
    origins: int = 10
    train_hours: int = 300
    gap_hours: int = 24
    test_hours: int = 40
    draws: int = 6
    shares: tuple[float, ...] = (0.05, 0.1, 0.2)
    outlier: float = 10.0
    outlier_share: float = 0.25
    drift: float = 0.1
    window: int = 4
    width: int = 16
    epochs: int = 15
    experiment = NAME

    def __post_init__(self) -> None:
        for name in ("origins", "train_hours", "test_hours", "draws", "window", "width", "epochs"):
            check_integer(name, getattr(self, name), minimum=1)
        check_integer("gap_hours", self.gap_hours, minimum=0)
        check_positive("outlier", self.outlier)
        check_probability("outlier_share", self.outlier_share)
        check_positive("drift", self.drift)
        for budget in self.rounds:
            check_integer("rounds", budget, minimum=1)
        for method in self.methods:
            check_choice("activation", method, tuple(METHODS))
        if not self.jobs:
            raise ValueError(f"rounds must be those of whole layers of {', '.join(self.methods)}, got {self.rounds}")

    @property
    def overlap(self) -> float:
        """Test hours over training hours, by which intervals are corrected."""
        return self.test_hours / self.train_hours

    @property
    def jobs(self) -> tuple[SensorJob, ...]:
        return tuple(
            SensorJob(method, budget)
            for budget in self.rounds
            for method in self.methods
            if budget % ROUNDS_OF.get(method, 1) == 0 and (budget != 3 or method in BESIDE_THREE)
        )

    def settings(self, job: SensorJob | None, seed: int) -> dict[str, Any]:
        """Everything that the result of a job depends on; without job, of the baselines."""
        common = {name: value for name, value in asdict(self).items() if name not in ("preset", "methods", "rounds")}
        common = {name: list(value) if isinstance(value, tuple) else value for name, value in common.items()}
        own = {"baselines": True} if job is None else asdict(job)
        return {"experiment": NAME, "protocol": self.preset, **own, **common, "seed": seed}

    def key(self, job: SensorJob | None, seed: int) -> str:
        prefix = "baselines" if job is None else f"{job.method}-R{job.rounds}"
        return file_key(prefix, self.settings(job, seed))


FULL = FaultySensors("full")
# Two minutes on a CPU core
QUICK = replace(
    FULL, preset="quick", methods=("gelu", "bank-median"), rounds=(2,), origins=3, draws=3, width=8, epochs=10
)
SMOKE = replace(QUICK, preset="smoke", methods=("gelu", "median-l"), origins=2, draws=1, width=2, epochs=1)
CHANGED = ("rounds", "origins", "draws", "outlier", "outlier_share", "drift", "window", "width", "epochs")


def find_settings(preset: str, methods: Sequence[str] = (), changes: Mapping[str, str] | None = None) -> FaultySensors:
    """The settings of a preset, limited to some methods and with changes given as text.

    Example:
        >>> [job.title for job in find_settings("full", ("bank-median", "max-ga")).jobs]
        ['bank-median, 2 rounds', 'bank-median, 3 rounds', 'max-ga, 3 rounds']
    """
    found = {"quick": QUICK, "full": FULL, "smoke": SMOKE}[check_choice("preset", preset, BENCHMARK_PRESETS)]
    made: FaultySensors = changed_settings(found, methods, changes, CHANGED)
    return made
