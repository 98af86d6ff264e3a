"""A checkpoint is that of this work or refused; what it does not hold is not missed."""

from dataclasses import replace

import pytest
import torch

import graphact
from graphact.distributed import DistributedSettings, PartitionedGraph, PartitionError, train
from graphact.training.checkpoint import read_tensors, write_tensors
from support.graphs import random_graph

SETTINGS = DistributedSettings(epochs=3, learning_rate=0.01, checkpoint_every=2)


def part_of(seed=0, nodes=12):
    return PartitionedGraph.from_graph(random_graph(nodes, seed=seed, dtype=torch.float32).normalize("spectral"))


def model_of():
    torch.manual_seed(0)
    return graphact.nn.GCNN([2, 4], order=1, activation="max-ga")


def learn(path, part=None, model=None, nodes=12, **options):
    """Parameters and losses after training from a checkpoint, and what was reported."""
    model, told = model or model_of(), []
    x = torch.arange(2.0 * nodes).view(nodes, 2) / nodes
    chosen = options.pop("train_nodes", torch.arange(nodes))
    options = {"settings": SETTINGS, **options}
    losses = train(
        model, part or part_of(), x, x[chosen, :1], train_nodes=chosen, checkpoint=path, log=told.append, **options
    )
    return list(model.parameters()), losses, told


def absolute(outputs, targets):
    return (outputs - targets).abs().sum()


OTHER = {
    "loss 'mse' there, 'smooth_l1' here": {"loss": "smooth_l1"},
    "loss 'mse' there, 'absolute' here": {"loss": absolute},
    "learning_rate 0.01 there, 0.02 here": {"settings": replace(SETTINGS, learning_rate=0.02)},
    r"betas \[0.9, 0.999\] there, \[0.8, 0.999\] here": {"settings": replace(SETTINGS, betas=(0.8, 0.999))},
    "nodes 12 there, 14 here": {"part": part_of(nodes=14), "nodes": 14},
    "targets 12 there, 5 here": {"train_nodes": torch.arange(5)},
    "graph '[0-9a-f]{64}' there, '[0-9a-f]{64}' here": {"part": part_of(seed=1)},
}


@pytest.mark.parametrize("words", OTHER)
def test_a_checkpoint_of_other_work_is_refused(tmp_path, words):
    learn(tmp_path / "checkpoint")
    before = (tmp_path / "checkpoint").read_bytes()
    with pytest.raises(
        PartitionError, match=f"^{tmp_path}/checkpoint is the checkpoint of other work: {words}; delete"
    ):
        learn(tmp_path / "checkpoint", **OTHER[words])
    assert (tmp_path / "checkpoint").read_bytes() == before


def test_more_epochs_go_on_where_fewer_ended(tmp_path):
    longer = replace(SETTINGS, epochs=7, checkpoint_every=3)
    expected, undisturbed, _ = learn(None, settings=longer)
    _, first, _ = learn(tmp_path / "checkpoint")
    found, losses, told = learn(tmp_path / "checkpoint", settings=longer)
    assert (losses[:3], losses) == (first, undisturbed)
    assert told == [f"training goes on after epoch 3 of 7, checkpoint {tmp_path / 'checkpoint'}"]
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(found, expected, strict=True))


def test_a_checkpoint_that_records_no_work_is_refused(tmp_path):
    path = tmp_path / "checkpoint"
    learn(path)
    write_tensors(path, read_tensors(path)[1], {})
    with pytest.raises(PartitionError, match=r"checkpoint is the checkpoint of other work: loss None there, .* here"):
        learn(path, settings=replace(SETTINGS, epochs=5))


def test_parameters_that_are_not_trained_are_not_missed(tmp_path):
    """Adam knows nothing of those that are frozen, nor of those that nothing depends on."""
    results = []
    for path in (None, tmp_path / "checkpoint"):
        model = model_of()
        model.filters[0].taps.requires_grad_(False)
        model.idle = torch.nn.Parameter(torch.ones(3))
        if path is not None:
            learn(path, model=model)
            model = model_of()
            model.filters[0].taps.requires_grad_(False)
            model.idle = torch.nn.Parameter(torch.ones(3))
        results.append(learn(path, model=model, settings=replace(SETTINGS, epochs=5)))
    (expected, undisturbed, _), (found, losses, _) = results
    assert losses == undisturbed
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(found, expected, strict=True))
