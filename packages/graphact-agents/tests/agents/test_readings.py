"""Readings of the last runs as one input: gaps are missing readings."""

import io
import json

import numpy as np
import pytest

from graphact_agents import Model
from graphact_agents.readings import Readings
from graphact_agents.signals import EndOfSignals, FileSignals, NoSignal, NotYet, StreamSignals


def make_model(window=3, mask=True):
    """The scaling alone, with a mean of 10 and a deviation of 2."""
    arrays = {"mean": np.array([10.0]), "std": np.array([2.0])}
    settings = {"kind": "standardize", "nodes": None, "window": window, "mask": mask}
    return Model("Standardize", {}, arrays, [{**settings, "arrays": {"mean": "mean", "std": "std"}}], ["mean", "std"])


def write(path, readings):
    path.write_text("".join(f"{json.dumps(reading)}\n" for reading in readings))
    return path


def test_a_window_with_gaps(tmp_path):
    model = make_model()
    source = FileSignals(write(tmp_path / "readings.txt", [1.0, [2.0], None, 4.0, 5.0, 6.0, 7.0]), model)
    readings = Readings(source, model)
    nan = np.nan
    np.testing.assert_array_equal(readings.take(0), [1.0, nan, nan])
    np.testing.assert_array_equal(readings.take(1), [2.0, 1.0, nan])
    np.testing.assert_array_equal(readings.take(2), [nan, 2.0, 1.0])
    np.testing.assert_array_equal(readings.take(3), [4.0, nan, 2.0])
    np.testing.assert_array_equal(readings.take(5), [6.0, nan, 4.0])  # it has missed run 4
    np.testing.assert_array_equal(readings.take(5), [6.0, nan, 4.0])  # the same run again: the clock was set back
    np.testing.assert_array_equal(Readings(source, model).take(5), [6.0, nan, nan])  # after a restart
    with pytest.raises(EndOfSignals):
        readings.take(7)


def test_a_sensor_that_fails_is_a_missing_reading():
    model = make_model(window=1)
    readings = Readings(StreamSignals(io.BytesIO(b"broken\n"), model), model)
    readings.prepare(0.0, 0.0, 0)
    waiting = Readings(StreamSignals(io.BytesIO(), model), model, waits=True)
    while True:  # until the line was read
        np.testing.assert_array_equal(signal := readings.take(0), [np.nan])
        if readings.missing != "no line has come":
            break
    assert signal.dtype == model.dtype
    assert readings.missing.startswith("a line must hold a JSON array of numbers")
    with pytest.raises(NotYet):
        waiting.take(0)


def test_without_a_mask_nothing_may_be_missing(tmp_path):
    model = make_model(window=2, mask=False)
    source = FileSignals(write(tmp_path / "readings.txt", [1.0, 2.0]), model)
    readings = Readings(source, model)
    with pytest.raises(NoSignal, match="takes 2 readings, and there are 1 so far"):
        readings.take(0)
    np.testing.assert_array_equal(readings.take(1), [2.0, 1.0])
