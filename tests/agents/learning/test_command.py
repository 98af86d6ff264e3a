"""graphact agents train, as a user meets it."""

import re

import numpy as np
import pytest
import torch
from agents.networks import GRAPHS, directed

import graphact
from graphact import nn
from graphact.cli import main


@pytest.fixture
def files(tmp_path):
    """A model, a graph and samples on disk, as the command takes them."""
    graph = directed(8, 0.35, 0)
    graphact.save(
        nn.GCNN([1, 2], order=1, activation="max-ga", hops=1, out_features=1).double(), tmp_path / "model.safetensors"
    )
    graph.save(tmp_path / "graph.npz")
    x = np.random.default_rng(0).normal(size=(12, graph.num_nodes, 1))
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", 2 * np.maximum(x, 0) + np.random.default_rng(1).normal(size=x.shape) / 3)
    words = [str(tmp_path / "model.safetensors"), str(tmp_path / "graph.npz")]
    return [*words, "--signals", str(tmp_path / "x.npy"), "--targets", str(tmp_path / "y.npy")]


def told(text):
    """The printed lines as a dictionary."""
    return dict(re.split(r"\s{2,}", line, maxsplit=1) for line in text.strip().splitlines())


@pytest.mark.slow
def test_train_and_compare(files, tmp_path, capsys):
    out = tmp_path / "trained.safetensors"
    options = ["--steps", "100", "--rate", "0.05", "--loss", "0.05", "--compare"]
    assert main(["agents", "train", *files, "--out", str(out), *options]) == 0
    printed = capsys.readouterr()
    lines = told(printed.out)
    first, last = (float(lines["loss"].split()[k]) for k in (0, 3))
    assert last < 0.3 * first
    assert re.search(r"step 100 of 100, loss \S+, 0:00 left", printed.err)
    assert abs(float(lines["difference"].rstrip("%"))) < 2
    assert lines["a step without faults"].startswith("6 rounds, ")
    model, graph = graphact.load(out), directed(8, 0.35, 0)
    x, y = (torch.from_numpy(np.load(tmp_path / f"{name}.npy")) for name in "xy")
    loss = (model(x, graph) - y).square().mean().item()
    assert loss == pytest.approx(float(lines["loss over all samples"].split()[0]), rel=1e-5)


def test_a_stopped_training_goes_on(files, tmp_path, capsys, monkeypatch):
    arguments = ["agents", "train", *files, "--batch", "5", "--crash", "0.05", "--seed", "4", "--steps", "60"]
    assert main([*arguments, "--out", str(tmp_path / "whole.safetensors")]) == 0
    whole = capsys.readouterr().out
    checkpoint = tmp_path / "training.npz"
    interrupted = [*arguments, "--out", str(tmp_path / "again.safetensors"), "--checkpoint", str(checkpoint)]

    def stop(self, done, loss):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("graphact.commands.agents_training.Meter.show", stop)
        assert main(interrupted) == 130
        assert main(interrupted) == 130
    capsys.readouterr()
    assert main(interrupted) == 0
    printed = capsys.readouterr()
    pick = ("loss", "copies differ by at most", "crashes")
    assert [told(printed.out)[name] for name in pick] == [told(whole)[name] for name in pick]
    assert (tmp_path / "again.safetensors").read_bytes() == (tmp_path / "whole.safetensors").read_bytes()
    assert main([*interrupted, "--rate", "0.02"]) == 2
    assert "the checkpoint of another training" in capsys.readouterr().err
    checkpoint.write_bytes(checkpoint.read_bytes()[:1000])
    assert main(interrupted) == 2
    assert "not the checkpoint of a training" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--signals", "MISSING"], "there is no file"),
        (["--signals", "MODEL"], "is not a NumPy file of numbers"),
        (["--signals", "FLAT"], "must hold numbers of shape (M, N, F), got float64 of shape (4,)"),
        (["--targets", "WIDE"], "targets must have the shape (12, 8, 1), got (12, 8, 2)"),
        (["--steps", "0"], "steps must be at least 1, got 0"),
        (["--rate", "-1"], "rate must be a finite number above 0"),
        (["--loss", "2"], "loss must lie between 0 and 1"),
    ],
)
def test_a_mistake_is_one_line(options, message, files, tmp_path, capsys):
    np.save(tmp_path / "flat.npy", np.ones(4))
    np.save(tmp_path / "wide.npy", np.ones((12, 8, 2)))
    names = {"MODEL": files[0], "MISSING": str(tmp_path / "nothing.npy")}
    names |= {"FLAT": str(tmp_path / "flat.npy"), "WIDE": str(tmp_path / "wide.npy")}
    words = [names.get(word, word) for word in options]
    assert main(["agents", "train", *files, "--out", str(tmp_path / "out.safetensors"), *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.strip().splitlines()) == 1


def test_a_graph_in_parts_is_refused(files, tmp_path, capsys):
    GRAPHS["disconnected"]().save(tmp_path / "graph.npz")
    assert main(["agents", "train", *files, "--out", str(tmp_path / "out.safetensors")]) == 2
    assert (
        "GRAPH must be connected for its nodes to agree on one model, got no way from 0 to 3" in capsys.readouterr().err
    )
