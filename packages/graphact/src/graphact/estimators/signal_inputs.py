"""Readings of sensors as arrays ``(T, N, F)``: what is accepted, and what is refused with one line."""

import itertools
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphact._checks import check_integer
from graphact.estimators.inputs import Array, as_array

MIN_TIMES = 2
MISSING_POLICIES = ("mask", "refuse")
MAX_ROUNDING = 0.1  # standard deviations by which the mean of readings may be rounded in float32


def check_times(name: str, values: Any, *, equal_steps: bool) -> None:
    """Raise unless the index of a table of pandas ascends, and has equal steps where the past or future is read."""
    labels = getattr(values, "index", None)
    if labels is None or callable(labels) or len(values) < 2:
        return
    index = parse_text(name, labels)
    if not index.is_unique:
        raise ValueError(f"{name} must have one row for each time, got {labels[index.duplicated()][0]} twice")
    if not index.is_monotonic_increasing:
        at = next(at for at, (before, after) in enumerate(itertools.pairwise(index)) if not before < after)
        raise ValueError(
            f"{name} must be sorted by time, got {labels[at + 1]} after {labels[at]}: call {name}.sort_index()"
        )
    if equal_steps:
        if index.dtype.kind not in "iuf" and not hasattr(index, "asi8"):  # objects
            index = index.astype("datetime64[ns]")
        differs = steps_that_differ(index)
        if differs.any():
            at = int(np.argmax(differs))
            raise ValueError(
                f"{name} must have equal steps of time for a window or a forecast, got {labels[at]} to "
                f"{labels[at + 1]} after a step of {index[1] - index[0]}: {equal_steps_advice(name, index)}"
            )


def parse_text(name: str, index: Any) -> Any:
    """Return an index with text read as ISO times; text in another order of day and month sorts wrongly."""
    if index.inferred_type != "string":
        return index
    import pandas as pd

    try:
        return pd.to_datetime(index, format="ISO8601", utc=True)
    except ValueError:
        raise ValueError(
            f"{name} must have times as its index, or text such as 2026-03-01 14:00, got {index[0]!r}: "
            f"{name}.index = pandas.to_datetime({name}.index, dayfirst=True) reads days before months, then "
            f"{name} = {name}.sort_index()"
        ) from None


def steps_that_differ(index: Any) -> Array:
    """Return which steps of an index of times or numbers are not as long as the first one."""
    steps = np.diff(getattr(index, "asi8", index))
    if index.dtype.kind != "f":
        return np.asarray(steps != steps[0])
    rounding = 4 * np.finfo(steps.dtype).eps * np.abs(index).max()  # of times such as 0.1, 0.2, 0.3
    return ~np.isclose(steps, steps[0], rtol=1e-6, atol=rounding)


def equal_steps_advice(name: str, index: Any) -> str:
    """Return what gives an index equal steps."""
    if not hasattr(index, "to_period"):  # numbers, or periods
        return f"{name}.reindex(...) fills gaps with NaN"
    local = index.tz_localize(None)
    if index.tz is not None and not steps_that_differ(local).any():
        return f"{name} = {name}.tz_localize(None) takes days of 23 and 25 hours for days"
    months = local.to_period("M")
    if months.is_unique and not steps_that_differ(months).any():
        return f"{name} = {name}.tz_localize(None).to_period('M') takes months for equal"
    return f"{name} = {name}.resample('1h').mean(), with your step for 1h, rounds times and fills gaps with NaN"


def check_columns(name: str, values: Any) -> None:
    """Raise unless the columns of a table of pandas have different names and hold numbers."""
    columns: Any = getattr(values, "columns", None)
    if not hasattr(columns, "is_unique"):
        return
    if not columns.is_unique:
        raise ValueError(f"{name} must have one column for each node, got {columns[columns.duplicated()][0]!r} twice")
    for column, dtype in zip(columns, values.dtypes, strict=True):
        for value in values[column] if dtype.kind in "mMOUS" else ():
            try:
                float(value if is_known(value) else "nan")
            except (TypeError, ValueError):
                raise ValueError(
                    f"{name} must hold numbers, got {value!r:.40} in the column {column!r}: a missing reading is NaN, "
                    f"and times are the index, {name}.set_index(...)"
                ) from None


