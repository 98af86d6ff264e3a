import pytest
import torch

from graphact import Graph
from graphact_lab.data.communities import BlockModel, is_connected
from graphact_lab.tasks import source_localization, source_localization_tasks


def test_shapes_and_sizes():
    task = source_localization()
    assert task.inputs.shape == (1200, 40, 1)
    assert task.targets.shape == (1200,)
    assert (task.train.numel(), task.validation.numel(), task.test.numel()) == (960, 120, 120)
    assert (task.name, task.out_features, task.loss, task.metric) == (
        "source-localization",
        4,
        "cross_entropy",
        "accuracy",
    )
    assert (task.inputs.dtype, task.targets.dtype, task.graph.dtype) == (torch.float32, torch.int64, torch.float32)


def test_signals_are_powers_of_the_shift_and_classes_communities():
    task = source_localization(graph=2, dtype=torch.float64)
    shift = task.graph.to_dense()
    for node, step in [(0, 0), (0, 29), (17, 1), (39, 12)]:
        source = torch.zeros(40, dtype=torch.float64)
        source[node] = 1
        expected = torch.linalg.matrix_power(shift, step) @ source
        torch.testing.assert_close(task.inputs[node * 30 + step, :, 0], expected)
        assert task.targets[node * 30 + step] == node // 10


def test_the_shift_operator_is_a_normalised_undirected_community_graph():
    for number in range(5):
        graph = source_localization(graph=number, dtype=torch.float64).graph
        dense = graph.to_dense()
        assert torch.linalg.eigvalsh(dense).abs().max().item() == pytest.approx(1)
        assert torch.equal(dense, dense.T)
        assert dense.diagonal().eq(0).all()
        assert len(dense[dense != 0].unique()) == 1
        assert is_connected(graph)
        inside = torch.block_diag(*[torch.ones(10, 10)] * 4) - torch.eye(40)
        assert 0.65 < dense[inside == 1].ne(0).double().mean() < 0.95
        assert 0.04 < dense[inside == 0].ne(0).double().mean() < 0.16


def test_the_node_is_the_best_connected_of_its_community():
    for task in source_localization_tasks(graphs=5, splits=1):
        start = 10 * task.details["community"]
        degree = (task.graph.to_dense() != 0).sum(1)[start : start + 10].tolist()
        assert task.node == start + degree.index(max(degree))


def test_the_same_numbers_give_the_same_task_bit_for_bit():
    first, second = source_localization(3, 4, 1, seed=7), source_localization(3, 4, 1, seed=7)
    assert torch.equal(first.inputs, second.inputs)
    assert torch.equal(first.graph.to_dense(), second.graph.to_dense())
    for part in ("train", "validation", "test"):
        assert torch.equal(getattr(first, part), getattr(second, part))
    assert (first.node, first.details) == (second.node, second.details)


def test_what_each_number_changes():
    task = source_localization()
    other_graph, other_split, other_node, other_seed = (
        source_localization(graph=1),
        source_localization(split=1),
        source_localization(node=1),
        source_localization(seed=1),
    )
    assert not torch.equal(task.graph.to_dense(), other_graph.graph.to_dense())
    assert not torch.equal(task.graph.to_dense(), other_seed.graph.to_dense())
    assert torch.equal(task.graph.to_dense(), other_split.graph.to_dense())
    assert torch.equal(task.inputs, other_split.inputs)
    assert not torch.equal(task.train, other_split.train)
    assert not torch.equal(task.train, other_graph.train)
    assert torch.equal(task.train, other_node.train)
    assert task.node != other_node.node


def test_precision_changes_rounding_only():
    exact = source_localization(dtype=torch.float64)
    assert torch.equal(source_localization().inputs, exact.inputs.float())
    assert torch.equal(source_localization().train, exact.train)


def test_many_tasks_are_the_single_ones_and_share_what_they_can():
    tasks = source_localization_tasks(graphs=2, splits=2, nodes=3, seed=5)
    assert [tuple(task.details.values()) for task in tasks] == [
        (graph, split, node, 5) for graph in range(2) for split in range(2) for node in range(3)
    ]
    single = source_localization(graph=1, split=1, node=2, seed=5)
    assert torch.equal(tasks[-1].inputs, single.inputs)
    assert torch.equal(tasks[-1].test, single.test)
    assert tasks[-1].node == single.node
    assert tasks[6].graph is tasks[11].graph
    assert tasks[6].inputs is tasks[11].inputs


def test_a_disconnected_draw_is_drawn_again(monkeypatch):
    draws = [Graph.from_edge_index([[0], [1]], num_nodes=4), Graph.from_dense(torch.ones(4, 4) - torch.eye(4))]
    monkeypatch.setattr(Graph, "stochastic_block_model", lambda *sizes, **options: draws.pop(0))
    assert BlockModel(2, 2).draw(torch.Generator()).num_edges == 12
    assert not draws


def test_a_graph_that_never_connects_is_refused(monkeypatch):
    lonely = Graph.from_edge_index([[0], [1]], num_nodes=4)
    monkeypatch.setattr(Graph, "stochastic_block_model", lambda *sizes, **options: lonely)
    with pytest.raises(ValueError, match="no connected graph of 2 communities of 2 nodes"):
        BlockModel(2, 2).draw(torch.Generator())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"node": 4}, "node must number a community, from 0 to 3, got 4"),
        ({"node": -1}, "node must be at least 0"),
        ({"graph": -1}, "must be at least 0, got -1"),
        ({"split": -1}, "must be at least 0, got -1"),
    ],
)
def test_mistakes_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        source_localization(**arguments)
