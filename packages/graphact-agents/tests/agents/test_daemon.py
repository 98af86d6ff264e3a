"""graphact-agents run, as a user meets it."""

import json
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

from agents.networks import GRAPHS, undirected
from graphact import nn
from graphact_agents import Deployment
from graphact_agents.addresses import Address, Addresses
from graphact_agents.command import main
from local_agents import LocalAgents, free_addresses
from support.on_agents import split


def gcnn():
    return nn.GCNN([2, 4, 3], order=[2, 1], activation="max-ga", hops=2, out_features=2).double()


def split_here(tmp_path, graph, model, **options):
    return split(model, graph, tmp_path / "nodes", addresses=free_addresses(graph.num_nodes), **options)


def start(folder, *options, **pipes):
    command = [sys.executable, "-m", "graphact_agents.command", "run", str(folder), *options]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **pipes)


def test_a_line_of_three_on_zenoh(tmp_path):
    """Signals on standard input, results on standard output; the ends never hear each other."""
    graph, model = undirected([(0, 1), (1, 2)], 3), gcnn()
    x = np.random.default_rng(0).normal(size=(20, 4, 3, 2))
    # deadlines are tested elsewhere: here a busy machine must not miss one
    with LocalAgents(split_here(tmp_path, graph, model), ["--period", "0", "--slot", "5"]) as processes:
        processes.wait_until_ready()
        processes.feed(x)
        events = processes.wait()
    expected = model(torch.from_numpy(x), graph).detach().numpy()
    results = [event for event in events if event["event"] == "result"]
    assert len(results) == 60
    for event in results:
        assert event["complete"]
        np.testing.assert_allclose(event["output"], expected[event["run"], :, event["node"]], rtol=1e-12, atol=1e-12)
    for end in (event for event in events if event["event"] == "end"):
        counters = end["counters"]
        assert end["reason"] == "the stream has ended"
        assert counters["received"] == 20 * 9 * (2 if end["node"] == 1 else 1)
        assert counters["foreign"] == counters["forged"] == counters["malformed"] == counters["links_missed"] == 0
        assert 0 < end["memory"]["peak"] < 100


def test_a_lonely_node_takes_signals_from_a_sensor_until_it_is_told_to_stop(tmp_path):
    (folder,) = split_here(tmp_path, GRAPHS["one node"](), nn.GCNN([1, 1], order=1, activation="relu").double())
    options = ["--sensor", f"{sys.executable} -c print(7.5)", "--period", "1.5", "--lead", "1.4"]
    process = start(folder, "--transport", "udp", *options)
    assert json.loads(process.stdout.readline())["event"] == "ready"
    first = json.loads(process.stdout.readline())
    while first["event"] == "skipped":  # it came in the middle of a period
        assert "sensor command" in first["reason"]
        first = json.loads(process.stdout.readline())
    assert first["run"] == int(time.time() / 1.5)
    assert len(first["output"]) == 1
    process.send_signal(signal.SIGTERM)
    rest = process.communicate(timeout=10)[0].splitlines()
    assert process.returncode == 0
    assert json.loads(rest[-1])["event"] == "end"
    assert json.loads(rest[-1])["reason"] == "stopped"
    assert f'"run": {first["run"]}, "program": 1' in (folder / "log.jsonl").read_text()


def test_bad_lines_are_skipped_and_a_restarted_node_goes_on(tmp_path):
    (folder,) = split_here(tmp_path, GRAPHS["one node"](), nn.GCNN([2, 1], order=1, activation="relu").double())
    reasons, runs = [], []
    for _ in range(2):
        process = start(folder, "--transport", "udp", "--period", "0.3", "--slot", "0.1")
        printed = process.communicate("[1, 2]\nwarm\n[1, 2, 3]\n[1, NaN]\n[[3, 4]]\n", timeout=20)[0]
        events = [json.loads(line) for line in printed.splitlines()]
        reasons += [event["reason"] for event in events if event["event"] == "skipped"]
        runs += [event["run"] for event in events if event["event"] == "result"]
    assert len(runs) == 4
    assert runs == sorted(set(runs))
    told = [reason for reason in reasons if reason != "no line has come"]
    assert told[:3] == told[3:]
    assert told[0] == "a line must hold a JSON array of numbers, got 'warm'"
    assert told[1] == "a line: a signal must be numbers of shape (..., 2), got int64 of shape (3,)"
    assert told[2] == "a line: a signal must be finite, got nan"


