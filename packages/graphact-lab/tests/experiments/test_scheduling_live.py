"""examples/scheduling: a process for each link, and what they decide beside the same network on one computer."""

import sys

import pytest
import torch

import graphact
from support.places import ROOT

sys.path.insert(0, str(ROOT / "examples" / "scheduling"))
import live


@pytest.mark.slow
def test_links_decide_as_one_computer_would(tmp_path):
    options = live.parse(["--links", "6", "--slots", "3", "--period", "4", "--loss", "0", "--load", "2"])
    model = graphact.load(live.KEYS).double()
    conflicts = live.draw_geometric(1, 6, torch.Generator().manual_seed(3))
    shown = []
    found = live.run(model, conflicts, options, tmp_path, lambda *line: shown.append(line))
    assert (found["ended"], found["lost"], found["collided"]) == (6, 0, 0)
    assert len(shown) == 3
    assert found["compared"] == found["central"] > 0
    assert any("#" in drawn for _, drawn, _, _ in shown)


def test_a_picture_has_a_character_for_each_link():
    queue = torch.tensor([3, 0, 2, 1]).numpy()
    assert live.picture([True, False, True, False], [False, False, True, False], queue) == "# x."


@pytest.mark.parametrize("words", [["--links", "2"], ["--loss", "1"], ["--slots", "0"]])
def test_wrong_arguments_are_one_line(words, capsys):
    with pytest.raises(SystemExit, match="2"):
        live.parse(words)
    assert "--links must be at least 4" in capsys.readouterr().err.splitlines()[-1]
