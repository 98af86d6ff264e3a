"""Cells of quality against rounds: gains over the strongest pointwise network that takes as many rounds.

Rows are those of ``graphact-lab run rounds``, or JSON files of one cell each (SOURCES_ROUNDS_METHOD.json), which an
earlier form of it wrote.
"""

import json
from pathlib import Path
from statistics import fmean

from evidence import preference
from graphact_lab.experiments.rounds.experiment import PARTS, POINTWISE, WITHOUT_SHIFT, RoundsJob, orders_of
from graphact_lab.experiments.rounds.runner import make_model
from graphact_lab.statistics import estimate
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


def by_graph(rows):
    """Return the mean accuracy of each graph."""
    values = {}
    for row in rows:
        values.setdefault(row["graph"], []).append(row["value"])
    return [fmean(own) for _, own in sorted(values.items())]


def num_parameters(method, rounds):
    """Return the number of trained numbers of a network; without those of a shift that is 0."""
    number = sum(one.numel() for one in make_model(RoundsJob(method, rounds, PARTS[0]), WIDTH).parameters())
    return number - (WIDTH + (rounds - 1) * WIDTH**2 if method in WITHOUT_SHIFT else 0)


def strongest(cells, rounds):
    """Return the pointwise method that validates best; None where there is none."""

    def rank(method):
        score = fmean(row["validation"] for row in cells[method])
        return preference(score, rounds, num_parameters(method, rounds), method)

    return min((method for method in POINTWISE if method in cells), key=rank, default=None)


def lines_of(folder):
    """Return the cells of a folder; networks are compared where both have as many runs."""
    stored, found = rows_by_cell(folder), []
    for sources, rounds in sorted({cell[:2] for cell in stored}):
        cells = {cell[2]: rows for cell, rows in sorted(stored.items()) if cell[:2] == (sources, rounds)}
        for method, rows in cells.items():
            mine = by_graph(rows)
            line = {"split": sources, "rounds": rounds, "kind": method, "networks": len(rows), "graphs": len(mine)}
            line |= {"parameters": num_parameters(method, rounds), "rate": rows[0]["rate"]}
            first = 1 if orders_of(method, rounds)[0] else WIDTH  # a filter sends the input, which has one feature
            line |= {"values_on_a_link": first + (rounds - 1) * WIDTH}
            line |= {"validation": fmean(row["validation"] for row in rows)}
            line |= {"mean": fmean(mine), "margin": estimate(mine).margin}
            rival = strongest({name: own for name, own in cells.items() if len(own) == len(rows)}, rounds)
            if rival and rival != method:
                gain = estimate([a - b for a, b in zip(mine, by_graph(cells[rival]), strict=True)])
                low, high = gain.interval()
                line |= {"rival": rival, "gain": gain.mean, "gain_low": low, "gain_high": high}
            found.append(line)
    return found
