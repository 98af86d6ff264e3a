"""Pickled graphs: without what is found again on first use, read by torch's safe loader, never out of bounds."""

import copy
import io
import pickle

import numpy as np
import pytest
import torch

import graphact
from graphact import Graph
from graphact.functional import localized
from support.building import as_python
from support.graphs import random_graph, random_matrix


def through(graph, **options):
    content = io.BytesIO()
    torch.save(graph, content)
    content.seek(0)
    return torch.load(content, **options)


@pytest.mark.parametrize("copied", [lambda g: pickle.loads(pickle.dumps(g)), copy.copy, copy.deepcopy, through])
def test_hop_patterns_do_not_travel(copied):
    graph = random_graph(30)
    size = len(pickle.dumps(graph))
    x, weights = torch.randn(30, 1, dtype=torch.float64), torch.ones(3, dtype=torch.float64)
    expected = localized(x, graph, 1.0, weights, "median")
    assert graph._patterns
    assert len(pickle.dumps(graph)) == size
    found = copied(graph)
    assert not found._patterns
    assert graph._patterns
    assert as_python(found) == as_python(graph)
    assert torch.equal(localized(x, found, 1.0, weights, "median"), expected)


@pytest.mark.parametrize("kind", ["spectral", "laplacian"])
def test_the_safe_loader_of_torch_reads_graphs(kind):
    graph = random_graph(12).normalize(kind)
    graph.hop_pattern(2)
    found = through({"graph": graph, "x": torch.ones(12)}, weights_only=True)["graph"]
    assert isinstance(found, Graph)
    assert as_python(found) == as_python(graph)


def altered(graph, name, index, value):
    """A graph with one number changed after it was made."""
    broken = through(graph, weights_only=False)
    part = broken
    for step in name.split("."):
        part = getattr(part, step)
    part[index] = value
    return broken


@pytest.mark.parametrize(
    ("name", "index", "value"),
    [
        ("incoming.col", 3, 10**9),
        ("incoming.col", 3, -1),
        ("incoming.rowptr", 2, 10**9),
        ("incoming.rowptr", 0, -5),
        ("outgoing.col", 0, 12),
        ("outgoing.order", 0, 12),
        ("incoming.sizes", (0, 1), 500),
        ("incoming_slot", 0, 12),
    ],
)
def test_indices_out_of_bounds_are_refused(name, index, value):
    """Compiled code trusts them, whoever wrote the file."""
    graph = Graph.from_dense(torch.from_numpy(random_matrix(np.random.default_rng(0), 12)))
    assert graph.is_directed
    with pytest.raises(ValueError, match="the pickle does not hold a graph"):
        through(altered(graph, name, index, value), weights_only=True)


def test_a_pickle_that_lacks_a_part_is_refused():
    state = random_graph(12).__getstate__()
    for name in ("incoming", "weight", "incoming_slot", "batch"):
        with pytest.raises(ValueError, match="the pickle does not hold a graph"):
            Graph.__new__(Graph).__setstate__({key: part for key, part in state.items() if key != name})


def test_the_graphs_of_a_union_travel():
    union = Graph.union([random_graph(4), random_graph(3)])
    for found in (pickle.loads(pickle.dumps(union)), copy.deepcopy(union), through(union, weights_only=True)):
        assert found.batch.tolist() == [0, 0, 0, 0, 1, 1, 1]
    for name, value in (("batch", torch.zeros(6, dtype=torch.int64)), ("batch", torch.full((7,), -1)), ("batch", 3)):
        with pytest.raises(ValueError, match="the pickle does not hold a graph"):
            Graph.__new__(Graph).__setstate__({**union.__getstate__(), name: value})
    far = union.with_batch(torch.full((7,), 7))  # graphs without nodes in front
    assert pickle.loads(pickle.dumps(far)).batch.tolist() == [7] * 7


def test_a_model_with_a_graph_inside(tmp_path):
    torch.save({"graph": random_graph(5), "state": graphact.nn.GCNN([1, 2]).state_dict()}, tmp_path / "both.pt")
    assert torch.load(tmp_path / "both.pt", weights_only=True)["graph"].num_nodes == 5
