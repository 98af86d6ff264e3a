"""Folders of nodes: nothing that is not its business, and no torch."""

import json
import stat

import numpy as np
import pytest
import torch

import graphact
import graphact_agents as agents
from agents.networks import GRAPHS, undirected
from graphact import nn
from graphact_agents import Deployment
from support.on_agents import deploy, split


@pytest.fixture
def folders(tmp_path):
    model = nn.GCNN([1, 3], order=2, activation="kernel-ga", hops=2, learn_gamma=True).double()
    return split(model, GRAPHS["line"](), tmp_path / "nodes", transport="udp")


def test_a_folder_holds_a_row_its_neighbors_its_keys_and_the_model(folders):
    assert [folder.name for folder in folders] == [f"node-{i}" for i in range(6)]
    assert sorted(file.name for file in folders[2].iterdir()) == ["keys.json", "model.safetensors", "node.json"]
    described = json.loads((folders[2] / "node.json").read_text())
    assert described["hears"] == described["heard_by"] == [1, 3]
    assert len(described["weights"]) == 2
    row = {"node", "hears", "weights", "diagonal", "heard_by"}
    assert set(described) == {"format", "version", "deployment", "addresses", "settings", "files", "sha256"} | row
    assert set(json.loads((folders[2] / "keys.json").read_text())) == {"1", "3"}
    assert stat.S_IMODE((folders[2] / "keys.json").stat().st_mode) == 0o600


def test_a_key_is_known_to_the_two_ends_of_its_link_alone(folders):
    nodes = [Deployment.load(folder) for folder in folders]
    holders = {}
    for node in nodes:
        for key in node.links.keys.values():
            holders.setdefault(key, []).append(node.node)
    assert sorted(holders.values()) == [[i, i + 1] for i in range(5)]
    again = deploy(nodes[0].model, GRAPHS["line"]())
    assert not set(holders) & set(again[0].links.keys.values())


def test_a_node_with_many_neighbors_comes_back(tmp_path):
    """Also with numbers that are in another order as text."""
    star = undirected([(0, i) for i in range(1, 13)], 13)
    folders = split(nn.FIR([1, 1]), star, tmp_path / "nodes", transport="udp")
    assert Deployment.load(folders[0]).links.neighbors == tuple(range(1, 13))


def test_keys_are_not_printed(folders):
    node = Deployment.load(folders[2])
    assert "keys" not in repr(node)
    assert not any(str(key) in repr(node) for key in node.links.keys.values())


def test_folders_come_back_exactly(folders):
    graph = GRAPHS["line"]()
    nodes = [Deployment.load(folder) for folder in folders]
    x = np.random.default_rng(0).normal(size=(1, 6, 1))
    model = graphact.load(folders[0] / "model.safetensors")  # also a model file of graphact
    expected = model(torch.from_numpy(x), graph).detach().numpy()
    np.testing.assert_allclose(agents.simulate_inference(nodes, x).outputs, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("file", "damage", "message"),
    [
        ("node.json", lambda text: text[:50], "node.json: not valid JSON"),
        ("node.json", lambda text: "[]", "must hold a JSON object, got list"),
        ("node.json", lambda text: text.replace('"version": 1', '"version": 2'), "not a node of a network"),
        ("node.json", lambda text: text.replace('"hears"', '"heers"'), "damaged: 'hears'"),
        ("node.json", lambda text: text.replace('"weights": [', '"weights": [0.5,'), "weights must be 2 finite"),
        ("node.json", lambda text: text.replace('"diagonal": 0.0', '"diagonal": 0.5'), "its SHA-256 differs"),
        ("keys.json", lambda text: "{}", "keys must be those of the neighbours"),
        ("keys.json", lambda text: text.replace('"1": "', '"1": "zz'), "damaged"),
    ],
)
def test_damaged_folders(folders, file, damage, message):
    path = folders[2] / file
    path.write_text(damage(path.read_text()))
    with pytest.raises(ValueError, match=message):
        Deployment.load(folders[2])


@pytest.mark.parametrize("at", [4, 20, 300, -1])
def test_a_damaged_model(folders, at):
    path = folders[2] / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[at] ^= 0x10
    path.write_bytes(bytes(content))
    with pytest.raises(ValueError, match="model.safetensors: "):
        Deployment.load(folders[2])


def test_missing_files(folders):
    (folders[1] / "node.json").unlink()
    with pytest.raises(FileNotFoundError, match="node.json is missing; graphact-agents deploy writes it"):
        Deployment.load(folders[1])
    (folders[2] / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="no model file"):
        Deployment.load(folders[2])


def test_half_precision_files_are_refused_with_advice(tmp_path):
    for dtype, name in ((torch.float16, "F16"), (torch.bfloat16, "BF16")):
        graphact.save(nn.FIR([1, 1]).to(dtype), tmp_path / "model.safetensors")
        with pytest.raises(agents.IncompatibleModelError, match=f"got {name}; convert the model with .float()"):
            agents.load_model(tmp_path / "model.safetensors")
