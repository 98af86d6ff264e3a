"""Rows of all folders of results, found by what they are: experiment, preset, protocol, network and setting.

A study asks for a network in a setting and never for a folder, so that rows may lie in whatever folders runs were
written to. A contrast is a weighted sum of networks, run by run on the same graphs, splits and nodes.
"""

import json
import math
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean, stdev
from typing import NamedTuple

from graphact_lab.descriptions import EXPERIMENTS, find_experiment
from graphact_lab.protocols import TrainingJob
from graphact_lab.statistics import REPLICA, difference, place_of, published
from graphact_lab.store import StoreError, find_stores

RESULTS = Path(__file__).parent.parent / "results"
KEYS = ("kind", "method", "hops", "features", "order", "condition")
# Settings that tell cells and replicas of one protocol apart; all others make it another protocol
WITHIN = {
    *("experiment", "protocol", "method", "hops", "features", "order", "condition", "seed", "graphs", "splits"),
    *("nodes", "loss_probabilities", "loss_realizations"),
}


class NotRunError(LookupError):
    """The rows that were asked for are not there."""


PROBLEMS = (NotRunError, StoreError, OSError)  # that scripts end with, in one line


class Study(NamedTuple):
    """One reading of an experiment."""

    experiment: str
    preset: str
    protocol: str

    @property
    def measure(self):
        return find_experiment(self.experiment).measure


class Cell(NamedTuple):
    """All runs of a network, or of a baseline, in one setting."""

    kind: str
    method: str
    hops: int | None
    features: int | None
    order: int | None
    condition: tuple


@dataclass(frozen=True)
class At:
    """A method in a setting: of what is not given, the only one that was run; of ``best``, what validates best.

    ``among`` are the values of ``best`` that may be chosen; of ``peers`` every one must have been run there, under a
    condition such as lost links, so that methods are not compared at settings which others never had.
    """

    method: str
    setting: tuple = ()
    best: tuple = ()
    kind: str = "model"
    among: tuple = ()
    peers: tuple = ()


def at(method, *, best=(), kind="model", among=(), peers=(), **setting):
    """A method in a setting, such as ``at("max-ga", hops=2, features=8)``; a condition is a dictionary."""
    if "condition" in setting:
        setting["condition"] = tuple(sorted(setting["condition"].items()))
    return At(method, tuple(setting.items()), best, kind, among, peers)


@dataclass(frozen=True)
class Contrast:
    """A weighted sum of methods, less a published number where there is one."""

    label: str
    terms: tuple  # pairs of a weight and At
    published: tuple | None = None  # mean and standard deviation of the paper's runs
    across_nodes: bool = False  # whether methods are read at different nodes, as films are


def minus(label, first, second, **options):
    """The contrast of two methods."""
    return Contrast(label, ((1.0, first), (-1.0, second)), **options)


