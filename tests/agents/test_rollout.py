"""What operators write, and what agents make of it, file by file, without running agents."""

import json
import os
import time
from pathlib import Path

import pytest
import torch
from agents.live import make_network

from graphact import nn
from graphact.agents import Deployment
from graphact.agents.addresses import free_addresses
from graphact.agents.changes import NEXT, REMOVED_CODE, Changes, current_epoch, encode_order
from graphact.agents.renewal import renew, with_node
from graphact.agents.rollout import ChangeError, Network, Rollout
from graphact.cli import main


@pytest.fixture
def folders(tmp_path):
    torch.manual_seed(0)
    return make_network(tmp_path, [(0, 1), (1, 2), (0, 2)], 3, nn.FIR([1, 1], order=1).double(), tls=False)


def rollout(folders):
    network = Network(folders[0].parent)
    return Rollout(network, renew(network.deployments), network.places)


def staged_epochs(folders):
    return [Deployment.load(f / NEXT).links.epoch if (f / NEXT).exists() else None for f in folders]


@pytest.mark.parametrize("there", [(0, 1, 2), (2,)])
def test_a_second_command_leaves_what_the_first_has_staged(folders, there):
    first, second = rollout(folders), rollout(folders)
    first.stage()
    for i in {0, 1, 2} - {*there}:  # the first has not come so far
        (folders[i] / NEXT).rename(folders[i].parent / f"later-{i}")
    before = staged_epochs(folders)
    with pytest.raises(ChangeError, match=f"another change of node {there[0]} is under way; nothing was changed"):
        second.stage()
    second.take_back()
    assert staged_epochs(folders) == before
    assert not list(folders[0].parent.rglob("*.new-*"))
    first.take_back()
    assert staged_epochs(folders) == [None] * 3


def test_what_killed_commands_have_left_is_removed_after_a_while(folders):
    new, old = folders[0] / f"{NEXT}.new-1", folders[1] / f"{NEXT}.new-2"
    for place in (new, old):
        place.mkdir()
        (place / "keys.json").write_text("{}")
    os.utime(old, (time.time() - 7200,) * 2)
    rollout(folders).stage()
    assert (new.exists(), old.exists()) == (True, False)


def test_an_order_that_one_node_has_is_given_to_all_by_the_next_command(folders):
    """Whoever gave it was interrupted; a node that is removed has nobody else to learn it from."""
    change = rollout(folders)
    change.stage()
    order = change.key.sign(11)
    Changes(folders[1]).commit(order)
    with pytest.raises(ChangeError, match="is under way.* it is committed, from run 11 on") as error:
        Network(folders[0].parent)
    assert error.value.run == 11
    assert [Changes(folder).order for folder in folders] == [order] * 3


def test_an_order_of_somebody_else_is_none(folders):
    change, other = rollout(folders), rollout(folders)
    change.stage()
    with pytest.raises(ValueError, match="the order must be the one for this change"):
        Changes(folders[1]).commit(other.key.sign(11))
    (folders[1] / NEXT / "commit.json").write_bytes(encode_order(other.key.sign(11)))
    assert Changes(folders[1]).order is None
    with pytest.raises(ValueError, match="its signature is not that of the operator who staged the change"):
        current_epoch(folders[1], 20)
    with pytest.raises(ChangeError, match="it is not committed") as error:
        Network(folders[0].parent)
    assert error.value.run is None


def test_an_order_that_reaches_some_holds_and_is_told(folders, monkeypatch):
    change = rollout(folders)
    change.stage()
    (folders[1] / NEXT).rename(folders[1] / "gone")  # a mount that broke
    assert change.commit(11) == {1}
    change.take_back()  # too late
    assert [(folder / NEXT).exists() for folder in folders] == [True, False, True]
    with pytest.raises(ChangeError, match="committed from run 11 on, but the nodes .0, 2. have not changed") as error:
        change.wait_until_changed({0, 1, 2}, 0.0)
    assert error.value.run == 11
    assert not (folders[1] / NEXT).exists()


def test_an_order_that_reaches_nobody_is_taken_back(folders):
    change = rollout(folders)
    change.stage()
    for folder in folders:
        (folder / NEXT / "commit.json").mkdir()
    with pytest.raises(ChangeError, match="no node could be told; nothing was changed"):
        change.commit(11)
    change.take_back()
    assert staged_epochs(folders) == [None] * 3


