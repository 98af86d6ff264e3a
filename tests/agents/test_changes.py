"""Networks that are changed while they run: models, nodes and keys, at one run for all or not at all."""

import os
import shutil
import signal
import time

import numpy as np
import pytest
import torch
from agents.live import PATIENCE, Daemon, make_network
from agents.networks import undirected

import graphact
from graphact import agents, nn
from graphact.agents import Deployment, MemoryLog, Node, Timing, load_model, read_log
from graphact.agents.addresses import Addresses, free_addresses
from graphact.agents.changes import NEXT, Changes, RemovedError, current_epoch
from graphact.agents.epochs import Epochs
from graphact.agents.renewal import renew, with_node, without_node
from graphact.agents.replay import answered_links, replay
from graphact.agents.rollout import ChangeError, Network, Rollout
from graphact.cli import main

OPTIONS = ["--transport", "udp", "--period", "0.8", "--slot", "0.2"]
EDGES = [(0, 1), (1, 2), (0, 2)]


def fir(seed):
    torch.manual_seed(seed)
    return nn.FIR([1, 1], order=2).double()


@pytest.fixture
def folders(tmp_path):
    return make_network(tmp_path, EDGES, 3, fir(0))


@pytest.fixture
def network(folders):
    """Three running agents, each of which has given a complete answer."""
    daemons = [Daemon(folder, *OPTIONS) for folder in folders]
    try:
        for daemon in daemons:
            daemon.next_event("result", where=lambda event: event["complete"])
        yield daemons
    finally:
        for daemon in daemons:
            daemon.__exit__()


def dense(rows, size):
    matrix = np.zeros((size, size))
    for i, row in rows.items():
        matrix[i, list(row.hears)] = row.weights
        matrix[i, i] = row.diagonal
    return matrix


def check_answers(daemons, changed_at, before, after):
    """Every answer follows from the logs, in the epoch of its run; how many were incomplete."""
    size = max(daemons) + 1
    logs = [list(read_log(daemons[i].folder / "log.jsonl")) if i in daemons else [] for i in range(size)]
    incomplete = set()
    for i, daemon in daemons.items():
        for event in daemon.events:
            if event["event"] != "result":
                continue
            model, rows = before if event["run"] < changed_at else after
            x = np.array([[1.0 + k] for k in range(size)])
            used, closed = answered_links(logs, event["run"], model.rounds)
            expected = replay(model, dense(rows, size), x, used, closed)[i]
            np.testing.assert_allclose(event["output"], expected, rtol=1e-12, atol=1e-12)
            if not event["complete"]:
                incomplete.add(event["run"])
    return incomplete


def wait_past(daemons, run):
    for daemon in daemons:
        daemon.next_event("result", where=lambda event: event["run"] > run + 3)


@pytest.mark.slow
def test_a_new_model_takes_effect_at_one_run(network, folders, tmp_path, capsys):
    old, keys = Deployment.load(folders[0]), (folders[0] / "keys.json").read_text()
    rows = Network(folders[0].parent).rows
    graphact.save(fir(1), tmp_path / "new.safetensors")
    first = max(event["run"] for event in network[0].events if event["event"] == "result") + 1
    assert main(["agents", "update", str(folders[0].parent), str(tmp_path / "new.safetensors")]) == 0
    run = int(capsys.readouterr().out.split()[-1])
    wait_past(network, run)
    new = load_model(tmp_path / "new.safetensors")
    incomplete = check_answers(dict(enumerate(network)), run, (old.model, rows), (new, rows))
    assert len({r for r in incomplete if r >= first}) <= 2
    assert [event["run"] for daemon in network for event in daemon.events if event["event"] == "changed"] == [run] * 3
    for folder in folders:
        assert Deployment.load(folder).model.digest == new.digest
        assert (folder / "keys.json").stat().st_mode & 0o777 == 0o600
        assert not (folder / NEXT).exists()
    assert (folders[0] / "keys.json").read_text() != keys
    network[0].process.send_signal(signal.SIGTERM)
    assert network[0].next_event("end")["counters"]["forged"] == 0
    with Daemon(folders[0], *OPTIONS) as again:
        again.next_event("result", where=lambda event: event["complete"])


