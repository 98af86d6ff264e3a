"""How an agent goes from one epoch to the next, look by look, without running agents."""

import json

import numpy as np
import pytest
import torch
from agents.live import make_network
from agents.networks import undirected

from graphact import nn
from graphact.agents import Deployment, MemoryLog, Node, Timing, deploy
from graphact.agents.agent import Agent, BackToBack, Clocked
from graphact.agents.changeover import WATCH_AT_LAST, Changeover, Job
from graphact.agents.changes import NEXT, Changes
from graphact.agents.epochs import Epochs
from graphact.agents.renewal import renew
from graphact.agents.rollout import Network, Rollout

ROUNDING = 1e-6
"""Of times, in seconds."""


@pytest.fixture
def folders(tmp_path):
    torch.manual_seed(0)
    return make_network(tmp_path, [(0, 1), (1, 2), (0, 2)], 3, nn.FIR([1, 1], order=1).double(), tls=False)


def rollout(folders):
    network = Network(folders[0].parent)
    return Rollout(network, renew(network.deployments), network.places)


def fail(_):
    raise OSError("the disk is full")


class Late(Job):
    """Work that is over when a test says so."""

    def start(self):
        self.over = False

    @property
    def is_over(self):
        return self.over

    def end(self):
        self.run()
        self.over = True


@pytest.fixture
def agent(folders):
    """Node 0 as it goes from one epoch to the next, and the work it has begun."""
    deployment, log, jobs, events = Deployment.load(folders[0]), MemoryLog(), [], []

    def start(function):
        jobs.append(Late(function))
        return jobs[-1]

    changeover = Changeover(
        Epochs(Node(deployment.links, log)),
        deployment,
        None,
        Changes(folders[0]),
        None,
        make_node=lambda new, key: Node(new.links, log, order_key=key),
        check=lambda _: None,
        about={"origin": 0.0, "period": 1.0},
        report=events.append,
        job=start,
    )
    return changeover, jobs, events


def test_a_change_that_is_taken_back_while_it_is_read_leaves_nothing_behind(folders, agent):
    changeover, jobs, events = agent
    first = rollout(folders)
    first.stage()
    changeover.watch(0.0, 1)
    jobs[0].end()
    first.take_back()
    changeover.watch(1.0, 1)
    assert events == []
    assert not (folders[0] / NEXT).exists()
    Changes(folders[0]).answer(None, error="too late")
    assert not (folders[0] / NEXT).exists()
    second = rollout(folders)
    second.stage()
    changeover.watch(2.0, 1)
    jobs[1].end()
    changeover.watch(3.0, 1)
    assert [event["event"] for event in events] == ["prepared"]
    assert events[0]["epoch"] == Deployment.load(folders[0] / NEXT).links.epoch_name
    assert json.loads((folders[0] / NEXT / "prepared.json").read_text())["change"] == second.key.public.hex()
    second.take_back()
    changeover.watch(4.0, 1)
    assert [event["event"] for event in events] == ["prepared", "taken back"]


def test_an_order_holds_for_the_change_that_it_was_given_for(folders, agent):
    """Between two looks of the agent its change is taken back, and another one staged and committed."""
    changeover, jobs, events = agent
    first = rollout(folders)
    first.stage()
    changeover.watch(0.0, 1)
    jobs[0].end()
    changeover.watch(1.0, 1)
    first.take_back()
    second = rollout(folders)
    second.stage()
    Changes(folders[0]).commit(second.key.sign(2))
    assert changeover.follow(2)
    assert [event["event"] for event in events] == ["prepared"]
    changeover.watch(2.0, 3)
    jobs[1].end()
    changeover.watch(3.0, 3)
    assert changeover.follow(3)
    assert [event["event"] for event in events] == ["prepared", "taken back", "prepared", "committed", "changed"]
    assert changeover.deployment.links.epoch == Deployment.load(folders[1] / NEXT).links.epoch


def test_files_that_cannot_be_written_are_tried_again(folders, agent, monkeypatch):
    """A full disk: the node goes on in the new epoch, tells, and its folder is whole all the same."""
    changeover, jobs, events = agent
    change = rollout(folders)
    change.stage()
    changeover.watch(0.0, 1)
    jobs[0].end()
    changeover.watch(1.0, 1)
    Changes(folders[0]).commit(change.key.sign(5))
    changeover.watch(2.0, 2)
    assert changeover.follow(4)
    assert events[-1] == {"event": "committed", "node": 0, "run": 5}
    assert changeover.follow(5)
    changeover.watch(3.0, 5)
    assert len(jobs) == 1
    changeover.watch(4.0, 6)
    with monkeypatch.context() as patch:
        patch.setattr("graphact.agents.changes.remove_next", fail)
        jobs[1].end()
    changeover.watch(5.0, 20)
    assert events[-1] == {"event": "unfinished", "node": 0, "reason": "the files of the change: the disk is full"}
    assert (folders[0] / NEXT / "moving.json").exists()
    changeover.watch(6.0, 20)
    with monkeypatch.context() as patch:
        patch.setattr("graphact.agents.changes.remove_next", fail)
        jobs[2].end()
    changeover.watch(6.5, 20)
    assert [event["event"] for event in events].count("unfinished") == 1
    changeover.watch(6.8, 20)
    jobs[3].end()
    changeover.watch(7.0, 20)
    assert not (folders[0] / NEXT).exists()
    assert Deployment.load(folders[0]).links.epoch == changeover.deployment.links.epoch


