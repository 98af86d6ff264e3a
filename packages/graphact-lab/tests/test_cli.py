"""The command line as a user meets it."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

import graphact
from graphact.commands.parser import CommandParser
from graphact.registry import BUILT_IN
from graphact_lab.cli import COMMANDS, main
from graphact_lab.data.sources import DATASETS
from graphact_lab.descriptions import EXPERIMENTS, find_protocol

# a shell that runs in the background lets its children ignore Ctrl-C
HEARS_CONTROL_C = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from graphact_lab.cli import main
sys.exit(main(sys.argv[1:]))
"""


def command(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "graphact_lab.cli", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        **options,
    )


def needs_data(experiment):
    if experiment in ("denoising", "recommendation") and not os.environ.get("GRAPHACT_DATA"):
        pytest.skip("needs real data: set GRAPHACT_DATA to a folder with molene/ and ml-100k/")


@pytest.mark.slow
@pytest.mark.parametrize("experiment", ["source-localization", "consensus", "denoising", "recommendation"])
def test_every_experiment_from_data_to_report(experiment, tmp_path, capsys):
    needs_data(experiment)
    out = tmp_path / "results"
    arguments = ["run", experiment, "--preset", "smoke", "--device", "cpu", "--out", str(out)]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert "report: " in printed
    page = (out / "report.html").read_text()
    assert "max" in page
    assert list((out / "figures").glob("*.png"))
    assert list((out / "figures").glob("*.svg"))
    assert list((out / "tables").glob("*.md"))
    assert list((out / "tables").glob("*.csv"))
    rows = [row for file in (out / "rows").glob("*.json") for row in json.loads(file.read_text())]
    assert {row["kind"] for row in rows} == {"model", "baseline"}
    for row in rows:
        assert row["graphact"]
        assert row["torch"]
        assert row["device"] == "cpu"
        assert row["seconds"] > 0
        assert row["finished"].endswith("Z")

    before = {file: file.stat().st_mtime_ns for file in (out / "rows").iterdir()}
    assert main(arguments) == 0
    assert "finished already" in capsys.readouterr().out
    assert {file: file.stat().st_mtime_ns for file in (out / "rows").iterdir()} == before
    assert main(["report", str(out)]) == 0


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
    assert "finished already" in capsys.readouterr().out


def test_only_some_activations_and_another_seed(tmp_path, capsys):
    arguments = ["run", "source-localization", "--preset", "smoke", "--device", "cpu", "--activation", "relu"]
    values = []
    for seed in (0, 0, 1):
        out = tmp_path / f"{len(values)}"
        assert main([*arguments, "--seed", str(seed), "--out", str(out)]) == 0
        rows = [row for file in sorted((out / "rows").glob("*relu*.json")) for row in json.loads(file.read_text())]
        assert {row["method"] for row in rows} == {"relu"}
        values.append(
            [row["validation"] for row in rows] + [row["value"] for row in rows] + [row["node"] for row in rows]
        )
    assert values[0] == values[1] != values[2]
    assert json.loads((tmp_path / "2" / "run.json").read_text())["commands"] == [
        "graphact-lab run source-localization --preset smoke --activation relu --device cpu --seed 1"
    ]


def test_every_seed_has_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = ["run", "source-localization", "--preset", "smoke", "--device", "cpu", "--activation", "relu"]
    assert main(arguments) == 0
    assert main([*arguments, "--seed", "1"]) == 0
    folders = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert folders == ["source-localization-smoke", "source-localization-smoke-seed-1"]