@pytest.mark.slow
def test_a_change_that_one_node_cannot_make_is_taken_back(network, folders, tmp_path, capsys):
    files = {f: f.read_bytes() for folder in folders for f in folder.glob("*.json") if f.name != "log.jsonl"}
    torch.manual_seed(0)
    graphact.save(nn.FIR([2, 1], order=1).double(), tmp_path / "other.safetensors")  # takes other signals
    assert main(["agents", "update", str(folders[0].parent), str(tmp_path / "other.safetensors")]) == 2
    assert "cannot change: the model must take 1 features of float64, got 2" in capsys.readouterr().err
    graphact.save(nn.FIR([1, 1], order=9).double(), tmp_path / "long.safetensors")  # 9 rounds of 0.2 s in 0.8 s
    assert main(["agents", "update", str(folders[0].parent), str(tmp_path / "long.safetensors")]) == 2
    assert "the 9 rounds of the model must fit into a period of 0.8 s" in capsys.readouterr().err
    network[2].kill()
    assert main(["agents", "rekey", str(folders[0].parent), "--timeout", "3"]) == 2
    assert "the nodes [2] did not answer within 3 s; nothing was changed" in capsys.readouterr().err
    network[1].next_event("taken back")
    assert {f: f.read_bytes() for f in files} == files
    assert not any((folder / NEXT).exists() for folder in folders)
    with Daemon(folders[2], *OPTIONS) as again:
        again.next_event("result", where=lambda event: event["complete"])
        network[0].next_event("result", where=lambda event: event["complete"])


@pytest.mark.slow
def test_nodes_are_added_and_removed_and_keys_rotated(network, folders, capsys):
    model, nodes = Deployment.load(folders[0]).model, folders[0].parent
    before = Network(nodes).rows
    listen = free_addresses(1)[0]
    assert main(["agents", "add", str(nodes), "--listen", str(listen), "--links", "0:0.5", "2:0.25"]) == 0
    run = int(capsys.readouterr().out.split()[-1])
    np.save(nodes / "node-3" / "x.npy", np.full((50, 1), 4.0))
    daemons = dict(enumerate(network))
    with Daemon(nodes / "node-3", *OPTIONS) as fourth:
        daemons[3] = fourth
        assert fourth.next_event("result", where=lambda event: event["complete"])["run"] >= run
        wait_past(daemons.values(), run)
        after = Network(nodes).rows
        assert after[0].hears == (1, 2, 3)
        check_answers(daemons, run, (model, before), (model, after))
        assert main(["agents", "rekey", str(nodes)]) == 0
        rekeyed = int(capsys.readouterr().out.split()[-1])
        wait_past(daemons.values(), rekeyed)
        assert main(["agents", "remove", str(nodes), "1"]) == 0
        removed = int(capsys.readouterr().out.split()[-1])
        assert daemons[1].next_event("end")["reason"].startswith("this node is no longer part of the network")
        del daemons[1]
        wait_past(daemons.values(), removed)
        assert Deployment.load(folders[0]).links.neighbors == (2, 3)
        late = [e for d in daemons.values() for e in d.events if e["event"] == "result" and e["run"] > removed]
        assert sum(event["complete"] for event in late) >= 0.7 * len(late)


@pytest.mark.slow
def test_who_was_down_or_not_told_changes_all_the_same(network, folders):
    """Node 2 is down during the change; node 1 is prepared and never told, and learns it from its neighbours."""
    network[2].kill()
    nodes = Network(folders[0].parent)
    renewed = renew(nodes.deployments)
    rollout = Rollout(nodes, renewed, nodes.places)
    rollout.stage()
    for daemon in network[:2]:
        daemon.next_event("prepared")
    run = 2 + int(time.time() / 0.8) + 1
    for i in (0, 2):
        Changes(folders[i]).commit(rollout.key.sign(run))
    assert network[0].next_event("changed")["run"] == run
    assert network[1].next_event("changed")["run"] == run
    with Daemon(folders[2], *OPTIONS) as again:
        again.next_event("changed")
        for daemon in (again, *network[:2]):
            daemon.next_event("result", where=lambda event: event["complete"] and event["run"] > run)
        rollout.wait_until_changed({0, 1, 2}, PATIENCE)
    assert {Deployment.load(folder).links.epoch for folder in folders} == {renewed[0].links.epoch}


class Killed(BaseException):
    """kill -9: nothing of the process happens after it."""


def kill_after(steps, patch):
    """Let everything that writes, renames or removes a file fail from one step on."""
    left = [steps]

    def dying(original):
        def call(*arguments, **options):
            writes = original.__name__ != "open" or arguments[1] & os.O_CREAT
            left[0] -= writes
            if left[0] < 0:
                raise Killed
            return original(*arguments, **options)

        return call

    for name in ("open", "fsync", "replace", "rename", "unlink", "mkdir", "rmdir"):
        patch.setattr(os, name, dying(getattr(os, name)))


