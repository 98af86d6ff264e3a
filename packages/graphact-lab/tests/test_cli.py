"""The command line as a user meets it."""

import json
import os
import resource
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

import graphact
from graphact.commands.parser import CommandParser
from graphact.registry import BUILT_IN
from graphact_lab.cli import COMMANDS, main
from graphact_lab.data.sources import DATASETS
from graphact_lab.descriptions import EVERY_EXPERIMENT, EXPERIMENTS, find_protocol

SMOKE = ["run", "source-localization", "--preset", "smoke", "--device", "cpu"]
RELU = [*SMOKE, "--activation", "relu"]
# a shell that runs in the background lets its children ignore Ctrl-C
HEARS_CONTROL_C = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from graphact_lab.cli import main
sys.exit(main(sys.argv[1:]))
"""


def rows_in(folder, pattern="*"):
    files = sorted((folder / "rows").glob(f"{pattern}.json"))
    return [row for file in files for row in json.loads(file.read_text())]


def needs_data(experiment):
    if experiment in ("denoising", "recommendation") and not os.environ.get("GRAPHACT_DATA"):
        pytest.skip("needs real data: set GRAPHACT_DATA to a folder with molene/ and ml-100k/")


@pytest.mark.slow
@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_experiment_from_data_to_report(experiment, tmp_path, capsys):
    needs_data(experiment)
    out = tmp_path / "results"
    arguments = ["run", experiment, "--preset", "smoke", "--device", "cpu", "--out", str(out)]
    assert main(arguments) == 0
    assert "report: " in capsys.readouterr().out
    assert "max" in (out / "report.html").read_text()
    for kind in ("figures/*.png", "figures/*.svg", "tables/*.md", "tables/*.csv"):
        assert list(out.glob(kind))
    rows = rows_in(out)
    assert {row["kind"] for row in rows} == {"model", "baseline"}
    for row in rows:
        assert row["graphact"]
        assert row["torch"]
        assert row["device"] == "cpu"
        assert row["seconds"] > 0
        assert row["finished"].endswith("Z")
    before = {file: file.stat().st_mtime_ns for file in (out / "rows").iterdir()}
    assert main(arguments) == 0
    assert "already finished" in capsys.readouterr().out
    assert {file: file.stat().st_mtime_ns for file in (out / "rows").iterdir()} == before


PREPARED = {
    "source-localization": None,
    "consensus": "least-squares FIR of order 35 of the prepared signals",
    "denoising": "local estimate alone",
    "recommendation": "fill-in alone",
}


@pytest.mark.slow
@pytest.mark.parametrize(("experiment", "baseline"), PREPARED.items())
def test_best_settings_show_what_prepared_signals_are_worth(experiment, baseline, tmp_path, capsys):
    needs_data(experiment)
    arguments = ["run", experiment, "--preset", "smoke", "--protocol", "best", "--device", "cpu"]
    assert main([*arguments, "--activation", "max-ga", "--out", str(tmp_path)]) == 0
    assert baseline is None or baseline in (tmp_path / "report.html").read_text()
    printed = capsys.readouterr().out
    assert main(["report", str(tmp_path), "--publish"]) == 0
    assert capsys.readouterr().out.strip() in printed
    assert main([*arguments, "--activation", "max-ga", "--out", str(tmp_path)]) == 0
    assert "already finished" in capsys.readouterr().out


@pytest.mark.slow
def test_seeds_decide_results_and_have_folders_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for more in ([], ["--out", "again"], ["--seed", "1"]):
        assert main([*RELU, *more]) == 0
    folders = [tmp_path / "out" / "source-localization-smoke", tmp_path / "again"]
    folders.append(tmp_path / "out" / "source-localization-smoke-seed-1")
    found = [[(row["value"], row["validation"], row["node"]) for row in rows_in(at, "*relu*")] for at in folders]
    assert found[0] == found[1] != found[2]
    assert {row["method"] for row in rows_in(folders[0], "*relu*")} == {"relu"}
    assert json.loads((folders[2] / "run.json").read_text())["commands"] == [
        "graphact-lab run source-localization --preset smoke --activation relu --device cpu --seed 1"
    ]


@pytest.mark.slow
def test_settings_seeds_and_rows_alone(tmp_path, capsys):
    """Rows first, wherever networks are trained; the same command without --rows-only adds what is missing."""
    out = tmp_path / "out"
    words = [*SMOKE, "--protocol", "converged", "--activation", "prelu", "--activation", "median-l"]
    words += ["--set", "localized_hops=1,2", "--set", "orders=3", "--set", "shift=laplacian"]
    words += ["--seeds", "2", "--out", str(out)]
    assert main([*words, "--rows-only"]) == 0
    assert sorted(path.name for path in out.iterdir()) == ["checkpoints", "rows", "run.json"]
    cells = {(row["method"], row["hops"], row["order"], row["seed"], row["settings"]["shift"]) for row in rows_in(out)}
    expected = {("prelu", None), ("median-l", 1), ("median-l", 2)}
    assert cells == {(*cell, 3, seed, "laplacian") for cell in expected for seed in (0, 1)}
    capsys.readouterr()
    assert main(words) == 0
    assert "3 cells, 3 of them already finished" in capsys.readouterr().out
    assert (out / "report.html").exists()
    (command,) = json.loads((out / "run.json").read_text())["commands"]
    assert command.endswith(
        "--activation prelu --activation median-l --set localized_hops=1,2 --set orders=3 --set shift=laplacian "
        "--device cpu --seed 0 --seeds 2"
    )


@pytest.mark.slow
def test_two_processes_share_the_cells(tmp_path):
    out = tmp_path / "results"
    words = [sys.executable, "-W", "error", "-m", "graphact_lab.cli", *SMOKE, "--rows-only", "--out", str(out)]
    running = [subprocess.Popen(words, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    errors = [process.communicate()[1] for process in running]
    assert 0 in {process.returncode for process in running}, errors
    assert all(not error or "another process is still working on" in error for error in errors)
    assert len(list((out / "rows").glob("*.json"))) == 6
    assert not list((out / "checkpoints").glob("*.safetensors"))


RUN = ["run", "consensus"]
NAMES = len(graphact.nn.ACTIVATIONS) + 4  # fir, two convolutions, and a ReLU after further shifts
MISTAKES = [
    (["run", "voting"], "'voting'"),
    (["fly"], "'fly'"),
    (["runn"], "; did you mean 'run'?"),
    (["run", "consensuss"], "; did you mean 'consensus'?"),
    ([*RUN, "--presett", "quick"], "; did you mean '--preset'?"),
    ([*RUN, "--preset=papr"], "; did you mean 'paper'?"),
    ([*RUN, "--device", "gpu"], "; did you mean 'cuda'?"),
    ([*RUN, "--preset", "huge"], "'huge', choose from quick, paper, best, smoke, full, medium"),
    ([*RUN, "--seed", "x"], "--seed"),
    ([*RUN, "--seed", "1.5"], "--seed"),
    ([*RUN, "--seed", "-1"], "--seed"),
    ([*RUN, "--seed", str(2**63)], "--seed"),
    (["run", "source-localization", "--protocol", "fancy"], "must be one of 'converged', 'paper', got 'fancy'"),
    ([*RUN, "--protocol", "convergd"], "got 'convergd'; did you mean 'converged', with --preset paper?"),
    ([*RUN, "--protocol", "converged"], "must be one of 'paper', got 'converged'; --preset paper has it"),
    (["run", "robustness", "--preset", "paper"], "--preset must be one of 'quick', 'full', got 'paper'"),
    (["run", "flocking", "--protocol", "x"], "flocking has no protocols, got --protocol x"),
    (["data", "fetch", "nope"], "DATASET must be one of 'ml-100k', 'molene', "),
    (
        [*RUN, "--activation", "max-gaa"],
        f"--activation must be one of {NAMES} names, got 'max-gaa'; did you mean 'max-ga'?",
    ),
    (["run", "rounds", "--preset", "paper"], "--preset must be one of 'quick', 'full', 'smoke', got 'paper'"),
    (["run", "rounds", "--activation", "bank-maxx"], "--activation must be one of "),
    ([*RUN, "--activation", "softsign"], "your own activation is known after --import MODULE"),
    ([*RUN, "--set", "orders"], "--set must be NAME=VALUE, got 'orders'"),
    ([*RUN, "--set", "colour=red"], "'p', 'q', got 'colour'"),
    ([*RUN, "--set", "nodes=200"], "community_size"),
    ([*RUN, "--set", "lr=3"], "got 'lr'; did you mean 'learning_rate'?"),
    ([*RUN, "--set", "epoch=3"], "got 'epoch'; did you mean 'epochs'?"),
    (["run", "flocking", "--set", "nodes=3"], "got 'nodes'; did you mean 'agents'?"),
    ([*RUN, "--seeds", "0"], "--seeds must be at least 1, got 0"),
    (["run", "denoising", "--data", "/nowhere", "--preset", "smoke"], "/nowhere"),
    (["report", "/nowhere"], "no results in /nowhere"),
    ([*RUN, "--preset", "smoke", "--out", "/dev/null/x"], "cannot write results to /dev/null/x"),
]


@pytest.mark.parametrize(("arguments", "message"), MISTAKES)
def test_a_mistake_is_one_line_and_leaves_nothing(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try:
        code = main(arguments)
    except SystemExit as stopped:  # raised by argparse
        code = stopped.code
    assert code == 2
    error, *hint = capsys.readouterr().err.splitlines()
    assert error.startswith("graphact-lab")
    assert message in error
    assert hint in ([], ["see graphact-lab --help"], ["see graphact-lab run --help"])
    assert not list(tmp_path.iterdir())


def test_no_command_prints_the_help(capsys):
    assert main([]) == 0
    assert "run an experiment and write its report" in capsys.readouterr().out


def test_help_names_the_activations_of_every_experiment(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["run", "--help"])
    printed = capsys.readouterr().out
    assert all(name in printed for name in ("gatv2", "bank-max-min", "sage-max", "pna", "max-ga-unshifted"))


def test_more_answering_nodes_than_communities(tmp_path, capsys):
    assert main([*SMOKE, "--set", "nodes=200", "--rows-only", "--quiet", "--out", str(tmp_path)]) == 2
    assert "for graphs of 200 nodes give community_size=50" in capsys.readouterr().err


def test_verbose_shows_where():
    with pytest.raises(ValueError, match="activation must be one of"):
        main([*RUN, "--activation", "max-gaa", "--verbose"])


def test_cuda_without_a_device(monkeypatch, capsys):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main([*RUN, "--device", "cuda"]) == 2
    assert "needs a CUDA device, and torch finds none" in capsys.readouterr().err


def test_list(capsys):
    assert main(["list"]) == 0
    printed = capsys.readouterr().out
    listed = {line.split()[0]: line.split()[1:] for line in printed.splitlines() if line.startswith("  ")}
    for name in (*EVERY_EXPERIMENT, *DATASETS):
        assert listed[name], f"{name} has a line that describes it"
    assert main(["list", "experiments"]) == 0
    printed = capsys.readouterr().out
    assert "consensus             paper   converged" in printed
    assert "planetoid" not in printed
    assert "smoke" not in printed
    assert main(["list", "--json"]) == 0
    assert "consensus" in json.loads(capsys.readouterr().out)["experiments"]
    assert main(["list", "datasets", "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)) == ["data sets"]


def test_data_check(tmp_path, capsys):
    assert main(["data", "check", "--data", str(tmp_path)]) == 1
    assert "missing  molene/RADOMEH.tar.gz" in capsys.readouterr().out.splitlines()
    if os.environ.get("GRAPHACT_DATA"):
        assert main(["data", "check"]) == 0
    capsys.readouterr()
    assert main(["data", "check", "planetoid", "--data", str(tmp_path)]) == 1
    assert {line.split()[1].split("/")[0] for line in capsys.readouterr().out.splitlines()} == {"planetoid"}
    assert main(["data", "check", "--data", str(tmp_path), "--json"]) == 1
    assert set(json.loads(capsys.readouterr().out).values()) == {"missing"}


def test_one_data_set_is_fetched(tmp_path, capsys, monkeypatch):
    asked = []
    monkeypatch.setattr("graphact_lab.data.download.fetch", lambda name, *_: asked.append(name) or tmp_path / name)
    assert main(["data", "fetch", "molene", "tu", "--data", str(tmp_path), "--quiet"]) == 0
    assert asked == ["molene", "tu"]
    assert main(["data", "fetch", "--data", str(tmp_path), "--quiet"]) == 0
    assert asked[2:] == list(DATASETS)


def test_help_of_every_command(capsys):
    parser = CommandParser()
    parser.add_commands(COMMANDS)
    (action,) = parser._subparsers._group_actions
    told = {}
    for name, command in action.choices.items():
        with pytest.raises(SystemExit, match="0"):
            parser.parse_args([name, "--help"])
        told[name] = capsys.readouterr().out
        assert " ".join(command.description.split()) in " ".join(told[name].split())
        assert command.get_default("command") is not None
    run = "".join(told["run"].split())
    for name in (*BUILT_IN, "fir", "median-gcn", "soft-median-gcn", "compared", "pointwise", "every"):
        assert any(f"{name}{after}" in run for after in (",", ".", "--"))
    for name in DATASETS:
        assert f"{name}/" in run


@pytest.mark.slow
def test_control_c_leaves_results_that_go_on(tmp_path):
    out = tmp_path / "results"
    arguments = ["run", "source-localization", "--preset", "quick", "--device", "cpu"]
    arguments += ["--activation", "relu", "--out", str(out)]
    process = subprocess.Popen(
        [sys.executable, "-c", HEARS_CONTROL_C, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "1 cell\n"
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert error.strip() == "graphact-lab: stopped; finished cells are kept, run the same command again to resume"
    assert main(arguments) == 0
    assert len(list((out / "rows").glob("*relu*.json"))) == 1


@pytest.mark.slow
def test_a_reader_that_has_read_enough(tmp_path):
    run = f"{sys.executable} -m graphact_lab.cli {' '.join(RELU)} --out {tmp_path / 'results'}"
    result = subprocess.run(f"{run} | head -1", shell=True, capture_output=True, text=True, check=False)
    assert result.stdout == "1 cell\n"
    assert "Traceback" not in result.stderr


def test_lost_baselines_come_back_and_other_settings_are_not_mixed(tmp_path, capsys, monkeypatch):
    arguments = [*RELU, "--out", str(tmp_path)]
    assert main(arguments) == 0
    (lost,) = (tmp_path / "rows").glob("*baselines*")
    lost.unlink()
    assert main(arguments) == 0
    assert lost.exists()
    protocol = find_protocol("source-localization", "smoke", methods=("relu",))
    changed = replace(protocol, training=replace(protocol.training, epochs=3))
    monkeypatch.setattr("graphact_lab.commands.run.find_protocol", lambda *_: changed)
    before = sorted((tmp_path / "rows").iterdir())
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert "holds results of other settings (relu F=2 K=4: epochs 2 instead of 3); choose another --out" in error
    assert sorted((tmp_path / "rows").iterdir()) == before


@pytest.mark.parametrize("name", ["figures", "run.json"])
def test_things_in_the_way(name, tmp_path, capsys):
    (tmp_path / name).write_text("[]")
    assert main([*RELU, "--out", str(tmp_path)]) == 2
    (error,) = capsys.readouterr().err.strip().splitlines()
    assert error.startswith("graphact-lab: ")


HEAVY = {"torch", "numpy", "scipy", "pandas", "matplotlib", "numba", "triton", "rich", "jinja2", "pyarrow"}
CODE = f"""
import sys
from graphact_lab.cli import main
try:
    code = main(sys.argv[1:])
