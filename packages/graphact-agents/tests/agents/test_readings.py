"""Readings of the last runs as one input: gaps are missing readings, and a restarted node remembers."""

import io
import json

import numpy as np
import pytest

from graphact_agents import Model
from graphact_agents.readings import READINGS_NAME, Readings
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
    readings = Readings(source, model, tmp_path)
    nan = np.nan
    np.testing.assert_array_equal(readings.take(0), [1.0, nan, nan])
    np.testing.assert_array_equal(readings.take(1), [2.0, 1.0, nan])
    np.testing.assert_array_equal(readings.take(2), [nan, 2.0, 1.0])
    np.testing.assert_array_equal(readings.take(3), [4.0, nan, 2.0])
    again = Readings(source, model, tmp_path)  # after a restart; it has missed run 4
    np.testing.assert_array_equal(again.take(5), [6.0, nan, 4.0])
    np.testing.assert_array_equal(Readings(source, model, tmp_path).take(5), [6.0, nan, 4.0])  # the same run again
    with pytest.raises(EndOfSignals):
        again.take(7)


@pytest.mark.parametrize(
    "content", ['{"run": 3}', "{", '{"run": "x", "readings": [[1.0]]}', '{"run": 3, "readings": 4}']
)
def test_damaged_readings_count_as_missing(tmp_path, content, capsys):
    source = FileSignals(write(tmp_path / "readings.txt", [1.0, 2.0, 3.0, 4.0, 5.0]), make_model())
    (tmp_path / READINGS_NAME).write_text(content)
    np.testing.assert_array_equal(Readings(source, make_model(), tmp_path).take(4), [5.0, np.nan, np.nan])
    assert "readings.json: damaged" in capsys.readouterr().err


def test_a_flipped_bit_is_no_other_reading(tmp_path, capsys):
    """Every bit of the file: what it holds is read as it was written, or counts as missing."""
    source = FileSignals(write(tmp_path / "readings.txt", [1.0, 2.0, 3.0]), make_model(window=2))
    Readings(source, make_model(window=2), tmp_path).take(1)
    path = tmp_path / READINGS_NAME
    content = path.read_bytes()
    for bit in range(8 * len(content)):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        (_, before) = Readings(source, make_model(window=2), tmp_path).take(2)
        assert np.isnan(before) or before == 2.0
    assert "readings.json: damaged" in capsys.readouterr().err


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


def test_readings_of_another_model_are_forgotten(tmp_path):
    two = Model("Standardize", {}, {"mean": np.zeros(2), "std": np.ones(2)}, make_model().description, ["mean", "std"])
    Readings(FileSignals(write(tmp_path / "readings.txt", [[1.0, 2.0]]), two), two, tmp_path).take(0)
    model = make_model(window=2)
    readings = Readings(StreamSignals(io.BytesIO(), model), model, tmp_path)
    np.testing.assert_array_equal(readings.take(1), [np.nan, np.nan])
