"""A folder that cannot be written to is named in one line, with what to do, before long work begins."""

import pytest

import graphact
from graphact.cli import main
from graphact.storage import check_writable, write_atomically
from support.graphs import random_graph
from support.unwritable import FULL, PLACES, check_refused, forbid_work, full_disk, unwritable_place

full = pytest.fixture(full_disk)
COMMANDS = {
    "partition": "partition {folder}/graph.npz --parts 2 --out {out}",
    "export": "export {folder}/model.safetensors --graph {folder}/graph.npz --out {out}/model.onnx",
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_names_it_first(command, place, tmp_path, request, monkeypatch, capsys):
    random_graph(8).save(tmp_path / "graph.npz")
    graphact.save(graphact.nn.GCNN([1, 2]).double(), tmp_path / "model.safetensors")
    out, expected = unwritable_place(place, tmp_path, request)
    forbid_work(monkeypatch, "graphact.distributed.assign_nodes", "graphact.onnx.export_onnx")
    words = COMMANDS[command].format(folder=tmp_path, out=out).split()
    check_refused(main, words, out, expected, capsys)


def test_a_disk_that_fills_up_while_it_is_written_to(full):
    with pytest.raises(OSError, match=f"cannot write to {full / 'late'}: No space left on device; {FULL}"):
        write_atomically(full / "late" / "file", bytes(300_000))
    assert [file.name for file in full.rglob("*") if file.is_file()] == ["filled"]


def test_graph_files(full, tmp_path):
    for suffix in (".npz", ".txt"):
        with pytest.raises(OSError, match=f"cannot write to {full}: No space left on device; {FULL}"):
            random_graph(200).save(full / f"graph{suffix}")


def test_checking_leaves_nothing(tmp_path):
    check_writable(tmp_path / "a" / "b")
    assert not list(tmp_path.iterdir())
