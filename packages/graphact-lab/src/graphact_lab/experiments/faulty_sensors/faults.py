"""Faults of stations, and rules that need no network to see through them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
DEVIATIONS = 3.0  # from the median, in scaled median absolute deviations, beyond which Hampel's filter replaces a value
MAD_SCALE = 1.4826  # of the median absolute deviation, to the standard deviation of normal values
TIME_WINDOW = 12  # hours that Hampel's filter in time looks back on
HUBER = 1.345  # standard deviations of the residual up to which errors count by their squares
RIDGE = 1e-3


def spoil(clean: Array, fault: str, share: float, settings: Any, deviation: float, rng: np.random.Generator) -> Any:
    """Return readings ``(T, N)`` of which some stations are faulty, and which stations these are, ``(N,)``."""
    times, count = clean.shape
    faulty = np.zeros(count, bool)
    faulty[rng.choice(count, max(1, round(share * count)), replace=False)] = True
    readings = clean.copy()
    for station in np.flatnonzero(faulty):
        begin = rng.integers(times // 2)
        if fault == "outliers":
            hit = rng.random(times) < settings.outlier_share
            sign = rng.choice([-1.0, 1.0], times)
            readings[:, station] += np.where(hit, sign * settings.outlier * deviation, 0.0)
        elif fault == "drift":
            slope = rng.choice([-1.0, 1.0]) * settings.drift * deviation
            readings[:, station] += slope * np.clip(np.arange(times) - begin, 0, None)
        else:
            readings[begin:, station] = readings[begin, station]
    return readings, faulty


def neighbors_median(readings: Array, around: list[NDArray[np.int64]]) -> Array:
    """Return the median of the neighbours' present readings at each station."""
    return np.stack([np.median(readings[:, others], axis=1) for others in around], axis=1)


def hampel_in_space(readings: Array, around: list[NDArray[np.int64]]) -> Array:
    """Replace readings that are far from the median of the neighbours by it."""
    median = neighbors_median(readings, around)
    apart = [np.median(np.abs(readings[:, others] - median[:, [i]]), axis=1) for i, others in enumerate(around)]
    limit = DEVIATIONS * MAD_SCALE * np.stack(apart, axis=1)
    return np.where(np.abs(readings - median) > limit, median, readings)


def hampel_in_time(readings: Array) -> Array:
    """Replace readings that are far from the median of a station's own last hours by it."""
    out = readings.copy()
    for time in range(len(readings)):
        past = readings[max(0, time - TIME_WINDOW + 1) : time + 1]
        median = np.median(past, axis=0)
        limit = DEVIATIONS * MAD_SCALE * np.median(np.abs(past - median), axis=0)
        out[time] = np.where(np.abs(readings[time] - median) > limit, median, readings[time])
    return out


def columns_of(readings: Array, window: int, mean: float, deviation: float) -> Array:
    """Return scaled readings with those before them, ``(T, N, W)``; the first one stands for those before it."""
    padded = np.concatenate([np.repeat(readings[:1], window - 1, axis=0), readings])
    past = [padded[window - 1 - lag : len(padded) - lag] for lag in range(window)]
    return (np.stack(past, axis=-1) - mean) / deviation


def least_squares(columns: Array, target: Array, *, robust: bool, steps: int = 20) -> Array:
    """Return the coefficients ``(C,)`` of ridge regression, or of Huber's loss by iterated reweighting."""
    weight, found = np.ones(len(columns)), np.zeros(columns.shape[1])
    for _ in range(steps if robust else 1):
        weighted = columns * weight[:, None]
        normal = columns.T @ weighted + RIDGE * weight.sum() * np.eye(columns.shape[1])
        found = np.linalg.solve(normal, weighted.T @ target)
        error = target - columns @ found
        spread = MAD_SCALE * np.median(np.abs(error - np.median(error))) or 1.0
        weight = np.minimum(1.0, HUBER * spread / np.maximum(np.abs(error), 1e-12))
    return found