@pytest.mark.parametrize("told", [0, 1])
def test_an_operator_who_interrupts_the_order_knows_whether_it_holds(folders, told, monkeypatch):
    change, calls = rollout(folders), []
    change.stage()

    def interrupted(self, order, original=Changes.commit):
        calls.append(self.folder)
        if len(calls) == told + 1:
            raise KeyboardInterrupt
        original(self, order)

    monkeypatch.setattr(Changes, "commit", interrupted)
    with pytest.raises(ChangeError if told else KeyboardInterrupt, match="holds from run 11 on" if told else None):
        change.commit(11)
    change.take_back()
    assert [(folder / NEXT).exists() for folder in folders] == [bool(told)] * 3
    assert sum(Changes(folder).order is not None for folder in folders) == 2 * told


def test_folders_of_several_epochs_are_no_network(folders, capsys):
    """A folder that was kept, or brought back, is not what its node is."""
    change = rollout(folders)
    change.stage()
    for folder in folders[:2]:
        Changes(folder).finish()
    change.take_back()
    old, new = (Deployment.load(folders[i]).links.epoch_name for i in (2, 0))
    assert main(["agents", "rekey", str(folders[0].parent)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert (
        f"folders of one epoch, those of the nodes as they are, got nodes [0, 1] in {new}, nodes [2] in {old}" in line
    )


def test_a_node_is_not_added_to_a_network_with_tls_without_certificates(tmp_path, monkeypatch, capsys):
    folders = make_network(tmp_path, [(0, 1)], 2)
    assert (folders[0] / "tls").is_dir()
    monkeypatch.setenv("PATH", str(tmp_path))
    words = ["agents", "add", str(folders[0].parent), "--listen", str(free_addresses(1)[0]), "--links", "0:0.5"]
    assert main(words) == 2
    assert "openssl, which makes the certificates for TLS, is not installed" in capsys.readouterr().err
    assert sorted(f.name for f in folders[0].parent.iterdir()) == ["node-0", "node-1"]
    assert not any(list(folder.glob(f"{NEXT}*")) for folder in folders)


def test_the_folder_of_a_new_node_is_there_when_the_change_is_committed(folders):
    """An agent that is started before would take part in what may be taken back."""
    network = Network(folders[0].parent)
    renewed = renew(network.deployments, rows=with_node(network.rows, 3, {0: 0.5}))
    change = Rollout(network, renewed, {**network.places, 3: free_addresses(1)[0]})
    change.stage()
    place = network.folder / "node-3"
    assert not place.exists()
    change.add_nodes(9)
    assert json.loads((place / "begin.json").read_text()) == {"run": 9}
    assert Changes(place).own_order == change.key.sign(9)
    change.take_back()
    assert not place.exists()


def test_answers_to_another_change_are_not_taken_for_this_one(folders):
    change = rollout(folders)
    change.stage()
    answer = {"digest": "", "origin": 0.0, "period": 1, "change": change.key.public.hex()}
    for folder in folders:
        (folder / NEXT / "prepared.json").write_text(json.dumps({**answer, "error": "too long", "change": "00"}))
    with pytest.raises(ChangeError, match=r"the nodes \[0, 1, 2\] did not answer"):
        change.wait_until_prepared({0, 1, 2}, 0.1)
    for folder in folders:
        (folder / NEXT / "prepared.json").write_text(json.dumps(answer))
    assert change.wait_until_prepared({0, 1, 2}, 0.1) == (0.0, 1.0)
    for wrong in ({"period": 2.0}, {"digest": "ab"}):  # of a node that is removed the digest is empty
        (folders[0] / NEXT / "prepared.json").write_text(json.dumps({**answer, "digest": "cd"}))
        (folders[1] / NEXT / "prepared.json").write_text(json.dumps(answer | wrong))
        with pytest.raises(ChangeError, match="nodes differ in their settings, slot, period, origin or dynamic"):
            change.wait_until_prepared({0, 1, 2}, 0.1)
    for wrong in ({"digest": 1}, {"origin": None}, {"period": "x"}, {"period": True}):
        (folders[1] / NEXT / "prepared.json").write_text(json.dumps(answer | wrong))
        with pytest.raises(ChangeError, match="not the answer of an agent; nothing was changed"):
            change.wait_until_prepared({0, 1, 2}, 0.1)


def test_systemd_leaves_a_removed_node_down():
    unit = (Path(__file__).parents[2] / "deploy" / "graphact-agent@.service").read_text().splitlines()
    assert {f"RestartPreventExitStatus={REMOVED_CODE}", f"SuccessExitStatus={REMOVED_CODE}"} <= {*unit}
