"""Running, and stopping by hand."""

import math
import signal
from dataclasses import replace

import pytest

from graphact.training import TrainingSettings
from graphact_lab.descriptions import find_experiment, find_protocol
from graphact_lab.job_progress import JobWatcher
from graphact_lab.runner import run_protocol
from graphact_lab.store import Store

PROTOCOL = replace(
    find_protocol("source-localization", "smoke"), methods=("relu",), training=TrainingSettings(6, 500, 0.01)
)


class Stopper(JobWatcher):
    """Notes the epochs; sends Ctrl-C after one of them."""

    def __init__(self, after=None):
        super().__init__()
        self.after, self.seen = after, []

    def epoch(self, epoch):
        self.seen.append(epoch)
        if epoch == self.after:
            signal.raise_signal(signal.SIGINT)


def test_a_stopped_run_resumes_from_its_checkpoint(tmp_path):
    def run(folder, watcher, seconds=0.0):
        rows = rows_of(tmp_path / folder, PROTOCOL, watcher=watcher, checkpoint_seconds=seconds)
        return [(row["value"], row["validation"], row["weights"]) for row in rows if row["method"] == "relu"]

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # as in a terminal, also in the background
    try:
        undisturbed = run("undisturbed", JobWatcher())
        for seconds, expected in ((0.0, [5, 6]), (math.inf, [1, 2, 3, 4, 5, 6])):
            stopped, resumed = Stopper(after=4), Stopper()
            with pytest.raises(KeyboardInterrupt):
                run(str(seconds), stopped, seconds)
            assert stopped.seen == [1, 2, 3, 4]
            assert run(str(seconds), resumed) == undisturbed
            assert resumed.seen == expected
    finally:
        signal.signal(signal.SIGINT, before)


def rows_of(folder, protocol, seed=0, **options):
    store = Store(folder)
    store.create("test")
    run_protocol(protocol, store, seed=seed, **options)
    return store.rows()


def test_rows_tell_what_a_network_costs(tmp_path):
    """Two layers of order 4, F = 2, biases: (5 * 2 + 2) + (5 * 4 + 2) taps and biases, 3 * 4 of the readout."""
    protocol = replace(
        PROTOCOL, methods=("relu", "maxout", "max-l", "max-ga"), localized_hops=(2,), hops=(2,), per_feature=True
    )
    rows = rows_of(tmp_path, protocol, with_baselines=False)
    found = {row["method"]: (row["parameters"], row["exchanges"]) for row in rows}
    assert found == {"relu": (46, 8), "maxout": (46 + 2 * 2 * 4, 8), "max-l": (46 + 2 * 5, 12), "max-ga": (56, 14)}
    assert {row["kind"] for row in rows} == {"model"}


def test_a_readout_without_bias(tmp_path):
    rows = rows_of(tmp_path, replace(PROTOCOL, readout_bias=False), with_baselines=False)
    assert {row["parameters"] for row in rows} == {42}
    assert {row["settings"]["readout_bias"] for row in rows} == {False}


def test_the_data_seed_holds_graphs_and_splits_while_the_seed_changes(tmp_path):
    crossed = replace(PROTOCOL, data_seed=3)
    first, second = (rows_of(tmp_path / str(seed), crossed, seed) for seed in (0, 1))
    usual = rows_of(tmp_path / "usual", PROTOCOL, 3)
    chosen = [[row["node"] for row in rows if row["kind"] == "model"] for rows in (first, second, usual)]
    assert chosen[0] == chosen[1] == chosen[2]
    values = [[row["validation"] for row in rows if row["kind"] == "model"] for rows in (first, second)]
    assert values[0] != values[1]
    assert len({row["seed"] for row in first + second}) == 2


def test_other_block_models():
    experiment = find_experiment("source-localization")
    options = {"communities": 3, "community_size": 6, "p": 0.9, "q": 0.2}
    protocol = replace(PROTOCOL, graphs=2, nodes=3, task_options=options)
    for task in experiment.make_tasks(protocol, {}, 0, None):
        assert task.graph.num_nodes == 18
        assert (task.out_features, len(task.inputs)) == (3, 18 * 30)
        assert task.node // 6 == task.details["community"]
        within = task.graph.to_dense()[:6, :6] != 0
        assert 0.6 < within.sum() / 30 <= 1.0
    consensus = find_experiment("consensus").make_tasks(
        replace(find_protocol("consensus", "smoke"), task_options={"community_size": 4}), {}, 0, None
    )
    assert {task.graph.num_nodes for task in consensus} == {20}