def test_settings_seeds_and_rows_alone(tmp_path, capsys):
    """Rows first, wherever networks are trained; the same command without --rows-only adds what is missing."""
    out = tmp_path / "out"
    words = ["run", "source-localization", "--preset", "smoke", "--protocol", "converged", "--device", "cpu"]
    words += ["--activation", "prelu", "--activation", "median-l", "--set", "localized_hops=1,2", "--set", "orders=3"]
    words += ["--set", "shift=laplacian", "--seeds", "2", "--out", str(out)]
    assert main([*words, "--rows-only"]) == 0
    assert sorted(path.name for path in out.iterdir()) == ["checkpoints", "rows", "run.json"]
    rows = [row for file in (out / "rows").iterdir() for row in json.loads(file.read_text())]
    cells = {(row["method"], row["hops"], row["order"], row["seed"], row["settings"]["shift"]) for row in rows}
    expected = {("prelu", None), ("median-l", 1), ("median-l", 2)}
    assert cells == {(*cell, 3, seed, "laplacian") for cell in expected for seed in (0, 1)}
    capsys.readouterr()
    assert main(words) == 0
    assert "3 cells, 3 of them finished already" in capsys.readouterr().out
    assert (out / "report.html").exists()
    (command,) = json.loads((out / "run.json").read_text())["commands"]
    assert command.endswith(
        "--activation prelu --activation median-l --set localized_hops=1,2 --set orders=3 --set shift=laplacian "
        "--device cpu --seed 0 --seeds 2"
    )


@pytest.mark.slow
def test_two_processes_share_the_cells(tmp_path):
    out = tmp_path / "results"
    result = command("run", "source-localization", "--preset", "smoke", "--device", "cpu", "--jobs", 2, "--out", out)
    assert result.returncode == 0, result.stderr
    assert len(list((out / "rows").glob("*.json"))) == 6 + 1
    assert not list((out / "checkpoints").glob("*.safetensors"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["run", "source-localization", "--protocol", "fancy"],
            "protocol must be one of 'converged', 'paper', got 'fancy'",
        ),
        (
            ["run", "consensus", "--protocol", "convergd"],
            "protocol must be one of 'paper', got 'convergd'; did you mean 'converged', with --preset paper?",
        ),
        (
            ["run", "consensus", "--protocol", "converged"],
            "protocol must be one of 'paper', got 'converged'; --preset paper has it",
        ),
        (["run", "robustness", "--preset", "paper"], "preset must be one of 'quick', 'full', got 'paper'"),
        (["data", "fetch", "nope"], "DATASET must be one of 'ml-100k', 'molene', "),
        (["run", "consensus", "--activation", "softsign"], "activation must be one of"),
        (["run", "consensus", "--set", "orders"], "--set must be NAME=VALUE, got 'orders'"),
        (["run", "consensus", "--set", "colour=red"], "'p', 'q', got 'colour'"),
        (["run", "consensus", "--seeds", "0"], "--seeds must be at least 1, got 0"),
        (["run", "consensus", "--jobs", "0"], "--jobs must be at least 1, got 0"),
        (["run", "denoising", "--data", "/nowhere", "--preset", "smoke"], "/nowhere"),
        (["report", "/nowhere"], "no results in /nowhere"),
        (["run", "consensus", "--preset", "smoke", "--out", "/dev/null/x"], "cannot write results to /dev/null/x"),
    ],
)
def test_a_mistake_is_one_line(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert len(printed.err.strip().splitlines()) == 1
    assert "Traceback" not in printed.err


def test_a_refused_run_leaves_nothing(tmp_path, capsys):
    for wrong in (["--seed", "-1"], ["--data", "/nowhere"]):
        out = tmp_path / "results"
        assert main(["run", "denoising", "--preset", "smoke", "--out", str(out), *wrong]) == 2
        assert len(capsys.readouterr().err.strip().splitlines()) == 1
        assert not out.exists()


def test_cuda_without_a_device(monkeypatch, capsys):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["run", "consensus", "--device", "cuda"]) == 2
    assert "needs a CUDA device, and torch finds none" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["run", "voting"], ["fly"], [], ["run", "consensus", "--seed", "x"]])
