"""graphact export writes what graphact.export_onnx writes, and refuses mistakes in one line."""

import json

import numpy as np
import pytest
import torch

import graphact
from graphact.cli import main
from support.graphs import random_graph


@pytest.fixture
def files(tmp_path):
    random_graph(8).save(tmp_path / "graph.npz")
    graphact.save(graphact.nn.GCNN([3, 2], order=1, activation="max-ga"), tmp_path / "model.safetensors")
    return tmp_path


def words(folder, *more, model="model.safetensors"):
    return ["export", str(folder / model), "--graph", str(folder / "graph.npz"), *more]


@pytest.mark.slow
@pytest.mark.parametrize("edges", ["constant", "input"])
def test_the_file_computes_what_the_model_computes(files, edges, capsys):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    target = files / "new" / "model.onnx"
    assert main(words(files, "--out", str(target), "--edges", edges, "--normalize", "spectral", "--json")) == 0
    assert json.loads(capsys.readouterr().out) == {
        "file": str(target), "bytes": target.stat().st_size, "nodes": 8, "features": 3
    }  # fmt: skip
    graph = graphact.Graph.load(files / "graph.npz").to(dtype=torch.float32).normalize("spectral")
    x = torch.randn(5, 8, 3)
    inputs = {"x": x.numpy()}
    if edges == "input":
        edge_index, edge_weight = graph.to_edge_index()
        inputs |= {"edge_index": edge_index.numpy(), "edge_weight": edge_weight.numpy()}
    (found,) = onnxruntime.InferenceSession(target).run(None, inputs)
    expected = graphact.load(files / "model.safetensors")(x, graph).detach().numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("more", "model", "message"),
    [
        (["--out", "{folder}"], "model.safetensors", "--out must be a file such as"),
        (["--out", "{folder}/model.onnx"], "other.safetensors", "other.safetensors"),
        (["--out", "{folder}/graph.npz/model.onnx"], "model.safetensors", "graph.npz is a file"),
    ],
)
def test_mistakes_are_one_line(files, more, model, message, capsys):
    pytest.importorskip("onnxscript")
    assert main(words(files, *(word.format(folder=files) for word in more), model=model)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("graphact: ")
    assert message in line
