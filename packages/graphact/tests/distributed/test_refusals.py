"""Refusals in one line: data, targets and models with which training would learn something else, or nothing."""

from pathlib import Path

import pytest
import torch
from torch import nn

import graphact
from distributed.processes import run_together
from graphact.cli import main
from graphact.distributed import DistributedSettings, PartitionedGraph, PartitionError, replicate, train
from support.graphs import random_graph

NAN, INF = float("nan"), float("inf")
ONE_EPOCH = DistributedSettings(epochs=1)


@pytest.fixture
def part():
    return PartitionedGraph.from_graph(random_graph(12, dtype=torch.float32).normalize("spectral"))


def learn(part, targets, model=None, x=None, **options):
    model = graphact.nn.GCNN([2, 4], order=1, activation="max-ga") if model is None else model
    x = torch.ones(12, 2) if x is None else x
    return train(model, part, x, targets, settings=ONE_EPOCH, **options)


@pytest.mark.parametrize("value", [NAN, INF])
@pytest.mark.parametrize("name", ["inputs", "targets"])
def test_data_that_are_not_finite(part, name, value):
    x, y = torch.ones(12, 2), torch.ones(12, 1)
    (x if name == "inputs" else y)[3, 0] = value
    with pytest.raises(PartitionError, match=rf"^{name} must be finite, got {value} at index \[3, 0\] \(1 such"):
        learn(part, y, x=x)


@pytest.mark.parametrize("loss", ["mse", "smooth_l1"])
@pytest.mark.parametrize("shape", [(12,), (12, 16), (12, 1, 1)])
def test_targets_that_would_be_broadcast(part, shape, loss):
    with pytest.raises(PartitionError, match=r"targets must have the shape \(12, 1\) of the outputs, got \(12,"):
        learn(part, torch.ones(shape), loss=loss)


def test_targets_of_the_right_shape_give_the_mean_loss(part):
    model = graphact.nn.GCNN([2, 4], order=1, activation="max-ga")
    expected = nn.functional.mse_loss(model(torch.ones(12, 2), part), torch.ones(12, 1)).item()
    assert learn(part, torch.ones(12, 1), model) == pytest.approx([expected])


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (torch.ones(12, dtype=torch.int64), r"classes from 0 to 0, got 1"),
        (-torch.ones(12, dtype=torch.int64), r"classes from 0 to 0, got -1"),
        (torch.ones(12), r"targets must hold classes, that is integers, got torch.float32"),
        (torch.zeros(12, 1, dtype=torch.int64), r"outputs must have the shape \(12, 1\) of the targets plus one"),
    ],
)
def test_classes_that_are_none(part, targets, message):
    with pytest.raises(PartitionError, match=message):
        learn(part, targets, loss="cross_entropy")


class Network(nn.Module):
    def __init__(self, *layers):
        super().__init__()
        self.filter, self.head = graphact.nn.GraphFilter(2, 4, order=1), nn.Sequential(*layers, nn.Linear(4, 1))

    def forward(self, x, graph):
        return self.head(self.filter(x, graph))


MIXERS = [
    nn.BatchNorm1d(4),
    nn.LazyBatchNorm1d(),
    nn.SyncBatchNorm(4),
    nn.InstanceNorm1d(4),
    nn.GroupNorm(2, 4),
    nn.LayerNorm([12, 4]),
    nn.RMSNorm([12, 4]),
    nn.MultiheadAttention(4, 1),
    nn.TransformerEncoderLayer(4, 1),
    nn.GRU(4, 4),
    nn.Conv1d(12, 12, 1),
    nn.AvgPool1d(2),
    nn.Softmax(dim=-2),
    nn.Softmax(dim=0),
]


@pytest.mark.parametrize("mixer", MIXERS, ids=lambda mixer: type(mixer).__name__)
def test_modules_that_mix_nodes(part, mixer):
    """Each process would mix those that it holds alone."""
    model = Network(nn.Identity(), mixer)
    with pytest.raises(PartitionError, match=rf"^head\.1: a {type(mixer).__name__} mixes nodes"):
        learn(part, torch.ones(12, 1), model)
    with pytest.raises(TypeError, match=r"^head\.1"):
        replicate(model)


def test_norms_of_pyg_that_mix_nodes(part):
    norm = pytest.importorskip("torch_geometric.nn.norm")
    for mixer in (norm.BatchNorm(4), norm.GraphNorm(4), norm.PairNorm(), norm.LayerNorm(4), norm.MeanSubtractionNorm()):
        with pytest.raises(TypeError, match=r"^head\.0"):
            replicate(Network(mixer))
    assert replicate(Network(norm.LayerNorm(4, mode="node")))


@pytest.mark.parametrize("norm", [nn.LayerNorm(4), nn.RMSNorm(4), nn.Dropout(0.5), nn.Softmax(dim=-1), nn.PReLU()])
def test_modules_that_treat_each_node_alike_are_taken(part, norm):
    assert len(learn(part, torch.ones(12, 1), Network(norm))) == 1


def test_a_batch_norm_that_is_not_trained_mixes_nothing(part):
    assert len(learn(part, torch.ones(12, 1), Network(nn.BatchNorm1d(4)).eval())) == 1


@pytest.mark.slow
def test_a_process_that_ends_differently_is_reported_in_plain_words(tmp_path):
    """Other settings are named by both of two processes; then one fails in its loss, and the other one says so."""
    codes, printed = run_together(Path(__file__).with_name("ends_differently.py"), 2, tmp_path, timeout=60)
    assert codes[1] == 1
    for log in printed:
        assert "settings must be the same on every process, got epochs=4 on process 0 and epochs=5 on process 1" in log
    assert "ValueError: this process has had enough" in printed[1]
    last = printed[0].strip().splitlines()[-1]
    assert "ConnectionError: process 0 lost contact with another process" in last, printed[0]


def partition(folder, parts):
    return main(["partition", str(folder / "graph.npz"), "--parts", str(parts), "--out", str(folder / "parts")])


def test_more_parts_than_nodes(tmp_path, capsys):
    random_graph(5).save(tmp_path / "graph.npz")
    assert partition(tmp_path, 6) == 2
    assert capsys.readouterr().err == "graphact: --parts must be at most 5, the number of nodes of the graph, got 6\n"
    assert not (tmp_path / "parts").exists()


@pytest.mark.parametrize("left", ["part-00000-of-00002.safetensors", "manifest.json"])
def test_a_partition_is_never_overwritten(tmp_path, capsys, left):
    random_graph(5).save(tmp_path / "graph.npz")
    assert partition(tmp_path, 2) == 0
    for file in (tmp_path / "parts").iterdir():
        if file.name != left:
            file.unlink()
    content = (tmp_path / "parts" / left).read_bytes()
    assert partition(tmp_path, 2) == 2
    error = capsys.readouterr().err
    assert f"{tmp_path / 'parts'} holds a partition already: delete it or choose another --out" in error
    assert {file.name: file.read_bytes() for file in (tmp_path / "parts").iterdir()} == {left: content}
