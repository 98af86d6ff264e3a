"""The folder of results."""

import os
import signal
import time

import pytest

from graphact.experiments.store import Store, StoreError


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "results")
    store.create("graphact run x")
    return store


def test_rows_come_back_as_written(store):
    assert not store.is_finished("a")
    store.finish("b", [{"value": 2.0}])
    store.finish("a", [{"value": 1.0}, {"value": float("inf")}])
    assert store.is_finished("a")
    assert store.rows() == [{"value": 1.0}, {"value": float("inf")}, {"value": 2.0}]
    store.finish("a", [{"value": 3.0}])
    assert store.rows() == [{"value": 3.0}, {"value": 2.0}]


def test_packed_rows_are_the_same_rows(store):
    rows = {"b": [{"value": 2.0}], "a": [{"value": 1.0}, {"value": float("inf")}]}
    for key, some in rows.items():
        store.finish(key, some)
    with store.claim("c"):
        pass
    store.pack()
    first = {file.name: file.read_bytes() for file in (store.directory / "rows").iterdir()}
    assert sorted(first) == ["a.json.gz", "b.json.gz"]
    assert not (store.directory / "checkpoints").exists()
    assert store.rows() == [*rows["a"], *rows["b"]]
    assert store.is_finished("a")
    assert not store.is_finished("c")
    store.create("graphact run x")
    store.finish("a", [{"value": 3.0}])  # newer than the packed one
    assert store.rows() == [{"value": 3.0}, {"value": 2.0}]
    store.finish("a", rows["a"])
    store.pack()
    assert {file.name: file.read_bytes() for file in (store.directory / "rows").iterdir()} == first


def test_packed_rows_do_not_depend_on_when_they_are_packed(store):
    """Committed results change only if their rows do: the time in the header of gzip (bytes 4 to 8) is none."""
    store.finish("a", [{"value": 1.0}])
    store.pack()
    assert (store.directory / "rows" / "a.json.gz").read_bytes()[4:8] == bytes(4)


def test_checkpoints_are_not_packed_away(store):
    store.checkpoint("a").write_bytes(b"half")
    store.pack()
    assert store.checkpoint("a").exists()


def test_damaged_packed_rows_are_named(store):
    store.finish("a", [{"value": 1.0}])
    store.pack()
    file = store.directory / "rows" / "a.json.gz"
    for content in (file.read_bytes()[:-9], b"no gzip"):
        file.write_bytes(content)
        with pytest.raises(StoreError, match="a.json.gz is damaged"):
            store.rows()


def test_all_commands_are_noted_once(store):
    store.create("graphact run y")
    store.create("graphact run x")
    assert store.commands() == ["graphact run x", "graphact run y"]


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
    with pytest.raises(StoreError, match="is no folder of results: run.json is missing"):
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


def test_cells_can_be_claimed_after_packing(store):
    store.finish("cell", [{"value": 1.0}])
    store.pack()
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
