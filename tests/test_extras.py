"""Without the optional packages: what is slow says so once, what cannot be finished says so before it starts."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch

import graphact
import graphact_lab
from graphact._extras import EXTRA_OF, EXTRAS, is_installed, require
from support.on_agents import split

ROOT = Path(__file__).parent.parent
OTHER_NAMES = {"sklearn": "scikit-learn", "zenoh": "eclipse-zenoh"}


def run_without(packages, program, *words, cwd=None):
    start = f"import sys\nfor name in {packages!r}: sys.modules[name] = None\n"
    command = [sys.executable, "-c", start + program, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)


def test_the_table_is_that_of_the_package():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra, packages in EXTRAS.items():
        lines = [line.split(">=")[0] for line in declared[extra]]
        assert sorted(lines) == sorted(OTHER_NAMES.get(package, package) for package in packages)
    assert declared["all"] == [f"graphact[{','.join(EXTRAS)}]"]
    readme = (ROOT / "README.md").read_text()
    assert all(f"| `{extra}` |" in readme for extra in [*EXTRAS, "all"])


def test_messages(monkeypatch):
    require("reports need", "torch", "numpy")
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "rich", None)
        patch.setitem(sys.modules, "numba", None)
        assert not is_installed("rich")
        with pytest.raises(ModuleNotFoundError) as caught:
            require("this needs", "torch", "rich")
        assert str(caught.value) == "this needs the package rich: pip install 'graphact[experiments]'"
        with pytest.raises(ModuleNotFoundError) as caught:
            require("this needs", "rich", "numba")
        assert str(caught.value) == "this needs the packages rich, numba: pip install 'graphact[experiments,cpu]'"


SLOW = """
import warnings
import torch, graphact
graph = graphact.Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]])
x = torch.tensor([[1.0], [-2.0], [4.0]], requires_grad=True)
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    with graphact.backend("reference"):
        graphact.nn.GraphAdaptiveMax(hops=2)(x, graph)
    assert not seen, "asked for by name"
    for _ in range(3):
        out = graphact.nn.GraphAdaptiveMax(hops=2)(x, graph)
        out.sum().backward()
    other = graphact.Graph.from_edge_index([[0, 1], [1, 0]])
    graphact.nn.LocalizedMedian(hops=1)(x[:2], other)
print(*(warning.message for warning in seen), sep="\\n")
"""


def test_the_reference_warns_once_and_computes():
    done = run_without(["numba"], SLOW)
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    assert "numba is not installed" in line
    assert "pip install 'graphact[cpu]'" in line


def test_what_is_asked_for_by_name_names_the_extra(monkeypatch):
    monkeypatch.setitem(graphact.kernels.backends._found, "numba", False)
    graph = graphact.Graph.from_edge_index([[0, 1], [1, 0]])
    with graphact.backend("numba"), pytest.raises(RuntimeError, match=r"pip install 'graphact\[cpu\]'"):
        graphact.functional.shift(torch.zeros(2, 1), graph)


COMMAND = "from graphact.cli import main; sys.exit(main(sys.argv[1:]))"
CASES = {
    "run source-localization --preset smoke": ["jinja2", "matplotlib", "pandas", "rich"],
    "certify model.safetensors --graph graph.npz": ["matplotlib"],
    "data fetch --data data": ["pooch"],
    "agents run node-0": ["zenoh"],
}


@pytest.mark.parametrize("words", CASES)
def test_a_command_says_what_is_missing_before_it_works(words, tmp_path):
    missing = CASES[words]
    graph = graphact.Graph.from_edge_index([[0, 1], [1, 0]])
    graph.save(tmp_path / "graph.npz")
    model = graphact.nn.GCNN([1, 2], order=1, activation="relu")
    graphact.save(model, tmp_path / "model.safetensors")
    if words.startswith("agents run"):
        addresses = ["127.0.0.1:7500", "127.0.0.1:7501"]
        split(model, graph, tmp_path, addresses=addresses)
    before = set(tmp_path.rglob("*"))
    done = run_without(list(EXTRA_OF), COMMAND, *words.split(), cwd=tmp_path)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert all(name in line for name in missing)
    assert f"pip install 'graphact[{','.join(dict.fromkeys(EXTRA_OF[name] for name in missing))}]'" in line
    assert done.stdout == ""
    written = {path.name for path in set(tmp_path.rglob("*")) - before}
    assert not written & {"out", "data", "certificate.json"}


@pytest.mark.parametrize(
    "words", ["bench graph.npz --repeats 1 --features 2", "partition graph.npz --parts 1 --out parts"]
)
def test_a_command_that_can_do_without(words, tmp_path):
    graphact.Graph.from_edge_index([[0, 1], [1, 0]]).save(tmp_path / "graph.npz")
    done = run_without(list(EXTRA_OF), COMMAND, *words.split(), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


def test_progress_bars_are_asked_for_before_training(monkeypatch):
    monkeypatch.setitem(sys.modules, "rich", None)
    model, task = graphact.nn.GCNN([1, 2], order=1, activation="relu"), graphact_lab.tasks.consensus()
    with pytest.raises(ModuleNotFoundError, match=r"progress=True needs the package rich: pip install 'graphact"):
        graphact.training.fit(model, task, graphact.training.TrainingSettings(epochs=1), progress=True)
