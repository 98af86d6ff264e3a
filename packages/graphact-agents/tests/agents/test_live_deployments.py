"""Running agents through deployments: captured and lost nodes, damaged logs, deliveries that were cut short."""

import random
import shutil
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace

import pytest

from agents.live import Captured, Daemon, make_network
from agents.real_rollouts import deploy_and_deliver, roll_out
from agents.test_live_zenoh import session
from graphact_agents import Deployment, FileLog, read_log
from graphact_agents.addresses import Address, Addresses
from graphact_agents.command import main
from graphact_agents.log import Began

TRIANGLE = [(0, 1), (1, 2), (0, 2)]
OPTIONS = ["--period", "1.5", "--slot", "0.5"]


@pytest.fixture
def folders(tmp_path):
    return make_network(tmp_path, TRIANGLE, 3, transport="udp")


def deploy_again(folders, without=(), keep_keys=False):
    """Deploy from the operator's folder, perhaps without some nodes, and deliver; what the nodes wrote stays."""
    out = folders[0].parent
    network = out.with_name(f"{out.name}.network")
    head, *tables = (network / "network.toml").read_text().split("[nodes.")
    kept = [f"[nodes.{table}" for table in tables if int(table.partition("]")[0]) not in without]
    (network / "network.toml").write_text(head + "".join(kept))
    return deploy_and_deliver(network, out, keep_keys=keep_keys).folders


@pytest.mark.slow
@pytest.mark.parametrize("keep_keys", [False, True])
def test_old_keys_open_nothing_after_the_next_deployment(folders, tmp_path, keep_keys):
    """F3: node 2 was stolen, and its folder here is gone; the others are complete without it, whatever it says."""
    stolen = shutil.copytree(folders[2], tmp_path / "stolen")
    shutil.rmtree(folders[2])
    left = deploy_again(folders, without=[2], keep_keys=keep_keys)
    assert len(left) == 2
    with (
        Captured(stolen, slot=0.5, period=1.5) as thief,
        Daemon(left[0], *OPTIONS) as first,
        Daemon(left[1], *OPTIONS) as second,
    ):
        run = first.next_event("result", where=lambda event: event["complete"])["run"]
        for to in (0, 1):
            for ahead in (1, 2):
                thief.send_value(to, run + ahead, value=(1e6,))
        for daemon in (first, second):
            found = daemon.next_event("result", where=lambda event: event["run"] >= run + 3)
            assert found["complete"]
            daemon.process.terminate()
            counters = daemon.next_event("end")["counters"]
            assert counters["strangers"] + counters["foreign"] == 2
            assert counters["forged"] == counters["misfit"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("names_it", [True, False])
def test_a_log_that_claims_high_numbers_has_no_say_in_the_next_deployment(folders, names_it):
    """F5: whether it names the deployment before or none; all begin at 0 and are complete."""
    log = FileLog(folders[0] / "log.jsonl", Deployment.load(folders[0]).links.deployment if names_it else "")
    log.append(Began(2**48 - 2, 1))
    log.close()
    deploy_again(folders)
    with ExitStack() as opened:
        daemons = [opened.enter_context(Daemon(folder, "--period", "0", "--slot", "0.5")) for folder in folders]
        for daemon in daemons:
            assert daemon.next_event("result", where=lambda event: event["complete"])["run"] < 1000


@pytest.mark.slow
def test_an_old_certificate_is_not_let_in(tmp_path):
    """F7: each deployment has an authority of its own, whose key nobody has."""
    pytest.importorskip("zenoh")
    folders = make_network(tmp_path, [(0, 1)], 2, transport="zenoh")
    shutil.copytree(folders[1] / "tls", tmp_path / "old")
    deploy_again(folders)
    with Daemon(folders[0], *OPTIONS) as first, Daemon(folders[1], *OPTIONS):
        first.next_event("result", where=lambda event: event["complete"])
        where = Deployment.load(folders[0]).reached.listen
        with session(f"tls/{where}", tmp_path / "old") as thief:
            assert first.next_event("result", where=lambda event: event["complete"])
            assert len(thief.info.peers_zid()) == 0


@pytest.mark.slow
def test_one_folder_is_for_one_agent(folders):
    """F8: a second one, at another address, uses no run number at all."""
    with Daemon(folders[0], *OPTIONS) as first:
        first.next_event("ready")
        node = Deployment.load(folders[0])
        elsewhere = Addresses(Address("127.0.0.2", 7500), node.reached.neighbors)
        replace(node, addresses=elsewhere).save(folders[0])
        command = [sys.executable, "-m", "graphact_agents.command", "run", str(folders[0]), *OPTIONS]
        second = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        assert second.returncode == 2
        assert second.stderr.endswith("log.jsonl is in use by another agent; one folder is for one agent\n")
        first.next_event("result")
    runs = [record.run for record in read_log(folders[0] / "log.jsonl") if isinstance(record, Began)]
    assert len(set(runs)) == len(runs)


@pytest.mark.slow
def test_a_flipped_bit_in_the_log_keeps_no_agent_from_starting(folders):
    """F9: wherever it is; the agent warns, and uses no number twice."""
    log, rng, used = folders[0] / "log.jsonl", random.Random(0), []
    for _ in range(4):
        with Daemon(folders[0], "--period", "0", "--slot", "0.01", "--runs", "3") as daemon:
            used += [event["run"] for event in daemon.results(3)]
            assert daemon.process.wait(60) == 0
        content = bytearray(log.read_bytes())
        content[rng.randrange(len(content) - 1)] ^= 1 << rng.randrange(8)
        log.write_bytes(bytes(content))
    assert len(set(used)) == len(used)


def test_a_delivery_that_was_cut_short_is_refused(folders, tmp_path, capsys):
    """Files of two deployments in one folder: none of them alone looks wrong."""
    old = shutil.copytree(folders[0], tmp_path / "old")
    deploy_again(folders)
    for name in ("keys.json", "node.json"):
        mixed = shutil.copytree(folders[0], tmp_path / f"with the old {name}")
        shutil.copy(old / name, mixed)
        assert main(["run", str(mixed)]) == 2
        assert "damaged, or not of deployment" in capsys.readouterr().err
    (folders[0] / "keys.json").unlink()
    assert main(["run", str(folders[0])]) == 2
    assert "keys.json is missing; graphact-agents deploy writes it" in capsys.readouterr().err


@pytest.mark.slow
def test_processes_take_another_model_a_node_more_and_a_node_less(tmp_path):
    network = roll_out(tmp_path, 4, 0.6)
    count, complete = network.check()
    assert count > complete > 3 * 4
    assert len(network.deployments) == 4
    assert [name for name, *_ in network.seconds_of_changes()] == ["another model", "a node more", "a node less"]