class Evidence:
    """The rows of a folder of folders of results."""

    def __init__(self, directory=RESULTS):
        self.directory = Path(directory)

    @cached_property
    def cells(self):
        """Rows by study and cell; where two folders hold a cell with the same seed, the more, then the newer ones."""
        found, self.folders = defaultdict(lambda: defaultdict(dict)), defaultdict(set)
        for store in find_stores(self.directory, "*", "sweeps/*"):
            own, studies = defaultdict(list), {}
            for row in store.rows():
                if row["experiment"] not in EXPERIMENTS:
                    continue
                condition = tuple(sorted((row.get("condition") or {}).items()))
                cell = Cell(*(row.get(key) for key in KEYS[:-1]), condition)
                study = None
                if row["kind"] == "model":
                    decisive = {key: value for key, value in row["settings"].items() if key not in WITHIN}
                    kind = (row["experiment"], row["preset"], row["protocol"], json.dumps(decisive, sort_keys=True))
                    if kind not in studies:
                        studies[kind] = Study(*kind[:2], protocol_of(row))
                    study = studies[kind]
                own[study, cell, row.get("seed")].append(row)
            for (study, cell, seed), rows in own.items():
                # Baselines stand beside all that were run there
                for each in {study} if study else set(studies.values()):
                    keep_better(found[each][cell], seed, rows)
                    self.folders[each].add(store.directory.name)
        for study, cell, row in self.perturbed():
            found[study][cell].setdefault(0, []).append(row)
            self.folders[study].add("robustness")
        if not found:
            raise NotRunError(
                f"no results in {self.directory}: expected folders with rows, as graphact-lab run writes them"
            )
        return {
            study: {cell: [row for rows in seeds.values() for row in rows] for cell, seeds in cells.items()}
            for study, cells in found.items()
        }

    def perturbed(self):
        """Accuracies on perturbed inputs, of networks without a limit (benchmarks/robustness.py writes them).

        Those of a kind of perturbation are means over its levels, as docs/guarantees.md has them.
        """
        file = self.directory / "robustness" / "rows.jsonl"
        for line in file.read_text().splitlines() if file.exists() else ():
            row = json.loads(line)
            if row["limit"] is not None:
                continue
            levels = {(): row["accuracy"]}
            levels |= {(("perturbed", kind),): fmean(row[kind]) for kind in ("gaussian", "attack")}
            for condition, value in levels.items():
                cell = Cell("model", row["activation"], None, None, None, condition)
                place = {"graph": row["unit"], "value": value, "validation": value}
                yield Study("source-localization", "robustness", row["task"]), cell, place

    def studies(self):
        """All studies of which there are rows."""
        return list(self.cells)

    def has(self, study, where):
        """Return whether a method was run in a setting."""
        try:
            self.cell(study, where)
        except NotRunError:
            return False
        return True

    def candidates(self, study, where, *, without=()):
        setting = {key: value for key, value in where.setting if key not in without}
        return [
            cell
            for cell in self.cells.get(study, {})
            if (cell.kind, cell.method) == (where.kind, where.method)
            and all(getattr(cell, key) == value for key, value in setting.items())
        ]

    def cell(self, study, where):
        """The one cell of a method in a setting."""
        found = self.candidates(study, where)
        if where.best and found:

            def varied(cell):
                return tuple(getattr(cell, key) for key in where.best)

            run = self._allowed(study, where, varied) & {varied(cell) for cell in found}
            usual = [
                cell
                for cell in self.candidates(study, where, without=("condition",))
                if not cell.condition and varied(cell) in run
            ]
            found = [cell for cell in found if varied(cell) in run]
            if usual or found:
                chosen = min(usual or found, key=lambda cell: self.cost_on_validation(study, cell))
                found = [cell for cell in found if varied(cell) == varied(chosen)]
        if not found:
            raise NotRunError(f"{where.method} of {study.experiment}, protocol {study.protocol}, was not run")
        if len(found) > 1:
            raise NotRunError(f"{where.method} of {study.experiment} was run in {len(found)} settings: name one")
        return found[0]

    def _allowed(self, study, where, varied):
        """The values of what is chosen by validation that may be chosen."""
        cells = [cell for cell in self.cells.get(study, {}) if cell.kind == where.kind]
        values = {varied(cell) for cell in cells}
        for peer in where.peers:
            values &= {varied(cell) for cell in cells if cell.method == peer and cell.condition}
        return values & set(where.among) if where.among else values

    def cost_on_validation(self, study, cell):
        mean = fmean(row["validation"] for row in self.cells[study][cell])
        return -mean if study.measure.higher_is_better else mean

    def rows(self, study, where):
        """The rows of a method in a setting."""
        cell = self.cell(study, where)
        return self.cells[study][cell]

    def values(self, study, where):
        """The test values of a method in a setting."""
        return [row["value"] for row in self.rows(study, where)]

    def mean(self, study, where):
        return fmean(self.values(study, where))

    def std(self, study, where):
        """The standard deviation of the runs, as tables show it."""
        return stdev(self.values(study, where))

    def estimate(self, study, contrast):
        """The estimate of a contrast over the runs that all its methods have."""
        found = []
        for weight, where in contrast.terms:
            places = {}
            for row in self.rows(study, where):
                place = dict(zip(REPLICA, place_of(row), strict=True))
                if (row.get("settings") or {}).get("data_seed") is not None:  # the seed draws parameters, not data
                    place |= {"realization": row["seed"], "seed": None}
                if contrast.across_nodes:
                    place["node"] = None
                places[tuple(place.values())] = weight * row["value"]
            found.append(places)
        common = set.intersection(*map(set, found))
        if not common:
            raise NotRunError(f"{contrast.label}: the methods have no run in common")
        rows = [
            dict(zip(REPLICA, place, strict=True), value=sum(values[place] for values in found))
            for place in sorted(common, key=str)
        ]
        if any(not math.isfinite(row["value"]) for row in rows):
            raise NotRunError(f"{contrast.label}: a run diverged")
        ours = difference(rows, 0.0, overlap=study.measure.overlap)
        return ours if contrast.published is None else ours.minus(self.paper_estimate(study, contrast, ours))

    def paper_estimate(self, study, contrast, ours):
        """A published number with the error of its own runs.

        Where graphs were drawn, our runs of the same design tell how much less a mean varies than a run; where one data
        set was split, the paper's five splits do, with the correction for their overlap.
        """
        if study.measure.overlap is not None:
            return published(*contrast.published, share=math.sqrt(1 / 5 + study.measure.overlap), units=5)
        run_deviation = math.hypot(*(weight * self.std(study, where) for weight, where in contrast.terms))
        return published(*contrast.published, share=ours.standard_error / run_deviation, units=10)


def preference(score, rounds, parameters, name):
    """Return a key that sorts candidates: higher score, then fewer rounds, fewer parameters, and the name."""
    return -score, rounds or 0, parameters or 0, name


def keep_better(by_seed, seed, rows):
    """Keep the rows of a seed, unless those that are there are more, or as many and newer."""
    before = by_seed.get(seed)
    if before is None or (len(before), finished(before)) <= (len(rows), finished(rows)):
        by_seed[seed] = rows


def finished(rows):
    return max(row.get("finished") or "" for row in rows)


def protocol_of(row):
    """Return the protocol that a network was run by, followed by the settings that differ from it."""
    protocol = find_experiment(row["experiment"]).protocols_at(row["preset"]).get(row["protocol"])
    if protocol is None:
        return row["protocol"]
    settings, usual = (
        {key: value for key, value in each.items() if key not in WITHIN}
        for each in (row["settings"], settings_of(protocol))
    )
    settings, usual = ({**each, **(each.get("task_options") or {})} for each in (settings, usual))
    changed = [key for key in sorted(settings.keys() | usual.keys()) if settings.get(key) != usual.get(key)]
    return ", ".join([protocol.name, *(f"{key} {settings.get(key)}" for key in changed if key != "task_options")])


def settings_of(protocol):
    """The settings that rows of a protocol have."""
    return TrainingJob(protocol, protocol.methods[0], None, protocol.features[0], protocol.orders[0], 0).settings()