def names_of_columns(values: Any, count: int) -> list[str]:
    """Return the names of the columns of a table, whatever their type; numbers from 0 for an array."""
    columns = getattr(values, "columns", None)
    return [str(name) for name in (range(count) if columns is None else columns)]


def check_same_labels(x: Any, y: Any) -> None:
    """Raise if readings and targets are tables of other times or other nodes, or have these in another order."""
    for axis, what in (("index", "times"), ("columns", "nodes")):
        labels: Any = getattr(x, axis, None)
        others: Any = getattr(y, axis, None)
        if not (hasattr(labels, "dtype") and hasattr(others, "dtype")) or labels.dtype.kind != others.dtype.kind:
            continue
        is_unnamed = any(list(each) == list(range(len(each))) for each in (labels, others))
        if len(labels) == len(others) and not is_unnamed and not labels.equals(others):
            at = int(np.argmax(np.asarray(labels != others)))
            raise ValueError(f"y must have the {what} of X in the same order, got {others[at]} for {labels[at]}")


def check_readings(name: str, values: Array, policy: str) -> Array:
    """Return readings ``(T, N, F)``; raise if they have another shape, infinities, or NaN where it is refused."""
    if values.ndim not in (2, 3) or 0 in values.shape:
        raise ValueError(f"{name} must have the shape (times, nodes) or (times, nodes, features), got {values.shape}")
    values = values[..., np.newaxis] if values.ndim == 2 else values
    bad = np.isinf(values) if policy == "mask" else ~np.isfinite(values)
    if bad.any():
        time, node, _ = np.argwhere(bad)[0].tolist()
        found = "NaN" if np.isnan(values[bad][0]) else "infinity"
        advice = "; missing='mask' takes missing readings" if found == "NaN" else ", and NaN stands for a missing one"
        raise ValueError(f"{name} must hold finite readings, got {found} at time {time}, node {node}{advice}")
    return values


class Scale(NamedTuple):
    """Means and standard deviations, ``(F,)`` or ``(N, F)``."""

    mean: Array
    std: Array

    def apply(self, values: Array) -> Tensor:
        """Return scaled values in float32; NaN stays."""
        return torch.from_numpy(((values - self.mean) / self.std).astype(np.float32))


def fit_scale(name: str, values: Array, per_node: bool) -> Scale:
    """Return the scale of readings ``(T, N, F)``; what does not vary is divided by 1.

    Raises:
        ValueError: float32, in which a model holds the scale, has no such numbers, or its rounding hides what varies.
    """
    axes = (0,) if per_node else (0, 1)
    total = np.maximum(np.isfinite(values).sum(axes), 1)
    mean = np.nansum(values, axes) / total
    std = np.sqrt(np.nansum((values - mean) ** 2, axes) / total)
    varies = std > 1e-12 * np.abs(mean)
    limits = np.finfo(np.float32)
    if (np.abs(mean) + std > limits.max).any() or (varies & (std < limits.tiny)).any():
        raise ValueError(
            f"{name} must hold numbers of float32, got a standard deviation of {std.max():.3g}: scale them"
        )
    lost = varies & (np.abs(mean) * limits.eps > MAX_ROUNDING * std)
    if lost.any():
        at = np.unravel_index(int(np.argmax(lost)), lost.shape)
        raise ValueError(
            f"{name} must vary by more than float32 tells apart, got the mean {mean[at]:.8g} and the standard "
            f"deviation {std[at]:.3g}: subtract a constant near the mean"
        )
    return Scale(mean, np.where(varies, std, 1.0))


