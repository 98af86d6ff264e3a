"""graphact-agents init, deploy and simulate, as a user meets them."""

import re

import numpy as np
import pytest
import torch

import graphact
import graphact_agents
from agents.networks import GRAPHS
from graphact import nn
from graphact_agents import Deployment
from graphact_agents.command import main


@pytest.fixture
def files(tmp_path):
    """A model and a graph on disk."""
    graphact.save(
        nn.GCNN([1, 4, 4], order=2, activation="max-ga", hops=2, out_features=3).double(),
        tmp_path / "model.safetensors",
    )
    GRAPHS["random"]().save(tmp_path / "graph.npz")
    return str(tmp_path / "model.safetensors"), str(tmp_path / "graph.npz")


def told(text):
    """The printed lines as a dictionary."""
    return dict(re.split(r"\s{2,}", line, maxsplit=1) for line in text.strip().splitlines())


def test_the_version_is_that_of_the_package(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"graphact-agents {graphact_agents.__version__}\n"


def test_no_command_prints_the_help(capsys):
    assert main([]) == 0
    assert "simulate agents in a network with faults" in capsys.readouterr().out


def test_init_and_deploy(files, tmp_path, capsys):
    network, out = str(tmp_path / "network"), tmp_path / "nodes"
    assert main(["init", *files, "--out", network]) == 0
    graph = GRAPHS["random"]()
    assert f"10 rounds, {10 * graph.num_edges} messages" in capsys.readouterr().out
    assert main(["deploy", network, "--out", str(out)]) == 0
    assert "9 nodes, " in capsys.readouterr().out
    assert sorted(Deployment.load(folder).node for folder in out.iterdir()) == list(range(9))
    assert main(["init", *files, "--out", network]) == 2
    assert "is there already" in capsys.readouterr().err


def test_simulate_without_faults(files, capsys):
    assert main(["simulate", *files, "--runs", "3", "--batch", "2"]) == 0
    lines = told(capsys.readouterr().out)
    assert lines["outputs"] == "54 of 54"
    assert float(lines["error"].split()[-1]) < 1e-12
    assert lines["same largest output"] == "100.00%"
    assert lines["inferences"] == "3, of which 3 with every link in every round"
    assert lines["rounds an inference"] == "10"
    assert lines["links missed"].startswith("0 of ")
    sent, without = re.findall(r"\d+", lines["data messages"])
    assert sent == without
    sent, without = re.findall(r"\d+", lines["bytes in data messages"])
    assert sent == without


def test_simulate_with_faults_depends_on_the_seed_alone(files, capsys):
    faults = ["--loss", "0.3", "--delay", "0.01", "--duplicate", "0.1", "--reorder", "0.1", "--crash", "0.1"]
    faults += ["--partition", "0.3", "--forge", "0.1", "--replay", "0.1", "--corrupt", "0.1", "--jitter", "0.01"]
    faults += ["--skew", "0.01"]
    printed = []
    for seed in (3, 3, 4):
        assert main(["simulate", *files, *faults, "--seed", str(seed)]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] != printed[2]
    lines = told(printed[0])
    assert float(lines["error"].split()[-1]) > 1e-6
    assert int(lines["crashes"]) > 0
    assert int(lines["retransmissions"].split(",")[0]) > 0
    assert re.match(r"[1-9]\d* of \d+", lines["links missed"])


def test_the_papers_link_loss(files, capsys):
    assert main(["simulate", *files, "--link-loss", "0.2", "--runs", "2"]) == 0
    assert not told(capsys.readouterr().out)["links missed"].startswith("0 of")


def test_signals_of_a_file(files, tmp_path, capsys):
    np.save(tmp_path / "signals.npy", np.ones((2, 9, 1), np.float32))
    assert main(["simulate", *files, "--signals", str(tmp_path / "signals.npy")]) == 0
    assert told(capsys.readouterr().out)["outputs"] == "18 of 18"


def test_single_precision_models(tmp_path, files, capsys):
    graphact.save(nn.FIR([1, 2]).to(torch.float32), tmp_path / "fir.safetensors")
    assert main(["simulate", str(tmp_path / "fir.safetensors"), files[1], "--runs", "1"]) == 0
    assert float(told(capsys.readouterr().out)["error"].split()[-1]) < 1e-5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["simulate", "/nowhere.safetensors", "GRAPH"], "no model file at /nowhere.safetensors"),
        (["simulate", "MODEL", "/nowhere.npz"], "there is no graph file /nowhere.npz"),
        (["simulate", "MODEL", "GRAPH", "--loss", "1.5"], "loss must lie between 0 and 1, got 1.5"),
        (["simulate", "MODEL", "GRAPH", "--slot", "0"], "slot must be a finite number above 0"),
        (["simulate", "MODEL", "GRAPH", "--runs", "0"], "--runs must be at least 1, got 0"),
        (["simulate", "MODEL", "GRAPH", "--signals", "BAD"], "must hold numbers of shape (runs, ..., 9, F), got"),
        (["simulate", "MODEL", "GRAPH", "--batch", "3000"], "use smaller batches"),
        (["init", "MODEL", "GRAPH", "--out", "/dev/null/x"], "/dev/null"),
        (["deploy", "/dev/null", "--out", "x"], "/dev/null/network.toml is missing; graphact-agents init writes it"),
    ],
)
def test_a_mistake_is_one_line(arguments, message, files, tmp_path, capsys):
    np.save(tmp_path / "bad.npy", np.ones((9, 1)))
    names = {"MODEL": files[0], "GRAPH": files[1], "BAD": str(tmp_path / "bad.npy")}
    assert main([*(names.get(word, word) for word in arguments)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.strip().splitlines()) == 1


@pytest.mark.parametrize("arguments", [["fly"], ["split", "x"], ["deploy", "x"]])
def test_usage_errors(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert "see graphact-agents" in capsys.readouterr().err