def test_files_of_json_lines_repeat_if_asked(tmp_path):
    (folder,) = split_here(tmp_path, GRAPHS["one node"](), nn.GCNN([1, 1], order=1, activation="relu").double())
    (tmp_path / "x.jsonl").write_text("1.5\n[2.5]\n")
    file = ["--transport", "udp", "--signals", str(tmp_path / "x.jsonl"), "--period", "0"]
    printed = start(folder, *file, "--repeat", "--runs", "5").communicate(timeout=20)[0].splitlines()
    outputs = [json.loads(line)["output"] for line in printed[1:-1]]
    assert len(outputs) == 5
    assert outputs[:2] == outputs[2:4]
    assert json.loads(printed[-1])["reason"] == "5 runs are done"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--period", "0.5"], "period must be at least 1.62 s, as long as 9 rounds of 0.18 s may take, got 0.5"),
        (["--signals", "/nowhere.npy"], "/nowhere.npy"),
        (["--signals", "FLAT"], "must hold an array (runs, ..., F), got the shape (3,)"),
        (["--signals", "WIDE"], "a signal must be numbers of shape (..., 2), got float64 of shape (5,)"),
        (["--sensor", ""], "sensor must be printable text, got ''"),
        (["--tls"], "TLS needs the transport zenoh, got udp"),
        (["--origin", "nan"], "origin must lie between -1e+12 and 1e+12 seconds, got nan"),
        (["--origin=-1e300"], "origin must lie between -1e+12 and 1e+12 seconds, got -1e+300"),
        (["--sensor", "true", "--lead", "nan"], "lead must lie between 0 and 1e+09 seconds, got nan"),
        (["--runs", "0"], "--runs must be at least 1, got 0"),
    ],
)
def test_a_mistake_is_one_line(options, message, tmp_path, capsys):
    folders = split_here(tmp_path, GRAPHS["line"](), gcnn(), tls=False)
    np.save(tmp_path / "flat.npy", np.ones(3))
    np.save(tmp_path / "wide.npy", np.ones((3, 5)))
    names = {"FLAT": str(tmp_path / "flat.npy"), "WIDE": str(tmp_path / "wide.npy")}
    options = [names.get(word, word) for word in options]
    assert main(["run", str(folders[1]), "--transport", "udp", *options]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.strip().splitlines()) == 1


def test_one_way_links_need_a_clock(tmp_path, capsys):
    folders = split_here(tmp_path, GRAPHS["directed"](), gcnn())
    assert main(["run", str(folders[0]), "--period", "0"]) == 2
    assert "a period of 0 needs links in both directions" in capsys.readouterr().err


@pytest.mark.parametrize(("period", "timely"), [("60", True), ("0", False)])
def test_runs_by_a_clock_keep_the_processor_to_their_deadlines(period, timely, tmp_path, monkeypatch):
    folder = split_here(tmp_path, GRAPHS["line"](), gcnn())[0]
    opened = {}

    def open_transport(*_, **options):
        opened.update(options)
        raise OSError("no network today")

    monkeypatch.setattr("graphact_agents.command_run.open_transport", open_transport)
    assert main(["run", str(folder), "--transport", "udp", "--period", period]) == 2
    assert opened["timely"] == timely


@pytest.mark.parametrize("transport", ["udp", "zenoh"])
def test_a_port_in_use(transport, tmp_path, capsys):
    folders = split_here(tmp_path, GRAPHS["line"](), gcnn())
    listen = Deployment.load(folders[0]).reached.listen
    with socket.socket(type=socket.SOCK_DGRAM) as taken, socket.socket() as stream:
        taken.bind((listen.host, listen.port))
        stream.bind((listen.host, listen.port))
        stream.listen()
        assert main(["run", str(folders[0]), "--transport", transport]) == 2
    assert f"cannot listen on {listen}" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["host", "host:", ":1", "host:x", "fe80::7:75", "host:70000", "", None, 5])
def test_what_is_no_address(text):
    with pytest.raises(ValueError, match="an address must be host:port"):
        Address.parse(text)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"listen": "a:1", "neighbors": {"1": "b:1"}}, r"addresses must be those of \(1, 3\), got \(1,\)"),
        ({"listen": "a", "neighbors": {"1": "b:1", "3": "c:1"}}, "an address must be host:port"),
    ],
)
def test_damaged_addresses(content, message):
    with pytest.raises(ValueError, match=message):
        Addresses.from_json(content, (1, 3))
