"""Link scheduling as an experiment: which keys learn, in how many rounds, and where they are tested. No torch here."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from graphact._checks import check_choice, check_integer
from graphact_lab.descriptions import BENCHMARK_PRESETS, SCHEDULING
from graphact_lab.protocols import changed_settings, file_key

NAME = SCHEDULING
# Methods whose keys learn, the most telling first; "topology" is the GCN of Zhao et al., which never sees utilities
METHODS = ("bank", "pointwise", "topology", "sage-max", "pna", "gatv2", "bank-max")
TOPOLOGY_LAYERS = 3
# Equal widths; as many parameters as the bank; narrow, trained with queues, and run in time
WIDTH, PARAMETERS, NARROW = "equal width", "equal parameters", "narrow"
NARROW_WIDTH, NARROW_METHODS, NARROW_REPLICAS = 6, ("bank", "pointwise", "topology"), 2
RATES = (2e-2, 7e-3, 2.5e-3)


@dataclass(frozen=True)
class KeyJob:
    """Networks of one method and shape, one for each seed."""

    method: str
    layers: int
    iterations: int  # of the local greedy rule
    setting: str = WIDTH

    @property
    def rounds(self) -> int:
        """Rounds of messages in a slot; those of a network that sees the graph alone are not among them."""
        return (0 if self.method == "topology" else self.layers) + 2 * self.iterations - 1

    @property
    def title(self) -> str:
        return f"{self.method} L={self.layers} I={self.iterations} ({self.rounds} rounds, {self.setting})"


@dataclass(frozen=True)
class Scheduling:
    """Everything that decides the results."""

    preset: str
    methods: tuple[str, ...] = METHODS
    rounds: tuple[int, ...] = (1, 2, 3, 4, 5, 6)
    settings_run: tuple[str, ...] = (WIDTH, PARAMETERS, NARROW)
    width: int = 16
    replicas: int = 10  # seeds
    rates: tuple[float, ...] = RATES  # the best is chosen on two further seeds
    steps: int = 1000
    graphs: int = 8  # of a step
    nodes: int = 100
    tests: int = 200  # graphs of each kind; fewer of larger ones
    slots: int = 600
    loads: tuple[float, ...] = (*(round(0.4 + 0.05 * n, 2) for n in range(14)), 1.2)
    experiment = NAME

    def __post_init__(self) -> None:
        for name in ("width", "replicas", "steps", "graphs", "tests"):
            check_integer(name, getattr(self, name), minimum=1)
        check_integer("nodes", self.nodes, minimum=10)
        check_integer("slots", self.slots, minimum=8)
        for budget in self.rounds:
            check_integer("rounds", budget, minimum=1)
        for method in self.methods:
            check_choice("activation", method, METHODS)

    @property
    def jobs(self) -> tuple[KeyJob, ...]:
        """Every split of the rounds between layers and one or two iterations."""
        made = list[KeyJob]()
        for setting in self.settings_run:
            for method in self.methods:
                if setting == NARROW and method not in NARROW_METHODS:
                    continue
                if setting == PARAMETERS and method in ("bank", "topology"):
                    continue  # the bank sets the number
                for budget in self.rounds:
                    if method == "topology":
                        shapes = [(TOPOLOGY_LAYERS, (budget + 1) // 2)] if budget % 2 else []
                    else:
                        shapes = [(budget + 1 - 2 * n, n) for n in (1, 2) if budget + 1 > 2 * n]
                    made += [KeyJob(method, layers, iterations, setting) for layers, iterations in shapes]
        return tuple(made)

    def settings(self, job: KeyJob | None, seed: int) -> dict[str, Any]:
        """Everything that the result of a job depends on; without job, of rules that do not learn."""
        common = {name: value for name, value in asdict(self).items() if name not in ("preset", "methods", "rounds")}
        common = {name: list(value) if isinstance(value, tuple) else value for name, value in common.items()}
        common.pop("settings_run")
        own = {"rules": True} if job is None else asdict(job)
        return {"experiment": NAME, "protocol": self.preset, **own, **common, "seed": seed}

    def key(self, job: KeyJob | None, seed: int) -> str:
        prefix = "rules" if job is None else f"{job.method}-L{job.layers}-I{job.iterations}"
        return file_key(prefix, self.settings(job, seed))

    def tuning_key(self, method: str, seed: int) -> str:
        """The key of the cell that chooses the rate of a method."""
        return file_key(f"rate-{method}", self.settings(None, seed) | {"tuned": method})


FULL = Scheduling("full")
# Two minutes on two cores
QUICK = replace(
    FULL,
    preset="quick",
    methods=("bank", "pointwise", "topology"),
    rounds=(1, 3, 4),
    settings_run=(WIDTH,),
    replicas=3,
    rates=RATES[:1],
    steps=200,
    tests=60,
    slots=100,
    loads=(0.6, 0.8, 1.0),
)
SMOKE = replace(
    QUICK, preset="smoke", rounds=(1, 3), settings_run=(WIDTH, NARROW), replicas=2, rates=RATES[:2], steps=3, nodes=20,
    tests=3, slots=8, loads=(0.6, 1.0),
)  # fmt: skip
CHANGED = ("width", "replicas", "steps", "graphs", "nodes", "tests", "slots", "rounds")


def find_settings(preset: str, methods: Sequence[str] = (), changes: Mapping[str, str] | None = None) -> Scheduling:
    """The settings of a preset, limited to some methods and with changes given as text.

    Example:
        >>> [job.title for job in find_settings("full", ("bank",), {"rounds": "3"}).jobs][:1]
        ['bank L=2 I=1 (3 rounds, equal width)']
    """
    found = {"quick": QUICK, "full": FULL, "smoke": SMOKE}[check_choice("preset", preset, BENCHMARK_PRESETS)]
    made: Scheduling = changed_settings(found, methods, changes, CHANGED)
    return made
