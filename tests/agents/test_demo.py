"""graphact agents demo: real processes, a view, a figure."""

import io
import signal
import socket
import subprocess
import sys

import numpy as np
import pytest

from graphact.agents.addresses import ephemeral_ports, free_addresses
from graphact.cli import main
from graphact.commands import agents_demo, agents_demo_sensors
from graphact.commands.agents_demo_sensors import ENTRIES, SensorNetwork
from graphact.commands.agents_demo_view import Lines, Screen, open_view


@pytest.fixture
def network(monkeypatch):
    monkeypatch.setattr(agents_demo_sensors, "STEPS", 5)
    network = SensorNetwork.make(9, 12, seed=1)
    network.first = 3
    return network


def answer(network, run, *, lost=()):
    """All nodes but those that are down answer as the centralised model does."""
    up = [i for i in range(9) if i not in network.down]
    missed = [list(lost)]
    common = {"event": "result", "run": run, "missed": missed, "complete": not lost, "seconds": 0.01}
    network.collect([{"node": i, "output": [network.central[run % ENTRIES, i]], **common} for i in up])


@pytest.mark.slow
def test_the_demo_on_real_processes(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(agents_demo_sensors, "STEPS", 60)
    assert main(["agents", "demo", "--sensors", "8", "--runs", "12", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    for sentence in ("is killed (kill -9)", "is started again", "stands still (SIGSTOP)", "goes on (SIGCONT)"):
        assert sentence in printed
    assert "12 inferences" in printed
    assert float(printed.split("by at most ")[1].split()[0]) < 1e-12
    assert (tmp_path / "agents.png").read_bytes()[:4] == b"\x89PNG"


def test_the_results_of_agents_are_counted(network):
    answer(network, 3)
    network.note(4, "kill")
    answer(network, 4, lost=[network.killed])
    assert (network.answers(3), network.links_missed(3)) == (9, 0)
    assert (network.answers(4), network.links_missed(4)) == (8, 8)
    before, after = network.errors(3)
    assert before == pytest.approx(np.sqrt(np.square(network.measured[3] - network.truth[3]).mean()))
    assert after == pytest.approx(np.sqrt(np.square(network.central[3] - network.truth[3]).mean()))
    assert np.isnan(network.errors(5)).all()
    assert "12 inferences, 1 of them with every sensor and every link" in network.summary()
    assert "by at most 0\n" in network.summary()


def test_the_view_in_a_terminal(network):
    from rich.console import Console

    console = Console(file=io.StringIO(), width=150, force_terminal=True, record=True)

    class Live:
        def __init__(self):
            self.console = console

        def update(self, shown, refresh):
            console.print(shown)

    answer(network, 3)
    network.note(4, "stop")
    answer(network, 4, lost=[network.stopped])
    Screen(Live(), 9).show(network, 4)
    text = console.export_text()
    assert f"sensor {network.stopped} stands still (SIGSTOP)" in text
    assert "9/9" in text
    assert "8/9" in text
    assert "><" in text
    assert all(f"{i:2d}" in text for i in range(9) if i != network.stopped)


@pytest.mark.parametrize(("width", "height"), [(80, 24), (60, 12), (120, 18), (200, 60)])
def test_the_newest_runs_are_seen_in_a_terminal_of_any_size(network, width, height):
    from rich.console import Console
    from rich.live import Live

    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=True)
    with Live(console=console, auto_refresh=False, screen=False) as live:
        for run in range(3, 14):
            answer(network, run)
            if run == 13:
                network.note(13, "kill")
            Screen(live, 9).show(network, run)
        Screen(live, 9).show(network, 14)  # a run in progress
        shown = console.render_lines(live.get_renderable(), pad=False)
    lines = ["".join(segment.text for segment in line) for line in shown]
    assert len(lines) < height
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    for run in (11, 12, 13, 14):
        assert f"{run:5d}  " in text
    assert f"sensor {network.killed} is killed (kill -9)" in text
    assert "nan" not in text
    assert (">< " in text or "><" in text) == (width >= 120 and height > 19)


@pytest.mark.slow
def test_the_demo_takes_other_ports_when_one_is_taken(monkeypatch, tmp_path, capfd):
    """Of the first addresses one is in use when the agents start."""
    monkeypatch.setattr(agents_demo_sensors, "STEPS", 5)
    asked = []
    with socket.socket(type=socket.SOCK_DGRAM) as taken:

        def addresses(count):
            asked.append(free_addresses(count))
            if len(asked) == 1:
                taken.bind((asked[0][3].host, asked[0][3].port))
            return asked[-1]

        monkeypatch.setattr(agents_demo, "free_addresses", addresses)
        assert main(["agents", "demo", "--sensors", "8", "--runs", "12", "--out", str(tmp_path)]) == 0
    assert len(asked) == 2
    assert "once more" in capfd.readouterr().out


def test_ports_are_none_that_the_system_hands_out():
    first, last = ephemeral_ports()
    addresses = free_addresses(40)
    assert len({address.port for address in addresses}) == 40
    assert all(not first <= address.port <= last for address in addresses)


@pytest.mark.slow
def test_control_c_ends_the_demo_with_its_own_words(tmp_path):
    words = [sys.executable, "-m", "graphact.cli", "agents", "demo", "--sensors", "8", "--out", str(tmp_path)]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # also where the tests run in the background
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    signal.signal(signal.SIGINT, before)
    while "answers" not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    error = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert error.strip() == "graphact: stopped"


def test_without_a_terminal_there_are_lines(network, capsys):
    with open_view(network) as view:
        assert isinstance(view, Lines)
        for run in (3, 4):
            answer(network, run)
            view.show(network, run)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["run", "answers", "links", "missed", "RMSE", "before", "after"]
    assert [line.split()[:3] for line in lines[1:]] == [["3", "9/9", "0"], ["4", "9/9", "0"]]


@pytest.mark.parametrize(("option", "message"), [("--sensors", "at least 8"), ("--runs", "at least 12")])
def test_too_small(option, message, capsys):
    assert main(["agents", "demo", option, "3"]) == 2
    assert f"{option} must be {message}, got 3" in capsys.readouterr().err
