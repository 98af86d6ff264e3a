"""A folder that cannot be written to is named in one line, with what to do, before long work begins."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest

import graphact
from graphact.cli import main
from graphact.storage import check_writable, write_atomically
from graphact_lab.store import Store
from support.graphs import random_graph

FULL, FORBIDDEN = "free some space or choose another folder", "choose a folder that you may write to"
NO_FOLDER, FILLING = "is a file", 240_000


@pytest.fixture
def inputs(tmp_path):
    """A model, a graph and numbers for every command."""
    import numpy as np

    graph = random_graph(8)
    graph.save(tmp_path / "graph.npz")
    graphact.save(graphact.nn.GCNN([1, 2]).double(), tmp_path / "model.safetensors")
    np.save(tmp_path / "x.npy", np.zeros((3, 8, 1)))
    return tmp_path


def commands(inputs, out):
    """Every command that writes, with the work behind it."""
    model, graph = (str(inputs / name) for name in ("model.safetensors", "graph.npz"))
    return {
        "run": ["run", "source-localization", "--preset", "smoke", "--out", str(out)],
        "certify": ["certify", model, "--graph", graph, "--out", str(out)],
        "partition": ["partition", graph, "--parts", "2", "--out", str(out)],
        "split": ["agents", "split", model, graph, "--out", str(out)],
        "data": ["data", "fetch", "--data", str(out)],
    }


NAMES = list(commands(Path(), Path()))


def forbid_work(monkeypatch):
    """Let every kind of long work fail, so that a check that comes too late is noticed."""

    def too_late(*_, **__):
        raise AssertionError("work began before the folder was checked")

    for name in (
        "graphact_lab.runner.run_protocol",
        "graphact.commands.certify.find",
        "graphact.distributed.assign_nodes",
        "graphact_lab.data.download.download",
    ):
        monkeypatch.setattr(name, too_late)


@pytest.mark.parametrize("name", NAMES)
def test_every_command_names_it_first(inputs, name, monkeypatch, capsys):
    (inputs / "file").touch()
    out = inputs / "file" / "results"
    forbid_work(monkeypatch)
    assert main(commands(inputs, out)[name]) == 2
    error = capsys.readouterr().err
    assert len(error.strip().splitlines()) == 1
    assert f"{inputs / 'file'} {NO_FOLDER}" in error


@pytest.mark.parametrize("name", NAMES)
def test_a_read_only_folder(inputs, name, monkeypatch, capsys):
    out = Path("/sys/graphact-results") if os.getuid() == 0 else inputs / "locked" / "results"
    if os.getuid():
        out.parent.mkdir(mode=0o500)
    forbid_work(monkeypatch)
    assert main(commands(inputs, out)[name]) == 2
    error = capsys.readouterr().err
    assert len(error.strip().splitlines()) == 1
    assert str(out) in error
    assert FORBIDDEN in error


@pytest.fixture
def full(tmp_path):
    """A disk of 256 KiB that is full, where the system lets us have one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "graphact-test", str(folder)]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("no disk may be mounted here")
    try:
        (folder / "filled").write_bytes(bytes(FILLING))
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("name", NAMES)
def test_a_full_disk(inputs, full, name, monkeypatch, capsys):
    forbid_work(monkeypatch)
    out = full / "results"
    assert main(commands(inputs, out)[name]) == 2
    error = capsys.readouterr().err
    assert len(error.strip().splitlines()) == 1
    assert str(out) in error
    assert FULL in error


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


def test_a_repeated_run_checks_again(full, capsys, monkeypatch):
    """Its command is noted already, so nothing would be written before the first result."""
    words = ["run", "source-localization", "--preset", "smoke", "--device", "cpu", "--seed", "0"]
    (full / "filled").unlink()
    Store(full / "results").create(shlex.join(["graphact", *words]))
    (full / "filled").write_bytes(bytes(FILLING))
    forbid_work(monkeypatch)
    assert main([*words, "--out", str(full / "results")]) == 2
    assert FULL in capsys.readouterr().err
