"""Tasks on drawn graphs: what a number decides, and what tasks share."""

import pytest
import torch

from graphact import Graph
from graphact_lab.data.communities import BlockModel, is_connected
from graphact_lab.tasks import consensus, consensus_tasks, source_localization, source_localization_tasks

BOTH = pytest.mark.parametrize("make", [source_localization, consensus])


def tensors(task):
    return [task.graph.to_dense(), task.inputs, task.targets, task.train, task.validation, task.test]


def are_equal(one, other):
    return [torch.equal(*pair) for pair in zip(tensors(one), tensors(other), strict=True)]


@pytest.mark.parametrize(
    ("make", "inputs", "targets", "parts", "rest"),
    [
        (
            source_localization,
            (1200, 40, 1),
            (1200,),
            [960, 120, 120],
            ("source-localization", 4, "cross_entropy", "accuracy", torch.int64),
        ),
        (
            consensus,
            (2500, 100, 1),
            (2500, 100, 1),
            [2000, 250, 250],
            ("consensus", 1, "mse", "rmse", torch.float32),
        ),
    ],
)
def test_shapes_and_sizes(make, inputs, targets, parts, rest):
    task = make()
    assert (task.inputs.shape, task.targets.shape) == (inputs, targets)
    assert [part.numel() for part in (task.train, task.validation, task.test)] == parts
    assert (task.name, task.out_features, task.loss, task.metric, task.targets.dtype) == rest
    assert task.inputs.dtype == task.graph.dtype == torch.float32
    assert (task.node is None) == (make is consensus)


@pytest.mark.parametrize(("make", "blocks", "size"), [(source_localization, 4, 10), (consensus, 5, 20)])
def test_the_shift_operator_is_a_normalised_undirected_community_graph(make, blocks, size):
    for number in range(5):
        graph = make(graph=number, dtype=torch.float64).graph
        dense = graph.to_dense()
        assert torch.linalg.eigvalsh(dense).abs().max().item() == pytest.approx(1)
        assert torch.equal(dense, dense.T)
        assert dense.diagonal().eq(0).all()
        assert len(dense[dense != 0].unique()) == 1
        assert is_connected(graph)
        inside = torch.block_diag(*[torch.ones(size, size)] * blocks) - torch.eye(blocks * size)
        close = 0.15 if size == 10 else 0.06
        assert dense[inside == 1].ne(0).double().mean().item() == pytest.approx(0.8, abs=close)
        assert dense[inside == 0].ne(0).double().mean().item() == pytest.approx(0.1, abs=0.4 * close)


@BOTH
def test_the_same_numbers_give_the_same_task_and_others_another(make):
    task = make(2, 3, seed=7)
    assert all(are_equal(task, make(2, 3, seed=7)))
    other_split, other_graph, other_seed = make(2, 4, seed=7), make(1, 3, seed=7), make(2, 3, seed=8)
    assert are_equal(task, other_split) == [True, True, True, False, False, False]
    for other in (other_graph, other_seed):
        graph, inputs, _, *parts = are_equal(task, other)
        assert not any((graph, inputs, *parts))
    exact = make(2, 3, seed=7, dtype=torch.float64)
    assert torch.equal(task.inputs, exact.inputs.float())
    assert torch.equal(task.train, exact.train)


def test_another_node_is_read_on_the_same_split():
    task, other = source_localization(), source_localization(node=1)
    assert all(are_equal(task, other))
    assert task.node != other.node


@pytest.mark.parametrize(
    ("tasks", "single"),
    [
        (source_localization_tasks(2, 2, 3, seed=5), source_localization(1, 1, 2, seed=5)),
        (consensus_tasks(2, 2, seed=5), consensus(1, 1, seed=5)),
    ],
    ids=["source-localization", "consensus"],
)
def test_many_tasks_are_the_single_ones_and_share_what_they_can(tasks, single):
    places = [(task.details["graph"], task.details["split"], task.details.get("community", 2)) for task in tasks]
    assert places == sorted(set(places))
    assert all(are_equal(tasks[-1], single))
    assert (tasks[-1].node, tasks[-1].details) == (single.node, single.details)
    half = len(tasks) // 2
    assert tasks[half].graph is tasks[-1].graph is not tasks[0].graph
    assert tasks[half].inputs is tasks[-1].inputs


def test_diffused_signals_are_powers_of_the_shift_and_classes_communities():
    task = source_localization(graph=2, dtype=torch.float64)
    shift = task.graph.to_dense()
    for node, step in [(0, 0), (0, 29), (17, 1), (39, 12)]:
        source = torch.zeros(40, dtype=torch.float64)
        source[node] = 1
        expected = torch.linalg.matrix_power(shift, step) @ source
        torch.testing.assert_close(task.inputs[node * 30 + step, :, 0], expected)
        assert task.targets[node * 30 + step] == node // 10


def test_the_node_is_the_best_connected_of_its_community():
    for task in source_localization_tasks(graphs=5, splits=1):
        start = 10 * task.details["community"]
        degree = (task.graph.to_dense() != 0).sum(1)[start : start + 10].tolist()
        assert task.node == start + degree.index(max(degree))


def test_signals_of_consensus_are_standard_normal_and_every_node_should_answer_their_mean():
    task = consensus(graph=1, dtype=torch.float64)
    assert abs(task.inputs.mean()) < 0.01
    assert task.inputs.var().item() == pytest.approx(1, abs=0.02)
    assert (task.inputs.squeeze(-1).T.cov() - torch.eye(100)).abs().max() < 0.15
    for sample in (0, 1234, 2499):
        mean = task.inputs[sample].sum() / 100
        torch.testing.assert_close(task.targets[sample], mean.expand(100, 1))


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
    ("make", "arguments", "error", "message"),
    [
        (source_localization, {"node": 4}, ValueError, "node must number a community, from 0 to 3, got 4"),
        (source_localization, {"node": -1}, ValueError, "node must be at least 0"),
        (source_localization, {"graph": -1}, ValueError, "must be at least 0, got -1"),
        (source_localization, {"split": -1}, ValueError, "must be at least 0, got -1"),
        (consensus_tasks, {"graphs": 0}, ValueError, "graphs must be at least 1, got 0"),
        *((consensus, {"seed": seed}, TypeError, "^seed must be") for seed in (1.5, True, None)),
        *((consensus, {"seed": seed}, ValueError, "^seed must be") for seed in (-1, 2**63)),
    ],
)
def test_mistakes_are_named(make, arguments, error, message):
    with pytest.raises(error, match=message):
        make(**arguments)
