"""graphact certify, from files to a table or JSON."""

import json

import numpy as np
import pytest
import torch

import graphact
from graphact.cli import main
from graphact.nn import GCNN, GraphAdaptiveMax
from support.graphs import random_graph


@pytest.fixture
def files(tmp_path):
    """A classifier, a regressor, an activation, a graph and signals."""
    torch.manual_seed(0)
    graph = random_graph(7, 0.5, dtype=torch.float32)
    graph.save(tmp_path / "graph.npz")
    graphact.save(GCNN([1, 2, 2], order=1, activation="max-ga", out_features=3), tmp_path / "classifier.safetensors")
    graphact.save(GCNN([1, 2], order=1, activation="kernel-ga"), tmp_path / "regressor.safetensors")
    graphact.save(GraphAdaptiveMax(hops=2), tmp_path / "activation.safetensors")
    np.save(tmp_path / "signals.npy", np.random.default_rng(0).normal(size=(9, 7)))
    return tmp_path


def run(folder, model, *options):
    return main(
        ["certify", str(folder / f"{model}.safetensors"), "--graph", str(folder / "graph.npz"), *map(str, options)]
    )


@pytest.mark.slow
def test_a_classifier(files, capsys, monkeypatch):
    monkeypatch.setattr("graphact.commands.certify.RADII", (1e-3, 0.3))  # the fewer, the sooner
    options = ["--signals", files / "signals.npy", "--max-signals", 4]
    assert run(files, "classifier", *options) == 0
    printed = capsys.readouterr().out
    for words in ("equivariant: largest deviation", "product of layers", "certified", "found by search", "4 signals"):
        assert words in printed
    assert run(files, "classifier", *options, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["found"] <= found["certified"] <= found["product_of_layers"]
    assert found["equivariant"] is True
    assert len(found["certified_per_node"]) == 7
    shares = [(line["certified"], line["found"]) for line in found["radii"]]
    assert all(certified <= kept for certified, kept in shares)
    assert shares == sorted(shares, reverse=True)


def test_a_regressor_at_given_radii(files, capsys):
    options = ["--signals", files / "signals.npy", "--radius", 0.1, "--radius", 0.01]
    assert run(files, "regressor", *options) == 0
    assert "outputs within" in capsys.readouterr().out
    assert run(files, "regressor", *options, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [line["radius"] for line in found["radii"]] == [0.01, 0.1]
    assert all(line["found"] <= line["certified"] for line in found["radii"])


def test_an_activation_without_signals(files, capsys):
    assert run(files, "activation", "--normalize", "spectral") == 0
    assert "Proposition 2" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("signals", "message"),
    [
        (np.zeros((3, 6)), "must hold signals of shape (..., N, F) with N = 7, got (3, 6)"),
        (np.zeros((3, 7, 2)), "the signals must have 1 features, as the model has, got 2"),
        (np.full((3, 7), np.nan), "must hold finite signals, got nan (21 such values)"),
        (np.zeros((0, 7)), "at least one signal"),
        (np.array(["a"]), "one array of real numbers"),
        (None, "there is no signal file"),
    ],
)
def test_bad_signals_are_one_line(files, capsys, signals, message):
    path = files / "bad.npy"
    if signals is not None:
        np.save(path, signals)
    assert run(files, "classifier", "--signals", path) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.strip().splitlines()) == 1


def test_other_mistakes_are_one_line(files, capsys):
    (files / "noise.npy").write_bytes(b"no array")
    for options in (["--signals", files / "noise.npy"], ["--max-signals", 0]):
        assert run(files, "classifier", *options) == 2
    assert main(["certify", str(files / "nothing"), "--graph", str(files / "graph.npz")]) == 2
    assert main(["certify", str(files / "classifier.safetensors"), "--graph", str(files / "nothing.npz")]) == 2
    errors = capsys.readouterr().err.strip().splitlines()
    assert len(errors) == 4
    assert all(error.startswith("graphact: ") for error in errors)


@pytest.mark.parametrize(
    ("radius", "message"), [("-1", "--radius must be a finite number above 0"), ("0.1", "--radius needs --signals")]
)
def test_a_radius_that_cannot_be_used(capsys, radius, message):
    assert main(["certify", "model.safetensors", "--graph", "graph.txt", "--radius", radius]) == 2
    assert message in capsys.readouterr().err
