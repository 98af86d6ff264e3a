"""Rows of node classification: who stands for a kind, gains that are paired and corrected, and what is left out."""

import json
import math

import numpy as np
import pytest
from scipy import stats

from benchmark_rows import Benchmarks, read_homophily
from evidence import PROBLEMS, NotRunError
from graphact_lab.descriptions import find_protocol
from graphact_lab.protocols import jobs_of

DATASETS = ("cora", "citeseer", "pubmed", "blogcatalog")
SCORES = {"relu": 80.0, "tanh": 79.0, "max-ga": 82.0, "median-ga": 78.0}


def write_rows(folder, seed=0, scores=SCORES, datasets=DATASETS, tuning=None, protocol="gcn", **changes):
    """Twenty splits of activations on graphs, with known means and a noise that all of them share."""
    rng = np.random.default_rng(seed)
    (folder / "rows").mkdir(parents=True)
    values = {}
    for dataset in datasets:
        shared = rng.normal(0, 2, 20)
        settings = {"dataset": dataset, "hops": "1"} | changes
        for job in jobs_of(find_protocol("node-classification", "full", protocol, tuple(scores), settings), 0):
            own = scores[job.method] + shared + rng.normal(0, 0.5, 20)
            values[dataset, job.method] = own
            rows = [
                {"experiment": "node-classification", "preset": "full", "protocol": protocol, "kind": "model"}
                | {"method": job.method, "hops": job.hops, "features": 64, "order": 1, "seed": 0, "epochs": 1000}
                | {"condition": {"dataset": dataset}, "split": 5 + split, "graph": None, "node": None}
                | {"metric": "accuracy", "value": float(value), "validation": float(value) - 1, "best_epoch": 9}
                | {"exchanges": 2 if job.hops is None else 4, "parameters": 10, "seconds": 0.5, "device": "cpu"}
                | {"settings": job.settings(), "finished": "2026-01-01T00:00:00Z"}
                for split, value in enumerate(own)
            ]
            if tuning:
                rows[0]["tuning"] = [[1.0, 2.0], [tuning[job.method], tuning[job.method] + 2]]
            (folder / "rows" / f"{job.key}.json").write_text(json.dumps(rows))
    return values


def cora(folder):
    (cell,) = [one for one in Benchmarks(folder).comparable("node-classification") if one.setting.protocol == "gcn"]
    return cell


def test_gains_are_paired_and_corrected(tmp_path):
    values = write_rows(tmp_path / "gcn")
    cell = Benchmarks(tmp_path).of("node-classification")[-1]
    assert cell.setting.level == "pubmed"
    assert (cell.pointwise, cell.ours) == (("relu", None), ("max-ga", 1))
    gap, pairs = cell.gain(), values["pubmed", "max-ga"] - values["pubmed", "relu"]
    assert gap.mean == pytest.approx(pairs.mean())
    spread = pairs.std(ddof=1) * math.sqrt(1 / 20 + 1000 / 18717)
    assert gap.margin == pytest.approx(stats.t.ppf(0.975, 19) * spread)
    with pytest.raises(NotRunError, match="no activation of the kind was run: gcn, F = 64, PubMed"):
        cell.best(lambda variant: variant[0] == "abs")


def test_a_gain_is_over_the_strongest_pointwise_activation(tmp_path):
    """Also where another one validates best: the smaller of both gains counts."""
    scores = {"tanh": 70.0, "relu": 78.0, "max-ga": 74.0, "median-ga": 85.0, "kernel-ga": 60.0, "mean-ga": 90.0}
    tuning = dict.fromkeys(scores, 50.0) | {"tanh": 99.0}
    write_rows(tmp_path / "gcn", datasets=("cora",), scores=scores, tuning=tuning)
    cell = cora(tmp_path)
    assert cell.pointwise == ("tanh", None)
    assert cell.controls == [("mean-ga", None)]
    assert cell.strict_gain(("median-ga", 1)).mean == pytest.approx(7, abs=1)
    assert cell.strict_gain(("max-ga", 1)).mean == pytest.approx(-4, abs=1)  # above tanh, below ReLU
    assert cell.strict_gain(("kernel-ga", 1)).mean == cell.gain(("kernel-ga", 1)).mean


def test_the_two_are_chosen_on_splits_that_are_not_reported(tmp_path):
    """The reported splits say ReLU and Max G.A.; those that choose say tanh and Median G.A."""
    write_rows(tmp_path / "a", datasets=("cora",))
    cell = cora(tmp_path / "a")
    assert (cell.pointwise, cell.ours, cell.tuned) == (("relu", None), ("max-ga", 1), None)
    write_rows(tmp_path / "b", datasets=("cora",), tuning={"relu": 70, "tanh": 71, "max-ga": 72, "median-ga": 73})
    cell = cora(tmp_path / "b")
    assert (cell.pointwise, cell.ours) == (("tanh", None), ("median-ga", 1))
    assert cell.tuned["tanh", None] == 72


