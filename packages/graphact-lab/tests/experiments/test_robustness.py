"""benchmarks/robustness.py: its attack against a case with a known optimum, its statistics, and its quick form."""

import json
import math
import os
import subprocess
import sys

import pytest
import torch

from support.places import ROOT

BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture
def benchmarks(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def test_attack_finds_the_optimum_of_a_linear_classifier(benchmarks):
    """There the worst signal of a box is a corner, known from the signs of the weights."""
    from robustness_tasks import ascend, cross_entropy, margin_of

    torch.manual_seed(0)
    weight, x = torch.randn(2, 6, dtype=torch.float64), torch.randn(9, 6, 1, dtype=torch.float64)
    targets, radius = torch.randint(2, (9,)), 0.3
    before = margin_of(x.squeeze(-1) @ weight.T, targets)
    expected = before + radius * (weight[0] - weight[1]).abs().sum()
    for goal in (margin_of, cross_entropy):
        seen = []
        take = lambda *step, seen=seen: seen.append(step)  # noqa: E731
        ascend(lambda signal: signal.squeeze(-1) @ weight.T, x, targets, radius, goal, x, 6, take)
        margins = [margin_of(outputs, targets) for outputs, _ in seen]
        sizes = [(other - x).abs().max() for _, other in seen]
        torch.testing.assert_close(torch.stack(margins).amax(0), expected)
        torch.testing.assert_close(margins[0], before)
        assert max(sizes) <= radius * (1 + 1e-12)


def test_dense_networks_are_gcnns(benchmarks):
    from robustness_tasks import DenseNetwork

    from graphact.nn import GCNN
    from graphact_lab.tasks import source_localization

    task = source_localization(graph=1, node=2)
    model = GCNN([1, 3, 2], order=3, activation=torch.nn.Tanh(), out_features=4, bias=True)
    with torch.no_grad():
        expected = task.read(model(task.inputs[:50], task.graph))
        found = task.read(DenseNetwork(model, torch.nn.Tanh(), task)(task.inputs[:50], task.graph))
    torch.testing.assert_close(found, expected)


def run(*arguments):
    command = [sys.executable, str(BENCHMARKS / "robustness.py"), "--quick", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def run_here(benchmarks, monkeypatch, capsys):
    """The same in this process, which has imported everything."""
    import robustness

    monkeypatch.setattr(robustness, "keep_freed_memory", lambda: None)  # which lasts as long as a process

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["robustness.py", "--quick", *arguments])
        capsys.readouterr()
        robustness.main()
        return capsys.readouterr().out

    return call


@pytest.mark.slow
@pytest.mark.parametrize("task", ["source-localization", "cora"])
def test_quick_form(task, tmp_path, request, run_here):
    if task == "cora":
        request.getfixturevalue("real_data")
    printed = run("--tasks", task, "--out", str(tmp_path))
    assert f"[11/11] {task}" in printed
    lines = (tmp_path / "rows.jsonl").read_text()
    rows = [json.loads(line) for line in lines.splitlines()]
    cells = {(row["activation"], row["limit"]) for row in rows}
    limits = (None, 100.0, 1000.0, 10000.0, math.inf)
    assert cells == {("square", None)} | {(name, limit) for name in ("relu", "max-ga") for limit in limits}
    assert [row["unit"] for row in rows] == [0, 1] * len(cells)
    for row in rows:
        assert row["limit"] is None or row["constant"] <= row["limit"]
        assert all(attack <= row["accuracy"] for attack in row["attack"]), "the unperturbed signal is tried, too"
        if row["activation"] == "square":
            assert row["constant"] is None
        else:
            assert all(sure <= kept for sure, kept in zip(row["certified"], row["attack"], strict=True))
    assert any(row["attack"][-1] < row["accuracy"] for row in rows)
    for name in ("robustness.png", "robustness-limits.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    again = run_here("--tasks", task, "--out", str(tmp_path))
    assert "[1/" not in again, "nothing is measured twice"
    assert (tmp_path / "rows.jsonl").read_text() == lines
    assert run_here("--figures", "--out", str(tmp_path)) == again
