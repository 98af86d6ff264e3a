"""Running agents as their operators meet them: strangers, long logs, damaged files, unread pipes."""

import json
import os
import signal
import socket
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from agents.live import PATIENCE, Captured, Daemon, make_network
from graphact_agents import Deployment
from graphact_agents.addresses import Address, Addresses
from graphact_agents.command import main
from graphact_agents.log import Began, FileLog, seal
from graphact_agents.messages import Kind
from graphact_agents.status_server import fetch_status

OPTIONS = ["--transport", "udp", "--period", "2", "--slot", "0.6"]


@pytest.fixture
def folders(tmp_path):
    return make_network(tmp_path, [(0, 1)], 2)


def test_datagrams_of_strangers_are_counted(folders):
    listen = Deployment.load(folders[0]).reached.listen
    with Daemon(folders[0], *OPTIONS) as daemon, socket.socket(type=socket.SOCK_DGRAM) as stranger:
        daemon.next_event("ready")
        for number in range(50):
            stranger.sendto(b"stranger %d" % number, (listen.host, listen.port))
        daemon.next_event("result")
        daemon.process.send_signal(signal.SIGTERM)
        counters = daemon.next_event("end")["counters"]
    assert counters["strangers"] == 50
    assert counters["malformed"] == 0


def test_greetings_are_answered_at_a_limited_rate(folders):
    """A recording of one, sent again and again, is answered at most every 20 ms."""
    with Captured(folders[1], slot=0.6, period=2.0) as captured, Daemon(folders[0], *OPTIONS) as daemon:
        daemon.next_event("ready")
        begun = time.monotonic()
        for _ in range(300):
            captured.send_value(0, 0, kind=Kind.HELLO)
        daemon.next_event("result")
        captured.socket.setblocking(False)
        answers = 0
        while True:
            try:
                answers += captured.socket.recv(65_536)[3] == Kind.WELCOME
            except BlockingIOError:
                break
        assert 1 <= answers <= 1 + (time.monotonic() - begun) / 0.02
        daemon.process.send_signal(signal.SIGTERM)
        counters = daemon.next_event("end")["counters"]
        assert answers + counters["unanswered"] == 300


def link_local():
    """An address of this machine that is valid on one of its links alone, with the name of the interface."""
    table = Path("/proc/net/if_inet6")
    for line in table.read_text().splitlines() if table.exists() else []:
        digits, *_, name = line.split()
        if digits.startswith("fe80"):
            return ":".join(digits[i : i + 4] for i in range(0, 32, 4)) + f"%{name}"
    return None


@pytest.mark.skipif(link_local() is None, reason="no interface has a link-local IPv6 address")
def test_agents_on_link_local_addresses(tmp_path):
    places = []
    for _ in range(2):
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            probe.bind(("::", 0))
            places.append(Address(link_local(), probe.getsockname()[1]))
    folders = make_network(tmp_path, [(0, 1)], 2)
    for i, folder in enumerate(folders):
        replace(Deployment.load(folder), addresses=Addresses(places[i], {1 - i: places[1 - i]})).save(folder)
    with Daemon(folders[0], *OPTIONS) as first, Daemon(folders[1], *OPTIONS) as second:
        for daemon in (first, second):
            daemon.next_event("result", where=lambda event: event["complete"])


def test_a_start_reads_the_end_of_a_long_log_alone(folders):
    """More than memory holds, were it read: 300 GB, of which the last line is written."""
    log = folders[0] / "log.jsonl"
    with log.open("wb") as stream:
        stream.seek(300 * 2**30)
        stream.write(b"\n" + seal(b'{"run": 7, "program": 1, "spans": [[7, 7]]') + b'{"run": 7, "rou')
    with Daemon(folders[0], *OPTIONS) as daemon:
        assert daemon.next_event("ready")["last_run"] == 7
        daemon.next_event("result")


def test_used_numbers_survive_where_only_the_end_is_read(tmp_path, monkeypatch):
    """A span in the future is told by every later record, so that the end of the file is enough."""
    monkeypatch.setattr("graphact_agents.log.TAIL_BYTES", 200)
    log = FileLog(tmp_path / "log.jsonl")
    for run in [*range(100, 110), *range(5000, 5003), *range(110, 140)]:
        log.append(Began(run, 1))
    log.close()
    again = FileLog(tmp_path / "log.jsonl")
    assert again.last_run == 139
    assert again.used.spans == log.used.spans == [(100, 139), (5000, 5002)]
    assert [again.used.next_free(run) for run in (99, 120, 140, 4999, 5000)] == [99, 140, 140, 4999, 5003]


