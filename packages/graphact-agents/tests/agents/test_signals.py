"""Sources of signals: what is one, what is missing, and what is refused before a node starts."""

import io

import numpy as np
import pytest

from graphact import nn
from graphact_agents.signals import EndOfSignals, FileSignals, NoSignal, NotFinite, NotYet, SensorSignals, StreamSignals
from support.on_agents import to_model

MODEL = to_model(nn.GCNN([1, 64], order=1, activation="max-ga").double())  # exchanges 1 feature, then 64
ANY = to_model(nn.GraphAdaptive("max"))  # takes any number of features


@pytest.mark.parametrize("kind", ["npy", "jsonl"])
def test_entries_of_a_file_that_are_not_finite_are_missing_in_their_runs(tmp_path, kind):
    path = tmp_path / f"x.{kind}"
    if kind == "npy":
        np.save(path, [[1.0], [np.nan], [3.0], [np.inf]])
    else:
        path.write_text("[1]\n[NaN]\n3\n[Infinity]\n")
    signals = FileSignals(path, MODEL, repeat=True)
    for run in (0, 2, 4):
        assert signals.take(run).tolist() == [1.0 + run % 4]
    for run in (1, 3, 5, 5):
        with pytest.raises(NotFinite, match="a signal must be finite, got"):
            signals.take(run)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((2, 1, 1, 1, 1, 1), r"at most 4 dimensions, none of them 0, got the shape \(1, 1, 1, 1, 1\)"),
        ((2, 0, 1), r"none of them 0, got the shape \(0, 1\)"),
        ((1, 128, 1), r"of shape \(128, 1\) makes messages of 65596 bytes, and one holds 65507: use smaller batches"),
        ((1, 2), r"numbers of shape \(..., 1\), got float64 of shape \(2,\)"),
    ],
)
def test_files_that_no_message_holds_are_refused(tmp_path, shape, message):
    np.save(tmp_path / "x.npy", np.ones(shape))
    with pytest.raises(NoSignal, match=message):
        FileSignals(tmp_path / "x.npy", MODEL)


def test_the_largest_signal_that_messages_hold(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((1, 127, 1)))
    assert FileSignals(tmp_path / "x.npy", MODEL).take(0).shape == (127, 1)
    np.save(tmp_path / "x.npy", np.ones((1, 3, 2, 2, 5), np.float32))
    assert FileSignals(tmp_path / "x.npy", ANY).take(0).shape == (3, 2, 2, 5)
    np.save(tmp_path / "x.npy", np.ones((1, 3, 0)))
    with pytest.raises(NoSignal, match="none of them 0"):
        FileSignals(tmp_path / "x.npy", ANY)


def test_a_stream_is_read_a_little_ahead():
    stream = io.BytesIO(b"[1.5]\n" * 30_000)
    signals = StreamSignals(stream, MODEL)
    with pytest.raises(NotYet):
        signals.take(0)
    count = 0
    while True:
        signals.prepare(0.0, 0.0, 0)
        try:
            assert signals.take(0).tolist() == [1.5]
            count += 1
        except NotYet:
            pass
        except EndOfSignals:
            break
        assert stream.tell() <= len(b"[1.5]\n") * (count + signals.AHEAD + 1)
    assert count == 30_000


def test_a_stream_that_cannot_be_read_has_ended():
    class Broken(io.RawIOBase):
        def readline(self, *_):
            raise OSError(5, "Input/output error")

    signals = StreamSignals(Broken(), MODEL)
    signals.prepare(0.0, 0.0, 0)
    signals._reader.join()
    for _ in range(2):
        with pytest.raises(EndOfSignals, match="the stream cannot be read: .*Input/output error"):
            signals.take(0)


def test_a_command_that_cannot_be_started_is_told_once_and_tried_again():
    signals = SensorSignals("/nowhere/sensor", MODEL)
    signals.PAUSE = 0.0
    for _ in range(2):
        signals.prepare(0.0, 0.0, 0)
        for kind in (NoSignal, NotYet, NotYet):
            with pytest.raises(NoSignal, match="cannot be started: No such file or directory") as caught:
                signals.take(0)
            assert caught.type is kind
