"""All experiments by name, as descriptions."""

import subprocess
import sys

import pytest

from experiments.published import keys_of_devices, keys_of_runs
from graphact import nn
from graphact.registry import FURTHER, POINTWISE
from graphact_lab.descriptions import EVERY_EXPERIMENT, EXPERIMENTS, find_experiment, find_protocol
from graphact_lab.protocols import ACTIVATIONS, EVERY_METHOD, METHODS
from graphact_lab.store import Store, find_stores
from support.places import ROOT

RESULTS = ROOT / "results"

WITHOUT_TORCH = """
import sys
from graphact_lab.commands import overview, run
from graphact_lab.protocols import Protocol, jobs_of
from graphact_lab.descriptions import EXPERIMENTS, find_experiment
for name in EXPERIMENTS:
    assert all(jobs_of(protocol, 0) for protocol in find_experiment(name).protocols)
assert not {"torch", "numpy", "scipy", "rich"} & set(sys.modules)
"""


def test_descriptions_need_no_torch():
    result = subprocess.run([sys.executable, "-c", WITHOUT_TORCH], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_methods_are_the_activations_of_the_library_and_the_linear_filter():
    assert tuple(nn.ACTIVATIONS) == (*ACTIVATIONS, *POINTWISE, *FURTHER)
    assert (*ACTIVATIONS, "fir") == METHODS
    assert {*nn.ACTIVATIONS, "fir"} - {"identity", *FURTHER} == {*EVERY_METHOD}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_knows_its_name_and_metric(name):
    experiment = find_experiment(name)
    assert experiment.name == name
    assert {protocol.experiment for protocol in experiment.protocols} == {name}
    assert experiment.measure.metric == ("accuracy" if name == "source-localization" else "rmse")
    assert (experiment.measure.overlap is None) == (experiment.dataset is None)


@pytest.mark.parametrize("name", ["source-localization", "consensus"])
def test_tasks_have_the_name_and_metric_of_their_experiment(name):
    experiment, protocol = find_experiment(name), find_protocol(name, "smoke")
    for task in experiment.make_tasks(protocol, protocol.conditions[0], 0, None):
        assert (task.name, task.metric) == (name, experiment.measure.metric)


@pytest.mark.parametrize("folder", [store.directory.name for store in find_stores(RESULTS, "*")])
def test_published_results_are_continued_not_repeated(folder):
    """File names hold a fingerprint of all settings: results of earlier versions stay valid."""
    store = Store(RESULTS / folder)
    run, added = keys_of_runs(store), keys_of_devices(store, folder)
    networks = {key for key, rows in store.cells().items() if key in run or rows[0]["kind"] != "baseline"}
    assert run <= networks <= run | added


ALONE = """
import sys
from importlib.abc import MetaPathFinder

class RefuseOthers(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        parts = name.split(".")
        if parts[:2] == ["graphact_lab", "experiments"] and len(parts) > 2 and parts[2] != sys.argv[1]:
            raise ImportError(f"{sys.argv[1]} imports {name}")

sys.meta_path.insert(0, RefuseOthers())
from graphact_lab.cli import main
sys.exit(main(sys.argv[2:]))
"""
SMALLEST = {
    "node-classification": ["--set", "dataset=wisconsin", "--set", "split=given", "--set", "splits=2"],
    "robustness": ["--set", "steps=2", "--set", "block=500"],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY_EXPERIMENT)
def test_a_command_imports_no_other_experiment(name, tmp_path, real_data):
    method = "pointwise" if name == "scheduling" else "relu"
    words = ["run", name, "--preset", "smoke", "--device", "cpu", "--activation", method, "--rows-only", "--quiet"]
    words += ["--data", str(real_data), "--out", str(tmp_path), *SMALLEST.get(name, [])]
    program = [sys.executable, "-c", ALONE, name.replace("-", "_"), *words]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("experiment", "setting", "message"),
    [
        ("node-classification", {"dataset": "cora,moon"}, "--set dataset must be one of .*'flickr'.*, got 'moon'"),
        ("graph-classification", {"dataset": "moon"}, "--set dataset must be one of 'MUTAG'.*, got 'moon'"),
        ("node-classification", {"rates": "0.01,abc"}, "rates must be a number, got 'abc'"),
        ("node-classification", {"rates": "0"}, "rates must be a finite number above 0, got 0"),
        ("node-classification", {"decays": "-1"}, "decays must not be negative, got -1"),
        ("node-classification", {"dropouts": "1.5"}, "dropouts must lie between 0 and 1, got 1.5"),
    ],
)
def test_bad_settings_of_benchmarks_are_named_before_anything_runs(experiment, setting, message):
    with pytest.raises((ValueError, TypeError), match=message):
        find_protocol(experiment, "quick", changes=setting)
