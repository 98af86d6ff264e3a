"""Events of an agent on a pipe: short ones are written at once, and an unread pipe holds nothing up."""

import json
import os
import sys
import threading
from contextlib import contextmanager
from unittest import mock

import pytest

from graphact_agents.events import EventWriter


def standing_in(out):
    return mock.patch.object(sys, "stdout", out)


@contextmanager
def standard_output():
    """As a pipe; its reading end. Not a fixture: pytest has its own standard output in each phase of a test."""
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb", buffering=0) as stream, os.fdopen(writer, "w") as out, standing_in(out):
        yield stream


def test_a_short_event_is_there_when_write_returns():
    with standard_output() as pipe, EventWriter() as events:
        events.write({"event": "ready"})
        os.set_blocking(pipe.fileno(), False)
        assert json.loads(pipe.read())["event"] == "ready"


def test_a_full_pipe_holds_nothing_up_and_its_events_come_later():
    with standard_output() as pipe:
        full = fill(sys.stdout.fileno())
        with EventWriter() as events:
            writing = threading.Thread(target=events.write, args=[{"event": "result"}], daemon=True)
            writing.start()
            writing.join(10)
            is_held_up = writing.is_alive()
            while full:
                full -= len(pipe.read(min(full, 2**16)))
            assert not is_held_up
            assert events.waiting
            events.flush()
            assert json.loads(pipe.readline())["event"] == "result"


def fill(out):
    """Write until a pipe is full; how much that is."""
    os.set_blocking(out, False)
    full = 0
    try:
        while True:
            full += os.write(out, b"x" * 4096)
    except BlockingIOError:
        return full
    finally:
        os.set_blocking(out, True)


def test_a_pipe_without_a_reader_is_noticed():
    """Also where nothing is written for long."""
    with standard_output() as pipe:
        events = EventWriter()
        events.flush()
        pipe.close()
        with pytest.raises(OSError, match="the reader of the results"):
            events.flush()
        with pytest.raises(OSError, match="the reader of the results"):
            events.write({"event": "result"})
