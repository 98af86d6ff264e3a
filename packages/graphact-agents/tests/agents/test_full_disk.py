"""F10: a full disk costs runs, and nothing else: what is not logged is not sent, and the agent goes on."""

import resource
import signal

import pytest

from agents.live import Daemon, make_network
from agents.test_events import standing_in
from graphact_agents import FileLog, read_log
from graphact_agents.events import EventWriter
from graphact_agents.log import Began, RoundClosed


@pytest.fixture
def limit():
    """Set the largest size of a file for this process, as a full disk would."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("cut", [0, 1, 20])
@pytest.mark.parametrize("durable", [False, True])
def test_a_record_is_in_the_log_as_a_whole_or_not_at_all(tmp_path, limit, cut, durable):
    log = FileLog(tmp_path / "log.jsonl", durable=durable)
    log.append(Began(0, 1))
    limit((tmp_path / "log.jsonl").stat().st_size + cut)
    for _ in range(2):
        with pytest.raises(OSError, match="log cannot be written"):
            log.append(RoundClosed(0, 0, (1, 2)))
    assert list(read_log(tmp_path / "log.jsonl")) == [Began(0, 1)]
    limit(resource.RLIM_INFINITY)
    log.append(Began(1, 1))
    log.close()
    assert list(read_log(tmp_path / "log.jsonl")) == [Began(0, 1), Began(1, 1)]


def test_a_log_that_cannot_be_put_aside_is_continued(tmp_path, monkeypatch):
    log = FileLog(tmp_path / "log.jsonl", max_bytes=10)
    log.append(Began(0, 1))
    with monkeypatch.context() as patched:
        patched.setattr(log, "_open", lambda: (_ for _ in ()).throw(OSError("no space for another file")))
        with pytest.raises(OSError, match="no space"):
            log.append(Began(1, 1))
    log.append(RoundClosed(0, 0, ()))
    log.append(Began(2, 1))
    log.close()
    assert list(read_log(tmp_path / "log.jsonl.1")) == [Began(0, 1), RoundClosed(0, 0, ())]
    assert FileLog(tmp_path / "log.jsonl").last_run == 2


@pytest.mark.slow
@pytest.mark.parametrize("schedule", [["--period", "0.3"], ["--period", "0"]], ids=["clocked", "back to back"])
def test_an_agent_survives_a_full_disk(tmp_path, schedule):
    folders = make_network(tmp_path, [(0, 1)], 2)
    options = ["--transport", "udp", "--slot", "0.1", *schedule]
    with Daemon(folders[0], *options) as full, Daemon(folders[1], *options) as other:
        full.next_event("result", where=lambda event: event["complete"])
        limits = resource.prlimit(full.process.pid, resource.RLIMIT_FSIZE)
        size = (folders[0] / "log.jsonl").stat().st_size + 3
        resource.prlimit(full.process.pid, resource.RLIMIT_FSIZE, (size, limits[1]))
        failed = [full.next_event("failed") for _ in range(3)]
        assert all("log cannot be written" in event["reason"] for event in failed)
        assert failed[2]["time"] - failed[1]["time"] > 0.05  # and not as many as there are numbers
        assert not other.next_event("result", where=lambda event: event["run"] >= failed[0]["run"])["complete"]
        resource.prlimit(full.process.pid, resource.RLIMIT_FSIZE, limits)
        for daemon in (full, other):
            daemon.next_event("result", where=lambda event: event["complete"] and event["run"] > failed[2]["run"])
    logged = {record.run for record in read_log(folders[0] / "log.jsonl")}
    assert not logged & {event["run"] for event in failed[1:]}


def test_events_that_find_no_room_are_counted(tmp_path, limit):
    """Standard output goes to a file of the same disk; later events begin on a line of their own."""
    path = tmp_path / "events.jsonl"
    with path.open("w") as out, standing_in(out):
        with EventWriter() as events:
            events.write({"event": "ready"})
            limit(path.stat().st_size + 5)
            for _ in range(3):
                events.write({"event": "result"})
            limit(resource.RLIM_INFINITY)
            events.write({"event": "result"})
        assert events.lost == 3
    whole, torn, *after = path.read_text().splitlines()
    assert "ready" in whole
    assert len(torn) == 5
    assert [("lost" in line, "result" in line) for line in after] == [(True, False), (False, True)]
    assert '"count": 3' in after[0]


def test_an_agent_starts_on_a_full_disk(tmp_path):
    """It tells that it cannot write where it answers, and runs as soon as there is room."""
    folders = make_network(tmp_path, [(0, 1)], 2)
    code = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY)); "
    code += "from graphact_agents.command import main; sys.exit(main(sys.argv[1:]))"
    options = ["--transport", "udp", "--slot", "0.1", "--period", "0.3", "--status", "0"]
    with Daemon(folders[0], *options, command=("-c", code)) as full:
        assert full.next_event("ready")["status"]
        assert "log cannot be written" in full.next_event("failed")["reason"]
        resource.prlimit(full.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        full.next_event("result")
        assert full.end(signal.SIGTERM) == 0
