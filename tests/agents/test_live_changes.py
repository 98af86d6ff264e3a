"""Changes of running networks when something is in the way: no signals, moving nodes, a captured one, operators."""

import json
import shutil
import subprocess
import threading
import time
from contextlib import ExitStack

import pytest
import torch
from agents.live import Captured, Daemon, make_network

import graphact
from graphact import nn
from graphact.agents import Deployment, MemoryLog, Timing
from graphact.agents.agent import Agent, Clocked
from graphact.agents.changes import NEXT, Changes
from graphact.agents.messages import ORDER_ELEMENT, ORDER_ELEMENTS, Kind
from graphact.agents.renewal import renew
from graphact.agents.rollout import Network, Rollout
from graphact.cli import main

UDP = ["--transport", "udp"]
OPTIONS = [*UDP, "--period", "0.6", "--slot", "0.2"]
TRIANGLE = [(0, 1), (1, 2), (0, 2)]


def fir(features=1, order=1):
    torch.manual_seed(0)
    return nn.FIR([features, 1], order=order).double()


@pytest.fixture
def opened():
    with ExitStack() as stack:
        yield stack


def feed(daemons, seconds, until):
    """Hand every agent a line now and then, more slowly than runs could follow one another."""
    while not until.wait(seconds):
        for daemon in daemons:
            daemon.process.stdin.write(b"[1.0]\n")
            daemon.process.stdin.flush()


def test_a_network_without_a_clock_changes_while_it_waits_for_signals(tmp_path, opened, capsys):
    """The next epoch was prepared many runs before; it goes on with the run that the network is in."""
    folders = make_network(tmp_path, [(0, 1)], 2, fir(), tls=False)
    options = [*UDP, "--period", "0", "--slot", "0.5", "--signals", "-"]
    daemons = [opened.enter_context(Daemon(folder, *options, stdin=subprocess.PIPE)) for folder in folders]
    for daemon in daemons:
        daemon.next_event("ready")
    stop = threading.Event()
    feeding = threading.Thread(target=feed, args=(daemons, 0.1, stop), daemon=True)
    feeding.start()
    try:
        for daemon in daemons:
            daemon.next_event("result", where=lambda event: event["complete"])
        assert main(["agents", "rekey", str(folders[0].parent), "--lead-runs", "12"]) == 0
        run = int(capsys.readouterr().out.split()[-1])
        for daemon in daemons:
            assert daemon.next_event("changed")["run"] == run
            event = daemon.next_event("result", where=lambda event: event["run"] > run and event["complete"])
            assert event["run"] <= run + 20
    finally:
        stop.set()
        feeding.join()


def test_one_moving_node_among_others_is_refused(tmp_path, opened):
    """Its neighbours of a run would be others than they count on: settings of a network are equal at all nodes."""
    folders = make_network(tmp_path, [(0, 1), (1, 2)], 3, fir(order=2), tls=False)
    options = [*UDP, "--period", "1.2", "--slot", "0.3"]
    daemons = [opened.enter_context(Daemon(f, *options, *["--dynamic"] * (i == 1))) for i, f in enumerate(folders)]
    for i in (0, 2):
        assert "dynamic differs" in daemons[i].next_event("refused")["reason"]
        assert not any(event["complete"] for event in daemons[i].results(2))


@pytest.mark.slow
def test_the_first_run_of_a_change_has_its_neighbors_in_a_moving_network(tmp_path, opened, capsys):
    folders = make_network(tmp_path, [(0, 1)], 2, fir(), tls=False)
    options = [*UDP, "--period", "1.2", "--slot", "0.5", "--dynamic"]
    daemons = [opened.enter_context(Daemon(folder, *options)) for folder in folders]
    for daemon in daemons:
        daemon.next_event("result", where=lambda event: event["complete"] and event["neighbors"])
    assert main(["agents", "rekey", str(folders[0].parent)]) == 0
    run = int(capsys.readouterr().out.split()[-1])
    for i, daemon in enumerate(daemons):
        daemon.next_event("result", where=lambda event: event["run"] > run)
        (first,) = (event for event in daemon.events if event["event"] == "result" and event["run"] == run)
        assert (first["neighbors"], first["complete"]) == ([1 - i], True)


@pytest.mark.slow
def test_after_a_change_that_was_refused_the_next_one_is_made(tmp_path, opened, capsys):
    """Agents that were still reading the withdrawn change neither bring it back nor wait for it."""
    folders = make_network(tmp_path, [(0, 1), (1, 2), (2, 3), (3, 0)], 4, fir(), tls=False)
    nodes = str(folders[0].parent)
    graphact.save(fir(2), tmp_path / "bad.safetensors")
    daemons = [opened.enter_context(Daemon(folder, *OPTIONS)) for folder in folders]
    for daemon in daemons:
        daemon.next_event("ready")
    for _ in range(4):
        assert main(["agents", "update", nodes, str(tmp_path / "bad.safetensors")]) == 2
        assert "cannot change: the model must take 1 features" in capsys.readouterr().err
        time.sleep(0.6)
        assert [folder.name for folder in folders if (folder / NEXT).exists()] == []
    assert main(["agents", "rekey", nodes]) == 0


