"""Comparisons with the strongest rival, without dead runs and with one choice changed, beside plain arithmetic."""

import json
from statistics import fmean

import numpy as np
import pytest

from evidence import Cell, Evidence, Study, at
from graphact_lab.statistics import difference
from quotes import NOT_RUN
from rivals import Rivals

STUDY = Study("source-localization", "paper", "converged")
NOISE = np.random.default_rng(0).normal(0, 1, 10)


def rows_of(values, validation=0.0):
    return [
        {"graph": n, "split": 0, "node": 0, "seed": 0, "value": float(value), "validation": validation}
        for n, value in enumerate(values)
    ]


@pytest.fixture
def rivals(tmp_path):
    made = Evidence(tmp_path)
    made.cells = {
        STUDY: {
            Cell("model", "relu", None, 8, 4, ()): rows_of([25.0, 26.0, *(50 + NOISE[2:])], 40),
            Cell("model", "prelu", None, 8, 4, ()): rows_of(60 + NOISE, 55),
            Cell("model", "tanh", None, 8, 4, ()): rows_of(70 + NOISE, 50),  # tests better, validates worse
            Cell("model", "max-ga", 2, 8, 4, ()): rows_of(75 + NOISE[::-1], 65),
        }
    }
    return Rivals(made)


def make(method):
    return at(method, features=8, order=4)


def test_the_strongest_is_the_one_that_validates_best(rivals):
    assert rivals.strongest_pointwise(STUDY, make).method == "prelu"
    gap = difference(rows_of(75 + NOISE[::-1]), rows_of(60 + NOISE))
    assert rivals.over_strongest(STUDY, make) == f"PReLU: **{gap.mean:+.1f} ± {gap.margin:.1f}**"
    assert rivals.over_strongest(STUDY._replace(protocol="paper"), make) == NOT_RUN


def test_dead_runs_are_left_out_of_both(rivals):
    values = (75 + NOISE[::-1])[2:] - (50 + NOISE[2:])
    assert rivals.gap_where_alive(STUDY, make("max-ga"), make("relu"), 30).startswith(f"**{values.mean():+.1f} ±")


def test_choices_trials_and_unseen_sources_are_read_where_they_lie(rivals, tmp_path):
    for folder in ("choices", "unseen", "search/source-localization"):
        (tmp_path / folder).mkdir(parents=True)
    choices = [
        {"activation": name, "choice": choice, "rows": rows_of(level + NOISE * slope)}
        for name, slope, levels in (("relu", 1, (50, 45)), ("max-ga (2)", 2, (72, 61)))
        for choice, level in zip(("converged", "no biases"), levels, strict=True)
    ]
    (tmp_path / "choices" / "choices.json").write_text(json.dumps(choices))
    assert rivals.gap_with_choice("no biases").startswith(f"**{16 + NOISE.mean():+.1f} ±")
    unseen = [
        {"kind": kind, "method": name, "overlap": 0.1, **row}
        for kind, name, level in (("unseen", "a", 60), ("unseen", "b", 50), ("random", "a", 90))
        for row in rows_of(level + NOISE * (1 if name == "a" else 2))
    ]
    (tmp_path / "unseen" / "unseen-source-localization.json").write_text(json.dumps(unseen))
    assert rivals.unseen_mean("a") == f"{fmean(60 + NOISE):.1f}"
    assert rivals.unseen_mean("a", "random") == f"{fmean(90 + NOISE):.1f}"
    assert rivals.unseen_gap("a", "b").startswith(f"**{10 - NOISE.mean():+.1f} ±")
    assert rivals.unseen_gap("a", "c") == rivals.unseen_mean("c") == NOT_RUN
    head = "| method | learning_rate 0.02, x false | learning_rate 0.02, x true | learning_rate 0.2, x true |"
    table = f"{head}\n|---|\n| relu | 1 | 3.25 | 9 |\n"
    (tmp_path / "search" / "source-localization" / "table.md").write_text(table)
    assert rivals.best_trial("relu", "0.02") == "3.2"
