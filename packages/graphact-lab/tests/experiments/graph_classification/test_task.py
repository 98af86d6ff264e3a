"""Cells of graph classification: the choice of settings, the optimistic protocol, rows and report."""

import json
from dataclasses import replace

import pytest
import torch

from graphact_lab.data.graph_sets import read_graphs
from graphact_lab.descriptions import find_experiment, find_protocol
from graphact_lab.experiments.graph_classification import task
from graphact_lab.experiments.graph_classification.experiment import SETS
from graphact_lab.experiments.graph_classification.gin import GINNetwork
from graphact_lab.protocols import jobs_of
from graphact_lab.report.page import terminal_table, write_report
from graphact_lab.runner import run_protocol
from graphact_lab.selection import grid
from graphact_lab.store import Store

SMALL = {"features": "3", "layers": "2", "splits": "2", "epochs": "3", "least_batches": "2"}


def protocol_of(methods, **changes):
    return find_protocol("graph-classification", "quick", None, methods, SMALL | changes)


def rows_of(folder):
    files = sorted((folder / "rows").glob("*.json"))
    volatile = ("seconds", "finished")
    return [{k: v for k, v in row.items() if k not in volatile} for f in files for row in json.loads(f.read_text())]


def test_permuted_test_labels_change_no_choice(real_data, monkeypatch):
    """One test set for all folds, whose labels are shuffled: choices, epochs and validation scores stay the same."""
    data = read_graphs("MUTAG", real_data)
    order = torch.randperm(188, generator=torch.Generator().manual_seed(0))
    test, rest = order[:60], order[60:]
    folds = []
    for fold in range(2):
        dealt = rest[torch.randperm(128, generator=torch.Generator().manual_seed(fold))]
        folds.append(task.Split(dealt[:80], dealt[80:], test))
    changes = {"rates": "0.05,0.001", "dropouts": "0,0.5", "epochs": "8", "optimistic": "false"}
    job = jobs_of(protocol_of(("relu",), **changes), 0)[0]
    found = []
    for seed in (1, 2):
        labels = data.y.clone()
        labels[test] = labels[test[torch.randperm(60, generator=torch.Generator().manual_seed(seed))]]
        changed = replace(data, y=labels, given=tuple(folds))
        monkeypatch.setattr(task, "data_of", lambda *_, changed=changed: changed)
        task.batches_of.cache_clear()
        found.append(task.train_cell(job, "cpu", None))
    task.batches_of.cache_clear()
    for first, second in zip(*found, strict=True):
        assert {**first, "value": 0} == {**second, "value": 0}
    assert [row["value"] for row in found[0]] != [row["value"] for row in found[1]]
    tuning = found[0][0]["tuning"]
    assert (len(tuning), len(tuning[0])) == (4, 2)
    for place, row in enumerate(found[0]):  # each fold takes the point that is best on its own validation graphs
        best = max(range(4), key=lambda point, place=place: tuning[point][place])
        assert row["validation"] == tuning[best][place]
        assert row["chosen"] == grid((0.05, 0.001), (0.0,), (0.0, 0.5))[best]._asdict()


def test_the_optimistic_protocol_takes_the_best_mean_epoch(real_data, monkeypatch):
    """One epoch and grid point for all folds, chosen on what is reported; networks train on all other folds."""
    data = read_graphs("MUTAG", real_data)
    curves = torch.tensor([[50.0, 90, 60], [70, 40, 60], [80, 20, 10], [10, 95, float("nan")]])
    asked = []

    def train(job, trials, splits, device, directory):
        asked.append((trials, splits))
        return None, curves.double()

    monkeypatch.setattr(task, "train_trials", train)
    changes = {"rates": "0.1,0.2", "dropouts": "0.5"}
    rows = task.optimistic_rows(jobs_of(protocol_of(("relu",), **changes), 0)[0], data, "cpu", None)
    # means: 60, 65, 60 and 45, 57.5, not finite
    assert [(row["split"], row["value"], row["best_epoch"]) for row in rows] == [(0, 90.0, 2), (1, 40.0, 2)]
    assert {row["chosen"]["rate"] for row in rows} == {0.1}
    assert {row["condition"]["dataset"] for row in rows} == {"MUTAG, optimistic"}
    ((trials, splits),) = asked
    for trial, split in zip(trials, splits, strict=True):
        assert torch.equal(split.test, data.split(trial.replica).test)
        assert torch.cat([split.train, split.test]).sort().values.tolist() == list(range(188))


