import dataclasses

import pytest
import torch

from graphact import Graph
from graphact.training import Task


def make(**changes):
    fields = dict(
        name="denoising",
        graph=Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]]),
        inputs=torch.randn(6, 3, 1),
        targets=torch.randn(6, 3, 1),
        train=torch.tensor([0, 5]),
        validation=torch.tensor([2]),
        test=torch.tensor([1, 4]),
        node=None,
        out_features=1,
        loss="mse",
        metric="rmse",
        details={},
    )
    return Task(**{**fields, **changes})


def classes(**changes):
    targets = torch.randint(4, (6,))
    return make(targets=targets, node=2, out_features=4, loss="cross_entropy", metric="accuracy", **changes)


def test_a_task_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        make().node = 1


def test_reading_all_nodes_or_one():
    outputs = torch.randn(2, 6, 3, 4)
    assert make().read(outputs) is outputs
    assert torch.equal(classes().read(outputs), outputs[:, :, 2])


def test_which_way_is_up():
    assert classes().higher_is_better
    assert not make().higher_is_better


def test_another_precision_reaches_graph_signals_and_numeric_targets():
    task = make().to(dtype=torch.float64)
    assert {task.graph.dtype, task.inputs.dtype, task.targets.dtype} == {torch.float64}


def test_classes_indices_and_everything_else_stay():
    task = classes(details={"split": 3})
    moved = task.to(dtype=torch.float64)
    assert moved.inputs.dtype == torch.float64
    assert {moved.targets.dtype, moved.train.dtype, moved.validation.dtype, moved.test.dtype} == {torch.int64}
    assert torch.equal(moved.to(dtype=torch.float32).inputs, task.inputs)
    assert (moved.name, moved.node, moved.details) == (task.name, task.node, task.details)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"inputs": torch.zeros(6, 4, 1)}, ValueError, r"inputs must have the shape \(M, 3, F\), got \(6, 4, 1\)"),
        ({"inputs": torch.zeros(6, 3)}, ValueError, "inputs must have the shape"),
        ({"inputs": torch.zeros(6, 3, 0)}, ValueError, "inputs must have the shape"),
        ({"targets": torch.zeros(6)}, ValueError, r"targets must have the shape \(6, 3, 1\), got \(6,\)"),
        ({"node": 1}, ValueError, r"targets must have the shape \(6,\)"),
        ({"node": 3, "targets": torch.zeros(6)}, ValueError, "node must be None or from 0 to 2, got 3"),
        ({"loss": "l3"}, ValueError, "loss must be one of"),
        ({"metric": "r2"}, ValueError, "metric must be one of"),
        ({"out_features": 0}, ValueError, "out_features must be at least 1, got 0"),
        ({"train": torch.tensor([0, 6])}, ValueError, "samples from 0 to 5, got 6"),
        ({"test": torch.tensor([-1])}, ValueError, "samples from 0 to 5, got -1"),
        ({"test": torch.tensor([5])}, ValueError, "must not share samples, got sample 5"),
        ({"train": torch.tensor([0, 0])}, ValueError, "must not share samples, got sample 0"),
        ({"train": torch.tensor([0.0])}, TypeError, "train must hold int64 indices"),
        ({"train": [0]}, TypeError, "train must be a torch.Tensor, got list"),
        ({"graph": torch.eye(3)}, TypeError, "graph must be a graphact.Graph"),
    ],
)
def test_mistakes_are_named(changes, error, message):
    with pytest.raises(error, match=message):
        make(**changes)


@pytest.mark.parametrize("name", ["inputs", "targets"])
@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
def test_numbers_must_be_finite(name, value):
    numbers = torch.zeros(6, 3, 1)
    numbers[4, 1, 0] = value
    with pytest.raises(ValueError, match=rf"{name} must be finite, got {value} at index \[4, 1, 0\]"):
        make(**{name: numbers})