def prepared(folders, agent):
    """A change that the agent is prepared for, at 1.0."""
    changeover, jobs, _ = agent
    change = rollout(folders)
    change.stage()
    changeover.watch(0.0, 1)
    jobs[0].end()
    changeover.watch(1.0, 1)
    return change


def test_changes_wait_for_the_time_between_runs(folders, agent):
    """When a run begins, all processors are needed for it; where there is no time between runs, changes come first."""
    changeover, jobs, _ = agent
    changeover.watch(0.0, 1)
    rollout(folders).stage()
    changeover.watch(0.5 * WATCH_AT_LAST, 1, has_time=False)
    assert jobs == []
    changeover.watch(0.6 * WATCH_AT_LAST, 1)
    assert len(jobs) == 1
    jobs[0].end()
    changeover.watch(1.5 * WATCH_AT_LAST, 1, has_time=False)
    assert not (folders[0] / NEXT / "prepared.json").exists()
    changeover.watch(1.7 * WATCH_AT_LAST, 1, has_time=False)
    assert (folders[0] / NEXT / "prepared.json").exists()


def test_an_order_for_a_later_run_is_neither_checked_nor_passed_on_when_a_run_begins(folders, agent):
    changeover, _, events = agent
    change = prepared(folders, agent)
    Changes(folders[0]).commit(change.key.sign(5))
    assert changeover.follow(4)
    assert [event["event"] for event in events] == ["prepared"]
    assert changeover.follow(5)
    assert [event["event"] for event in events] == ["prepared", "committed", "changed"]


def test_no_run_waits_for_the_disk_while_an_order_of_a_neighbor_is_noted(folders, agent):
    changeover, jobs, events = agent
    change = prepared(folders, agent)
    (node,) = changeover._nodes.others
    node.tell_order(change.key.sign(5))
    assert changeover.follow(4)
    changeover.watch(2.0, 4)
    assert [event["event"] for event in events] == ["prepared", "committed"]
    assert (len(jobs), Changes(folders[0]).order) == (2, None)
    jobs[1].end()
    assert Changes(folders[0]).order == change.key.sign(5)


def test_the_files_of_an_epoch_are_moved_when_its_order_is_noted(folders, agent, monkeypatch):
    changeover, jobs, _ = agent
    change = prepared(folders, agent)
    (node,) = changeover._nodes.others
    node.tell_order(change.key.sign(5))
    assert changeover.follow(5)
    waited = []
    monkeypatch.setattr(jobs[1], "wait", lambda: (waited.append(True), jobs[1].end()))
    changeover.watch(2.0, 6)
    jobs[2].end()
    assert waited == [True]
    assert Changes(folders[0]).own_order == change.key.sign(5)
    assert not (folders[0] / NEXT).exists()


def test_an_answer_does_not_wait_for_the_disk(folders, monkeypatch):
    rollout(folders).stage()
    changes = Changes(folders[0])
    staged = changes.load()
    monkeypatch.setattr("graphact.storage.os.fsync", fail)
    changes.answer(staged, digest="")
    assert json.loads((folders[0] / NEXT / "prepared.json").read_text())["change"] == staged.order_key.hex()


class Nobody:
    """A network without other nodes, where time goes by, and signals for it."""

    dropped = {}  # noqa: RUF012

    def __init__(self):
        self.now = 0.0

    def receive(self, timeout):
        self.now += max(timeout, 1e-3)

    def prepare(self, start, now, run):
        pass

    def take(self, run):
        self.now += 1e-3
        return np.zeros(1)


@pytest.mark.parametrize(("period", "rest"), [(1.0, (0.2, 0.9)), (0.3, (0.1, 0.2))])
def test_an_agent_has_time_for_changes_when_a_run_is_over_everywhere_or_the_next_one_draws_near(period, rest):
    """A run of one round and slots of 0.2 s: this node ends it at once, others may still be in it."""
    world, looks = Nobody(), []
    deployment = deploy(nn.FIR([1, 1], order=1).double(), undirected([], 1))[0]
    options = {"timing": Timing(slot=0.2), "clock": lambda: world.now}
    agent = Agent(deployment, world, MemoryLog(), world, Clocked(0.0, period), lambda event: None, **options)
    agent._changeover.watch = lambda now, due, has_time: looks.append((now % period, has_time))
    agent.work(runs=5)
    with_time = [now for now, has_time in looks if has_time]
    without = [now for now, has_time in looks if not has_time]
    assert len(with_time) >= 4
    assert all(rest[0] - ROUNDING <= now < rest[1] + ROUNDING for now in with_time)
    assert not any(rest[0] + ROUNDING <= now < rest[1] - ROUNDING for now in without)


def test_without_a_clock_there_is_always_time_for_changes():
    world, looks = Nobody(), []
    deployment = deploy(nn.FIR([1, 1], order=1).double(), undirected([], 1))[0]
    agent = Agent(deployment, world, MemoryLog(), world, BackToBack(0.0), lambda event: None, clock=lambda: world.now)
    agent._changeover.watch = lambda now, due, has_time: looks.append(has_time)
    agent.work(runs=5)
    assert looks == [True] * 5
