"""Training and flying the policies of the experiment, and the rows that come of it."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import graphact
from graphact.nn import FIR, GCNN, GraphModule
from graphact_lab.experiments.flocking.experiment import NAME, OTHER_GAIN, USUAL, Flocking, Job, differing
from graphact_lab.experiments.flocking.flight import Conditions, Controller, Flight, fly
from graphact_lab.experiments.flocking.imitation import Imitation, imitate, teams_for
from graphact_lab.experiments.flocking.policies import Policies
from graphact_lab.experiments.flocking.world import Teams, World
from graphact_lab.job_progress import JobWatcher
from graphact_lab.protocols import run_seed
from graphact_lab.provenance import provenance
from graphact_lab.store import Row, Store, StoreError

Condition = dict[str, float]
TOGETHER = ("loss", "radius", "speed", "noise")


class Airfield:
    """Test teams of all realizations, and flights over them under every condition that a setting lists."""

    def __init__(self, settings: Flocking, seed: int, device: str) -> None:
        self.settings, self.seed, self.device = settings, seed, torch.device(device)
        self.world, self.imitation = World(**settings.world), Imitation(**settings.imitation)
        self.seeds = [run_seed("flocking", seed, number) for number in range(settings.realizations)]
        self._teams: dict[int, Teams] = {}
        self._expert: dict[tuple[float, float, float | None], Tensor] = {}

    def teams(self, agents: int) -> Teams:
        if agents not in self._teams:
            like = torch.zeros((), device=self.device)
            self._teams[agents] = teams_for("test", self.seeds, self.settings.tests, agents, self.world, like)
        return self._teams[agents]

    def groups(self, delayed: bool, names: Sequence[str] = TOGETHER) -> Iterator[list[Condition]]:
        """Conditions that can be flown together: those of one size of team, and with delay apart."""
        levels, usual = self.settings.levels, self.usual
        together: list[Condition] = [{}]
        for name in names:
            together += [{name: level} for level in levels.get(name, ()) if level != usual[name]]
        yield together
        yield from ([{"agents": level}] for level in levels.get("agents", ()) if level != usual["agents"])
        if not delayed:
            yield from ([{"delay": level}] for level in levels.get("delay", ()) if level)

    @property
    def usual(self) -> Condition:
        return {**USUAL, "agents": self.imitation.agents, "speed": self.world.speed, "radius": self.world.radius}

    def fly(self, controller: Controller, conditions: list[Condition], delayed: bool) -> list[Flight]:
        """One flight for each of the conditions, which are flown together."""
        full = [self.usual | condition for condition in conditions]
        teams, tests = self.teams(int(full[0]["agents"])), self.settings.tests

        def each(name: str) -> Tensor | float:
            levels = [condition[name] for condition in full]
            if len(set(levels)) == 1:
                return levels[0]
            return torch.tensor(levels, device=self.device).repeat_interleave(tests)

        speeds = torch.tensor([condition["speed"] / self.world.speed for condition in full], device=self.device)
        together = Teams(
            teams.position.repeat(1, len(full), 1, 1),
            teams.velocity.repeat(1, len(full), 1, 1) * speeds.repeat_interleave(tests).view(-1, 1, 1),
        )
        flown = fly(
            together,
            controller,
            self.world,
            conditions=Conditions(*(each(name) for name in ("radius", "loss", "noise"))),
            delayed=delayed or bool(full[0]["delay"]),
            generator=torch.Generator(self.device).manual_seed(run_seed("flocking losses", self.seed)),
        )
        return [Flight(*parts) for parts in zip(*(part.split(tests, 1) for part in flown), strict=True)]

    def expert_cost(self, condition: Condition, gain: float | None = None) -> Tensor:
        """The cost ``(R, tests)`` of the expert on the same teams; neither losses nor radius nor delay touch it.

        The gain of its alignment is that of the world unless another is given.
        """
        full = self.usual | condition
        key = full["agents"], full["speed"], gain or self.world.alignment
        if key not in self._expert:
            teams, speed = self.teams(int(key[0])), key[1] / self.world.speed
            start = Teams(teams.position, teams.velocity * speed)
            self._expert[key] = fly(start, "expert", replace(self.world, alignment=key[2])).cost
        return self._expert[key]

    def rows(self, controller: Controller, delayed: bool) -> list[list[Row]]:
        """For each realization, a row for each condition."""
        rows: list[list[Row]] = [[] for _ in self.seeds]
        talks = isinstance(controller, Policies)  # who does not, notices neither losses nor delay
        for conditions in self.groups(delayed or not talks, TOGETHER if talks else ("speed",)):
            for condition, flown in zip(conditions, self.fly(controller, conditions, delayed), strict=True):
                expert = self.expert_cost(condition).mean(1)
                cost, collisions, final = (part.double().mean(1).tolist() for part in flown)
                other = None  # an expert that differs from this one in teams of other sizes only
                if "agents" in condition and self.world.alignment is None:
                    other = self.expert_cost(condition, float(self.imitation.agents)).mean(1).tolist()
                for number, one in enumerate(rows):
                    one.append(
                        {
                            "condition": dict(condition),
                            "value": cost[number] / float(expert[number]),
                            "cost": cost[number],
                            "collisions": collisions[number],
                            "final": final[number],
                            **({} if other is None else {OTHER_GAIN: cost[number] / other[number]}),
                        }
                    )
        return rows


def make_policies(settings: Flocking, job: Job, seeds: list[int]) -> list[GraphModule]:
    """One network a realization; networks of one realization start alike as far as they have the same parts."""
    shape: dict[str, Any] = {"order": job.order, "out_features": 2, "bias": True, "normalize": "random_walk"}
    activation: dict[str, Any] = {"activation": job.method, "hops": job.hops or 1, "gamma": 1.0, "learn_gamma": True}
    features, models = [6, settings.features], list[GraphModule]()
    with torch.random.fork_rng(devices=[]):
        for seed in seeds:
            torch.manual_seed(seed)
            models.append(FIR(features, **shape) if job.method == "fir" else GCNN(features, **shape, **activation))
    return models


def check_settings(settings: Flocking, store: Store, seed: int) -> None:
    """Raise if the store holds rows of other settings: a report could not tell them apart."""
    if change := differing(store.first_rows(), settings.settings(None, seed)):
        raise StoreError(f"{store.directory} holds results of other settings ({change}); choose another --out")


def run(
    settings: Flocking,
    store: Store,
    *,
    seed: int = 0,
    device: str = "cpu",
    watcher: JobWatcher | None = None,
    with_baselines: bool = True,
) -> None:
    """Run whatever is not finished yet; jobs that another process holds are left to it.

    Trained policies are written to ``models/`` in the folder of the store, for agents and pictures.
    """
    watcher, field = watcher or JobWatcher(), Airfield(settings, seed, device)
    watcher.plan(len(settings.jobs), sum(store.is_finished(settings.key(job, seed)) for job in settings.jobs))
    if with_baselines:
        store.fill(
            settings.key(None, seed), lambda: [row for name in ("expert", "none") for row in baseline_rows(field, name)]
        )
    for job in settings.jobs:
        key = settings.key(job, seed)
        with store.claim(key) as mine:
            if mine and not store.is_finished(key):
                watcher.start(job.title, field.imitation.epochs)
                rows = run_job(field, job, store.directory / "models" / key, watcher)
                store.finish(key, rows)
                values = [row["value"] for row in rows if not row["condition"]]
                watcher.finish(job.title, f"{sum(values) / len(values):.3f} times the expert's cost")


def run_job(field: Airfield, job: Job, folder: Path, watcher: JobWatcher) -> list[Row]:
    """Train the policies of a job, write them, fly them."""
    begun = time.perf_counter()
    models = make_policies(field.settings, job, field.seeds)
    policies = Policies(models, field.device)
    trained = imitate(
        policies,
        field.seeds,
        field.imitation,
        field.world,
        delayed=job.delayed,
        progress=lambda epoch, _: watcher.epoch(epoch),
    )
    folder.mkdir(parents=True, exist_ok=True)
    for number, model in enumerate(models):
        graphact.save(model, folder / f"{number}.safetensors")
    training = time.perf_counter() - begun
    flown = field.rows(policies, job.delayed)
    common = {
        **stamp(field, job),
        "kind": "model",
        **{name: getattr(job, name) for name in ("method", "hops", "order", "delayed")},
        "features": field.settings.features,
        "parameters": sum(parameter.numel() for parameter in models[0].parameters()),
        "exchanges": policies.exchanges,
        "seconds": (time.perf_counter() - begun) / len(models),
        "training_seconds": training / len(models),
    }
    return [
        {**common, "graph": number, **row}
        | {"validation": trained.validation[number], "best_epoch": trained.best_epoch[number]}
        | ({} if row["condition"] else {"history": trained.history[number]})
        for number, rows in enumerate(flown)
        for row in rows
    ]


def baseline_rows(field: Airfield, name: Any) -> list[Row]:
    """The expert, or nobody, on the same teams."""
    common = {**stamp(field, None), "kind": "baseline", "method": name, "hops": None, "order": None, "delayed": False}
    rows = field.rows(name, delayed=False)
    return [{**common, "graph": number, **row} for number, found in enumerate(rows) for row in found]


def stamp(field: Airfield, job: Job | None) -> Row:
    """Return the provenance of rows: preset, settings, versions, device and time."""
    return {
        "experiment": NAME,
        "preset": field.settings.preset,
        "seed": field.seed,
        "settings": field.settings.settings(job, field.seed),
        "metric": "cost relative to the expert",
        **provenance(field.device.type),
    }
