"""Flocking as an experiment: what is trained, under which conditions it is flown, and the presets. No torch here."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from graphact._checks import check_choice, check_integer
from graphact.registry import BUILT_IN, names
from graphact_lab.descriptions import FLOCKING, FLOCKING_PRESETS
from graphact_lab.protocols import as_value, file_key

NAME = FLOCKING
# What differs from the flights of the training, level by level; of each, "usual" is the level that was trained with
USUAL: dict[str, float] = {"loss": 0.0, "radius": 2.0, "agents": 50, "speed": 3.0, "noise": 0.0, "delay": 0}
LEVELS: dict[str, tuple[float, ...]] = {
    "loss": (0.1, 0.3, 0.5),
    "radius": (1.5, 3.0),
    "agents": (25, 100, 200),
    "speed": (1.5, 4.5),
    "noise": (0.1, 0.5, 1.0),
    "delay": (1,),
}
ORDER, EPOCHS = 2, 30  # three taps
# Settings of the world as they are now where none are given, and as they were in rows that do not name them: a gain of
# the expert of 50 for teams of any size (None is their size), starts that may fall into parts
WORLD: dict[str, Any] = {"alignment": None, "connected": True}
UNNAMED: dict[str, Any] = {"alignment": 50.0, "connected": False}
OTHER_GAIN = (
    "value_trained_gain"  # in rows of other sizes: over the expert whose gain is the size that was trained with
)
# Settings in which rows of one report may differ
JOB_SETTINGS = ("baselines", "method", "hops", "order", "delayed", "seed")


@dataclass(frozen=True)
class Job:
    """Policies of one kind, one for each realization."""

    method: str  # an activation, or "fir"
    hops: int | None = None
    order: int = ORDER
    delayed: bool = False  # whether it is trained, and then always flown, with messages that take a step

    @property
    def title(self) -> str:
        hops = f" ({self.hops} hop{'s' if self.hops != 1 else ''})" if self.hops else ""
        return f"{self.method}{hops} K={self.order}{' delayed' if self.delayed else ''}"


def job_of(method: str, order: int = ORDER, hops: int = 1, *, delayed: bool = False) -> Job:
    """A job; what has no hops is not asked for them."""
    return Job(method, hops if method.endswith(("-l", "-ga")) else None, order, delayed)


# By weight: what is first is worth the most if time runs out
MAIN = ("relu", "max-ga", "tanh", "fir", "max-l", "median-ga", "median-l", "kernel-ga", "leaky-relu", "mean-ga")
REACH = (job_of("relu", 4), job_of("tanh", 4), job_of("leaky-relu", 4))  # as far as max-ga with one hop
FEWER = tuple(job_of(method, 1) for method in ("relu", "tanh", "max-l", "max-ga"))  # for quality by exchange
DELAYED = tuple(job_of(method, delayed=True) for method in ("relu", "max-ga", "tanh", "max-l"))
SMOOTH = ("mixture-ga", "soft-maximum-ga", "trimmed-mean-ga", "weighted-mean-ga")
FURTHER = (*SMOOTH, "gelu", "silu", "elu", "prelu", "abs", "maxout")
TWICE = (job_of("max-ga", hops=2), job_of("max-l", hops=2))
# They need what a team in the air has not: a number of agents known beforehand, or a mean over the whole team
NOT_FLOWN = {"grelu": "its parameters belong to numbered nodes", "digraf": "it pools over all agents"}


@dataclass(frozen=True)
class Flocking:
    """Everything that decides the results; settings of flights and training as in ``World`` and ``Imitation``."""

    preset: str
    jobs: tuple[Job, ...]
    levels: Mapping[str, tuple[float, ...]]
    realizations: int = 10  # each with teams and initial parameters of its own
    tests: int = 20  # flights, in every condition
    features: int = 64
    world: Mapping[str, Any] = field(default_factory=dict)
    imitation: Mapping[str, Any] = field(default_factory=dict)
    experiment = NAME

    def __post_init__(self) -> None:
        for name in ("realizations", "tests", "features"):
            check_integer(name, getattr(self, name), minimum=1)
        for job in self.jobs:
            if job.method in NOT_FLOWN or job.method not in (*BUILT_IN, "fir"):  # names() asks all installed packages
                check_choice("activation", job.method, (*(name for name in names() if name not in NOT_FLOWN), "fir"))

    def settings(self, job: Job | None, seed: int) -> dict[str, Any]:
        """Everything that the result of a job depends on; without job, of the baselines."""
        own = {"baselines": True} if job is None else asdict(job)
        common = {name: getattr(self, name) for name in ("realizations", "tests", "features")}
        levels = {name: list(values) for name, values in self.levels.items()}
        world = {name: value for name, value in {**WORLD, **self.world}.items() if value != UNNAMED.get(name, ...)}
        parts = {"levels": levels, "world": world, "imitation": dict(self.imitation)}
        return {"experiment": NAME, "protocol": self.preset, **own, **common, **parts, "seed": seed}

    def key(self, job: Job | None, seed: int) -> str:
        return file_key("baselines" if job is None else f"{job.method}-K{job.order}", self.settings(job, seed))


FULL = Flocking("full", (*map(job_of, MAIN), *REACH, *DELAYED, *FEWER, *map(job_of, FURTHER), *TWICE), LEVELS)
QUICK = Flocking(
    "quick",
    tuple(map(job_of, ("relu", "max-ga", "tanh", "fir"))),
    {"loss": (0.3,), "agents": (40,)},
    realizations=3,
    tests=6,
    features=16,
    world={"steps": 100},
    imitation={"agents": 20, "teams": 24, "validation": 4, "epochs": 6, "batch": 6, "rate": 4e-3, "flown_again": 6},
)
# Ten minutes on two cores: many kinds of policies in small, on teams that start connected, with squashed controls; the
# gain of the expert is the one of the rows in results/
MEDIUM = replace(
    QUICK,
    preset="medium",
    jobs=(*map(job_of, MAIN), *REACH, *FEWER),
    levels={"loss": (0.3, 0.5), "agents": (40,)},
    realizations=10,
    world={"steps": 100, "connected": True, "squash": True, "alignment": UNNAMED["alignment"]},
    imitation={**QUICK.imitation, "epochs": 10},
)
SMOKE = replace(
    QUICK,
    preset="smoke",
    jobs=(job_of("relu"), job_of("max-ga", delayed=True)),
    levels={**LEVELS, "agents": (12,)},
    realizations=2,
    tests=2,
    features=4,
    world={"steps": 10},
    imitation={"agents": 8, "teams": 4, "validation": 2, "epochs": 2, "batch": 2, "flown_again": 2},
)


def find_settings(preset: str, methods: Sequence[str] = (), changes: Mapping[str, str] | None = None) -> Flocking:
    """The settings of a preset, limited to some methods and with changes given as text.

    Example:
        >>> find_settings("full", ("max-ga",), {"epochs": "3", "realizations": "2"}).imitation
        {'epochs': 3}
    """
    found = {"quick": QUICK, "medium": MEDIUM, "full": FULL, "smoke": SMOKE}[
        check_choice("preset", preset, FLOCKING_PRESETS)
    ]
    if methods:
        chosen = [job for job in found.jobs if job.method in methods]
        missing = [job_of(method) for method in dict.fromkeys(methods) if method not in {job.method for job in chosen}]
        found = replace(found, jobs=(*chosen, *missing))
    return changed(found, changes) if changes else found


def world_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of ``World`` that the settings of a row stand for."""
    return {**UNNAMED, **settings["world"]}


