"""What people expect of a command line: hints, results for programs, silence, completion."""

import importlib
import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
from graphact.commands.completion import script_for

import graphact
from graphact.commands.parser import print_json
from graphact_lab.cli import main, make_parser


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["runn"], "run"),
        (["run", "consensuss"], "consensus"),
        (["run", "consensus", "--presett", "quick"], "--preset"),
        (["run", "consensus", "--preset=papr"], "paper"),
        (["agents", "splitt"], "split"),
        (["list", "--jsn"], "--json"),
        (["list", "activation"], "activations"),
        (["run", "consensus", "--device", "gpu"], "cuda"),
    ],
)
def test_did_you_mean(arguments, meant, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    error, hint = capsys.readouterr().err.splitlines()
    assert error.endswith(f"; did you mean {meant!r}?")
    assert "choose from" not in error
    assert hint.startswith("see graphact ")


def test_a_preset_for_tests_is_taken_and_not_listed(capsys):
    with pytest.raises(SystemExit):
        main(["run", "consensus", "--preset", "huge"])
    assert "'huge', choose from quick, paper, best, full, medium\n" in capsys.readouterr().err


def test_did_you_mean_in_a_setting(capsys):
    assert main(["run", "consensus", "--activation", "max-gaa"]) == 2
    named = len(graphact.nn.ACTIVATIONS) + 4  # fir, two convolutions, and a ReLU behind further shifts
    expected = f"graphact: activation must be one of {named} names, got 'max-gaa'; did you mean 'max-ga'?\n"
    assert capsys.readouterr().err == expected
    with pytest.raises(SystemExit):
        main(["fly"])
    assert "did you mean" not in capsys.readouterr().err


def test_list_as_json(capsys):
    assert main(["list", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found["activations"]) >= set(graphact.nn.ACTIVATIONS)
    assert "consensus" in found["experiments"]
    assert main(["list", "datasets", "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)) == ["data sets"]


def test_json_has_no_nan(capsys):
    print_json({"a": [float("nan"), 1.5], "b": {"c": float("inf"), "d": "x"}})
    assert json.loads(capsys.readouterr().out) == {"a": [None, 1.5], "b": {"c": None, "d": "x"}}


def test_data_as_json(tmp_path, capsys):
    assert main(["data", "check", "--data", str(tmp_path), "--json"]) == 1
    assert set(json.loads(capsys.readouterr().out).values()) == {"missing"}


@pytest.fixture
def network(tmp_path):
    graph = graphact.Graph.stochastic_block_model([4, 4], p=0.9, q=0.2)
    graph.save(tmp_path / "graph.npz")
    graphact.save(graphact.nn.GCNN([1, 2], order=1, activation="max-ga"), tmp_path / "model.safetensors")
    return tmp_path


def test_partition_as_json(network, capsys):
    assert main(["partition", str(network / "graph.npz"), "--parts", "2", "--out", str(network / "p"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["parts"] == 2
    assert sum(file["nodes"] for file in found["files"]) == 8


@pytest.mark.slow
def test_certify_as_json(network, capsys):
    pytest.importorskip("matplotlib")
    words = ["certify", str(network / "model.safetensors"), "--graph", str(network / "graph.npz")]
    assert main([*words, "--out", str(network / "out"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    written = json.loads((network / "out" / "certificate.json").read_text())
    assert found == written | {"figure": str(network / "out" / "certificate.png")}


def test_nan_is_called_nan(network, capsys):
    signals = np.zeros((3, 8, 1))
    signals[1, 4] = np.nan
    np.save(network / "x.npy", signals)
    words = ["certify", str(network / "model.safetensors"), "--graph", str(network / "graph.npz")]
    assert main([*words, "--signals", str(network / "x.npy")]) == 2
    assert "must hold finite signals, got nan (1 such values)" in capsys.readouterr().err
    (network / "edges.txt").write_text("0 1 nan\n")
    assert main(["bench", str(network / "edges.txt")]) == 2
    assert "weights must be finite, got nan" in capsys.readouterr().err


def test_signals_that_are_no_array(network, capsys):
    (network / "x.csv").write_text("1,2,3\n")
    np.save(network / "objects.npy", np.array([None]), allow_pickle=True)
    words = ["certify", str(network / "model.safetensors"), "--graph", str(network / "graph.npz"), "--signals"]
    for name, reason in (("x.csv", "does not begin as the files of numpy.save do"), ("objects.npy", "Python objects")):
        assert main([*words, str(network / name)]) == 2
        error = capsys.readouterr().err
        assert reason in error
        assert "allow_pickle" not in error


@pytest.mark.slow
def test_quiet_and_json_runs(tmp_path, capsys):
    words = ["run", "source-localization", "--preset", "smoke", "--activation", "relu", "--device", "cpu"]
    assert main([*words, "--out", str(tmp_path / "out"), "--quiet"]) == 0
    printed = capsys.readouterr().out
    assert "report: " in printed
    assert "[1/1]" not in printed
    assert main(["report", str(tmp_path / "out"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {row["method"] for row in found["rows"]} >= {"relu"}
    assert found["folder"] == str(tmp_path / "out")


OWN = """
import graphact
from graphact.spec.operations import Operation

@graphact.nn.register("range-ga")
class GraphAdaptiveRange(graphact.nn.GraphAdaptive):
    "The largest minus the least value."
    operation = Operation("range", lambda neighbors, xp: xp.amax(neighbors, -2) - xp.amin(neighbors, -2))
"""


@pytest.fixture
def own_activation(tmp_path, monkeypatch):
    (tmp_path / "own_activations.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    graphact.nn.unregister("range-ga")
    sys.modules.pop("own_activations", None)


def test_an_activation_of_ones_own_is_known_after_import(own_activation, capsys):
    assert main(["list", "--import", "own_activations"]) == 0
    assert "The largest minus the least value." in capsys.readouterr().out


@pytest.mark.slow
def test_an_activation_of_ones_own_is_run(own_activation, tmp_path, capsys):
    words = ["run", "source-localization", "--preset", "smoke", "--activation", "range-ga", "--device", "cpu"]
    words += ["--out", str(tmp_path / "out"), "--json"]
    assert main(words) == 2
    assert "got 'range-ga'; one of your own is known after --import MODULE" in capsys.readouterr().err
    assert main([*words, "--import", "own_activations"]) == 0
    assert {row["method"] for row in json.loads(capsys.readouterr().out)["rows"]} >= {"range-ga"}
    assert "--import own_activations --activation range-ga" in (tmp_path / "out" / "run.json").read_text()


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


def test_verbose_shows_where(capsys):
    with pytest.raises(ValueError, match="activation must be one of"):
        main(["run", "consensus", "--activation", "max-gaa", "--verbose"])
    with pytest.raises(SystemExit):
        main(["list", "--quiet", "--verbose"])
    assert "not allowed with" in capsys.readouterr().err


COMPLETE = """
source "$1"
COMP_WORDS=("${@:2}")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_graphact
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (["graphact", "r"], {"run", "report"}),
        (["graphact", "agents", "s"], {"split", "simulate", "status"}),
        (["graphact", "run", "con"], {"consensus"}),
        (["graphact", "run", "consensus", "--pre"], {"--preset"}),
        (["graphact", "run", "consensus", "--preset", "p"], {"paper"}),
        (["graphact", "run", "consensus", "--wor"], {""}),
        (["graphact", "certify", "a", "--normalize", "sy"], {"symmetric"}),
    ],
)
def test_completion_in_bash(typed, expected, tmp_path):
    if shutil.which("bash") is None:
        pytest.skip("completion is tested in bash, which is not installed")
    script = tmp_path / "complete"
    script.write_text(script_for("bash", make_parser()))
    result = subprocess.run(
        ["bash", "-c", COMPLETE, "bash", script, *typed], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert result.stderr == ""
    assert set(result.stdout.split("\n")[:-1]) == expected


def test_completion_in_other_shells(capsys):
    assert main(["completion", "fish"]) == 0
    assert "-l preset -x -a 'quick paper best full medium'" in capsys.readouterr().out
    assert main(["completion", "zsh"]) == 0
    assert capsys.readouterr().out.startswith("autoload -U +X bashcompinit")
