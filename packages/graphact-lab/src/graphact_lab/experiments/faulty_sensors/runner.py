"""Training and testing at rolling origins, and the rows that come of it."""

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from graphact import Graph
from graphact.estimators import SignalRegressor
from graphact.graph import points_on_earth
from graphact_lab.data.download import locate
from graphact_lab.data.molene import read_molene
from graphact_lab.experiments.faulty_sensors.experiment import (
    FAULTS,
    METHODS,
    NAME,
    FaultySensors,
    SensorJob,
    training_faults,
)
from graphact_lab.experiments.faulty_sensors.faults import (
    Array,
    columns_of,
    hampel_in_space,
    hampel_in_time,
    least_squares,
    neighbors_median,
    spoil,
)
from graphact_lab.job_progress import JobWatcher
from graphact_lab.protocols import run_seed
from graphact_lab.provenance import provenance
from graphact_lab.store import Row, Store

NEIGHBORS = 5
TESTS_DRAWN = 4  # draws of faults for each condition of a test
Answer = Callable[[Array], Array]


class Origin:
    """A training part, and tests behind the gap, with the faults of all methods."""

    def __init__(self, kelvin: Array, number: int, settings: FaultySensors, seed: int) -> None:
        self.number, self.settings = number, settings
        last = len(kelvin) - settings.gap_hours - settings.test_hours
        end = settings.train_hours + (last - settings.train_hours) * number // max(1, settings.origins - 1)
        train = kelvin[end - settings.train_hours : end]
        test = kelvin[end + settings.gap_hours : end + settings.gap_hours + settings.test_hours]
        self.mean, self.deviation = float(train.mean()), float(train.std())
        rng = np.random.default_rng(run_seed(NAME, seed, "train", number))
        parts, targets, pause = [], [], np.full((settings.window - 1, kelvin.shape[1]), np.nan)
        for fault, share in training_faults(settings.draws, settings.shares):
            readings, _ = spoil(train, fault, share, settings, self.deviation, rng)
            parts += [readings, pause]
            targets += [train, pause]
        self.readings, self.targets = np.concatenate(parts), np.concatenate(targets)
        rng = np.random.default_rng(run_seed(NAME, seed, "test", number))
        self.tests: list[tuple[dict[str, Any], Array, Array, NDArray[np.bool_]]] = [
            ({"fault": "none", "share": 0.0}, test, test, np.zeros(kelvin.shape[1], bool))
        ]
        for fault in FAULTS:
            for share in settings.shares:
                for _ in range(TESTS_DRAWN):
                    spoilt = spoil(test, fault, share, settings, self.deviation, rng)
                    self.tests.append(({"fault": fault, "share": share}, test, *spoilt))

    def rows(self, answer: Answer, common: Row) -> Iterator[Row]:
        """A row for each condition: errors of all, of healthy and of faulty stations, in kelvin."""
        squares: dict[tuple[Any, ...], list[tuple[Array, Array]]] = {}
        for condition, clean, readings, faulty in self.tests:
            error = (answer(readings) - clean) ** 2
            squares.setdefault(tuple(condition.items()), []).append((error[:, ~faulty], error[:, faulty]))
        for items, errors in squares.items():
            healthy, faulty = (np.concatenate([pair[i].ravel() for pair in errors]) for i in (0, 1))
            root = {"healthy": healthy, "faulty": faulty, "value": np.concatenate([healthy, faulty])}
            found = {name: float(np.sqrt(part.mean())) if len(part) else None for name, part in root.items()}
            yield common | {"split": self.number, "condition": dict(items), **found}


class Stations:
    """The stations, their graph, and all origins."""

    def __init__(self, settings: FaultySensors, seed: int) -> None:
        data = read_molene(locate("molene"))
        self.settings, self.seed = settings, seed
        room = len(data.kelvin) - settings.train_hours - settings.gap_hours - settings.test_hours
        most = 1 + room // settings.test_hours
        if settings.origins > most:
            raise ValueError(f"origins must be at most {most}, so that no hour is tested twice, got {settings.origins}")
        places = torch.from_numpy(points_on_earth(*data.degrees.T))
        graph = Graph.nearest_neighbors(places, NEIGHBORS)
        self.graph = graph.normalize("symmetric")
        connected = graph.to_dense().numpy() != 0
        self.around = [np.flatnonzero(row) for row in connected]
        step = connected | np.eye(len(connected), dtype=bool)
        self.reach = [np.flatnonzero(row) for row in (step.astype(int) @ step.astype(int)) > 0]
        self.origins = [Origin(data.kelvin, number, settings, seed) for number in range(settings.origins)]


