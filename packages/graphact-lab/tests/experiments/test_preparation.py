"""Preparation of signals before a network sees them."""

import pytest
import torch

from graphact import Graph
from graphact_lab.data.diffused_sources import local_contrast
from graphact_lab.experiments.consensus.task import by_centrality
from graphact_lab.preparation import shifted_by
from graphact_lab.tasks import consensus_tasks, prepared, source_localization_tasks


def test_contrast_by_loops():
    generator = torch.Generator().manual_seed(1)
    graph = Graph.stochastic_block_model([5, 4], 0.6, 0.3, generator=generator).normalize("spectral")
    matrix, x = graph.to_dense().double(), torch.rand(4, 9, 1, dtype=torch.float64)
    found = local_contrast(x, graph)
    for sample in range(4):
        shifted = [sum(matrix[i, j] * x[sample, j, 0] for j in range(9)) for i in range(9)]
        difference = [x[sample, i, 0] - shifted[i] for i in range(9)]
        for i in range(9):
            near = [abs(difference[j]) for j in range(9) if j == i or matrix[i, j] != 0]
            assert found[sample, i, 0].item() == pytest.approx((difference[i] / max(near)).item())


def test_contrast_is_the_same_at_every_scale_and_for_late_signals_of_a_source():
    task = source_localization_tasks(graphs=1, splits=1, nodes=1)[0]
    once = local_contrast(task.inputs.double(), task.graph)
    torch.testing.assert_close(local_contrast(1e-6 * task.inputs.double(), task.graph), once)
    assert once.abs().max() <= 1
    assert torch.isfinite(once).all()


def test_contrast_of_nothing_is_nothing():
    graph = Graph.from_edge_index(torch.tensor([[0, 1], [1, 0]]), num_nodes=3)
    assert torch.equal(local_contrast(torch.zeros(2, 3, 1), graph), torch.zeros(2, 3, 1))


def test_centrality_of_one_step_is_the_degree():
    graph = Graph.from_edge_index(torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), num_nodes=3)
    x = torch.tensor([[[3.0], [4.0], [5.0]]])
    torch.testing.assert_close(by_centrality(x, graph, steps=1), torch.tensor([[[3.0], [2.0], [5.0]]]))


def test_after_division_shifts_weigh_all_nodes_alike():
    task = consensus_tasks(graphs=1, splits=1, dtype=torch.float64)[0]
    matrix = torch.linalg.matrix_power(task.graph.to_dense(), 60)
    mean = task.inputs.mean(1)
    correlations = []
    for x in (task.inputs, prepared([task], "by-centrality")[0].inputs):
        far = (matrix @ x)[:, 7, 0]
        correlations.append(torch.corrcoef(torch.stack([far, mean[:, 0]]))[0, 1].item())
    assert correlations[0] < 0.99
    assert correlations[1] > 0.999


def test_tasks_that_share_signals_share_prepared_ones():
    tasks = source_localization_tasks(graphs=2, splits=2, nodes=2)
    made = prepared(tasks, "local-contrast")
    assert len({id(task.inputs) for task in made}) == len({id(task.inputs) for task in tasks}) == 2
    assert all(task.details["preparation"] == "local-contrast" for task in made)
    assert prepared(tasks, "none") == tasks


def test_a_node_that_hears_nobody_gives_nothing():
    graph = Graph.from_edge_index(torch.tensor([[0, 1], [1, 0]]), num_nodes=3)
    assert by_centrality(torch.ones(1, 3, 1), graph).flatten().tolist() == [1.0, 1.0, 0.0]


def test_negative_weights_and_unknown_names_are_refused():
    graph = Graph.from_edge_index(torch.tensor([[0, 1], [1, 0]]), torch.tensor([1.0, -2.0]), num_nodes=2)
    with pytest.raises(ValueError, match="nonnegative weights, got one of -2"):
        by_centrality(torch.ones(1, 2, 1), graph)
    with pytest.raises(ValueError, match="preparation must be one of .* got 'magic'"):
        prepared([], "magic")


@pytest.mark.parametrize("shift", ["adjacency", "laplacian", "translated"])
def test_other_operators_are_those_of_dense_matrices(shift):
    tasks = source_localization_tasks(graphs=2, splits=2, nodes=1, dtype=torch.float64)
    made = shifted_by(tasks, shift)
    for before, after in zip(tasks, made, strict=True):
        adjacency = before.graph.to_dense()
        laplacian = torch.diag(adjacency.sum(1)) - adjacency
        scaled = laplacian / torch.linalg.eigvalsh(laplacian).max()
        expected = {"adjacency": adjacency, "laplacian": scaled, "translated": 2 * scaled - torch.eye(40)}[shift]
        torch.testing.assert_close(after.graph.to_dense(), expected, rtol=1e-9, atol=1e-12)
        assert torch.equal(after.inputs, before.inputs)
        assert after.graph.num_edges == before.graph.num_edges  # a diagonal makes no neighbours
    assert made[0].graph is made[1].graph
    assert made[0].graph is not made[2].graph
