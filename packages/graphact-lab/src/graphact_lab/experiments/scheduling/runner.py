"""Training and testing of the keys of the experiment, and the rows that come of it."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple

import torch
from torch import Tensor

from graphact.graph import Graph
from graphact_lab.experiments.scheduling.conflicts import KINDS, Conflicts, draw_geometric, draw_random
from graphact_lab.experiments.scheduling.experiment import (
    NAME,
    NARROW,
    NARROW_REPLICAS,
    NARROW_WIDTH,
    PARAMETERS,
    KeyJob,
    Scheduling,
)
from graphact_lab.experiments.scheduling.greedy_rules import (
    REPEATED,
    RULES,
    aloha,
    greedy,
    load,
    local_greedy,
    optimum,
    rounds_of,
    rule_key,
    schedules_of,
)
from graphact_lab.experiments.scheduling.keys import KeyFleet, queue_states, train
from graphact_lab.experiments.scheduling.slots import run_slots, usual_arrivals
from graphact_lab.job_progress import JobWatcher
from graphact_lab.protocols import run_seed
from graphact_lab.provenance import provenance
from graphact_lab.store import Row, Store

LOSSES = (0.05, 0.2)  # of messages
CONTENTIONS = (1, 4, 16)
TUNING_LAYERS, TUNING_SEEDS, VALIDATION = 2, 2, 50
MAX_OPTIMA = 40  # graphs of each kind whose optimum is computed


class Test(NamedTuple):
    """Conflict graphs with utilities, under one condition."""

    condition: dict[str, Any]
    conflicts: Conflicts
    weight: Tensor  # (N,)
    reference: Tensor  # (G,), the load of the centralised greedy by w


class Laboratory:
    """The test graphs of all methods, and the traffic in time."""

    def __init__(self, settings: Scheduling, seed: int, device: str) -> None:
        self.settings, self.seed, self.device = settings, seed, device
        self.validation = self.test({"graphs": "validation"}, VALIDATION, settings.nodes)
        shapes: list[tuple[dict[str, Any], int, int]] = [
            ({"graphs": kind}, settings.tests, settings.nodes) for kind in KINDS
        ]
        for factor in (3, 10):
            condition = {"graphs": "random", "nodes": factor * settings.nodes}
            shapes.append((condition, max(1, settings.tests // factor), factor * settings.nodes))
        self.tests = [self.test(*shape) for shape in shapes]
        usual = self.tests[0]
        self.tests += [usual._replace(condition={"graphs": "random", "loss": loss}) for loss in LOSSES]
        self.traffic = draw_geometric(min(10, settings.tests), settings.nodes, self.generator("traffic"), device)
        self.arrivals = usual_arrivals(self.traffic, self.generator("service"))

    def generator(self, *purpose: object) -> torch.Generator:
        return torch.Generator().manual_seed(run_seed(NAME, self.seed, *purpose))

    def test(self, condition: dict[str, Any], count: int, nodes: int) -> Test:
        generator = self.generator(*condition.items())
        draw = KINDS.get(condition["graphs"], draw_random)
        conflicts = draw(count, nodes, generator, self.device)
        weight = torch.rand(len(conflicts.member), generator=generator).to(self.device)
        chosen = greedy(rule_key("w", weight, conflicts.degree), weight, conflicts)
        return Test(condition, conflicts, weight, load(chosen, weight, conflicts))

    def rounds(self, test: Test) -> Iterator[Graph]:
        """The graphs of the rounds; messages are lost alike for all methods."""
        if loss := test.condition.get("loss"):
            generator = self.generator("loss", loss)
            return (test.conflicts.lossy(loss, generator) for _ in repeat(None))
        return repeat(test.conflicts.graph)


def ratios_of_fleet(laboratory: Laboratory, fleet: KeyFleet, iterations: int, test: Test) -> Tensor:
    """The load of each network on each graph over that of the centralised greedy, ``(R, G)``."""
    weight = test.weight.expand(len(next(iter(fleet.parameters.values()))), -1)
    graphs = laboratory.rounds(test)
    with torch.no_grad():
        key = fleet(weight, test.conflicts, graphs)
        sends = local_greedy(key, weight > 0, test.conflicts, iterations, graphs)
    return load(sends, weight, test.conflicts) / test.reference


def matched_width(job: KeyJob, width: int) -> int:
    """The width with which a method has at most as many parameters as the bank with a given width."""
    most, found = KeyFleet("bank", job.layers, width, [0]).num_parameters, 1
    while KeyFleet(job.method, job.layers, found + 1, [0]).num_parameters <= most:
        found += 1
    return found


def tune(laboratory: Laboratory, method: str) -> list[Row]:
    """A row for each rate, with the validation ratio of two networks of two layers."""
    settings, rows = laboratory.settings, []
    for rate in settings.rates:
        seeds = [run_seed(NAME, "tuning", laboratory.seed, n) for n in range(TUNING_SEEDS)]
        fleet = KeyFleet(method, TUNING_LAYERS, settings.width, seeds, laboratory.device)
        train(fleet, iterations=1, rate=rate, seed=seeds[0] >> 1, **training_of(laboratory))
        ratio = ratios_of_fleet(laboratory, fleet, 1, laboratory.validation).mean().item()
        rows.append({"kind": "tuning", "method": method, "rate": rate, "value": ratio})
    return rows


def training_of(laboratory: Laboratory) -> dict[str, Any]:
    """The arguments of a training that all networks share."""
    settings = laboratory.settings
    shared = {name: getattr(settings, name) for name in ("steps", "graphs", "nodes")}
    return {**shared, "device": laboratory.device}


def run_job(laboratory: Laboratory, job: KeyJob, rate: float, watcher: JobWatcher) -> list[Row]:
    """Train the networks of a job and test them on all graphs; narrow ones also in time."""
    settings, begun = laboratory.settings, time.perf_counter()
    narrow = job.setting == NARROW
    width = NARROW_WIDTH if narrow else settings.width
    width = matched_width(job, width) if job.setting == PARAMETERS else width
    count = min(NARROW_REPLICAS, settings.replicas) if narrow else settings.replicas
    seeds = [run_seed(NAME, laboratory.seed, number) for number in range(count)]
    fleet, seed = KeyFleet(job.method, job.layers, width, seeds, laboratory.device), seeds[0] >> 1
    train(fleet, iterations=job.iterations, rate=rate, seed=seed, with_queues=narrow, progress=watcher.epoch,
          **training_of(laboratory))  # fmt: skip
    validation = ratios_of_fleet(laboratory, fleet, job.iterations, laboratory.validation).mean(1).tolist()
    common = {"kind": "model", **asdict(job), "rounds": job.rounds, "width": width, "rate": rate}
    common |= {"parameters": fleet.num_parameters}
    rows: list[Row] = []
    for test in laboratory.tests:
        found = ratios_of_fleet(laboratory, fleet, job.iterations, test).tolist()
        rows += [
            {**common, "condition": test.condition, "replica": number, "value": sum(ratios) / len(ratios)}
            | {"ratios": ratios, "validation": validation[number]}
            for number, ratios in enumerate(found)
        ]
    if narrow:
        _, _, mean = queue_states(seed, settings.nodes, laboratory.device)
        conflicts = laboratory.traffic

        def schedule(queue: Tensor) -> Tensor:
            with torch.no_grad():
                return local_greedy(fleet(queue / mean, conflicts), queue > 0, conflicts, job.iterations)

        seen = [] if job.method == "topology" else [2, *[2 * width] * (job.layers - 1)]
        rows += in_time(laboratory, schedule, [*seen, *bytes_of_rule(job.iterations)], count, common)
    seconds = (time.perf_counter() - begun) / count
    return [{**row, "seconds": seconds} for row in rows]


def bytes_of_rule(iterations: int) -> list[int]:
    """A key in half precision, then a byte in each round."""
    return [2, *[1] * (rounds_of(iterations) - 1)]


def in_time(laboratory: Laboratory, schedule: Any, sent: Sequence[int], count: int, common: Row) -> list[Row]:
    """A row for each contention and load."""
    settings, seed = laboratory.settings, run_seed(NAME, laboratory.seed, "arrivals") >> 1
    found = run_slots(
        schedule, sent, laboratory.traffic, laboratory.arrivals,
        loads=settings.loads, contentions=CONTENTIONS, slots=settings.slots, seed=seed, replicas=count,
    )  # fmt: skip
    return [{**common, **one, "kind": "slots", "of": common["kind"], "sent": list(sent)} for one in found]


def repeated_rule(laboratory: Laboratory, rule: str, repeats: Sequence[int], test: Test) -> Tensor:
    """Return which links send by a rule that sends its messages so often."""
    key, iterations = rule_key(rule, test.weight, test.conflicts.degree), (len(repeats) + 1) // 2
    return local_greedy(key, test.weight > 0, test.conflicts, iterations, laboratory.rounds(test), repeats)


def best_repeats(laboratory: Laboratory, rule: str, rounds: int, loss: float) -> tuple[int, ...]:
    """Return how often a rule sends each message in at most so many rounds: what carries most on validation graphs.

    Messages are lost there with the probability of the test; of equal loads the first counts, with fewer messages.
    """
    test = laboratory.validation._replace(condition={"graphs": "validation", "loss": loss})

    def carried(repeats: tuple[int, ...]) -> float:
        sends = repeated_rule(laboratory, rule, repeats, test)
        return (load(sends, test.weight, test.conflicts) / test.reference).mean().item()

    return max(schedules_of(rounds), key=carried)


def rule_rows(laboratory: Laboratory) -> list[Row]:
    """Everything that does not learn: both rules at every number of rounds, the centralised greedy, ALOHA, optimum."""
    rows = list[Row]()
    budgets = range(1, (max(laboratory.settings.rounds) + 1) // 2 + 1)
    for test in laboratory.tests:
        weight, degree, conflicts = test.weight, test.conflicts.degree, test.conflicts

        def note(method: str, rounds: int | None, found: Tensor, test: Test = test, **more: Any) -> None:
            ratios = (found / test.reference[: len(found)]).tolist()
            row = {"kind": "baseline", "method": method, "rounds": rounds, "condition": test.condition, **more}
            rows.append({**row, "value": sum(ratios) / len(ratios), "ratios": ratios})

        for rule in RULES:
            key = rule_key(rule, weight, degree)
            for iterations in budgets:
                sends = local_greedy(key, weight > 0, conflicts, iterations, laboratory.rounds(test))
                note(rule, rounds_of(iterations), load(sends, weight, conflicts))
            for rounds in range(2, max(laboratory.settings.rounds) + 1) if "loss" in test.condition else ():
                repeats = best_repeats(laboratory, rule, rounds, test.condition["loss"])
                sends = repeated_rule(laboratory, rule, repeats, test)
                note(rule + REPEATED, rounds, load(sends, weight, conflicts), repeats=list(repeats))
            if "loss" not in test.condition:
                note(f"centralised greedy by {rule}", None, load(greedy(key, weight, conflicts), weight, conflicts))
        note("ALOHA", 0, load(aloha(conflicts, weight.shape, laboratory.generator("aloha")), weight, conflicts))
        if test.condition.keys() == {"graphs"}:
            note("optimum", None, optimum(weight, conflicts, MAX_OPTIMA).to(weight))
    traffic = laboratory.traffic
    for rule in RULES:
        for iterations in (*budgets, budgets[-1] + 1):
            common = {"kind": "baseline", "method": rule, "rounds": rounds_of(iterations)}

            def schedule(queue: Tensor, rule: str = rule, iterations: int = iterations) -> Tensor:
                return local_greedy(rule_key(rule, queue, traffic.degree), queue > 0, traffic, iterations)

            rows += in_time(laboratory, schedule, bytes_of_rule(iterations), 1, common)

    def central(queue: Tensor) -> Tensor:
        return greedy(rule_key(RULES[1], queue, traffic.degree), queue, traffic)

    name = f"centralised greedy by {RULES[1]}, no messages"
    return rows + in_time(laboratory, central, [], 1, {"kind": "baseline", "method": name, "rounds": None})


def check_settings(settings: Scheduling, store: Store, seed: int) -> None:
    """Raise if the store holds rows of other settings or another seed, whose test graphs are others."""
    wanted = settings.settings(None, seed)
    store.check_settings({name: wanted[name] for name in wanted.keys() - {"rules"}})


def run(
    settings: Scheduling,
    store: Store,
    *,
    seed: int = 0,
    device: str = "cpu",
    watcher: JobWatcher | None = None,
    with_baselines: bool = True,
) -> None:
    """Run whatever is not finished yet; jobs that another process holds are left to it.

    The rate of a method is chosen before its networks are trained, by the first process that needs it.
    """
    check_settings(settings, store, seed)
    watcher, laboratory = watcher or JobWatcher(), Laboratory(settings, seed, device)
    watcher.plan(len(settings.jobs), sum(store.is_finished(settings.key(job, seed)) for job in settings.jobs))

    def stamped(job: KeyJob | None, make: Callable[[], list[Row]]) -> list[Row]:
        common = {"experiment": NAME, "preset": settings.preset, "seed": seed, "settings": settings.settings(job, seed)}
        return [common | provenance(device) | row for row in make()]

    def train_and_test(job: KeyJob) -> list[Row]:
        tuned = store.cells()[settings.tuning_key(job.method, seed)]
        watcher.start(job.title, settings.steps)
        rows = run_job(laboratory, job, max(tuned, key=lambda row: row["value"])["rate"], watcher)
        usual = [row["value"] for row in rows if row.get("condition") == {"graphs": "random"}]
        watcher.finish(job.title, f"{sum(usual) / len(usual):.3f} of the centralised greedy")
        return rows

    if with_baselines:
        store.fill(settings.key(None, seed), partial(stamped, None, partial(rule_rows, laboratory)))
    for job in settings.jobs:
        choose_rate = partial(stamped, None, partial(tune, laboratory, job.method))
        store.fill(settings.tuning_key(job.method, seed), choose_rate, wait=True)
        store.fill(settings.key(job, seed), partial(stamped, job, partial(train_and_test, job)))
