import pytest
import torch

from graphact_lab.data.communities import is_connected
from graphact_lab.tasks import consensus, consensus_tasks


def test_shapes_and_sizes():
    task = consensus()
    assert task.inputs.shape == task.targets.shape == (2500, 100, 1)
    assert (task.train.numel(), task.validation.numel(), task.test.numel()) == (2000, 250, 250)
    assert (task.name, task.node, task.out_features, task.loss, task.metric) == ("consensus", None, 1, "mse", "rmse")
    assert task.inputs.dtype == task.targets.dtype == task.graph.dtype == torch.float32


def test_every_node_should_answer_the_mean():
    task = consensus(graph=1, dtype=torch.float64)
    for sample in (0, 1234, 2499):
        mean = task.inputs[sample].sum() / 100
        torch.testing.assert_close(task.targets[sample], mean.expand(100, 1))


def test_signals_are_standard_normal():
    inputs = consensus(dtype=torch.float64).inputs
    assert abs(inputs.mean()) < 0.01
    assert inputs.var().item() == pytest.approx(1, abs=0.02)
    covariance = inputs.squeeze(-1).T.cov()
    assert (covariance - torch.eye(100)).abs().max() < 0.15


def test_the_shift_operator():
    graph = consensus(dtype=torch.float64).graph
    dense = graph.to_dense()
    assert dense.shape == (100, 100)
    assert torch.linalg.eigvalsh(dense).abs().max().item() == pytest.approx(1)
    assert is_connected(graph)
    inside = torch.block_diag(*[torch.ones(20, 20)] * 5) - torch.eye(100)
    assert dense[inside == 1].ne(0).double().mean().item() == pytest.approx(0.8, abs=0.06)
    assert dense[inside == 0].ne(0).double().mean().item() == pytest.approx(0.1, abs=0.03)


def test_the_same_numbers_give_the_same_task_bit_for_bit():
    first, second = consensus(2, 3, seed=9), consensus(2, 3, seed=9)
    assert torch.equal(first.inputs, second.inputs)
    assert torch.equal(first.graph.to_dense(), second.graph.to_dense())
    assert torch.equal(first.test, second.test)


def test_what_each_number_changes():
    task, other_graph, other_split, other_seed = consensus(), consensus(graph=1), consensus(split=1), consensus(seed=1)
    assert torch.equal(task.inputs, other_split.inputs)
    assert not torch.equal(task.train, other_split.train)
    for other in (other_graph, other_seed):
        assert not torch.equal(task.inputs, other.inputs)
        assert not torch.equal(task.graph.to_dense(), other.graph.to_dense())


def test_many_tasks_are_the_single_ones_and_share_what_they_can():
    tasks = consensus_tasks(graphs=2, splits=2, seed=1)
    assert [(task.details["graph"], task.details["split"]) for task in tasks] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    single = consensus(graph=1, split=1, seed=1)
    assert torch.equal(tasks[-1].inputs, single.inputs)
    assert torch.equal(tasks[-1].train, single.train)
    assert tasks[2].inputs is tasks[3].inputs
    assert tasks[2].graph is tasks[3].graph


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="graphs must be at least 1, got 0"):
        consensus_tasks(graphs=0)
