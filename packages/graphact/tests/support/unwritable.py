"""Places that cannot be written to, and long work that must not begin before a command has noticed."""

import os
import subprocess
from pathlib import Path

import pytest

FULL, FORBIDDEN = "free some space or choose another folder", "choose a folder that you may write to"
NO_FOLDER, FILLING = "is a file", 240_000
PLACES = ("a file", "read-only", "full")


def forbid_work(monkeypatch, *names):
    """Let every kind of long work fail, so that a check that comes too late is noticed."""

    def too_late(*_, **__):
        raise AssertionError("work began before the folder was checked")

    for name in names:
        monkeypatch.setattr(name, too_late)


def full_disk(tmp_path):
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


def unwritable_place(kind, tmp_path, request):
    """A folder that cannot be made or written to, and what an error says about it."""
    if kind == "a file":
        (tmp_path / "file").touch()
        return tmp_path / "file" / "results", f"{tmp_path / 'file'} {NO_FOLDER}"
    if kind == "full":
        return request.getfixturevalue("full") / "results", FULL
    if os.getuid() == 0:
        return Path("/sys/graphact-results"), FORBIDDEN
    (tmp_path / "locked").mkdir(mode=0o500)
    return tmp_path / "locked" / "results", FORBIDDEN


def check_refused(main, words, place, expected, capsys):
    """Check that a command says in one line what is wrong with its folder, and what to do."""
    assert main(words) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert expected in line
    assert str(place) in line or str(place.parent) in line
