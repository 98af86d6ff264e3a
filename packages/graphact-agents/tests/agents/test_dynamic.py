"""Neighbours that come and go: authenticated presence, neighbours that are fixed for a run, exact replays."""

import signal
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from agents.live import Daemon, make_network
from agents.networks import links_of, pass_on, undirected
from agents.one_node import result_of, said, talk
from agents.replay import dense_matrix, replay, replay_inference
from agents.simulations import MovingSimulation
from graphact import Graph, nn
from graphact_agents import Deployment, Faults, MemoryLog, Node, Timing, read_log, simulate_inference
from graphact_agents.log import Began, FileLog, RoundClosed
from graphact_agents.messages import Kind
from support.on_agents import deploy

COMPLETE = [(i, j) for i in range(3) for j in range(3) if i != j]


def three(**options):
    return [Node(place, MemoryLog(), Timing(slot=1.0), seed=place.node, **options) for place in links_of(COMPLETE, 3)]


def test_the_neighbors_of_a_run_are_those_that_announced_it():
    nodes = three()
    for node in nodes[:2]:
        node.announce(4)
    nodes[2].announce(5)
    pass_on(nodes, 0.0)
    assert [node.present(4) for node in nodes] == [(1,), (0,), (0, 1)]
    for node in nodes[:2]:
        node.meet(node.present(4))
        node.begin(4, talk(node.links.node), now=0.0)
    pass_on(nodes, 0.0)
    assert [result_of(node).output for node in nodes[:2]] == [[{1: 1.0}], [{0: 0.0}]]
    assert nodes[0].log.records == [Began(4, 1, present=(1,)), RoundClosed(4, 0, (1,))]
    assert nodes[0].present(5) == (2,)


def test_presence_is_authenticated_and_is_not_used_twice():
    node = three(digest=bytes(16))[0]
    presence = said(node, 1, run=3, kind=Kind.PRESENCE, program=0, digest=bytes(16))
    for hostile in (presence[:-1] + b"\0", said(node, 7, run=3, kind=Kind.PRESENCE, program=0, digest=bytes(16))):
        node.receive(hostile, 0.0)
    assert (node.present(3), node.counters.forged, node.counters.foreign) == ((), 1, 1)
    node.receive(said(node, 1, run=3, kind=Kind.PRESENCE, program=0, digest=b"x" * 16), 0.0)
    assert (node.present(3), node.counters.differs) == ((), 1)
    node.receive(presence, 0.0)
    assert node.present(3) == (1,)
    node.meet(())
    node.begin(3, talk(0.0), now=0.0)
    node.receive(presence, 0.0)
    assert node.counters.stale == 1
    assert node.present(4) == ()


def test_a_neighbor_announces_a_few_runs_at_once_alone():
    node = three()[0]
    for run in range(100):
        node.receive(said(node, 1, run=run, kind=Kind.PRESENCE, program=0), 0.0)
    assert [run for run in range(100) if node.present(run)] == [96, 97, 98, 99]
    node.expect(10)
    node.receive(said(node, 2, run=13, kind=Kind.PRESENCE, program=0), 0.0)
    assert (node.present(13), node.counters.ahead) == ((), 1)


def test_neighbors_are_fixed_for_a_run():
    node = three()[0]
    with pytest.raises(ValueError, match=r"present must be among the neighbours \(1, 2\), got \[5\]"):
        node.meet((1, 5))
    node.meet((1,))
    node.begin(0, talk(0.0), now=0.0)
    with pytest.raises(RuntimeError, match="run 0, which is in progress"):
        node.meet((1, 2))
    node.receive(said(node, 2), 0.0)
    assert (node.busy, node.counters.misfit) == (True, 1)
    node.receive(said(node, 1), 0.0)
    assert result_of(node).output == [{1: 5.0}]
    assert all(to == 1 for to, _ in node.take_outgoing())


def test_who_was_not_heard_is_sent_what_it_asks_for():
    """Node 1 heard node 0 and not the other way round: the link counts in one direction."""
    nodes = three()
    nodes[0].meet(())
    nodes[1].meet((0,))
    for node in nodes[:2]:
        node.begin(0, talk(3.0), now=0.0)
    pass_on(nodes, 0.0)
    assert nodes[1].busy
    nodes[1].advance(0.5)
    pass_on(nodes, 0.5)
    assert result_of(nodes[1]).output == [{0: 3.0}]
    assert result_of(nodes[0]).output == [{}]


def test_neighbors_of_every_run_are_in_the_log(tmp_path):
    log = FileLog(tmp_path / "log.jsonl")
    records = [Began(1, 1, present=(2, 5)), RoundClosed(1, 0, (5,)), Began(2, 1, present=()), Began(3, 1)]
    for record in records:
        log.append(record)
    log.close()
    assert list(read_log(tmp_path / "log.jsonl")) == records
    assert FileLog(tmp_path / "log.jsonl").last_run == 3


