"""Without the optional packages: what is slow says so once, what cannot be finished says so before it starts."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch

import graphact
from graphact._extras import EXTRA_OF, EXTRAS, OF_THE_LAB, is_installed, require
from graphact_lab import tasks
from support.on_agents import split

ROOT = Path(__file__).parent.parent
PACKAGES = ("graphact", "graphact-agents", "graphact-lab")
ALIASES = ("numba", "triton")  # of cpu and gpu
IMPORTED_AS = {"scikit-learn": "sklearn", "eclipse-zenoh": "zenoh"}


def run_without(packages, program, *words, cwd=None):
    start = f"import sys\nfor name in {packages!r}: sys.modules[name] = None\n"
    command = [sys.executable, "-c", start + program, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)


def declared_by(package):
    """The optional dependencies that a package declares, and its own ones, by import name."""
    project = tomllib.loads((ROOT / "packages" / package / "pyproject.toml").read_text())["project"]
    names = {extra: [re.split(r"[>=;\[]", line)[0] for line in lines] for extra, lines in
             {"": project["dependencies"], **project["optional-dependencies"]}.items()}  # fmt: skip
    return {extra: sorted(IMPORTED_AS.get(name, name) for name in lines) for extra, lines in names.items()}


def test_the_tables_are_those_of_the_packages():
    declared = declared_by("graphact")
    assert declared.pop("all") == ["graphact"]
    assert "graphact[" + ",".join(EXTRAS) + "]" in (ROOT / "packages" / "graphact" / "pyproject.toml").read_text()
    declared.pop("")
    assert [declared.pop(alias) for alias in ALIASES] == [["graphact"]] * len(ALIASES)
    assert declared == {extra: sorted(packages) for extra, packages in EXTRAS.items()}
    lab = declared_by("graphact-lab")
    for package, name in OF_THE_LAB.items():
        assert package in lab["parquet" if "parquet" in name else ""]
    page = (ROOT / "docs" / "conventions.md").read_text()
    rows = {f"graphact[{extra}]" for extra in [*EXTRAS, "all"]}
    rows |= {f"{name}[{extra}]" for name in PACKAGES[1:] for extra in declared_by(name) if extra}
    assert set(re.findall(r"^\| `(graphact[\w-]*\[\w+\])` \|", page, re.MULTILINE)) == rows


@pytest.mark.parametrize(
    ("missing", "command"),
    [
        (["rich"], "the package rich: pip install 'graphact[progress]'"),
        (["rich", "numba"], "the packages rich, numba: pip install 'graphact[progress,cpu]'"),
        (["pandas", "jinja2"], "the packages pandas, jinja2: pip install graphact-lab"),
        (["pandas", "rich"], "the packages pandas, rich: pip install graphact-lab 'graphact[progress]'"),
    ],
)
def test_messages(missing, command, monkeypatch):
    require("reports need", "torch", "numpy")
    for name in missing:
        monkeypatch.setitem(sys.modules, name, None)
        assert not is_installed(name)
    with pytest.raises(ModuleNotFoundError) as caught:
        require("this needs", "torch", *missing)
    assert str(caught.value) == f"this needs {command}"


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
    monkeypatch.setitem(graphact.kernels.dispatch._found, "numba", False)
    graph = graphact.Graph.from_edge_index([[0, 1], [1, 0]])
    with graphact.backend("numba"), pytest.raises(RuntimeError, match=r"pip install 'graphact\[cpu\]'"):
        graphact.functional.shift(torch.zeros(2, 1), graph)


COMMAND = "from pkgutil import resolve_name; sys.exit(resolve_name(sys.argv[1])(sys.argv[2:]))"
LIBRARY, AGENTS, LAB = "graphact.cli:main", "graphact_agents.command:main", "graphact_lab.cli:main"
CASES = {
    "export model.safetensors --graph graph.npz --out model.onnx": (
        LIBRARY, ["onnx", "onnxscript"], "pip install 'graphact[onnx]'"
    ),
    "run source-localization --preset smoke": (
        LAB, ["jinja2", "matplotlib", "pandas"], "pip install graphact-lab 'graphact[figures]'"
    ),
    "run nodes/node-0": (AGENTS, ["zenoh"], "pip install 'graphact-agents[zenoh]'"),
}  # fmt: skip


@pytest.mark.parametrize("words", CASES)
def test_a_command_says_what_is_missing_before_it_works(words, tmp_path):
    command, missing, remedy = CASES[words]
    graph = graphact.Graph.from_edge_index([[0, 1], [1, 0]])
    graph.save(tmp_path / "graph.npz")
    model = graphact.nn.GCNN([1, 2], order=1, activation="relu")
    graphact.save(model, tmp_path / "model.safetensors")
    if command == AGENTS:
        addresses = ["127.0.0.1:7500", "127.0.0.1:7501"]
        split(model, graph, tmp_path / "nodes", addresses=addresses)
    before = set(tmp_path.rglob("*"))
    done = run_without([*EXTRA_OF, *OF_THE_LAB, "zenoh"], COMMAND, command, *words.split(), cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert all(name in line for name in missing)
    assert remedy in line
    assert done.stdout == ""
    written = {path.name for path in set(tmp_path.rglob("*")) - before}
    assert not written & {"out", "data", "certificate.json", "model.onnx"}


@pytest.mark.parametrize(
    "words", ["bench graph.npz --repeats 1 --features 2", "partition graph.npz --parts 1 --out parts"]
)
def test_a_command_that_can_do_without(words, tmp_path):
    graphact.Graph.from_edge_index([[0, 1], [1, 0]]).save(tmp_path / "graph.npz")
    done = run_without(list(EXTRA_OF), COMMAND, LIBRARY, *words.split(), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


def test_progress_bars_are_asked_for_before_training(monkeypatch):
    monkeypatch.setitem(sys.modules, "rich", None)
    model, task = graphact.nn.GCNN([1, 2], order=1, activation="relu"), tasks.consensus()
    with pytest.raises(ModuleNotFoundError, match=r"progress=True needs the package rich: pip install 'graphact"):
        graphact.training.fit(model, task, graphact.training.TrainingSettings(epochs=1), progress=True)
