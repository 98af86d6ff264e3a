"""Agents run the models that the table of activations names, and refuse the others in one line that names the part."""

import re

import pytest
import torch

import graphact
from graphact import nn
from graphact.registry import BUILT_IN
from graphact_agents import IncompatibleModelError, load_model
from support.graphs import random_graph
from support.on_agents import deploy
from support.places import ROOT

ROWS = re.findall(r"^\| `([\w-]+)` .*\| (K = 1|yes|no) \|$", (ROOT / "docs" / "activations.md").read_text(), re.M)
TABLE = dict(ROWS)


def is_supported(model, tmp_path):
    """Return whether agents load the file of a model; a refusal in several lines, or without a part, does not count."""
    graphact.save(model, tmp_path / "model.safetensors")
    try:
        load_model(tmp_path / "model.safetensors")
    except IncompatibleModelError as error:
        return "\n" in str(error) or not error.part
    return True


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_column_of_the_table(name, tmp_path):
    one, two = (is_supported(nn.GCNN([2, 2], activation=name, hops=hops), tmp_path) for hops in (1, 2))
    assert (one, two) == {"yes": (True, True), "no": (False, False), "K = 1": (True, False)}[TABLE[name]]


@pytest.mark.parametrize(
    ("name", "pools"), [("shiftless-max", False), ("shiftless-median", False), ("grelu", True), ("digraf", True)]
)
def test_activations_that_are_refused(name, pools):
    with pytest.raises(IncompatibleModelError, match=f"agents know .* max-k, mixture-ga, got '{name}'") as caught:
        deploy(nn.GCNN([2, 5], activation=name), random_graph(dtype=torch.float32))
    assert ("means over all nodes" in str(caught.value)) == pools


def test_an_edge_net_is_refused():
    graph = random_graph(dtype=torch.float32)
    model = nn.GraphNetwork([2, 4], convolution={"name": "EdgeNet", "graph": graph})
    with pytest.raises(IncompatibleModelError, match=r"convolutions\.0: agents know the layers .* got 'convolution'"):
        deploy(model, graph)
