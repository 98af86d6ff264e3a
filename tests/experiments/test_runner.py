"""Running, and stopping by hand."""

import os
import signal
from dataclasses import replace

import pytest

from graphact.experiments.protocol import jobs_of
from graphact.experiments.registry import find_protocol
from graphact.experiments.runner import run_protocol
from graphact.experiments.store import Store
from graphact.progress import JobWatcher
from graphact.training import TrainingSettings

PROTOCOL = replace(
    find_protocol("source-localization", "smoke"), methods=("relu",), training=TrainingSettings(6, 500, 0.01)
)


class Stopper(JobWatcher):
    """Notes the epochs; sends a signal after one of them."""

    def __init__(self, after=None, times=1):
        self.after, self.times, self.epochs = after, times, []

    def epoch(self, epoch):
        self.epochs.append(epoch)
        if epoch == self.after:
            for _ in range(self.times):
                os.kill(os.getpid(), signal.SIGINT)


def run(folder, watcher):
    store = Store(folder)
    store.create("test")
    run_protocol(PROTOCOL, store, watcher=watcher, checkpoint_seconds=float("inf"))
    (job,) = jobs_of(PROTOCOL, 0)
    return [(row["value"], row["validation"], row["weights"]) for row in store.rows() if row["method"] == job.method]


def test_a_stop_writes_a_last_checkpoint(tmp_path):
    undisturbed = run(tmp_path / "undisturbed", JobWatcher())
    stopped, resumed = Stopper(after=3), Stopper()
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "stopped", stopped)
    assert stopped.epochs == [1, 2, 3, 4]
    assert len(list((tmp_path / "stopped" / "checkpoints").glob("*.safetensors"))) == 1
    assert run(tmp_path / "stopped", resumed) == undisturbed
    assert resumed.epochs == [5, 6]


def test_the_second_stop_is_at_once(tmp_path):
    stopped = Stopper(after=3, times=2)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, stopped)
    assert stopped.epochs == [1, 2, 3]
    assert not list((tmp_path / "checkpoints").glob("*.safetensors"))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
