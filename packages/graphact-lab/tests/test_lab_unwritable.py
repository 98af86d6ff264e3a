"""A folder that cannot be written to is named before anything is trained or downloaded."""

import shlex

import pytest

from graphact_lab.cli import main
from graphact_lab.store import Store
from support.unwritable import FILLING, FULL, PLACES, check_refused, forbid_work, full_disk, unwritable_place

full = pytest.fixture(full_disk)
RUN = "run source-localization --preset smoke --device cpu --seed 0"
COMMANDS = {"run": RUN + " --out {out}", "data": "data fetch --data {out}"}
WORK = ("graphact_lab.runner.run_protocol", "graphact_lab.data.download.download")


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_names_it_first(command, place, tmp_path, request, monkeypatch, capsys):
    out, expected = unwritable_place(place, tmp_path, request)
    forbid_work(monkeypatch, *WORK)
    check_refused(main, COMMANDS[command].format(out=out).split(), out, expected, capsys)


def test_a_repeated_run_checks_again(full, capsys, monkeypatch):
    """Its command is noted already, so nothing would be written before the first result."""
    (full / "filled").unlink()
    Store(full / "results").create(shlex.join(["graphact-lab", *RUN.split()]))
    (full / "filled").write_bytes(bytes(FILLING))
    forbid_work(monkeypatch, *WORK)
    assert main([*RUN.split(), "--out", str(full / "results")]) == 2
    assert FULL in capsys.readouterr().err
