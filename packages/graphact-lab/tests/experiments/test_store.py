"""The folder of results."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from graphact_lab.store import Store, StoreError, find_stores


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "results")
    store.create("graphact-lab run x")
    return store


def test_rows_come_back_as_written(store):
    assert not store.is_finished("a")
    store.finish("b", [{"value": 2.0}])
    store.finish("a", [{"value": 1.0}, {"value": float("inf")}])
    assert store.is_finished("a")
    assert store.rows() == [{"value": 1.0}, {"value": float("inf")}, {"value": 2.0}]
    store.finish("a", [{"value": 3.0}])
    assert store.rows() == [{"value": 3.0}, {"value": 2.0}]


def test_published_rows_are_the_same_rows(store):
    rows = {"b": [{"value": 2.0}], "a": [{"value": 1.0}, {"value": float("inf")}]}
    for key, some in rows.items():
        store.finish(key, some)
    with store.claim("c"):
        pass
    store.publish()
    first = (store.directory / "rows.parquet").read_bytes()
    assert sorted(path.name for path in store.directory.iterdir()) == ["rows.parquet", "run.json"]
    assert store.rows() == [*rows["a"], *rows["b"]]
    assert store.first_rows() == [rows["a"][0], *rows["b"]]
    assert store.keys() == ["a", "b"]
    assert store.is_finished("a")
    assert not store.is_finished("c")
    store.create("graphact-lab run x")
    store.finish("a", [{"value": 3.0}])  # newer than the published one
    store.finish("c", [{"value": 4.0}])
    assert store.rows() == [{"value": 3.0}, {"value": 2.0}, {"value": 4.0}]
    assert store.keys() == ["a", "b", "c"]
    (store.directory / "rows" / "c.json").unlink()
    store.finish("a", rows["a"])
    store.publish()
    assert (store.directory / "rows.parquet").read_bytes() == first
    store.publish()
    assert (store.directory / "rows.parquet").read_bytes() == first


def test_publishing_that_is_stopped_before_it_removes_row_files_loses_nothing(store, monkeypatch):
    for key, value in (("a", 1.0), ("b", 2.0)):
        store.finish(key, [{"value": value}])
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", None)
        with pytest.raises(TypeError):
            store.publish()
    assert sorted(path.name for path in (store.directory / "rows").iterdir()) == ["a.json", "b.json"]
    assert store.rows() == [{"value": 1.0}, {"value": 2.0}]
    store.publish()
    assert store.rows() == [{"value": 1.0}, {"value": 2.0}]
    assert not (store.directory / "rows").exists()


def test_checkpoints_survive_publishing(store):
    store.checkpoint("a").write_bytes(b"half")
    store.publish()
    assert store.checkpoint("a").exists()


def test_damaged_published_rows_are_named(store):
    store.finish("a", [{"value": 1.0}])
    store.publish()
    file = store.directory / "rows.parquet"
    for content in (file.read_bytes()[:-9], b"no parquet"):
        file.write_bytes(content)
        for read in (store.rows, store.keys, lambda: store.is_finished("a")):
            with pytest.raises(StoreError, match=r"rows\.parquet is damaged"):
                read()


def test_rows_that_cannot_be_published_stay(store):
    store.finish("a", [{"cell": 1}])
    with pytest.raises(StoreError, match="cannot publish .*must not have the fields 'cell' and 'keys'"):
        store.publish()
    assert store.rows() == [{"cell": 1}]


def test_published_rows_without_pyarrow(store, monkeypatch):
    store.finish("a", [{"value": 1.0}])
    store.publish()
    store.finish("b", [{"value": 2.0}])
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for act in (store.rows, store.publish, lambda: store.is_finished("a")):
        with pytest.raises(ModuleNotFoundError, match="the package pyarrow: pip install 'graphact-lab\\[parquet\\]'"):
            act()
    assert store.is_finished("b")


def test_folders_of_results_are_found_with_either_kind_of_rows(store, tmp_path):
    for name in ("sweeps/a", "b"):
        other = Store(tmp_path / name)
        other.create("graphact-lab run x")
        other.finish("a", [{"value": 1.0}])
        other.publish()
    (tmp_path / "empty").mkdir()
    found = [each.directory.relative_to(tmp_path).as_posix() for each in find_stores(tmp_path, "*", "**")]
    assert found == ["b", "results", "sweeps/a"]
    assert [each.directory.name for each in find_stores(tmp_path, "sweeps/*")] == ["a"]


def test_all_commands_are_noted_once(store):
    store.create("graphact-lab run y")
    store.create("graphact-lab run x")
    assert store.commands() == ["graphact-lab run x", "graphact-lab run y"]


def test_finishing_removes_the_checkpoint(store):
    store.checkpoint("a").write_bytes(b"half")
    store.finish("a", [{"value": 1.0}])
    assert not store.checkpoint("a").exists()


def test_a_cell_is_held_by_one_process_and_released_by_its_death(store):
    with store.claim("a") as mine, store.claim("a") as again:
        assert mine
        assert not again
    child = os.fork()
    if child == 0:
        with store.claim("a"):
            (store.directory / "held").touch()
            time.sleep(60)
        os._exit(0)
    while not (store.directory / "held").exists():
        time.sleep(0.01)
    with store.claim("a") as mine:
        assert not mine
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with store.claim("a") as mine:
        assert mine


def test_what_is_wrong_is_said_in_one_line(store, tmp_path):
    with pytest.raises(StoreError, match="no results in .*nowhere"):
        Store(tmp_path / "nowhere").rows()
    with pytest.raises(StoreError, match="is not a folder of results: run.json is missing"):
        Store(tmp_path / "nowhere").commands()
    (store.directory / "rows" / "a.json").write_text("{")
    with pytest.raises(StoreError, match=r"a\.json is damaged .* delete it and run again"):
        store.rows()
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot write results to .*file"):
        Store(tmp_path / "file").create("x")
    for content in ("[]", "{}", '{"commands": 3}'):
        store.run_file.write_text(content)
        with pytest.raises(StoreError, match="no list of commands"):
            store.commands()


@pytest.mark.parametrize("content", ["[]", '{"a": 1}', "[1]", "3"])
def test_files_that_hold_no_rows(store, content):
    (store.directory / "rows" / "a.json").write_text(content)
    with pytest.raises(StoreError, match="no list of rows"):
        store.rows()


def test_cells_can_be_claimed_after_publishing(store):
    store.finish("cell", [{"value": 1.0}])
    store.publish()
    assert not (store.directory / "checkpoints").exists()
    with store.claim("other") as mine:
        assert mine


def test_processes_that_share_a_folder_lose_no_command(store):
    """Each notes commands of its own at the same time; reading and writing must be one step."""
    begin, wait = os.pipe(), []
    for process in range(6):
        child = os.fork()
        if child == 0:
            os.close(begin[1])
            os.read(begin[0], 1)  # until all have been started
            for number in range(12):
                Store(store.directory).create(f"command {process} {number}")
            os._exit(0)
        wait.append(child)
    os.close(begin[1])
    os.close(begin[0])
    assert [os.waitpid(child, 0)[1] for child in wait] == [0] * 6
    noted = [command for command in store.commands() if command.startswith("command")]
    assert sorted(noted) == sorted(f"command {process} {number}" for process in range(6) for number in range(12))
    assert sorted(path.name for path in store.directory.iterdir()) == ["checkpoints", "rows", "run.json"]