@pytest.mark.slow
def test_a_node_without_signals_changes_like_the_others_and_can_be_removed(tmp_path, opened, capsys):
    folders = make_network(tmp_path, [(0, 1)], 2, fir(), tls=False)
    nodes = str(folders[0].parent)
    first = opened.enter_context(Daemon(folders[0], *OPTIONS))
    second = opened.enter_context(Daemon(folders[1], *OPTIONS, "--sensor", "false"))
    first.next_event("result")
    second.next_event("skipped")
    assert main(["agents", "rekey", nodes, "--timeout", "10"]) == 0
    assert main(["agents", "remove", nodes, "1", "--timeout", "10"]) == 0
    assert second.next_event("end")["reason"].startswith("this node is no longer part of the network")
    assert second.process.wait(10) == 0


@pytest.mark.slow
def test_a_removed_node_does_not_come_back(tmp_path, opened, capsys):
    """Neither when a supervisor starts it again, nor with the next change."""
    folders = make_network(tmp_path, TRIANGLE, 3, fir(), tls=False)
    nodes = str(folders[0].parent)
    daemons = [opened.enter_context(Daemon(folder, *OPTIONS)) for folder in folders]
    for daemon in daemons:
        daemon.next_event("result")
    assert main(["agents", "remove", nodes, "1"]) == 0
    assert daemons[1].next_event("end")
    capsys.readouterr()
    assert main(["agents", "run", str(folders[1]), *OPTIONS, "--signals", str(folders[1] / "x.npy")]) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"graphact: {folders[1]}: this node was removed from its network; delete the folder"
    for more in ([], ["--absent", "1"]):
        assert main(["agents", "rekey", nodes, *more]) == 2
        assert "delete the folders of the nodes [1], which are removed" in capsys.readouterr().err
    shutil.rmtree(folders[1])
    assert main(["agents", "rekey", nodes]) == 0
    assert Deployment.load(folders[0]).links.neighbors == (2,)


@pytest.mark.slow
def test_a_captured_node_commits_nothing_with_the_keys_of_a_staged_epoch(tmp_path, opened, capsys):
    """Neither by using them nor by an order of its own; what the operator takes back was never changed."""
    folders = make_network(tmp_path, TRIANGLE, 3, fir(), tls=False)
    captured = opened.enter_context(Captured(folders[2], slot=0.2, period=0.6))
    daemons = [opened.enter_context(Daemon(folder, *OPTIONS)) for folder in folders[:2]]
    epoch = captured.links.epoch
    for daemon in daemons:
        daemon.next_event("result")

    def strike():
        while not (folders[2] / NEXT / "node.json").exists():
            time.sleep(0.01)
        deployment = Deployment.load(folders[2] / NEXT)
        agent = Agent(deployment, None, MemoryLog(), None, Clocked(0.0, 0.6), print, Timing(slot=0.2))
        captured.links, captured.digest = deployment.links, agent.node.digest
        for _ in range(25):
            run = int(time.time() / 0.6) + 1
            captured.say(0, run)
            captured.say(0, run, kind=Kind.ORDER, signature=bytes(range(ORDER_ELEMENT)) * ORDER_ELEMENTS)
            time.sleep(0.1)

    striking = threading.Thread(target=strike)
    striking.start()
    assert main(["agents", "rekey", str(folders[0].parent), "--timeout", "3"]) == 2
    assert "the nodes [2] did not answer within 3 s; nothing was changed" in capsys.readouterr().err
    striking.join()
    for daemon in daemons:
        daemon.next_event("taken back")
        daemon.next_event("result", where=lambda event: 2 in event["missed"][0] and len(event["missed"][0]) == 1)
        assert "committed" not in {event["event"] for event in daemon.events}
    assert {Deployment.load(folder).links.epoch for folder in folders} == {epoch}


def test_a_node_that_was_added_waits_for_its_first_run_once(tmp_path):
    """Numbers of runs are others when the period is changed."""
    folders = make_network(tmp_path, [(0, 1)], 2, fir(), tls=False)
    (folders[0] / "begin.json").write_text(json.dumps({"run": int(time.time() / 0.5) - 3600}))
    with Daemon(folders[0], *UDP, "--slot", "0.2", "--period", "0.5") as daemon:
        daemon.next_event("result")
        assert not (folders[0] / "begin.json").exists()
    with Daemon(folders[0], *UDP, "--slot", "0.2", "--period", "1") as daemon:
        assert daemon.next_event("result", timeout=20)["run"] <= time.time()


@pytest.mark.slow
def test_neighbors_pass_the_order_on(tmp_path, opened):
    """One node of a line is told; the others learn it one from another, before the run of the change."""
    folders = make_network(tmp_path, [(0, 1), (1, 2), (2, 3)], 4, fir(), tls=False)
    daemons = [opened.enter_context(Daemon(folder, *OPTIONS)) for folder in folders]
    for daemon in daemons:
        daemon.next_event("result", where=lambda event: event["complete"])
    network = Network(folders[0].parent)
    rollout = Rollout(network, renew(network.deployments), network.places)
    rollout.stage()
    rollout.wait_until_prepared({0, 1, 2, 3}, 30)
    run = int((time.time() + 4) / 0.6)
    Changes(folders[0]).commit(rollout.key.sign(run))
    for daemon in daemons:
        assert daemon.next_event("changed")["run"] == run
    for daemon in daemons:
        daemon.next_event("result", where=lambda event: event["run"] > run + 1 and event["complete"])
    assert all(
        event["complete"]
        for d in daemons[1:]
        for event in d.events
        if event["event"] == "result" and event["run"] == run
    )
