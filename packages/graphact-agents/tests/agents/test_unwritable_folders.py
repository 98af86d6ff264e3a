"""A folder that cannot be written to is named before nodes are written."""

import pytest

import graphact
from graphact_agents.command import main
from support.graphs import random_graph
from support.unwritable import PLACES, check_refused, full_disk, unwritable_place

full = pytest.fixture(full_disk)


@pytest.mark.parametrize("place", PLACES)
def test_init_and_deploy_name_it(place, tmp_path, request, capsys):
    random_graph(8).save(tmp_path / "graph.npz")
    graphact.save(graphact.nn.GCNN([1, 2]).double(), tmp_path / "model.safetensors")
    out, expected = unwritable_place(place, tmp_path, request)
    init = ["init", str(tmp_path / "model.safetensors"), str(tmp_path / "graph.npz"), "--out"]
    assert main([*init, str(tmp_path / "network")]) == 0
    capsys.readouterr()
    for words in (init, ["deploy", str(tmp_path / "network"), "--out"]):
        check_refused(main, [*words, str(out)], out, expected, capsys)
