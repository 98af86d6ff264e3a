import math

import pytest

from experiments.report.factory import row
from graphact_lab.cli import main
from graphact_lab.report.page import in_words
from graphact_lab.report.rows import gather, read_rows
from graphact_lab.store import Store


def runs_of(*rows):
    return list(read_rows(rows).itertuples())


def test_keys_that_nobody_knows_are_passed_over():
    (run,) = runs_of(row(mood="good"))
    assert not hasattr(run, "mood")


def test_json_writes_nan_as_null():
    (run,) = runs_of(row(value=None))
    assert math.isnan(run.value)


@pytest.mark.parametrize(
    ("value", "words"), [([0.9, 0.999], "0.9, 0.999"), ([], "none"), (False, "no"), (1e-3, "0.001"), ({"a": 1}, "a 1")]
)
def test_settings_in_words(value, words):
    assert in_words(value) == words


@pytest.mark.parametrize("missing", ["experiment", "method"])
def test_rows_of_something_else_are_refused(missing, tmp_path, capsys):
    store, other = Store(tmp_path), row()
    store.create("graphact-lab run source-localization")
    store.finish("a", [row(split=1)])
    assert main(["report", str(tmp_path)]) == 0
    del other[missing]
    store.finish("b", [other])
    assert main(["report", str(tmp_path)]) == 2
    assert f"a row in {tmp_path} has no '{missing}': it is damaged or of another version" in capsys.readouterr().err


def test_levels_are_those_of_conditions():
    (run,) = runs_of(row("denoising", condition={"snr_db": 3}))
    assert run.level == 3.0
    (run,) = runs_of(row("recommendation", condition={"film": "contact"}))
    assert run.level == "contact"
    (run,) = runs_of(row("consensus"))
    assert run.level is None


def test_a_run_counts_once():
    with pytest.raises(ValueError, match="rows must hold every run once, got two of .*'relu'.* split 3"):
        gather(read_rows([row(split=3), row(split=3, value=60.0)]))


def test_other_seeds_are_other_replicas():
    (cell,) = gather(read_rows([row(value=40.0), row(value=60.0, seed=1)])).itertuples()
    assert (cell.mean, cell.runs) == (50.0, 2)
