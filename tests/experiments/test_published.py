"""The results that are published with the code say what their rows say."""

from pathlib import Path

import pytest

from graphact.experiments.report import write_report
from graphact.experiments.store import Store

RESULTS = Path(__file__).parents[2] / "results"
FOLDERS = sorted(folder.parent.name for folder in RESULTS.glob("*/rows"))


def test_there_are_some():
    assert len(FOLDERS) >= 7


@pytest.mark.parametrize("name", FOLDERS)
def test_tables_come_from_the_rows(name, tmp_path):
    store = Store(RESULTS / name)
    write_report(store.rows(), tmp_path, command="\n".join(store.commands()))
    published = {file.name: file.read_text() for file in (RESULTS / name / "tables").iterdir()}
    assert {file.name: file.read_text() for file in (tmp_path / "tables").iterdir()} == published


@pytest.mark.parametrize("name", FOLDERS)
def test_rows_are_complete_and_of_the_noted_command(name):
    store = Store(RESULTS / name)
    (command,) = store.commands()
    words = command.split()
    for row in store.rows():
        assert row["experiment"] == words[2]
        assert row["preset"] == words[words.index("--preset") + 1]
        assert str(row["seed"]) == words[words.index("--seed") + 1]
    assert not (RESULTS / name / "checkpoints").exists()
