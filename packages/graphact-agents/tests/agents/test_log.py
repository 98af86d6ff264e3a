"""The write-ahead log on disk."""

import os
import subprocess
import sys

import pytest

from graphact_agents import FileLog, read_log
from graphact_agents.log import Began, RoundClosed, seal

RECORDS = [Began(3, 1), RoundClosed(3, 0, (1, 2)), RoundClosed(3, 1, ()), Began(4, 1)]


def filled(path, **options):
    log = FileLog(path, **options)
    for record in RECORDS:
        log.append(record)
    return log


@pytest.mark.parametrize("durable", [False, True])
def test_records_come_back(tmp_path, durable):
    path = tmp_path / "new folder" / "log.jsonl"
    log = filled(path, durable=durable)
    assert list(read_log(path)) == RECORDS  # before it is closed
    assert log.last_run == 4
    log.close()
    assert FileLog(path).last_run == 4


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_a_line_cut_off_by_a_crash_is_removed(tmp_path, cut):
    path = tmp_path / "log.jsonl"
    filled(path).close()
    os.truncate(path, path.stat().st_size - cut)
    assert list(read_log(path)) == RECORDS[:-1]
    log = FileLog(path)
    assert log.last_run == 3
    assert log.used.spans == [(3, 3)]  # nothing of the run was sent
    log.append(Began(9, 1))
    assert list(read_log(path)) == [*RECORDS[:-1], Began(9, 1)]


def test_a_full_file_is_put_aside_and_its_runs_stay_known(tmp_path):
    path = tmp_path / "log.jsonl"
    log = filled(path, max_bytes=10)
    log.append(RoundClosed(4, 0, (1,)))
    log.close()
    assert list(read_log(path)) == [Began(4, 1), RoundClosed(4, 0, (1,))]
    assert next(iter(read_log(path))).spans == ((3, 4),)
    assert list(read_log(tmp_path / "log.jsonl.1")) == RECORDS[:-1]
    path.write_bytes(b"")
    assert FileLog(path).last_run == 3


@pytest.mark.parametrize(
    "line",
    [b"nonsense\n", b'{"run": 1, "program": 1}\n', seal(b'{"run": 1'), seal(b"[1"), seal(b'{"run": 2, "program": 1')],
)
def test_a_damaged_line_is_named(tmp_path, line):
    path = tmp_path / "log.jsonl"
    path.write_bytes(seal(b'{"run": 1, "program": 1, "spans": [[1, 1]]') + line)
    with pytest.raises(ValueError, match="line 2: not a record"):
        list(read_log(path))


def test_a_log_that_counts_runs_by_a_clock_since_1970_is_believed(tmp_path):
    log = filled(tmp_path / "log.jsonl")
    log.append(Began(175_000_000_000, 1))  # every 10 ms, after runs without a clock
    log.close()
    again = FileLog(log.path)
    assert again.last_run == 175_000_000_000
    again.close()


def test_one_flipped_bit_frees_no_number_that_was_used(tmp_path):
    """Each bit of the line that names the deployment, and one of each later byte."""
    path = tmp_path / "log.jsonl"
    filled(path, deployment="00ab12cd34ef5678").close()
    whole = path.read_bytes()
    for place in range(len(whole)):
        for bit in range(8) if place <= whole.index(b"\n") else [place % 8]:
            damaged = bytearray(whole)
            damaged[place] ^= 1 << bit
            path.write_bytes(bytes(damaged))
            log = FileLog(path, "00ab12cd34ef5678")
            log.close()
            assert [log.used.next_free(run) > run for run in (3, 4)] == [True, True], (place, bit)
            assert log.used.next_free(log.last_run + 1) > 4, (place, bit)


def test_a_flipped_bit_in_the_only_record_after_a_log_was_put_aside(tmp_path):
    """The log before it tells which numbers are used."""
    filled(tmp_path / "log.jsonl", max_bytes=10).close()
    content = bytearray((tmp_path / "log.jsonl").read_bytes())
    content[5] ^= 1
    (tmp_path / "log.jsonl").write_bytes(content)
    log = FileLog(tmp_path / "log.jsonl")
    log.close()
    assert (log.damaged, log.last_run) == (1, 3)
    assert log.used.next_free(3) > 4


def test_what_was_appended_survives_a_kill(tmp_path):
    path = tmp_path / "log.jsonl"
    code = f"""
import os, signal
from graphact_agents import FileLog
from graphact_agents.log import RoundClosed
log = FileLog({str(path)!r})
for r in range(1000):
    log.append(RoundClosed(0, r, (1,)))
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    assert [record.round for record in read_log(path)] == list(range(1000))


def test_a_durable_log_has_its_names_on_the_disk_too(tmp_path, monkeypatch):
    """A file that was made, or renamed, and whose folder is not written, is gone after a power failure."""
    synced, original = [], os.fsync

    def fsync(descriptor):
        synced.append(os.path.realpath(f"/proc/self/fd/{descriptor}"))
        original(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    FileLog(tmp_path / "a" / "log.jsonl").close()
    assert synced == []
    log = FileLog(tmp_path / "b" / "log.jsonl", durable=True, max_bytes=1)
    assert synced == [str(tmp_path / "b")]
    for run in (3, 4):
        log.append(Began(run, 1))
    assert synced == [str(tmp_path / "b")] * 2
    assert (tmp_path / "b" / "log.jsonl.1").exists()
    log.close()


def test_a_log_has_one_writer(tmp_path):
    """Two agents in one folder would use run numbers twice; the death of one frees the folder."""
    first = FileLog(tmp_path / "log.jsonl", max_bytes=1)
    for run in (1, 2):  # also after it was put aside
        with pytest.raises(OSError, match=r"log.jsonl is in use by another agent"):
            FileLog(tmp_path / "log.jsonl")
        first.append(Began(run, 1))
    first.close()
    FileLog(tmp_path / "log.jsonl").close()


@pytest.mark.parametrize("back", [[], range(20)])
def test_used_numbers_are_known_after_files_were_put_aside_twice(tmp_path, back):
    """Also of a clock that stood in the future for a while."""
    log = FileLog(tmp_path / "log.jsonl", max_bytes=1)
    for run in [*range(100, 190), *back]:
        log.append(Began(run, 1))
    log.close()
    again = FileLog(tmp_path / "log.jsonl")
    again.close()
    assert (again.used.next_free(0), again.used.next_free(100)) == (len(back), 190)


def test_a_damaged_first_record_frees_no_number(tmp_path):
    path = tmp_path / "log.jsonl"
    log = FileLog(path, max_bytes=1)
    for run in range(9):
        log.append(Began(run, 1))
    log.close()
    older = tmp_path / "log.jsonl.1"
    older.write_bytes(older.read_bytes().replace(b"run", b"rum", 1))
    again = FileLog(path)
    again.close()
    assert again.used.next_free(0) == 9


@pytest.mark.parametrize("kept", [None, 0])
def test_zeros_at_the_end_of_a_log_are_damage(tmp_path, kept):
    """As after a power failure that kept the length of a file and lost its content."""
    path = tmp_path / "log.jsonl"
    filled(path).close()
    path.write_bytes(path.read_bytes()[:kept] + bytes(100))
    for _ in range(2):
        if kept == 0:
            with pytest.raises(ValueError, match="not a record of a log"):
                FileLog(path)
            continue
        log = FileLog(path)
        log.close()
        assert (log.damaged, log.last_run) == (1, 4)
        assert log.used.next_free(5) > 5
