"""Cells of quality against rounds: gains over the strongest pointwise network that takes as many rounds.

Rows are those of ``graphact-lab run rounds``, or JSON files of one cell each (SOURCES_ROUNDS_METHOD.json), which an
earlier form of it wrote.
"""

import json
import math
from pathlib import Path
from statistics import fmean

from evidence import preference
from graphact_lab.descriptions import find_experiment
from graphact_lab.experiments.rounds.experiment import (
    LOCALIZATION,
    PARTS,
    POINTWISE,
    WITHOUT_SHIFT,
    RoundsJob,
    orders_of,
)
from graphact_lab.experiments.rounds.runner import make_model
from graphact_lab.statistics import difference
from graphact_lab.store import find_stores

WIDTH = 8


def rows_by_cell(folder):
    """Return rows by sources, rounds and method."""
    found = {}
    for file in sorted(Path(folder).glob("*_*_*.json")):
        sources, rounds, method = file.stem.split("_")
        rows = json.loads(file.read_text())
        found[sources, int(rounds), method] = [row | {"value": row["test"]} for row in rows]
    for store in find_stores(Path(folder), "**"):
        cells = {}
        for row in store.rows():
            if row["kind"] == "model":
                cells.setdefault((row["sources"], row["rounds"], row["method"]), []).append(row)
        for cell, rows in cells.items():
            if len(rows) >= len(found.get(cell, ())):
                found[cell] = rows
    return found


def num_parameters(method, rounds, task=LOCALIZATION):
    """Return the number of trained numbers of a network; without those of a shift that is 0."""
    classes = {} if task == LOCALIZATION else {"out_features": 1}
    number = sum(one.numel() for one in make_model(RoundsJob(method, rounds, PARTS[0]), WIDTH, **classes).parameters())
    return number - (WIDTH + (rounds - 1) * WIDTH**2 if method in WITHOUT_SHIFT else 0)


def strongest(cells, rounds, sign):
    """Return the pointwise method that validates best; None where there is none. The sign is -1 for errors."""

    def rank(method):
        score = sign * fmean(row["validation"] for row in cells[method])
        return preference(score, rounds, num_parameters(method, rounds), method)

    return min((method for method in POINTWISE if method in cells), key=rank, default=None)


def lines_of(folder, task=LOCALIZATION):
    """Return the cells of a folder without those that diverged; networks are compared where both have as many runs."""
    stored, found, measure = rows_by_cell(folder), [], find_experiment(task).measure
    sign = 1 if measure.higher_is_better else -1
    for sources, rounds in sorted({cell[:2] for cell in stored}):
        at = {cell[2]: rows for cell, rows in sorted(stored.items()) if cell[:2] == (sources, rounds)}
        cells = {method: rows for method, rows in at.items() if all(math.isfinite(row["value"]) for row in rows)}
        for method, rows in cells.items():
            mine = difference(rows, 0.0, overlap=measure.overlap)
            line = {"split": sources, "rounds": rounds, "kind": method, "networks": len(rows)}
            line |= {"graphs": len({row["graph"] for row in rows}), "parameters": num_parameters(method, rounds, task)}
            line |= {"rate": rows[0]["rate"]}
            first = 1 if orders_of(method, rounds)[0] else WIDTH  # a filter sends the input, which has one feature
            line |= {"values_on_a_link": first + (rounds - 1) * WIDTH}
            line |= {"validation": fmean(row["validation"] for row in rows)}
            line |= {"mean": mine.mean, "margin": mine.margin}
            rival = strongest({name: own for name, own in cells.items() if len(own) == len(rows)}, rounds, sign)
            if rival and rival != method:
                gain = difference(rows, cells[rival], overlap=measure.overlap)
                low, high = gain.interval()
                line |= {"rival": rival, "gain": gain.mean, "gain_low": low, "gain_high": high}
            found.append(line)
    return found