def network_rows(stations: Stations, job: SensorJob, watcher: JobWatcher) -> list[Row]:
    """Train a network at each origin and test it."""
    settings, rows = stations.settings, list[Row]()
    for origin in stations.origins:
        seed = run_seed(NAME, stations.seed, "network", origin.number) % 2**31
        model = SignalRegressor(
            job.rounds,
            window=settings.window,
            width=settings.width,
            epochs=settings.epochs,
            early_stopping=False,
            random_state=seed,
            **METHODS[job.method],
        )
        model.fit(origin.readings, origin.targets, graph=stations.graph)
        parameters = sum(p.numel() for p in model.model_.parameters() if p.requires_grad)
        common = {"kind": "model", "method": job.method, "rounds": job.rounds, "parameters": parameters}
        rows += origin.rows(model.predict, common)
        watcher.epoch(origin.number + 1)
    return rows


def baseline_rows(stations: Stations) -> list[Row]:
    """Return the rows of methods that need no network, at each origin."""
    rows = list[Row]()
    for origin in stations.origins:
        rules: dict[str, tuple[int, Answer]] = {
            "reading as it is": (0, lambda readings: readings),
            "neighbours' median": (1, lambda readings: neighbors_median(readings, stations.around)),
            "Hampel in space": (1, lambda readings: hampel_in_space(readings, stations.around)),
            "Hampel in time": (0, hampel_in_time),
            "least squares": (2, fit_linear(stations, origin)),
            "robust least squares": (2, fit_linear(stations, origin, robust=True)),
            "least squares after Hampel": (3, fit_linear(stations, origin, filtered=True)),
        }
        for name, (rounds, rule) in rules.items():
            rows += origin.rows(rule, {"kind": "baseline", "method": name, "rounds": rounds})
    return rows


def fit_linear(stations: Stations, origin: Origin, *, robust: bool = False, filtered: bool = False) -> Answer:
    """Fit least squares at each station, on the windows of those within two rounds: what a network of two rounds reads.

    With ``robust`` by Huber's loss; with ``filtered`` all readings go through Hampel's filter in space first.
    """
    scale = stations.settings.window, origin.mean, origin.deviation

    def clean(readings: Array) -> Array:
        return hampel_in_space(readings, stations.around) if filtered else readings

    learn = columns_of(clean(origin.readings), *scale)
    usable = np.isfinite(origin.targets).all(1) & np.isfinite(learn).all((1, 2))
    targets = (origin.targets[usable] - origin.mean) / origin.deviation
    maps = [
        least_squares(select(learn[usable], others), targets[:, station], robust=robust)
        for station, others in enumerate(stations.reach)
    ]

    def answer(readings: Array) -> Array:
        past = columns_of(clean(readings), *scale)
        found = [select(past, others) @ each for others, each in zip(stations.reach, maps, strict=True)]
        return np.stack(found, axis=1) * origin.deviation + origin.mean

    return answer


def select(columns: Array, stations: Any) -> Array:
    """Return the columns of some stations side by side, with a constant."""
    chosen = columns[:, stations].reshape(len(columns), -1)
    return np.concatenate([chosen, np.ones((len(chosen), 1))], axis=1)


def check_settings(settings: FaultySensors, store: Store, seed: int) -> None:
    """Raise if the store holds rows of other settings: a report could not tell them apart."""
    wanted = settings.settings(None, seed)
    store.check_settings({name: wanted[name] for name in wanted.keys() - {"baselines", "seed"}})


def run(
    settings: FaultySensors,
    store: Store,
    *,
    seed: int = 0,
    device: str = "cpu",
    watcher: JobWatcher | None = None,
    with_baselines: bool = True,
) -> None:
    """Run whatever is not finished yet; jobs that another process holds are left to it."""
    watcher, stations = watcher or JobWatcher(), Stations(settings, seed)
    watcher.plan(len(settings.jobs), sum(store.is_finished(settings.key(job, seed)) for job in settings.jobs))

    def stamped(job: SensorJob | None, rows: list[Row]) -> list[Row]:
        common = {"experiment": NAME, "preset": settings.preset, "seed": seed, "settings": settings.settings(job, seed)}
        return [common | provenance(device) | row for row in rows]

    def train_and_test(job: SensorJob) -> list[Row]:
        watcher.start(job.title, settings.origins)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="X: .* always reads the same")
            rows = network_rows(stations, job, watcher)
        faulty = [row["faulty"] for row in rows if row["faulty"] is not None]
        healthy = [row["healthy"] for row in rows]
        watcher.finish(job.title, f"healthy {np.mean(healthy):.3f} K, faulty {np.mean(faulty):.3f} K")
        return stamped(job, rows)

    if with_baselines:
        store.fill(settings.key(None, seed), lambda: stamped(None, baseline_rows(stations)))
    for job in settings.jobs:
        store.fill(settings.key(job, seed), partial(train_and_test, job))
