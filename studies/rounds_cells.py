"""Cells of quality against rounds: gains over the strongest pointwise network that takes as many rounds.

Networks are compared within a sweep, which has the same graphs, splits and nodes for every method. Rows are those of
``graphact-lab run rounds``.
"""

import math
from pathlib import Path
from statistics import fmean

from evidence import preference
from graphact_lab.descriptions import find_experiment
from graphact_lab.experiments.rounds.experiment import (
    BANKS,
    LOCALIZATION,
    PARTS,
    POINTWISE,
    WITHOUT_SHIFT,
    RoundsJob,
    orders_of,
)
from graphact_lab.experiments.rounds.runner import make_model
from graphact_lab.statistics import difference, holm
from graphact_lab.store import find_stores

WIDTH = 8
CONTROLS = {"bank-max": "bank-mean"}  # with as many parameters, a mean in place of the maximum


def sweeps(folder):
    """Return rows by method for every number of networks, within every pair of sources and rounds."""
    found = {}
    for store in find_stores(Path(folder), "**"):
        cells = {}
        for row in store.rows():
            if row["kind"] == "model":
                cells.setdefault((row["sources"], row["rounds"], row["method"]), []).append(row)
        for (sources, rounds, method), rows in cells.items():
            found.setdefault((sources, rounds), {}).setdefault(len(rows), {})[method] = rows
    return found


def baselines_of(folder):
    """Return the values of each baseline, one for each graph, by its name and sources."""
    found = {}
    for store in find_stores(Path(folder), "**"):
        for row in store.rows():
            if row["kind"] == "baseline":
                found.setdefault((row["method"], row["sources"]), {})[row["graph"], row["split"]] = row["value"]
    return {key: list(values.values()) for key, values in sorted(found.items())}


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


def relative_of(bank):
    """Return the network without a shift that takes the functions of a bank; None where there is none."""
    return next((name for name, functions in WITHOUT_SHIFT.items() if functions == BANKS.get(bank)), None)


def lines_of(folder, task=LOCALIZATION):
    """Return the cells of a folder without those that diverged, each from the sweep with the most networks."""
    found, measure = [], find_experiment(task).measure
    for (sources, rounds), by_number in sorted(sweeps(folder).items()):
        place, largest_first = {"split": sources, "rounds": rounds}, sorted(by_number.items(), reverse=True)
        finite = [{name: rows for name, rows in cells.items() if is_finite(rows)} for _, cells in largest_first]
        for method in sorted(set().union(*by_number.values())):
            cells = next(own for own, (_, cells) in zip(finite, largest_first, strict=True) if method in cells)
            if method in cells:
                line = place | line_of(cells, method, rounds, task, measure)
                line |= over_other(finite, method, relative_of(method), "shift", measure)
                found.append(line | over_other(finite, method, CONTROLS.get(method), "control", measure))
    for prefix in ("gain", "shift", "control"):
        tested = [line for line in found if f"{prefix}_p" in line]
        for line, p in zip(tested, holm([line[f"{prefix}_p"] for line in tested]), strict=True):
            line[f"{prefix}_p_holm"] = p
    return found


def is_finite(rows):
    """Return whether no network diverged."""
    return all(math.isfinite(row["value"]) for row in rows)


def line_of(cells, method, rounds, task, measure):
    """Return the line of a network: its mean and its gain over its rival."""
    rows, sign = cells[method], 1 if measure.higher_is_better else -1
    mine = difference(rows, 0.0, overlap=measure.overlap)
    first = 1 if orders_of(method, rounds)[0] else WIDTH  # a filter sends the input, which has one feature
    line = {"kind": method, "networks": len(rows), "graphs": len({row["graph"] for row in rows})}
    line |= {"parameters": num_parameters(method, rounds, task), "rate": rows[0]["rate"]}
    line |= {"values_on_a_link": first + (rounds - 1) * WIDTH}
    line |= {"validation": fmean(row["validation"] for row in rows), "mean": mine.mean, "margin": mine.margin}
    rival = strongest(cells, rounds, sign)
    if rival not in (None, method):
        line |= {"rival": rival, **compared("gain", rows, cells[rival], measure)}
    return line


def over_other(sweeps_here, method, other, prefix, measure):
    """Return a network minus another one, in the largest sweep that has both."""
    for cells in sweeps_here:
        if method in cells and other in cells:
            number = {f"{prefix}_minus": other, f"{prefix}_networks": len(cells[method])}
            return number | compared(prefix, cells[method], cells[other], measure)
    return {}


def compared(prefix, rows, others, measure):
    """Return a paired difference with its interval and p."""
    found = difference(rows, others, overlap=measure.overlap)
    low, high = found.interval()
    return {prefix: found.mean, f"{prefix}_low": low, f"{prefix}_high": high, f"{prefix}_p": found.p_unlike()}