except SystemExit as stopped:
    code = stopped.code
loaded = {HEAVY} & set(sys.modules)
sys.exit(f"loaded {{loaded}}" if loaded else code)
"""


@pytest.mark.slow
@pytest.mark.parametrize("words", ["--version", "--help", "data --help", "report --help", "list", "run --help"])
def test_answers_at_once_without_heavy_modules(words):
    seconds = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        result = subprocess.run([sys.executable, "-c", CODE, *words.split()], capture_output=True, text=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert result.returncode == 0, result.stderr
        assert result.stdout
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(seconds) < 0.2


@pytest.mark.slow
def test_quiet_and_json_runs(tmp_path, capsys):
    assert main([*RELU, "--out", str(tmp_path / "out"), "--quiet"]) == 0
    printed = capsys.readouterr().out
    assert "report: " in printed
    assert "[1/1]" not in printed
    assert main(["report", str(tmp_path / "out"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {row["method"] for row in found["rows"]} >= {"relu"}
    assert found["folder"] == str(tmp_path / "out")


OWN = """
import graphact
from graphact.spec.reductions import Operation

@graphact.nn.register("range-ga")
class GraphAdaptiveRange(graphact.nn.GraphAdaptive):
    "The largest minus the least value."
    operation = Operation("range", lambda neighbors, xp: xp.amax(neighbors, -2) - xp.amin(neighbors, -2))
"""


@pytest.mark.slow
def test_your_own_activation_is_run_after_import(tmp_path, monkeypatch, capsys):
    (tmp_path / "own_activations.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    words = [*SMOKE, "--activation", "range-ga", "--out", str(tmp_path / "out"), "--json"]
    try:
        assert main([*words, "--import", "own_activations"]) == 0
    finally:
        graphact.nn.unregister("range-ga")
        sys.modules.pop("own_activations", None)
    assert {row["method"] for row in json.loads(capsys.readouterr().out)["rows"]} >= {"range-ga"}
    assert "--import own_activations --activation range-ga" in (tmp_path / "out" / "run.json").read_text()
