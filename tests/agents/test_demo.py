"""graphact agents demo: real processes, a view, a figure."""

import io

import numpy as np
import pytest

from graphact.cli import main
from graphact.commands import agents_demo
from graphact.commands.agents_demo import ENTRIES, Lines, Screen, SensorNetwork, open_view


@pytest.fixture
def network(monkeypatch):
    monkeypatch.setattr(agents_demo, "STEPS", 5)
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
    monkeypatch.setattr(agents_demo, "STEPS", 60)
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


def test_without_a_terminal_there_are_lines(network, capsys):
    with open_view(network) as view:
        assert isinstance(view, Lines)
        for run in (3, 4):
            answer(network, run)
            view.show(network, run)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["run", "answers", "links", "missed", "RMSE", "before", "after"]
    assert lines[1].split()[:3] == ["3", "9/9", "0"]


@pytest.mark.parametrize(("option", "message"), [("--sensors", "at least 8"), ("--runs", "at least 12")])
def test_too_small(option, message, capsys):
    assert main(["agents", "demo", option, "3"]) == 2
    assert f"{option} must be {message}, got 3" in capsys.readouterr().err
