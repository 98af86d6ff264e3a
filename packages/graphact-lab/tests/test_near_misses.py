"""Near misses on the command line are answered with the name that was meant."""

import pytest

from graphact_lab.cli import main


@pytest.mark.parametrize("words", [["source-localization", "nodes=200"], ["consensus", "nodes=200"]])
def test_the_number_of_nodes_on_the_command_line(words, tmp_path, capsys):
    experiment, change = words
    out = ["--rows-only", "--device", "cpu", "--out", str(tmp_path / "run")]
    assert main(["run", experiment, "--preset", "smoke", "--set", change, *out]) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("graphact-lab:")]
    assert "nodes" in line
    assert "community_size" in line


@pytest.mark.parametrize(
    ("experiment", "name", "meant"),
    [("consensus", "lr", "learning_rate"), ("flocking", "nodes", "agents"), ("consensus", "epoch", "epochs")],
)
def test_a_near_miss_of_a_setting(experiment, name, meant, capsys):
    assert main(["run", experiment, "--preset", "smoke", "--set", f"{name}=3"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"got '{name}'; did you mean '{meant}'?" in line
