"""Complete means that the whole computation behind an answer was: a mark travels with values."""

import numpy as np
import pytest
import torch

from agents.live import Daemon, make_network
from agents.networks import GRAPHS, directed, pair, pass_on
from agents.one_node import lone_node, result_of, said, talk
from agents.replay import answered_links
from graphact import nn
from graphact_agents import Faults, simulate_inference
from graphact_agents.agent import Clocked
from graphact_agents.messages import Kind, Message, decode
from support.on_agents import deploy


def whole_by_brute_force(nodes, logs, run, rounds):
    """The nodes that had every link in every round, at themselves and at all nodes that their answer depends on."""
    used, closed = answered_links(logs, run, rounds)
    whole = np.ones(len(nodes), bool)
    for r in range(rounds):
        whole = np.array(
            [
                whole[i] and closed[r, i] and all(used[r, i, j] and whole[j] for j in node.links.hears)
                for i, node in enumerate(nodes)
            ]
        )
    return whole


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("graph", [GRAPHS["random"](), GRAPHS["line"](), directed(8, 0.35, 0)], ids=["a", "b", "c"])
def test_complete_answers_are_those_of_the_centralised_model_and_no_others_are_called_so(graph, seed):
    model = nn.GCNN([1, 3], order=2, activation="max-ga", hops=1, out_features=1).double()
    torch.nn.init.uniform_(model.activations[0].weights, 0.5, 1.0)
    nodes = deploy(model, graph)
    x = np.random.default_rng(seed).normal(size=(12, graph.num_nodes, 1))
    faults = Faults(loss=0.7, crash=0.02, jitter=0.02)
    answer = simulate_inference(nodes, x, faults=faults, seed=seed)
    expected = model(torch.from_numpy(x), graph).detach().numpy()
    logs = [log.records for log in answer.outcome.logs]
    told = {True: 0, False: 0}
    for run in range(len(x)):
        whole = whole_by_brute_force(nodes, logs, run, nodes[0].model.rounds)
        for i in range(graph.num_nodes):
            result = answer.outcome.results.get((run, i))
            if result is not None:
                told[result.complete] += 1
                assert result.complete == whole[i]
                if result.complete:
                    np.testing.assert_allclose(answer.outputs[run, i], expected[run, i], rtol=1e-12, atol=1e-12)
    assert told[False] > 0


def test_a_mark_is_passed_on_and_is_part_of_what_is_authenticated():
    node = lone_node((1,))
    node.begin(0, talk(1.0, rounds=2), now=0.0)
    node.receive(said(node, 1, mark=True), now=0.1)
    (_, first), (_, second) = [sent for sent in node.take_outgoing() if sent[1][3] == Kind.DATA]
    assert [datagram[7] for datagram in (first, second)] == [0, 1]
    node.receive(said(node, 1, round_=1), now=0.2)
    result = result_of(node)
    assert (result.missed, result.complete) == (((), ()), False)
    keys = {0: node.links.keys[1]}
    assert isinstance(decode(second, 1, node.links.epoch, keys), Message)
    for altered in (0, 2):
        with pytest.raises(ValueError, match="forged|malformed"):
            decode(second[:7] + bytes([altered]) + second[8:], 1, node.links.epoch, keys)


def test_running_agents_far_from_a_missing_one_do_not_call_their_answers_complete(tmp_path):
    """Node 3 of a line is not there: 2 misses it, 1 and 0 hear all their neighbours and know all the same."""
    folders = make_network(tmp_path, [(0, 1), (1, 2), (2, 3)], 4)
    options = ["--transport", "udp", "--period", "4", "--slot", "1.2"]
    with (
        Daemon(folders[0], *options) as first,
        Daemon(folders[1], *options) as second,
        Daemon(folders[2], *options) as third,
    ):
        assert first.next_event("result", where=lambda event: not any(event["missed"]))["complete"] is False
        assert second.next_event("result", where=lambda event: not any(event["missed"]))["complete"] is False
        assert third.next_event("result")["complete"] is False
        with Daemon(folders[3], *options):
            for daemon in (first, second, third):
                daemon.next_event("result", where=lambda event: event["complete"])


@pytest.mark.parametrize(("late", "run"), [(0.0, 7), (0.9, 7), (1.1, 8)])
def test_a_node_that_comes_late_to_a_run_takes_part_while_its_neighbors_wait_for_it(late, run):
    slot, schedule = 0.2, Clocked(100.0, 0.5)
    first, second = nodes = pair(slot=slot)
    now = schedule.origin + 7 * schedule.period
    first.begin(7, talk(1.0, rounds=2), now)
    pass_on(nodes, now)
    now += late * slot
    first.advance(now)
    begins, start = schedule.next_run(second, -1, now)
    assert (begins, start) == (run, schedule.origin + run * schedule.period)
    if begins == 7:
        second.begin(7, talk(2.0, rounds=2), now, start=start)
        pass_on(nodes, now)
        assert [result_of(node).complete for node in nodes] == [True, True]