def test_an_agent_whose_results_nobody_reads_ends_with_an_error(folders):
    with Daemon(folders[0], *OPTIONS) as daemon:
        daemon.next_event("result")
        daemon._selector.unregister(daemon.process.stdout)
        daemon.process.stdout.close()
        assert daemon.process.wait(PATIENCE) == 2
        error = daemon.process.stderr.read().decode()
        assert error == "graphact-agents: the reader of the results on standard output has gone\n"
        daemon.process.stdout = None


def test_a_reader_that_stands_still_stops_no_run(folders):
    """Events on a pipe that is not read for a while are lost, counted and told; SIGTERM ends the agent."""
    np.save(folders[0] / "x.npy", np.random.default_rng(0).normal(size=(2, 8000, 1)))  # 160 kB an event
    options = ["--transport", "udp", "--period", "0.3", "--slot", "0.1", "--status", "0"]
    with Daemon(folders[0], *options) as daemon:
        address, until = Address.parse(daemon.next_event("ready")["status"]), time.monotonic() + PATIENCE
        while not (lost := fetch_status(address)["counters"]["events_lost"]):
            assert time.monotonic() < until
            time.sleep(0.1)
        assert any("standard output is not read, or its disk" in line for line in fetch_status(address)["trouble"])
        told = daemon.next_event("lost")
        assert told["count"] >= lost
        while "is not read" in str(fetch_status(address)["trouble"]):  # until it is read again, whatever was lost since
            assert time.monotonic() < until
            daemon.next_event("result")
        while not fetch_status(address)["counters"]["events_lost"] > told["count"]:
            assert time.monotonic() < until
            time.sleep(0.1)
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.process.wait(PATIENCE) == 0
        assert "standard output is not read; the last events are lost" in daemon.process.stderr.read().decode()


@pytest.mark.parametrize("mode", [0o666, 0o644, 0o640, 0o604])
@pytest.mark.parametrize("name", ["keys.json", "tls/key.pem"])
def test_keys_that_others_can_use_are_refused(folders, name, mode, capsys):
    (folders[0] / name).chmod(mode)
    assert main(["run", str(folders[0])]) == 2
    error = capsys.readouterr().err
    reason = f"{folders[0] / name} must be for its owner alone, as after chmod 600, got the mode {mode:o}"
    assert error == f"graphact-agents: {reason}\n"


@pytest.mark.parametrize("command", ["run", "learn"])
def test_folders_that_others_can_change_are_refused(folders, command, capsys):
    """Others who may write there could replace the model or the keys."""
    words, folder = [command, str(folders[0]), "--transport", "udp"], folders[0]
    for name, mode, right in [
        (".", 0o777, 0o755),
        (".", 0o775, 0o755),
        ("keys.json", 0o660, 0o600),
        ("model.safetensors", 0o666, 0o644),
        ("node.json", 0o664, 0o644),
        ("learning.json", 0o666, 0o600),
    ]:
        (folder / name).exists() or (folder / name).write_text("{}")
        (folder / name).chmod(mode)
        assert main(words) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert f"{folder / name} must be " in line
        assert f"got the mode {mode:o}" in line
        (folder / name).chmod(right)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="files are given away by root alone")
@pytest.mark.parametrize("name", [".", "keys.json", "model.safetensors", "node.json", "tls/key.pem"])
def test_folders_of_another_user_are_refused(folders, name, capsys):
    """Whoever owns a file may change it: the sensor's command would run as the user of the agent."""
    os.chown(folders[0] / name, 12_345, -1)
    assert main(["run", str(folders[0]), "--transport", "udp"]) == 2
    assert f"{folders[0] / name} must belong to the user of this process" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("node.json", {"node": float("inf")}),
        ("node.json", {"deployment": None}),
        ("node.json", {"diagonal": float("nan")}),
        ("node.json", {"weights": [[1.0]]}),
        ("keys.json", {"1": "zz"}),
        ("keys.json", {"1": None}),
        ("node.json", {"addresses": {"listen": "\ud800:1", "neighbors": {"1": "b:1"}}}),
        ("node.json", {"addresses": {"listen": "x" * 300 + ":1", "neighbors": {"1": "b:1"}}}),
        ("node.json", {"addresses": {"listen": "a:1", "neighbors": {"1": 7}}}),
    ],
)
def test_a_damaged_file_is_told_in_one_line(folders, name, changes, capsys):
    path = folders[0] / name
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    assert main(["run", str(folders[0]), *OPTIONS]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_logs_and_certificates_that_are_damaged(folders, capsys):
    (folders[0] / "log.jsonl").write_bytes(os.urandom(3) + b"\n")
    assert main(["run", str(folders[0]), *OPTIONS]) == 2
    assert "log.jsonl: not a record of a log" in capsys.readouterr().err
    (folders[0] / "log.jsonl").unlink()
    (folders[0] / "tls" / "cert.pem").write_bytes(b"nothing")
    assert main(["run", str(folders[0]), "--transport", "zenoh"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