def differing(rows: Iterable[Mapping[str, Any]], settings: Mapping[str, Any] | None = None) -> str:
    """Return the first setting in which rows differ from each other or from those given; "" if there is none.

    Baselines of earlier versions have no settings, and nobody can tell.
    """
    for row in rows:
        found = row.get("settings")
        if found is None:
            continue
        settings = settings or found
        ours, theirs = flat(settings), flat(found)
        for name in sorted((ours.keys() | theirs.keys()) - {*JOB_SETTINGS}):
            if ours.get(name) != theirs.get(name):
                return f"{name} {theirs.get(name)} instead of {ours.get(name)}"
    return ""


def flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings without compartments."""
    if "world" not in settings:  # of another experiment
        return dict(settings)
    return {**settings, "world": None, "imitation": None, **world_of(settings), **settings["imitation"]}


def changed(settings: Flocking, changes: Mapping[str, str]) -> Flocking:
    """The settings with some of them changed, and checked before anything runs."""
    from graphact_lab.experiments.flocking.imitation import Imitation
    from graphact_lab.experiments.flocking.world import World

    part_of = {item.name: part for part, kind in (("world", World), ("imitation", Imitation)) for item in fields(kind)}
    for name, text in changes.items():
        check_choice("--set", name, ("realizations", "tests", "features", *sorted(part_of)))
        value: dict[str, Any] = {name: as_value(text)}
        if part := part_of.get(name):
            value = {part: {**getattr(settings, part), **value}}
        settings = replace(settings, **value)
    Imitation(**settings.imitation).check_parts(World(**settings.world).steps)
    return settings