SIZE, RUNS = 9, 12


def moving(seed, radius=0.45):
    """Nodes that wander on the unit square, and the pairs within reach in every run."""
    rng = np.random.default_rng(seed)
    places = rng.random((SIZE, 2)) + np.cumsum(rng.normal(scale=0.1, size=(RUNS, SIZE, 2)), axis=0)
    near = np.linalg.norm(places[:, :, None] - places[:, None], axis=-1) < radius
    return [{(i, j) for i in range(SIZE) for j in range(i + 1, SIZE) if near[run, i, j]} for run in range(RUNS)]


def within(reach):
    """The kind of simulation in which nodes hear each other as listed for each run."""
    return partial(MovingSimulation, reach=reach.__getitem__)


def permitted_network(seed):
    torch.manual_seed(seed)
    graph = undirected([(i, j) for i in range(SIZE) for j in range(i)], SIZE)
    model = nn.GCNN([1, 3], order=2, activation="max-ga", hops=2, out_features=1).double()
    return graph, model, np.random.default_rng(seed).normal(size=(RUNS, SIZE, 1))


def test_a_moving_network_computes_what_the_centralised_model_does_on_the_graph_of_each_run():
    graph, model, x = permitted_network(0)
    reach = moving(0)
    assert len({frozenset(each) for each in reach}) > 5
    answer = simulate_inference(deploy(model, graph), x, simulation=within(reach))
    assert len(answer.outcome.results) == RUNS * SIZE
    assert all(result.complete for result in answer.outcome.results.values())
    matrix = graph.to_dense().numpy()
    for run, pairs in enumerate(reach):
        mask = np.zeros_like(matrix)
        for i, j in pairs:
            mask[i, j] = mask[j, i] = 1
        for i, log in enumerate(answer.outcome.logs):
            (began,) = [record for record in log.records if isinstance(record, Began) and record.run == run]
            assert list(began.present) == np.flatnonzero(mask[i]).tolist()
        with torch.no_grad():
            expected = model(torch.from_numpy(x[run]), Graph.from_dense(torch.from_numpy(matrix * mask))).numpy()
        np.testing.assert_allclose(answer.outputs[run], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_replays_of_moving_networks_with_faults(seed):
    graph, model, x = permitted_network(seed)
    nodes, reach = deploy(model, graph, epoch=seed), moving(seed)
    recordings = 0.2 * (seed % 2)  # who carries them out of reach can make a node wait, and no more
    faults = Faults(loss=0.05 * (seed % 5), jitter=0.01, duplicate=0.1, corrupt=0.05, forge=0.1, crash=0.1, skew=0.02)
    faults = replace(faults, replay=recordings)
    answer = simulate_inference(nodes, x, faults=faults, seed=seed, simulation=within(reach))
    replayed = replay_inference(nodes, x, answer.outcome)
    for run, i in answer.outcome.results:
        np.testing.assert_allclose(answer.outputs[run, i], replayed[run, i], rtol=1e-12, atol=1e-12)
    for i, log in enumerate(answer.outcome.logs):
        for record in log.records:
            if isinstance(record, Began):
                met = set(record.present)
                assert recordings or all((min(i, j), max(i, j)) in reach[record.run] for j in met)
            else:
                assert {*record.used} <= met
    assert answer.outcome.counters.links_used > 100


@pytest.mark.slow
def test_running_agents_meet_and_part(tmp_path):
    folders = make_network(tmp_path, [(0, 1), (1, 2), (0, 2)], 3, nn.FIR([1, 1], order=1).double())
    options = ["--transport", "udp", "--period", "1.2", "--slot", "0.5", "--dynamic"]
    nodes = [Deployment.load(folder) for folder in folders]
    assert nodes[0].model.rounds == 1

    def check(event):
        used = np.zeros((1, 3, 3), bool)
        used[0, 0, event["neighbors"]] = True
        expected = replay(
            nodes[0].model, dense_matrix(nodes), np.array([[1.0], [2.0], [3.0]]), used, used.any(2) | True
        )
        np.testing.assert_allclose(event["output"], expected[0], rtol=1e-12)
        return event["complete"]

    with Daemon(folders[0], *options) as first, Daemon(folders[1], *options) as second:
        assert check(first.next_event("result", where=lambda event: event["neighbors"] == [1] and event["complete"]))
        with Daemon(folders[2], *options) as third:
            assert check(first.next_event("result", where=lambda event: event["neighbors"] == [1, 2]))
            assert third.end(signal.SIGTERM) == 0
        assert check(first.next_event("result", where=lambda event: event["neighbors"] == [1] and event["complete"]))
        second.kill()
        assert check(first.next_event("result", where=lambda event: event["neighbors"] == []))
    logged = [record.present for record in read_log(folders[0] / "log.jsonl") if isinstance(record, Began)]
    assert {(1,), (1, 2), ()} <= {*logged}