@pytest.mark.slow
@pytest.mark.parametrize("change", ["rekey", "add", "remove"])
def test_files_of_a_change_survive_a_kill_at_every_step(change, tmp_path, monkeypatch):
    """Also before a run of the new epoch is in the log: there are certificates, or a power failure took its end."""
    folders = make_network(tmp_path, EDGES, 3, fir(0), tls=change == "add")
    network = Network(folders[0].parent)
    rows = {"add": lambda: with_node(network.rows, 3, {0: 0.5}), "remove": lambda: without_node(network.rows, 0)}
    renewed = renew(network.deployments, rows=rows.get(change, lambda: None)())
    rollout = Rollout(network, renewed, {**network.places, 3: network.places[0]})
    rollout.stage()
    Changes(folders[0]).commit(rollout.key.sign(7))
    shutil.copytree(folders[0], tmp_path / "before")
    monkeypatch.setattr(os, "fsync", lambda _: None)  # a disk takes its time
    killed, steps = True, -1
    while killed:
        killed, steps, work = False, steps + 1, tmp_path / f"{steps + 1}"
        shutil.copytree(tmp_path / "before", work)
        with monkeypatch.context() as patch:
            kill_after(steps, patch)
            try:
                Changes(work).finish()
            except Killed:
                killed = True
        is_moving = not (work / NEXT).exists() or (work / NEXT / "moving.json").exists()
        if is_moving and change == "remove":
            with pytest.raises(RemovedError, match="this node was removed from its network"):
                current_epoch(work, 6)
            continue
        epoch = current_epoch(work, 6)  # whole, and of one epoch
        addresses = Addresses.load(work, epoch.links.neighbors)
        assert epoch.links == (renewed if is_moving else network.deployments)[0].links
        assert {*addresses.neighbors} == {*epoch.links.neighbors}
        assert not (is_moving and (work / NEXT).exists())
        assert (Changes(work).own_order is not None) == is_moving
        if change == "add":
            staged = tmp_path / "before" / NEXT / "tls" if is_moving else tmp_path / "before" / "tls"
            for name in ("cert.pem", "key.pem", "ca.pem"):
                assert (work / "tls" / name).read_bytes() == (staged / name).read_bytes()
    assert steps > 15 if change != "remove" else steps > 5


def test_before_its_run_a_change_is_not_made(folders):
    nodes = Network(folders[0].parent)
    rollout, old = Rollout(nodes, renew(nodes.deployments), nodes.places), nodes.deployments[0].links.epoch
    rollout.stage()
    assert current_epoch(folders[0], 100).links.epoch == old
    with pytest.raises(ChangeError, match=r"another change of nodes \[0, 1, 2\] is under way.* it is not committed"):
        Network(folders[0].parent)
    Changes(folders[0]).commit(rollout.key.sign(101))
    assert current_epoch(folders[0], 100).links.epoch == old
    (folders[0] / NEXT / "commit.json").write_text('{"run": "x"}')
    with pytest.raises(ValueError, match="run must be a number, got 'x'"):
        current_epoch(folders[0], 100)


def test_rows_with_and_without_a_node(folders):
    rows = Network(folders[0].parent).rows
    more = with_node(rows, 3, {0: 0.5, 2: 0.25}, 0.1)
    matrix = np.zeros((4, 4))
    matrix[:3, :3] = dense(rows, 3)
    matrix[3, 0] = matrix[0, 3] = 0.5
    matrix[3, 2] = matrix[2, 3] = 0.25
    matrix[3, 3] = 0.1
    np.testing.assert_array_equal(dense(more, 4), matrix)
    less = without_node(more, 1)
    matrix[1], matrix[:, 1] = 0, 0
    np.testing.assert_array_equal(dense(less, 4), matrix)
    for wrong in (
        lambda: with_node(rows, 2, {0: 1.0}),
        lambda: with_node(rows, 3, {9: 1.0}),
        lambda: without_node(rows, 9),
    ):
        with pytest.raises(ValueError, match="node"):
            wrong()


def test_two_epochs_behind_one_transport():
    """Values of the next run, in the next epoch, wait; those of the run before are still sent again."""
    graph = undirected([(0, 1)], 2)
    old = dict(enumerate(agents.deploy(fir(0), graph)))
    new = renew(old)
    logs = [MemoryLog(), MemoryLog()]
    pairs = [Epochs(Node(old[i].links, logs[i], Timing(slot=1.0), seed=i)) for i in range(2)]
    for i, each in enumerate(pairs):
        each.add(Node(new[i].links, logs[i], Timing(slot=1.0), seed=i))

    def deliver(now):
        while sent := [(i, *each) for i in range(2) for each in pairs[i].take_outgoing()]:
            for _, to, datagram in sent:
                pairs[to].receive(datagram, now)

    def begin(i, run, deployment, now):
        pairs[i].current.begin(run, agents.infer(deployment[i].model, deployment[i].row, np.array([1.0 + i])), now)

    begin(0, 4, old, 0.0)
    begin(1, 4, old, 0.0)
    sent = pairs[0].take_outgoing()  # the first value of node 0 is lost
    assert len(sent) == 1
    deliver(0.0)
    assert pairs[1].current.busy
    pairs[1].advance(0.5)
    deliver(0.5)
    (first,), (second,) = pairs[0].take_results(), pairs[1].take_results()
    assert first.complete
    assert second.complete
    pairs[0].switch(pairs[0].others[0])
    begin(0, 5, new, 1.0)
    deliver(1.0)  # waits at node 1 for its run 5
    pairs[1].switch(pairs[1].others[0])
    begin(1, 5, new, 1.0)
    deliver(1.0)
    assert [each.take_results()[0].complete for each in pairs] == [True, True]
    assert sum(each.counters.forged + each.counters.other_epoch for each in pairs) == 0
    pairs[0].forget(pairs[0].others)
    pairs[0].receive(sent[0][1], 1.0)
    assert pairs[0].counters.foreign + pairs[0].counters.forged == 1
    assert pairs[0].counters.rounds == 4