def test_rows_report_and_going_on(real_data, tmp_path):
    protocol = protocol_of(("relu", "tanh", "max-ga", "digraf"), splits="3")
    store = Store(tmp_path)
    store.create("graphact-lab run graph-classification")
    run_protocol(protocol, store, data=real_data)
    rows = rows_of(tmp_path)
    relu = [row for row in rows if row["method"] == "relu"]
    assert [(row["condition"]["dataset"], row["split"]) for row in relu] == [
        (name, fold) for name in ("MUTAG", "MUTAG, optimistic") for fold in range(3)
    ]
    maps = (7 * 3 + 3 * 3) + 2 * 3 * 3  # of two layers
    assert relu[0]["parameters"] == maps + 4 * (3 + 3) + 2 + (2 * 3 * 2 + 2)
    assert relu[0]["exchanges"] == 2
    assert {row["exchanges"] for row in rows if row["method"] == "max-ga"} == {6}
    optimistic = [row for row in relu if "optimistic" in row["condition"]["dataset"]]
    assert {(row["best_epoch"], row["validation"]) for row in optimistic} == {(optimistic[0]["best_epoch"], None)}
    assert "MUTAG" in terminal_table(store.rows())
    page = write_report(store.rows(), tmp_path).read_text()
    for words in ("Optimistic protocol", "Differences from the best pointwise activation", "92.1", "89.4"):
        assert words in page
    files = sorted((tmp_path / "rows").glob("*.json"))
    kept = {file: file.stat().st_mtime_ns for file in files[1:]}
    files[0].unlink()
    run_protocol(protocol, store, data=real_data)
    assert rows_of(tmp_path) == rows
    assert {file: file.stat().st_mtime_ns for file in kept} == kept


def test_presets():
    experiment, full = find_experiment("graph-classification"), find_protocol("graph-classification", "full")
    assert tuple(condition["dataset"] for condition in full.conditions) == SETS
    assert (full.rates, full.dropouts, full.splits) == ((1e-2, 5e-3, 1e-3), (0.0, 0.5), 10)
    assert experiment.dataset == "tu"
    changed = find_protocol("graph-classification", "full", None, (), {"dataset": "NCI1,MUTAG", "optimistic": "false"})
    assert changed.conditions == ({"dataset": "NCI1"}, {"dataset": "MUTAG"})
    assert changed.task_options["optimistic"] is False
    jobs = jobs_of(changed, 0)
    assert len({job.key for job in jobs}) == len(jobs) == 2 * len(full.methods)


def test_batches_are_small_enough_for_many_steps():
    job = jobs_of(find_protocol("graph-classification", "full"), 0)[0]
    assert [task.batch_size(job, graphs) for graphs in (188, 344, 1113, 4110)] == [24, 43, 128, 128]


def test_wrong_settings_are_refused(real_data):
    with pytest.raises(ValueError, match="--set dataset must be one of 'MUTAG', .* got 'mutag'"):
        task.train_cell(jobs_of(protocol_of(("relu",), dataset="mutag"), 0)[0], "cpu", real_data)
    with pytest.raises(ValueError, match="MUTAG has 10 folds, got the number 10"):
        task.train_cell(jobs_of(protocol_of(("relu",), splits="11"), 0)[0], "cpu", real_data)
    with pytest.raises(ValueError, match="layers must be"):
        GINNetwork(3, 4, 2, layers=0)
