"""Rows of results: their fields, and cells gathered from them.

A row is the test result of one trained model, or of one baseline, on one replica of an experiment: a mapping with these
keys. Further keys are passed over, and None is the same as no key.

- ``experiment``, ``preset``, ``protocol``: what was run, how much of it, such as "quick", and how it was trained.
- ``kind``, ``method``: "model" and the name of an activation or "fir", or "baseline" and a few words.
- ``metric``, ``value``, ``validation``: on test and validation samples; NaN, infinity or None where a run diverged.
  ``validation`` is also None where the samples that are reported chose, so that nothing validated the choice.
- ``hops``, ``features``, ``order``: of the activation and the filters. ``epochs``, ``best_epoch``: run, and kept.
- ``parameters``, ``exchanges``: what a network learns, and how often neighbours exchange for each of its answers.
- ``condition``: nothing, or the condition of the experiment with its level, such as ``{"snr_db": 3.0}``.
- ``graph``, ``split``, ``node``, ``realization``, ``seed``: which replica it is.
- ``beta``, ``weights``: what the activation learned; a report does not read them.
- ``settings``: whatever else decided the result, such as the learning rate, by name.
- ``graphact``, ``torch``, ``device``, ``seconds``, ``finished``: with what, where, how long, until when.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from graphact_lab.descriptions import find_experiment
from graphact_lab.selection import tuning_score
from graphact_lab.statistics import REPLICA, Summary, summarize
from graphact_lab.style import Variant

PROVENANCE = ("graphact", "torch", "device", "finished")
COUNTS = ("hops", "features", "order", *REPLICA, "epochs", "parameters", "exchanges")
SETTING = ["experiment", "preset", "protocol", "kind", "method", "hops", "features", "order", "level"]


def read_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row as a run.

    A run has the ``level`` of its condition, its ``replica``, which tells it from the others of its cell, and
    ``tuning``, its score on splits that are not reported.
    """
    described = find_experiment(row["experiment"])
    run = {key: row[key] for key in ("experiment", "kind", "preset", "protocol", "method")}
    run |= {key: row.get(key) for key in (*PROVENANCE, *COUNTS)}
    for key in ("value", "validation"):
        run[key] = math.nan if row.get(key) is None else float(row[key])
    level = (row.get("condition") or {}).get(described.variation and described.variation.name)
    run |= {"settings": row.get("settings") or {}, "level": level, "tuning": tuning_score([row])}
    return run | {"replica": tuple(run[key] for key in REPLICA)}


def read_rows(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Read rows and bring them into an order that does not depend on the one they came in."""
    runs = [read_row(row) for row in rows]
    if not runs:
        raise ValueError("rows must hold at least one result, got none; run an experiment first")
    runs.sort(key=lambda run: [(run[name] is not None, run[name] or 0) for name in (*SETTING, *REPLICA)])
    return pd.DataFrame(runs, dtype=object).astype(dict.fromkeys(("value", "validation", "tuning"), float))


def gather(runs: pd.DataFrame) -> pd.DataFrame:
    """Group runs into cells: setting, label of their line, summary, and values and replicas of the runs."""
    for run in runs[runs.duplicated([*SETTING, *REPLICA])].to_dict("records"):
        words = ", ".join(f"{name} {run[name]!r}" for name in (*SETTING, *REPLICA))
        raise ValueError(f"rows must hold every run once, got two of {words}")
    cell = runs.groupby(SETTING, dropna=False, sort=False).ngroup()
    cells = runs.loc[~cell.duplicated(), SETTING].reset_index(drop=True)
    for name in ("value", "replica"):
        cells[name] = runs[name].groupby(cell).agg(tuple)
    cells["tuning"] = runs.tuning.groupby(cell).max()  # of which one row of a cell tells
    cells["validation"] = runs.validation.groupby(cell).agg(lambda values: summarize(values).mean)
    cells[list(Summary._fields)] = [summarize(values) for values in cells.value]
    names = zip(cells.kind, cells.method, cells.hops, strict=True)
    cells["line"] = [Variant(method, hops).label if kind == "model" else method for kind, method, hops in names]
    return cells
