"""Cutting a graph: who holds, hears and sends what, against a plain count on the dense matrix; files; the command."""

import json

import numpy as np
import pytest
import torch

import graphact
from graphact.cli import main
from graphact.distributed import (
    PartitionedGraph,
    PartitionError,
    assign_nodes,
    divide,
    exchanges_of,
    read_manifest,
    step_cost,
    write_partition,
)
from graphact.distributed.partition import read_part
from graphact.spec import UnsupportedModelError
from support.graphs import random_graph, random_matrix


def dense_case(seed, parts):
    rng = np.random.default_rng(seed)
    matrix = random_matrix(rng, 17)
    return matrix, graphact.Graph.from_dense(torch.from_numpy(matrix)), rng.integers(0, parts, 17).astype(np.int32)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("parts", [1, 3])
def test_parts_against_a_plain_count(seed, parts):
    matrix, graph, owner = dense_case(seed, parts)
    for rank, part in enumerate(divide(graph, owner, parts)):
        mine = [i for i in range(17) if owner[i] == rank]
        assert part.nodes.tolist() == mine
        halo = sorted({j for i in mine for j in range(17) if matrix[i, j] and owner[j] != rank})
        assert part.known.tolist() == sorted(mine + halo)
        sent = [
            [i for i in mine if any(matrix[k, i] and owner[k] == other for k in range(17))] if other != rank else []
            for other in range(parts)
        ]
        assert part.send_counts.tolist() == [len(nodes) for nodes in sent]
        assert part.nodes[part.send].tolist() == [node for nodes in sent for node in nodes]
        rebuilt = np.zeros((len(mine), 17))
        rows = np.repeat(np.arange(len(mine)), np.diff(part.rows.rowptr))
        rebuilt[rows, part.known[part.rows.col]] = part.rows.weight
        if part.rows.diagonal is not None:
            rebuilt[np.arange(len(mine)), mine] = part.rows.diagonal
        assert np.array_equal(rebuilt, matrix[mine])


def test_metis_cuts_less_than_blocks():
    points = torch.rand(600, 2)
    graph = graphact.Graph.nearest_neighbors(points, 6)
    halo = {}
    for method in ("metis", "blocks"):
        owner, used = assign_nodes(graph, 4, method)
        assert used == method
        assert np.bincount(owner, minlength=4).min() > 100
        halo[method] = sum(part.halo_counts.sum() for part in divide(graph, owner, 4))
    assert halo["metis"] < halo["blocks"] / 5


