"""Readings of a sensor as the input of a model that looks back: those of the last runs, the newest first."""

import json
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np

from graphact_agents.disk import hash_json, read_json, write_atomically
from graphact_agents.messages import Array
from graphact_agents.model import Model
from graphact_agents.signals import NoSignal, NotYet, Signals

READINGS_NAME = "readings.json"


class Readings(Signals):
    """A source of readings for a model that takes a window of them, or takes missing ones.

    A run without a reading goes on: the model is told that it is missing. Those of the last runs are kept in the node's
    folder, so that a restarted node still has them; runs that it has missed count as missing readings.

    Args:
        source: where the readings come from.
        model: the model.
        folder: the folder of the node; None keeps nothing.
        waits: wait for a reading that may still come, as without a clock.
    """

    def __init__(self, source: Signals, model: Model, folder: Path | None = None, *, waits: bool = False) -> None:
        self._source, self._model, self._waits = source, model, waits
        self._path = None if folder is None else folder / READINGS_NAME
        self._run, self._past = -1, list[Array]()
        if self._path is not None and self._path.is_file():
            self._recall(self._path)

    @property
    def numbered(self) -> bool:  # type: ignore[override]
        return self._source.numbered

    def prepare(self, start: float, now: float, run: int) -> None:
        self._source.prepare(start, now, run)

    def take(self, run: int) -> Array:
        self.missing, dtype = "", self._model.dtype
        nothing = np.full((self._model.in_features or 1) // self._model.window, np.nan, dtype)
        self._past = [each for each in self._past if each.shape[-1:] == nothing.shape]  # of a model before this one
        try:
            reading = self._source.take(run)
            self.missing = "the source gives NaN or null" if np.isnan(reading).any() else ""
        except NoSignal as reason:
            if not self._model.takes_missing or (self._waits and isinstance(reason, NotYet)):
                raise
            self.missing, reading = str(reason), nothing if not self._past else np.full_like(self._past[0], np.nan)
        self._past = self._past[max(self._run - run + 1, 0) :]  # a restarted node may take this run again
        missed = max(run - self._run - 1, 0) if self._past else 0
        empty = np.full_like(reading, np.nan)
        past = [
            *[empty] * min(missed, self._model.window),
            *(each for each in self._past if each.shape == reading.shape),
        ]
        self._run, self._past = run, [reading, *past][: self._model.window]
        self._remember()
        window = self._past + [empty] * (self._model.window - len(self._past))
        signal = np.concatenate(window, axis=-1)
        if not self._model.takes_missing and np.isnan(signal).any():
            raise NoSignal(f"the model takes {self._model.window} readings, and there are {len(self._past)} so far")
        return signal

    def close(self) -> None:
        self._source.close()

    def _remember(self) -> None:
        if self._path is not None and self._model.window > 1:
            content = {"run": self._run, "readings": [with_null(each).tolist() for each in self._past]}
            content["sha256"] = hash_json(content, "sha256")
            with suppress(OSError):  # as on a full disk: after a restart they count as missing
                write_atomically(self._path, json.dumps(content).encode())

    def _recall(self, path: Path) -> None:
        try:
            content = read_json(path)
            if content["sha256"] != hash_json(content, "sha256"):
                raise ValueError("its SHA-256 differs from the one recorded")
            past = [np.array(each, float).astype(self._model.dtype) for each in content["readings"]]
            self._run, self._past = int(content["run"]), past
        except (KeyError, TypeError, ValueError):
            sys.stderr.write(f"graphact-agents: {path}: damaged; the readings before now count as missing\n")


def with_null(values: Array) -> Array:
    """Return values with None in the place of NaN, which JSON lacks."""
    found = values.astype(object)
    found[np.isnan(values)] = None
    return found
