"""Only right results are timed, and the command prints a wrong peer as wrong."""

import pytest
import torch

from graphact import benchmarking
from graphact.benchmarking import HEAD, OPERATIONS, Bench, Times, WrongResultError, composed, markdown, measure
from graphact.cli import main
from graphact.graph import Graph
from graphact.kernels.numba.small import SmallPlan
from support.graphs import random_graph

GRAPH = random_graph(20, dtype=torch.float32)


@pytest.mark.parametrize("op", OPERATIONS)
def test_an_activation_beside_pyg(op):
    pytest.importorskip("torch_geometric")
    row = Bench(GRAPH, features=3, hops=2, bandwidth=1e9, repeats=2).activation(op, against_pyg=True)
    assert row["peer"] == "PyG"
    for name in ("forward", "training"):
        assert row[f"ratio_{name}"] == row[f"peer_{name}"]["median"] / row[name]["median"] > 0
        assert row[name]["fastest"] <= row[name]["median"] <= row[name]["slowest"]


def test_pyg_composed_counts_loops_in_the_shift_alone():
    pytest.importorskip("torch_geometric")
    graph = Graph.from_edge_index([[0, 1, 1, 2, 2], [1, 0, 1, 2, 0]], [1.0, 2.0, 3.0, 4.0, 0.5])
    x, weights = torch.tensor([[1.0], [2.0], [-3.0]]), torch.ones(1, 1)
    activation = composed(graph, "max", gamma=1.0)
    # the shift is (2.5, 7, -12); node 0 hears 1 and 2, node 1 hears 0, node 2 nobody
    assert activation(x, torch.tensor(0.0), weights).flatten().tolist() == [7.0, 2.5, 0.0]


def test_a_wrong_result_is_not_timed(monkeypatch):
    right = SmallPlan.forward

    def slightly_wrong(*arguments):
        values, *others = right(*arguments)
        return values * 1.01, *others

    monkeypatch.setattr(SmallPlan, "forward", slightly_wrong)
    with pytest.raises(WrongResultError, match="max-ga differs from the reference: values by"):
        Bench(GRAPH, features=3, hops=1, bandwidth=1e9, repeats=1).activation("max", against_pyg=False)


def test_a_wrong_gradient_is_not_timed(monkeypatch):
    right = SmallPlan.backward
    monkeypatch.setattr(SmallPlan, "backward", lambda self, grad, *others: (grad, *right(self, grad, *others)[1:]))
    with pytest.raises(WrongResultError, match="gradients of x by"):
        Bench(GRAPH, features=3, hops=1, bandwidth=1e9, repeats=1).activation("max", against_pyg=False)


def test_a_peer_that_fails_is_named(monkeypatch):
    def fail(*_):
        raise RuntimeError("no kernel for this\nat all")

    monkeypatch.setattr(benchmarking, "composed", lambda *_: fail)
    row = Bench(GRAPH, features=2, hops=1, bandwidth=1e9, repeats=1).activation("median", against_pyg=True)
    assert row["peer"] == "PyG fails: no kernel for this"
    assert "PyG fails: no kernel" in markdown([row])


def test_shares_of_the_limit():
    """By hand: 4 features in float32, and a pass more than hops."""
    bench, edges = Bench(GRAPH, features=4, hops=2, bandwidth=1.0, repeats=1), GRAPH.num_edges
    row = bench.shift()
    assert row["share_of_gather_floor"] * row["forward"]["median"] == pytest.approx(edges * 4 * 4)
    row = bench.activation("max", against_pyg=False)
    assert row["share_of_gather_floor"] * row["forward"]["median"] == pytest.approx(3 * edges * 4 * 4)
    assert row["training_share_of_gather_floor"] * row["training"]["median"] == pytest.approx(6 * edges * 4 * 4)


def test_times():
    calls = []
    times = measure(lambda: calls.append(0), "cpu", repeats=5, warm_up=2)
    assert len(calls) == 7
    assert times.calls == 5
    assert times.fastest <= times.median <= times.slowest


def test_table_is_markdown():
    times = Times(0.002, 0.001, 0.003, 9)._asdict()
    row = {"name": "max-ga", "forward": times, "training": {**times, "calls": 1}, "peer": ""}
    lines = markdown([{**row, "share_of_gather_floor": 0.5}]).splitlines()
    assert len({line.count("|") for line in lines}) == 1
    assert all(title in lines[0] for title in HEAD)
    assert "2 (1..3)" in lines[2]
    assert "2 (once)" in lines[2]
    assert "50%" in lines[2]


def test_command(tmp_path, capsys):
    GRAPH.save(tmp_path / "graph.npz")
    file = next(tmp_path.iterdir())
    assert main(["bench", str(file), "--features", "5", "--hops", "1", "--device", "cpu", "--repeats", "1"]) == 0
    printed = capsys.readouterr().out
    assert f"20 nodes, {GRAPH.num_edges} edges, 5 features, 1 hops" in printed
    for name in ("shift", "max-ga", "median-ga", "kernel-ga"):
        assert f"| {name}" in printed


def test_command_says_what_is_wrong(tmp_path, capsys):
    GRAPH.save(tmp_path / "graph.npz")
    file = str(next(tmp_path.iterdir()))
    assert main(["bench", file, "--features", "0"]) == 2
    assert "--features must be at least 1, got 0" in capsys.readouterr().err
    assert main(["bench", str(tmp_path / "nothing")]) == 2
    if not torch.cuda.is_available():
        assert main(["bench", file, "--device", "cuda"]) == 2
        assert "--device must be cpu where there is no CUDA device" in capsys.readouterr().err