def test_a_neighbor_of_another_epoch_need_not_be_reached():
    """Zenoh has sessions with those of one epoch alone: what goes to others is lost, as on the way."""
    old = dict(enumerate(agents.deploy(fir(0), undirected([(0, 1)], 2))))
    new = renew(old, rows=with_node({i: each.row for i, each in old.items()}, 2, {0: 0.5}))
    sent = []

    class OneEpoch:
        def send(self, to, datagram):
            sent.append({1: to}[to])

        def receive(self, timeout):
            return None

    nodes = Epochs(Node(old[0].links, MemoryLog()))
    nodes.add(Node(new[0].links, MemoryLog()))
    nodes.others[0].announce(3)
    agents.drive(nodes, OneEpoch(), 0.0)
    assert sent == [1]
    nodes.switch(nodes.others[0])
    nodes.current.announce(4)
    with pytest.raises(KeyError):
        agents.drive(nodes, OneEpoch(), 0.0)


@pytest.mark.slow
def test_networks_on_zenoh_change_too(tmp_path, capsys):
    """Keys within the sessions there are; other neighbours, and certificates for all, in new ones."""
    folders, nodes = make_network(tmp_path, [(0, 1)], 2, fir(0)), tmp_path / "nodes"
    options = ["--transport", "zenoh", *OPTIONS[2:]]
    daemons = [Daemon(folder, *options) for folder in folders]
    try:
        for daemon in daemons:
            daemon.next_event("result", where=lambda event: event["complete"])
        assert main(["agents", "rekey", str(nodes)]) == 0
        run = int(capsys.readouterr().out.split()[-1])
        for daemon in daemons:
            daemon.next_event("result", where=lambda event: event["complete"] and event["run"] > run)
        certificate = (folders[0] / "tls" / "cert.pem").read_bytes()
        assert main(["agents", "add", str(nodes), "--listen", str(free_addresses(1)[0]), "--links", "0:0.5"]) == 0
        run = int(capsys.readouterr().out.split()[-1])
        np.save(nodes / "node-2" / "x.npy", np.full((50, 1), 3.0))
        daemons.append(Daemon(nodes / "node-2", *options))
        for daemon in daemons:
            daemon.next_event("result", where=lambda event: event["complete"] and event["run"] > run)
        assert (folders[0] / "tls" / "cert.pem").read_bytes() != certificate
        assert (folders[0] / "tls" / "key.pem").stat().st_mode & 0o777 == 0o600
    finally:
        for daemon in daemons:
            daemon.__exit__()


def test_a_change_takes_the_folders_that_the_file_of_a_network_names(network, folders, tmp_path, capsys):
    file, nodes = tmp_path / "network.toml", "".join(f"[nodes.{i}]\n" for i in range(3))
    file.write_text(f'[network]\nfolder = "{folders[0].parent}/node-{{node}}"\n{nodes}')
    before = Deployment.load(folders[2]).links.epoch
    assert main(["agents", "rekey", str(file)]) == 0
    assert Deployment.load(folders[2]).links.epoch != before
    event = network[2].next_event("changed")
    assert event["epoch"] == f"{Deployment.load(folders[2]).links.epoch:016x}"
    capsys.readouterr()
    for folder in ("/nowhere/node-{node}", f"{tmp_path}/{{node}}"):
        file.write_text(f'[network]\nfolder = "{folder}"\n{nodes}')
        assert main(["agents", "rekey", str(file)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "mount them in one folder, and give that instead of the file" in line


def test_a_change_without_the_folders_of_all_nodes_is_refused(folders, capsys):
    """The others would get keys for links to a node that never hears of them."""
    folders[1].rename(folders[1].parent.parent / "elsewhere")
    assert main(["agents", "rekey", str(folders[0].parent)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "must hold the folders of all nodes, and those of [1] are missing" in line
    assert not (folders[0] / NEXT).exists()
