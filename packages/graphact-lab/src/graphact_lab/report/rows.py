"""Rows of results: their fields, the check of each row, and cells gathered from them.

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

from graphact._checks import check_choice, check_integer, check_number
from graphact_lab.descriptions import BENCHMARKS, EXPERIMENTS, Experiment, find_experiment
from graphact_lab.selection import tuning_score
from graphact_lab.statistics import REPLICA, Summary, summarize
from graphact_lab.style import Variant

TEXTS = ("preset", "protocol", "method")
PROVENANCE = ("graphact", "torch", "device", "finished")
COUNTS = ("hops", "features", "order", *REPLICA, "epochs", "parameters", "exchanges")
SETTING = ["experiment", "preset", "protocol", "kind", "method", "hops", "features", "order", "level"]


def read_row(row: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a row as a checked run; ``name`` is how messages call it.

    A run has the ``level`` of its condition, its ``replica``, which tells it from the others of its cell, and
    ``tuning``, its score on splits that are not reported.
    """
    values = {key: value for key, value in row.items() if value is not None}
    if missing := sorted({"experiment", *TEXTS, "kind", "metric"} - values.keys()):
        raise ValueError(f"{name} must hold {missing[0]!r}, got the keys {sorted(row)}")
    described = find_experiment(
        check_choice(f"{name}['experiment']", values["experiment"], (*EXPERIMENTS, *BENCHMARKS))
    )
    kind = check_choice(f"{name}['kind']", values["kind"], ("model", "baseline"))
    check_choice(f"{name}['metric']", values["metric"], (described.measure.metric, *described.measure.also))
    run: dict[str, Any] = {"experiment": described.name, "kind": kind}
    for key in (*TEXTS, *PROVENANCE):
        run[key] = check_text(f"{name}[{key!r}]", values[key]) if key in values else None
    for key in COUNTS:
        run[key] = check_integer(f"{name}[{key!r}]", values[key], minimum=0) if key in values else None
        if kind == "model" and run[key] is None and key in described.needed:
            raise ValueError(f"{name}[{key!r}] must be an integer for a model of {described.name}, got None")
    for key in ("value", "validation"):
        run[key] = check_number(f"{name}[{key!r}]", values.get(key, math.nan))
    for key in ("condition", "settings"):
        run[key] = values.get(key, {})
        if not isinstance(run[key], Mapping):
            raise TypeError(f"{name}[{key!r}] must be a mapping, got {run[key]!r} of type {type(run[key]).__name__}")
    run["level"] = check_condition(f"{name}['condition']", run.pop("condition"), described)
    run["replica"] = tuple(run[key] for key in REPLICA)
    run["tuning"] = tuning_score([row])
    return run


def read_rows(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Check rows and bring them into an order that does not depend on the one they came in."""
    runs = [read_row(row, f"rows[{position}]") for position, row in enumerate(rows)]
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


def check_text(name: str, value: Any) -> str:
    """Return a text on one line, in printable characters."""
    if not isinstance(value, str) or not value.strip():
        raise TypeError(f"{name} must be a text that is not empty, got {value!r}")
    line = " ".join(value.split())
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in line)


def check_condition(name: str, value: Mapping[Any, Any], experiment: Experiment) -> float | str | None:
    """Return the level of the condition that the experiment knows, None where the row has none."""
    known, keys = experiment.variation, set(value)
    if known and known.is_text:
        if keys != {known.name}:
            raise ValueError(f"{name} must name the {known.name} and nothing else, got {dict(value)}")
        return check_text(f"{name}[{known.name!r}]", str(value[known.name]))
    if keys - {known and known.name}:
        expected = f"be empty{f' or hold {known.name!r}' if known else ''} in {experiment.name}"
        raise ValueError(f"{name} must {expected}, got {dict(value)}")
    return check_number(f"{name}[{known.name!r}]", value[known.name]) if known and keys else None