def test_usage_errors(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    error, hint = capsys.readouterr().err.splitlines()
    assert error.startswith("graphact-lab")
    assert hint in ("see graphact-lab --help", "see graphact-lab run --help")


def test_list_and_help(capsys):
    assert main(["list"]) == 0
    printed = capsys.readouterr().out
    assert "source-localization" in printed
    listed = {line.split()[0]: line.split()[1:] for line in printed.splitlines() if line.startswith("  ")}
    for name in (*EXPERIMENTS, *DATASETS):
        assert listed[name], f"{name} has a line that describes it"
    assert main(["list", "experiments"]) == 0
    printed = capsys.readouterr().out
    assert "consensus             paper   converged" in printed
    assert "planetoid" not in printed
    assert "smoke" not in printed
    for arguments in (["--help"], ["run", "--help"], ["data", "--help"], ["report", "--help"]):
        with pytest.raises(SystemExit) as stopped:
            main(arguments)
        assert stopped.value.code == 0


def test_data_check(tmp_path, capsys):
    assert main(["data", "check", "--data", str(tmp_path)]) == 1
    assert "missing  molene/RADOMEH.tar.gz" in capsys.readouterr().out.splitlines()
    if os.environ.get("GRAPHACT_DATA"):
        assert main(["data", "check"]) == 0
    capsys.readouterr()
    assert main(["data", "check", "planetoid", "--data", str(tmp_path)]) == 1
    assert {line.split()[1].split("/")[0] for line in capsys.readouterr().out.splitlines()} == {"planetoid"}


def test_one_data_set_is_fetched(tmp_path, capsys, monkeypatch):
    asked = []
    monkeypatch.setattr("graphact_lab.data.download.fetch", lambda name, *_: asked.append(name) or tmp_path / name)
    assert main(["data", "fetch", "molene", "tu", "--data", str(tmp_path), "--quiet"]) == 0
    assert asked == ["molene", "tu"]
    assert main(["data", "fetch", "--data", str(tmp_path), "--quiet"]) == 0
    assert asked[2:] == list(DATASETS)


def test_help_names_what_works(capsys):
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    told = "".join(capsys.readouterr().out.split())
    for name in (*BUILT_IN, "fir", "median-gcn", "soft-median-gcn", "compared", "pointwise", "every"):
        assert f"{name}," in told or f"{name};" in told or f"{name}(" in told or f"{name}for" in told
    for name in DATASETS:
        assert f"{name}/" in told


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
    out = tmp_path / "results"
    run = f"{sys.executable} -m graphact_lab.cli run source-localization --preset smoke --activation relu --out {out}"
    result = subprocess.run(f"{run} | head -1", shell=True, capture_output=True, text=True, check=False)
    assert result.stdout == "1 cell\n"
    assert "Traceback" not in result.stderr


def test_lost_baselines_come_back(tmp_path, capsys):
    out = tmp_path / "results"
    arguments = ["run", "source-localization", "--preset", "smoke", "--activation", "relu", "--out", str(out)]
    assert main(arguments) == 0
    (lost,) = (out / "rows").glob("*baselines*")
    lost.unlink()
    assert main(arguments) == 0
    assert lost.exists()


def test_results_of_other_settings_are_not_mixed(tmp_path, capsys, monkeypatch):
    arguments = ["run", "source-localization", "--preset", "smoke", "--activation", "relu", "--out", str(tmp_path)]
    assert main(arguments) == 0
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
    out = tmp_path / "results"
    arguments = ["run", "source-localization", "--preset", "smoke", "--activation", "relu", "--out", str(out)]
    out.mkdir()
    (out / name).write_text("[]")
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("graphact-lab: ")
    assert len(error.strip().splitlines()) == 1


def is_running(pid):
    state = subprocess.run(["ps", "-o", "stat=", "-p", pid], capture_output=True, text=True).stdout
    return bool(state) and not state.startswith("Z")


def wait_until(is_so, seconds=10):
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.05)