def report_columns(name: str, values: Array, nodes: Sequence[str], per_node: bool) -> None:
    """Warn of sensors without a reading and of those that never change; refuse them where each has a scale."""
    known = np.isfinite(values[..., 0])
    if not known.any():
        raise ValueError(f"{name} must hold a reading in the training part, got NaN alone")
    low, high = np.where(known, values[..., 0], np.inf).min(0), np.where(known, values[..., 0], -np.inf).max(0)
    for chosen, what in ((low > high, "has no reading"), (low == high, "always reads the same")):
        names = [node for node, is_one in zip(nodes, chosen, strict=True) if is_one]
        found = f"{name}: {', '.join(names[:5])}{' and others' * (len(names) > 5)} {what} in the training part"
        if names and per_node:
            raise ValueError(f"{found}, and scaling='node' needs readings that vary: leave it out, or scaling='global'")
        if names and len(values) > MIN_TIMES:
            warnings.warn(f"{found}; is the sensor broken?", stacklevel=4)


def find_node(target_node: int | str, names: Sequence[str]) -> int:
    """Return the number of a node, given by it or by its name."""
    if isinstance(target_node, str):
        if target_node not in names:
            raise ValueError(f"target_node must be one of the nodes {', '.join(names)[:80]}, got {target_node!r}")
        return list(names).index(target_node)
    number = check_integer("target_node", target_node, minimum=0)
    if number >= len(names):
        raise ValueError(f"target_node must be from 0 to {len(names) - 1}, got {number}")
    return number


def windows(readings: Tensor, times: Any, window: int) -> Tensor:
    """Return the readings ``(T, N, F)`` at some times with those before them, the newest first, ``(B, N, W F)``.

    Before the first one, all are missing.
    """
    start = readings.new_full((window - 1, *readings.shape[1:]), torch.nan)
    padded, at = torch.cat([start, readings]), torch.as_tensor(times)
    return torch.cat([padded[at + window - 1 - lag] for lag in range(window)], dim=-1)


def corrupt(
    x: Tensor, noise: float, outliers: float, hide: float, generator: torch.Generator | None, window: int = 1
) -> Tensor:
    """Return readings in standard deviations with noise, outliers of ten deviations, and some hidden.

    In windows ``(B, N, W F)`` half of the outliers and of the hidden readings are the same at all times of a window,
    as those of a sensor that is broken or dead.
    """
    per_time = x.size(-1) // window
    widths = (x.size(-1),) if window == 1 else (x.size(-1), per_time)

    def draw(function: Any, width: int) -> Tensor:
        drawn: Tensor = function((*x.shape[:-1], width), generator=generator).to(x.device)
        return drawn if width == x.size(-1) else drawn.repeat(*[1] * (x.dim() - 1), window)

    if noise:
        x = x + noise * draw(torch.randn, x.size(-1))
    for width in widths if outliers else ():
        x = torch.where(draw(torch.rand, width) < outliers / len(widths), x + 10 * draw(torch.randn, width), x)
    for width in widths if hide else ():
        x = x.masked_fill(draw(torch.rand, width) < hide / len(widths), torch.nan)
    return x


def find_column(x: Any, name: str) -> Any:
    """Return the column of a table that holds the targets."""
    if not hasattr(x, "columns"):
        raise ValueError(f"y must be targets, or the name of a column of a table X, got {name!r:.40} for an array")
    names = names_of_columns(x, 0)
    if name not in names:
        raise ValueError(f"y must be targets, or one of the columns {', '.join(names)[:60]} of X, got {name!r:.40}")
    return x.iloc[:, names.index(name)]


def known_labels(labels: Any) -> tuple[Array, Array]:
    """Return labels as an array, and where they are known: neither NaN nor None nor NA of pandas."""
    array = as_array(labels)
    if array.dtype.kind != "O":
        return array, ~np.isnan(array) if array.dtype.kind == "f" else np.ones(array.shape, bool)
    known = np.array([is_known(one) for one in array.flat], bool).reshape(array.shape)
    kinds = {np.asarray(one).dtype.kind for one in array[known]}
    if kinds and kinds <= {*"biu"}:  # a table of pandas whose type has missing values
        array = np.where(known, array, 0).astype(bool if kinds == {"b"} else np.int64)
    return array, known


def is_known(value: Any) -> bool:
    """Return whether an object is a value: NaN is not equal to itself, and NA of pandas is neither that nor not."""
    try:
        return value is not None and bool(value == value)
    except TypeError:
        return False
