"""Rows of benchmarks by setting, and who stands for which kind of activation there."""

import json
import math
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from pkgutil import resolve_name
from statistics import fmean

from evidence import NotRunError, keep_better, preference, protocol_of
from graphact_lab.descriptions import BENCHMARKS, find_experiment
from graphact_lab.protocols import CONTROLS, is_neighborhood
from graphact_lab.protocols import is_pointwise as is_pointwise_method
from graphact_lab.selection import tuning_score
from graphact_lab.statistics import difference
from graphact_lab.store import StoreError, find_stores
from graphact_lab.style import title_of


@dataclass(frozen=True, order=True)
class Setting:
    """Settings in which activations are compared."""

    experiment: str
    protocol: str  # with what was changed, where it is none of those that commands know
    width: int
    level: str  # a data set, or a perturbation

    @property
    def name(self):
        """The protocol, as commands know it."""
        return self.protocol.partition(", ")[0]

    @property
    def is_known(self):
        return self.protocol == self.name

    @property
    def on_one_split(self):
        """Return whether runs differ in their seeds alone."""
        return self.name in find_experiment(self.experiment).make_tables.keywords.get("alone", ())

    @property
    def overlap(self):
        """Test samples over all others; 0 where runs differ in their seeds alone."""
        module = f"graphact_lab.experiments.{self.experiment.replace('-', '_')}.experiment"
        known = resolve_name(f"{module}:OVERLAP")
        return 0.0 if self.on_one_split else known[self.level if self.level in known else self.name]

    def __str__(self):
        return f"{self.protocol}, F = {self.width}, {title_of(self.level)}"


def is_pointwise(variant):
    return is_pointwise_method(variant[0])


def is_ours(variant):
    return is_neighborhood(variant[0])


def is_optimistic(row):
    """Return whether settings and epoch were chosen on the very samples that are reported."""
    return row["validation"] is None and row["value"] is not None


class Cell:
    """All activations in one setting, the rows of each by (method, hops)."""

    def __init__(self, setting, rows):
        self.setting, self.rows = setting, rows

    def mean(self, variant, name="value"):
        return fmean(row[name] for row in self.rows[variant])

    def has_diverged(self, variant):
        """Return whether a run did not end in finite numbers."""
        return any(
            not math.isfinite(math.nan if row[name] is None else row[name])
            for row in self.rows[variant]
            for name in ("value", "validation")
        )

    @cached_property
    def tuned(self):
        """The scores of activations on splits that choose and are not reported; None where not all have some."""
        scores = {variant: tuning_score(rows) for variant, rows in self.rows.items()}
        return None if None in scores.values() else scores

    def score(self, variant):
        """Return the score that chooses activations: mean validation, on unreported splits if there are any."""
        return self.tuned[variant] if self.tuned else self.mean(variant, "validation")

    def best(self, chosen):
        """Of the variants for which ``chosen`` is true, the one with the best score; none of which a run diverged.

        Equal scores are told apart by fewer rounds, fewer parameters, and the name.
        """
        known = [one for one in self.rows if chosen(one) and not self.has_diverged(one)]
        if not known:
            raise NotRunError(f"no activation of the kind was run: {self.setting}")

        def rank(one):
            first = self.rows[one][0]
            return preference(self.score(one), first["exchanges"], first["parameters"], str(one))

        return min(known, key=rank)

    def highest(self, is_kind=is_ours):
        """Of our activations, or those of another kind, the one with the highest test mean, which chooses nothing."""
        return max((one for one in self.rows if is_kind(one) and not self.has_diverged(one)), key=self.mean)

    @cached_property
    def pointwise(self):
        return self.best(is_pointwise)

    @cached_property
    def ours(self):
        return self.best(is_ours)

    @cached_property
    def controls(self):
        """The controls that were run, mean of neighbours last."""
        known = [one for one in self.rows if one[0] in CONTROLS and not self.has_diverged(one)]
        return sorted(known, key=lambda one: (CONTROLS.index(one[0]), one[1] or 0))

    def gain(self, variant=None, reference=None):
        """The paired difference of test scores, of what validates best where nothing else is asked for."""
        pair = variant or self.ours, reference or self.pointwise
        try:
            return difference(*(self.rows[one] for one in pair), overlap=self.setting.overlap)
        except ValueError as problem:
            raise NotRunError(f"{self.setting}: {problem}") from problem

    def strict_gain(self, variant):
        """The smaller of the gains over two pointwise activations: that which validates best, that which tests best."""
        gain, strict = self.gain(variant), self.gain(variant, self.highest(is_pointwise))
        return strict if 0 < gain.mean > strict.mean else gain

    @property
    def effective(self):
        """As how many independent splits those of the rows count, with the correction for their overlap."""
        runs = len(self.rows[self.pointwise])
        return 1 / (1 / runs + self.setting.overlap)


def read_homophily(file):
    """Return the adjusted homophily of each data set by `benchmarks/graph_statistics.py`; none where it was not run."""
    try:
        found = json.loads(file.read_text()) if file.exists() else {}
        return {name: one["adjusted_homophily"] + 0.0 for name, one in found.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise StoreError(f"{file} is damaged; python benchmarks/graph_statistics.py writes it again") from problem


class Benchmarks:
    """Rows of all folders below one, by setting.

    Rows of other settings than those of a protocol belong to a setting of their own; where two folders hold a cell with
    the same seed, the more, then the newer rows count, as in :class:`evidence.Evidence`. Rows whose settings and epoch
    were chosen on the very samples that are reported are left out. ``graphs`` has the homophily of each data set.
    """

    def __init__(self, directory):
        found = defaultdict(lambda: defaultdict(dict))
        self.graphs = read_homophily(Path(directory) / "graphs.json")
        for store in find_stores(Path(directory), "**"):
            own, protocols = defaultdict(list), {}
            for row in store.rows():
                if row["experiment"] not in BENCHMARKS or row["preset"] != "full" or is_optimistic(row):
                    continue
                level, variant = next(iter(row["condition"].values())), (row["method"], row["hops"])
                job = (row["experiment"], row["protocol"], *variant, row["features"], level, row.get("seed"))
                if job not in protocols:
                    protocols[job] = protocol_of(row)
                setting = Setting(row["experiment"], protocols[job], row["features"], level)
                own[setting, variant, row.get("seed")].append(row)
            for (setting, variant, seed), rows in own.items():
                keep_better(found[setting][variant], seed, rows)
        if not found:
            raise NotRunError(f"no rows of benchmarks, preset full, below {directory}")
        self.cells = {
            setting: Cell(
                setting, {one: [row for rows in seeds.values() for row in rows] for one, seeds in own.items()}
            )
            for setting, own in sorted(found.items())
        }

    def of(self, experiment):
        """The cells of an experiment."""
        return [cell for setting, cell in self.cells.items() if setting.experiment == experiment]

    def comparable(self, experiment):
        """Cells of known protocols in which both kinds were run."""
        found = []
        for cell in self.of(experiment):
            known = [one for one in cell.rows if not cell.has_diverged(one)]
            if cell.setting.is_known and any(map(is_pointwise, known)) and any(map(is_ours, known)):
                found.append(cell)
        return found