def test_without_pymetis(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    graph = random_graph()
    assert assign_nodes(graph, 2)[1] == "blocks"
    with pytest.raises(ValueError, match="needs the package pymetis"):
        assign_nodes(graph, 2, "metis")


def test_files_hold_the_parts(tmp_path):
    _, graph, owner = dense_case(3, 3)
    parts = list(divide(graph, owner, 3))
    manifest = write_partition(parts, tmp_path, method="by hand")
    assert read_manifest(tmp_path) == manifest
    for rank, part in enumerate(parts):
        found = read_part(tmp_path, rank, 3)
        for name in ("known", "owner", "send", "send_counts"):
            assert np.array_equal(getattr(found, name), getattr(part, name)), name
        assert np.array_equal(found.rows.col, part.rows.col)
        assert np.array_equal(found.rows.weight, part.rows.weight)


def test_an_interrupted_write_leaves_nothing_that_looks_complete(tmp_path):
    graph = random_graph()
    write_partition(divide(graph, np.zeros(12, np.int32), 1), tmp_path, method="first")

    def broken():
        yield from divide(graph, np.zeros(12, np.int32), 1)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_partition(broken(), tmp_path, method="second")
    with pytest.raises(PartitionError, match="manifest.json is missing"):
        read_part(tmp_path, 0, 1)


def test_a_file_with_indices_outside_is_refused(tmp_path):
    """A sound hash does not make sound indices; compiled code trusts them."""
    graph = random_graph()
    (part,) = divide(graph, np.zeros(12, np.int32), 1)
    part.rows.col[0] = 10**6
    write_partition([part], tmp_path, method="malice")
    with pytest.raises(PartitionError, match="sizes or indices do not fit together"):
        PartitionedGraph.load(tmp_path)


def test_another_number_of_processes_is_refused(tmp_path):
    graph = random_graph()
    write_partition(divide(graph, np.arange(12, dtype=np.int32) % 2, 2), tmp_path, method="by hand")
    with pytest.raises(PartitionError, match="written for 2 processes, this run has 1"):
        PartitionedGraph.load(tmp_path)


def test_command(tmp_path, capsys):
    random_graph(30).save(tmp_path / "graph.npz")
    command = ["partition", str(tmp_path / "graph.npz"), "--parts", "3", "--out", str(tmp_path / "parts")]
    assert main([*command, "--normalize", "spectral", "--method", "blocks"]) == 0
    assert "30 nodes in 3 parts by blocks" in capsys.readouterr().out
    manifest = json.loads((tmp_path / "parts" / "manifest.json").read_text())
    assert manifest["parts"] == 3
    assert main([*command[:-1], str(tmp_path / "json"), "--normalize", "spectral", "--method", "blocks", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == manifest
    assert main([*command[:3], "0", *command[4:]]) == 2
    assert "--parts must be at least 1, got 0" in capsys.readouterr().err
    assert main(["partition", str(tmp_path / "none.npz"), *command[2:]]) == 2
    assert "none.npz" in capsys.readouterr().err


def test_one_process_needs_no_network(tmp_path):
    graph = random_graph().normalize("spectral")
    part = PartitionedGraph.from_graph(graph)
    model = graphact.nn.GCNN([2, 3], order=2, activation="median-l", hops=3).double()
    x = torch.randn(4, 12, 2, dtype=torch.float64)
    assert torch.equal(model(x, part), model(x, graph))
    assert step_cost(model, part, 2).exchanges == 0
    assert part.to(torch.float32).dtype == torch.float32
    with pytest.raises(ValueError, match=r"n = 12, the nodes that process 0 holds"):
        model(x[:, 1:], part)


def test_exchanges_of_each_module():
    nn = graphact.nn
    assert len(exchanges_of(nn.GraphAdaptiveMax(hops=4), 3)) == 5
    assert [exchange.hops for exchange in exchanges_of(nn.LocalizedMedian(hops=4), 3)] == [4]
    assert [exchange.features for exchange in exchanges_of(nn.GraphFilter(7, 2, order=3), 7)] == [2, 2, 2]
    assert not any(exchange.returns for exchange in exchanges_of(nn.GraphFilter(2, 7, order=3), 2))
    with pytest.raises(TypeError, match="model must be a GCNN"):
        exchanges_of(torch.nn.Linear(2, 2), 2)


def test_exchanges_follow_the_description():
    """A pointwise activation exchanges nothing, a localized one once, whatever its function."""
    nn = graphact.nn

    class LocalizedMin(nn.Localized):
        operation = graphact.spec.reductions.MIN

    model = nn.GCNN([3, 2, 4], order=[1, 2], activation=[torch.nn.ReLU(), lambda width: LocalizedMin(hops=3)])
    found = [(each.features, each.hops, each.returns) for each in exchanges_of(model, 3)]
    assert found == [(2, 1, True), (2, 1, True), (2, 1, True), (4, 3, True)]
    model = nn.GCNN([2, 2], order=1, activation=nn.GraphAdaptive(lambda neighbors: neighbors.mean(-2), hops=2))
    assert [each.returns for each in exchanges_of(model, 2)] == [False, True, True, True]
    model.register_forward_hook(lambda module, inputs, output: 2 * output)
    with pytest.raises(UnsupportedModelError, match="carries hooks"):
        exchanges_of(model, 2)


def test_residual_blocks_inside_of_one_another():
    nn = graphact.nn
    inner = nn.Residual(nn.GraphFilter(3, 5, order=1), nn.GraphAdaptiveMax(hops=1), nn.GraphFilter(5, 3, order=1))
    model = nn.Sequential(nn.Residual(nn.GraphFilter(3, 3, order=1), inner), nn.GraphFilter(3, 2, order=1))
    assert [each.features for each in exchanges_of(model, 3)] == [3, 3, 5, 5, 3, 2]
    with pytest.raises(ValueError, match="features must be 3, as the model takes, got 4"):
        exchanges_of(model, 4)
