"""Readings of a sensor as the input of a model that looks back: those of the last runs, the newest first."""

import numpy as np

from graphact_agents.messages import Array
from graphact_agents.model import Model
from graphact_agents.signals import NoSignal, NotYet, Signals


class Readings(Signals):
    """A source of readings for a model that takes a window of them, or takes missing ones.

    A run without a reading goes on: the model is told that it is missing. So are those of runs that the node has
    missed, and of those before its start.

    Args:
        source: where the readings come from.
        model: the model.
        waits: wait for a reading that may still come, as without a clock.
    """

    def __init__(self, source: Signals, model: Model, *, waits: bool = False) -> None:
        self._source, self._model, self._waits = source, model, waits
        self._run, self._past = -1, list[Array]()

    @property
    def numbered(self) -> bool:  # type: ignore[override]
        return self._source.numbered

    def prepare(self, start: float, now: float, run: int) -> None:
        self._source.prepare(start, now, run)

    def take(self, run: int) -> Array:
        self.missing, dtype = "", self._model.dtype
        nothing = np.full((self._model.in_features or 1) // self._model.window, np.nan, dtype)
        try:
            reading = self._source.take(run)
            self.missing = "the source gives NaN or null" if np.isnan(reading).any() else ""
        except NoSignal as reason:
            if not self._model.takes_missing or (self._waits and isinstance(reason, NotYet)):
                raise
            self.missing, reading = str(reason), nothing if not self._past else np.full_like(self._past[0], np.nan)
        self._past = self._past[max(self._run - run + 1, 0) :]  # its clock may have been set back
        missed = max(run - self._run - 1, 0) if self._past else 0
        empty = np.full_like(reading, np.nan)
        past = [
            *[empty] * min(missed, self._model.window),
            *(each for each in self._past if each.shape == reading.shape),
        ]
        self._run, self._past = run, [reading, *past][: self._model.window]
        window = self._past + [empty] * (self._model.window - len(self._past))
        signal = np.concatenate(window, axis=-1)
        if not self._model.takes_missing and np.isnan(signal).any():
            raise NoSignal(f"the model takes {self._model.window} readings, and there are {len(self._past)} so far")
        return signal

    def close(self) -> None:
        self._source.close()
