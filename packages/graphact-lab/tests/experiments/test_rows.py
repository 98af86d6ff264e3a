import math

import pytest

from experiments.report.factory import baseline, row
from graphact_lab.report.page import in_words
from graphact_lab.report.rows import gather, read_rows


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


def test_control_characters_do_not_get_through():
    (run,) = runs_of(baseline("consensus", "a\x00b\n  c", 1.0))
    assert run.method == "a\N{REPLACEMENT CHARACTER}b c"


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"experiment": "chess"}, ValueError, r"rows\[1\]\['experiment'\] must be one of .*got 'chess'"),
        ({"kind": "network"}, ValueError, "'kind'.* must be one of 'model', 'baseline', got 'network'"),
        ({"metric": "rmse"}, ValueError, "'metric'.* must be one of 'accuracy', got 'rmse'"),
        ({"metric": None}, ValueError, r"rows\[1\] must hold 'metric'"),
        ({"method": "  "}, TypeError, "'method'.* must be a text that is not empty"),
        ({"value": "50"}, TypeError, "'value'.* must be a number, got '50' of type str"),
        ({"value": True}, TypeError, "'value'.* must be a number, got True"),
        ({"hops": 1.5}, TypeError, "'hops'.* must be an integer, got 1.5"),
        ({"split": -1}, ValueError, "'split'.* must be at least 0, got -1"),
        ({"features": None}, ValueError, "'features'.* must be an integer for a model of source-localization"),
        ({"condition": []}, TypeError, "'condition'.* must be a mapping, got"),
        ({"condition": {"snr_db": 3.0}}, ValueError, "must be empty in source-localization, got .*snr_db"),
        ({"settings": "none"}, TypeError, "'settings'.* must be a mapping, got 'none'"),
    ],
)
def test_mistakes_are_named(changes, error, message):
    with pytest.raises(error, match=message):
        read_rows([row(), row(split=1) | changes])


def test_levels_are_numbers():
    with pytest.raises(TypeError, match="'snr_db'.* must be a number, got None"):
        read_rows([row("denoising", condition={"snr_db": None})])
    (run,) = runs_of(row("denoising", condition={"snr_db": 3}))
    assert run.level == 3.0


def test_conditions_belong_to_their_experiment():
    with pytest.raises(ValueError, match="must be empty or hold 'loss_probability' in consensus, got .*film"):
        read_rows([row("consensus", condition={"film": "contact"})])
    with pytest.raises(ValueError, match="must name the film and nothing else, got {}"):
        read_rows([row("recommendation", condition={})])
    with pytest.raises(ValueError, match="'order'.* must be an integer for a model of consensus, got None"):
        read_rows([row("consensus", order=None)])


def test_a_run_counts_once():
    with pytest.raises(ValueError, match="rows must hold every run once, got two of .*'relu'.* split 3"):
        gather(read_rows([row(split=3), row(split=3, value=60.0)]))


def test_other_seeds_are_other_replicas():
    (cell,) = gather(read_rows([row(value=40.0), row(value=60.0, seed=1)])).itertuples()
    assert (cell.mean, cell.runs) == (50.0, 2)
