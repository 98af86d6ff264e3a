"""graphact export writes what graphact.export_onnx writes, and refuses mistakes in one line."""

import json

import numpy as np
import pytest
import torch

import graphact
from graphact.cli import main
from support.network_files import write_network


@pytest.fixture
def words(tmp_path):
    return ["export", *write_network(tmp_path, features=3)]


@pytest.mark.slow
@pytest.mark.parametrize("edges", ["constant", "input"])
def test_the_file_computes_what_the_model_computes(words, edges, tmp_path, capsys):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    target = tmp_path / "new" / "model.onnx"
    assert main([*words, "--out", str(target), "--edges", edges, "--normalize", "spectral", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "file": str(target), "bytes": target.stat().st_size, "nodes": 8, "features": 3
    }  # fmt: skip
    graph = graphact.Graph.load(tmp_path / "graph.npz").to(dtype=torch.float32).normalize("spectral")
    x = torch.randn(5, 8, 3)
    inputs = {"x": x.numpy()}
    if edges == "input":
        edge_index, edge_weight = graph.to_edge_index()
        inputs |= {"edge_index": edge_index.numpy(), "edge_weight": edge_weight.numpy()}
    (found,) = onnxruntime.InferenceSession(target).run(None, inputs)
    expected = graphact.load(tmp_path / "model.safetensors")(x, graph).detach().numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("out", "model", "message"),
    [
        ("", "model.safetensors", "--out must be a file such as"),
        ("model.onnx", "other.safetensors", "other.safetensors"),
        ("graph.npz/model.onnx", "model.safetensors", "graph.npz is a file"),
    ],
)
def test_mistakes_are_one_line(words, out, model, message, tmp_path, capsys):
    pytest.importorskip("onnxscript")
    words[1] = str(tmp_path / model)
    assert main([*words, "--out", str(tmp_path / out)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("graphact: ")
    assert message in line