def test_equal_scores_are_told_apart_by_rounds_then_parameters_then_the_name(tmp_path):
    write_rows(tmp_path, datasets=("cora",), tuning=dict.fromkeys(SCORES, 70))
    assert (cora(tmp_path).pointwise, cora(tmp_path).ours) == (("relu", None), ("max-ga", 1))
    for method, change in (("relu", {"parameters": 11}), ("max-ga", {"exchanges": 5})):
        (file,) = (tmp_path / "rows").glob(f"*-{method}-F64-*")
        file.write_text(json.dumps([row | change for row in json.loads(file.read_text())]))
    assert (cora(tmp_path).pointwise, cora(tmp_path).ours) == (("tanh", None), ("median-ga", 1))


def test_other_settings_under_a_protocols_name_are_a_setting_of_their_own(tmp_path):
    write_rows(tmp_path / "a", datasets=("cora",), scores={"relu": 80.0, "max-ga": 82.0})
    write_rows(tmp_path / "b", datasets=("cora",), scores={"tanh": 10.0}, epochs="5", rates="1.0")
    benchmarks = Benchmarks(tmp_path)
    assert set(cora(tmp_path).rows) == {("relu", None), ("max-ga", 1)}
    (other,) = [setting for setting in benchmarks.cells if not setting.is_known]
    assert other.protocol == "gcn, epochs 5, rates [1.0]"


def test_of_two_folders_with_a_cell_the_fuller_then_the_newer_counts(tmp_path):
    write_rows(tmp_path / "a", datasets=("cora",))
    write_rows(tmp_path / "b", datasets=("cora",), scores={"relu": 60.0}, seed=1)
    (file,) = (tmp_path / "b" / "rows").iterdir()
    rows = json.loads(file.read_text())
    file.write_text(json.dumps([row | {"finished": "2026-02-02T00:00:00Z"} for row in rows]))
    assert cora(tmp_path).mean(("relu", None)) == pytest.approx(60, abs=2)
    assert cora(tmp_path).pointwise == ("tanh", None)
    file.write_text(json.dumps([row | {"finished": "2026-02-02T00:00:00Z"} for row in rows[:5]]))
    assert cora(tmp_path).mean(("relu", None)) == pytest.approx(80, abs=2)


def test_an_activation_with_a_run_that_diverged_stands_for_nobody(tmp_path):
    write_rows(tmp_path / "gcn", datasets=("cora",))
    for method in ("relu", "max-ga"):
        (file,) = (tmp_path / "gcn" / "rows").glob(f"*-{method}-F64-*")
        rows = json.loads(file.read_text())
        rows[3] |= {"value": math.nan, "validation": math.nan}
        file.write_text(json.dumps(rows))
    cell = cora(tmp_path)
    assert (cell.pointwise, cell.ours) == (("tanh", None), ("median-ga", 1))
    assert cell.has_diverged(("relu", None))


def test_what_was_chosen_on_reported_nodes_is_left_out(tmp_path):
    write_rows(tmp_path / "gcn", datasets=("blogcatalog",))
    theirs = {"relu": 90.0, "max-ga": 95.0}
    write_rows(tmp_path / "theirs", datasets=("blogcatalog",), scores=theirs, protocol="digraf-split")
    for file in (tmp_path / "theirs" / "rows").iterdir():
        file.write_text(json.dumps([row | {"validation": None} for row in json.loads(file.read_text())]))
    assert [cell.setting.protocol for cell in Benchmarks(tmp_path).of("node-classification")] == ["gcn"]
    with pytest.raises(NotRunError, match="no rows of benchmarks"):
        Benchmarks(tmp_path / "theirs")


def test_splits_that_share_nodes_count_as_fewer(tmp_path):
    write_rows(tmp_path / "gcn", datasets=("cora",))
    assert cora(tmp_path).effective == pytest.approx(1 / (1 / 20 + 1000 / 1708))


@pytest.mark.parametrize("text", ["{broken", "[]", '{"cora": {"nodes": 3}}', '{"cora": 3}'])
def test_a_damaged_file_is_said_in_a_line(tmp_path, text):
    (tmp_path / "graphs.json").write_text(text)
    message = r"graphs\.json is damaged; python benchmarks/graph_statistics\.py writes it again"
    with pytest.raises(PROBLEMS, match=message):
        read_homophily(tmp_path / "graphs.json")