WAITING_FOR_A_SLOW_WORKER = """
import subprocess, sys
from graphact_lab.commands import run
from graphact_lab.cli import main

def slow_worker(*_):
    worker = subprocess.Popen(["sleep", "60"])
    wait = worker.wait
    worker.wait = lambda: print("waiting for", worker.pid, flush=True) or wait()
    return worker

run.start_worker = slow_worker
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_a_stop_while_waiting_for_workers_ends_them(tmp_path):
    words = [
        "run",
        "source-localization",
        "--preset",
        "smoke",
        "--device",
        "cpu",
        "--jobs",
        "2",
        "--out",
        tmp_path / "out",
    ]
    command = [sys.executable, "-c", WAITING_FOR_A_SLOW_WORKER, *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        line = next(line for line in running.stdout if line.startswith("waiting for"))
        running.terminate()
        assert running.wait(timeout=30) == 130
    wait_until(lambda: not is_running(line.split()[-1]))


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


@pytest.mark.parametrize("words", ["--version", "--help", "data --help", "report --help", "list", "run --help"])
def test_answers_without_heavy_modules(words):
    result = subprocess.run([sys.executable, "-c", CODE, *words.split()], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout


def seconds_of_cpu(*words):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "graphact_lab.cli", *words], capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize("words", ["list", "run --help"])
def test_answers_at_once(words):
    assert min(seconds_of_cpu(*words.split()) for _ in range(3)) < 0.2


def test_the_table_has_every_command(capsys):
    parser = CommandParser()
    parser.add_commands(COMMANDS)
    (action,) = parser._subparsers._group_actions
    for name, command in action.choices.items():
        with pytest.raises(SystemExit, match="0"):
            parser.parse_args([name, "--help"])
        assert " ".join(command.description.split()) in " ".join(capsys.readouterr().out.split())
        assert command.get_default("command") is not None


def test_a_missing_package_is_one_line(monkeypatch, capsys, tmp_path):
    words = ["run", "source-localization", "--preset", "smoke", "--activation", "relu", "--device", "cpu"]
    assert main([*words, "--rows-only", "--out", str(tmp_path / "run")]) == 0
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["report", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert "matplotlib" in error
    assert len(error.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["runn"], "run"),
        (["run", "consensuss"], "consensus"),
        (["run", "consensus", "--presett", "quick"], "--preset"),
        (["run", "consensus", "--preset=papr"], "paper"),
        (["run", "consensus", "--device", "gpu"], "cuda"),
    ],
)
def test_did_you_mean(arguments, meant, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    error, _ = capsys.readouterr().err.splitlines()
    assert error.endswith(f"; did you mean {meant!r}?")


def test_a_preset_for_tests_is_taken_and_not_listed(capsys):
    with pytest.raises(SystemExit):
        main(["run", "consensus", "--preset", "huge"])
    assert "'huge', choose from quick, paper, best, full, medium\n" in capsys.readouterr().err


def test_did_you_mean_in_a_setting(capsys):
    assert main(["run", "consensus", "--activation", "max-gaa"]) == 2
    named = len(graphact.nn.ACTIVATIONS) + 4  # fir, two convolutions, and a ReLU after further shifts
    expected = f"graphact-lab: activation must be one of {named} names, got 'max-gaa'; did you mean 'max-ga'?\n"
    assert capsys.readouterr().err == expected
    with pytest.raises(ValueError, match="activation must be one of"):
        main(["run", "consensus", "--activation", "max-gaa", "--verbose"])


def test_results_for_programs(tmp_path, capsys):
    assert main(["list", "--json"]) == 0
    assert "consensus" in json.loads(capsys.readouterr().out)["experiments"]
    assert main(["list", "datasets", "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)) == ["data sets"]
    assert main(["data", "check", "--data", str(tmp_path), "--json"]) == 1
    assert set(json.loads(capsys.readouterr().out).values()) == {"missing"}


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


@pytest.mark.slow
def test_your_own_activation_is_run_after_import(tmp_path, monkeypatch, capsys):
    (tmp_path / "own_activations.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    words = ["run", "source-localization", "--preset", "smoke", "--activation", "range-ga", "--device", "cpu"]
    words += ["--out", str(tmp_path / "out"), "--json"]
    assert main(words) == 2
    assert "got 'range-ga'; your own activation is known after --import MODULE" in capsys.readouterr().err
    try:
        assert main([*words, "--import", "own_activations"]) == 0
    finally:
        graphact.nn.unregister("range-ga")
        sys.modules.pop("own_activations", None)
    assert {row["method"] for row in json.loads(capsys.readouterr().out)["rows"]} >= {"range-ga"}
    assert "--import own_activations --activation range-ga" in (tmp_path / "out" / "run.json").read_text()
