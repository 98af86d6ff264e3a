"""The commands list, certify, bench and partition: hints, results for programs, what they import."""

import importlib
import json
import pkgutil
import resource
import subprocess
import sys

import numpy as np
import pytest

import graphact
from graphact import commands
from graphact.cli import COMMANDS, main
from graphact.commands.parser import Command, print_json
from graphact.registry import BUILT_IN, CONVOLUTIONS
from support.network_files import write_network

HEAVY = {"torch", "numpy", "scipy", "matplotlib", "numba", "triton", "rich", "safetensors"}
CODE = f"""
import sys
from graphact.cli import main
try:
    code = main(sys.argv[1:])
except SystemExit as stopped:
    code = stopped.code
loaded = {HEAVY} & set(sys.modules)
sys.exit(f"loaded {{loaded}}" if loaded else code)
"""


@pytest.mark.parametrize(
    "words", ["", "--version", "--help", "certify --help", "bench --help", "partition --help", "list"]
)
def test_answers_without_heavy_modules(words):
    result = subprocess.run([sys.executable, "-c", CODE, *words.split()], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout


def seconds_of_cpu(*words):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "graphact.cli", *words], capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize("words", ["--help", "list"])
def test_answers_at_once(words):
    assert min(seconds_of_cpu(*words.split()) for _ in range(3)) < 0.2


def test_every_command_is_in_the_table(capsys):
    for name, (command, line) in COMMANDS.items():
        with pytest.raises(SystemExit, match="0"):
            main([name, "--help"])
        assert " ".join(command.description.split())[:60] in " ".join(capsys.readouterr().out.split())
        assert line
    modules = [
        importlib.import_module(f"{commands.__name__}.{m.name}") for m in pkgutil.iter_modules(commands.__path__)
    ]
    defined = {value for module in modules for value in vars(module).values() if isinstance(value, Command)}
    assert defined == {command for command, _ in COMMANDS.values()}


def test_a_missing_module_of_graphact_is_a_bug(monkeypatch):
    monkeypatch.setitem(sys.modules, "graphact.benchmarking", None)
    with pytest.raises(ModuleNotFoundError):
        main(["bench", "graph.npz"])


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [(["benhc"], "bench"), (["list", "--jsn"], "--json"), (["list", "activation"], "activations")],
)
def test_did_you_mean(arguments, meant, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    error, hint = capsys.readouterr().err.splitlines()
    assert error.endswith(f"; did you mean {meant!r}?")
    assert "choose from" not in error
    assert hint.startswith("see graphact ")


@pytest.mark.parametrize("arguments", [["fly"], ["certify"]])
def test_usage_errors(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    error, hint = capsys.readouterr().err.splitlines()
    assert error.startswith("graphact")
    assert "did you mean" not in error
    assert hint in ("see graphact --help", "see graphact certify --help")


def test_list(capsys):
    assert main(["list"]) == 0
    printed = capsys.readouterr().out
    listed = {line.split()[0]: line.split()[1:] for line in printed.splitlines() if line.startswith("  ")}
    for name in (*BUILT_IN, *CONVOLUTIONS):
        assert listed[name], f"{name} has a line that describes it"
    assert main(["list", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["activations"]) >= set(graphact.nn.ACTIVATIONS)
    assert main(["list", "convolutions", "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)) == ["convolutions"]


def test_json_has_no_nan(capsys):
    print_json({"a": [float("nan"), 1.5], "b": {"c": float("inf"), "d": "x"}})
    assert json.loads(capsys.readouterr().out) == {"a": [None, 1.5], "b": {"c": None, "d": "x"}}


@pytest.fixture
def network(tmp_path):
    return write_network(tmp_path)


@pytest.mark.slow
def test_certify_as_json(network, capsys):
    assert main(["certify", *network, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["found"] <= found["certified"] <= found["product_of_layers"]


def test_nan_is_called_nan(capsys, tmp_path):
    (tmp_path / "edges.txt").write_text("0 1 nan\n")
    assert main(["bench", str(tmp_path / "edges.txt")]) == 2
    assert "weights in torch.float32 must be finite, got nan" in capsys.readouterr().err


def test_signals_that_are_no_array(network, capsys, tmp_path):
    (tmp_path / "x.csv").write_text("1,2,3\n")
    np.save(tmp_path / "objects.npy", np.array([None]), allow_pickle=True)
    for name, reason in (("x.csv", "does not begin as the files of numpy.save do"), ("objects.npy", "Python objects")):
        assert main(["certify", *network, "--signals", str(tmp_path / name)]) == 2
        error = capsys.readouterr().err
        assert reason in error
        assert "allow_pickle" not in error


OWN = """
import graphact
from graphact.spec.reductions import Operation

@graphact.nn.register("range-ga")
class GraphAdaptiveRange(graphact.nn.GraphAdaptive):
    "The largest minus the least value."
    operation = Operation("range", lambda neighbors, xp: xp.amax(neighbors, -2) - xp.amin(neighbors, -2))
"""


def test_your_own_activation_is_listed_after_import(tmp_path, monkeypatch, capsys):
    (tmp_path / "own_activations.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    try:
        assert main(["list", "--import", "own_activations"]) == 0
        assert "The largest minus the least value." in capsys.readouterr().out
    finally:
        graphact.nn.unregister("range-ga")
        sys.modules.pop("own_activations", None)


def test_a_module_that_cannot_be_imported(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("no_such_module", "no_such.module", "no/such.py"):
        assert main(["list", "--import", name]) == 2
        assert f"--import must name a module of {tmp_path}" in capsys.readouterr().err
    (tmp_path / "incomplete_module.py").write_text("import no_such_module")
    assert main(["list", "--import", "incomplete_module"]) == 2
    assert "No module named 'no_such_module'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1\n1 / 0\n", "ZeroDivisionError: division by zero (failing_module.py, line 2)"),
        ("def f(:\n", "SyntaxError: invalid syntax (failing_module.py, line 1)"),
    ],
)
def test_a_module_that_fails_is_one_line(tmp_path, monkeypatch, capsys, text, words):
    (tmp_path / "failing_module.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    importlib.invalidate_caches()
    assert main(["list", "--import", "failing_module"]) == 2
    assert capsys.readouterr().err == f"graphact: --import failing_module failed: {words}\n"


def test_verbose_shows_where(tmp_path):
    with pytest.raises(FileNotFoundError):
        main(["bench", str(tmp_path / "graph.npz"), "--verbose"])
    with pytest.raises(SystemExit):
        main(["list", "--quiet", "--verbose"])
