"""Rows of results: what the report reads, and the checks that every row must pass."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from numbers import Real
from typing import Any

from graphact._checks import check_choice, check_integer

METRICS = {"source-localization": "accuracy", "consensus": "rmse", "denoising": "rmse", "recommendation": "rmse"}
CONDITIONS = {"consensus": "loss_probability", "denoising": "snr_db", "recommendation": "film"}
NEEDED_OF_MODELS = {
    "source-localization": ("features",),
    "consensus": ("features", "order"),
    "denoising": ("features", "order"),
    "recommendation": (),
}
KINDS = ("model", "baseline")
TEXTS = ("preset", "protocol", "method")
COUNTS = ("hops", "features", "order", "graph", "split", "node", "realization", "best_epoch", "epochs", "seed")
PROVENANCE = ("graphact", "torch", "device", "finished")
REPLICA = ("graph", "split", "node", "realization", "seed")

Condition = tuple[tuple[str, float | str], ...]


@dataclass(frozen=True)
class Run:
    """One row: the test result of one trained model, or of one baseline, on one replica of an experiment.

    Attributes:
        experiment: "source-localization", "consensus", "denoising" or "recommendation".
        preset: how much was run, such as "quick" or "paper".
        protocol: how it was trained, such as "paper" or "converged".
        kind: "model" or "baseline".
        method: name of an activation or "fir" for a model; a few words for a baseline.
        metric: "accuracy" (percent, higher is better) or "rmse" (lower is better).
        value: the metric on the test samples; NaN, infinity or None of a run that diverged.
        hops: number of hops of the activation.
        features: number of features F of a layer.
        order: order K of the filters.
        condition: nothing, or one of ``loss_probability`` (consensus), ``snr_db`` (denoising), ``film``
            (recommendation) with its value.
        graph, split, node, realization, seed: which replica this is.
        validation: the metric on the validation samples, NaN if there are none.
        best_epoch, epochs: the epoch whose parameters were kept, and how many were run.
        beta: the trained weight of the ReLU term, one for each layer.
        weights: the trained weights h by layer, hop and feature.
        settings: whatever else decided the result, such as the learning rate, by name.
        graphact, torch, device, seconds, finished: with what, where, how long, until when.
    """

    experiment: str
    preset: str
    protocol: str
    kind: str
    method: str
    metric: str
    value: float
    hops: int | None = None
    features: int | None = None
    order: int | None = None
    condition: Condition = ()
    graph: int | None = None
    split: int | None = None
    node: int | None = None
    realization: int | None = None
    seed: int | None = None
    validation: float = math.nan
    best_epoch: int | None = None
    epochs: int | None = None
    beta: tuple[float, ...] = ()
    weights: tuple[tuple[tuple[float, ...], ...], ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    graphact: str | None = None
    torch: str | None = None
    device: str | None = None
    seconds: float = 0.0
    finished: str | None = None

    @property
    def replica(self) -> tuple[int | None, ...]:
        """What tells this run from the others of its cell."""
        return tuple(getattr(self, name) for name in REPLICA)


def read_rows(rows: Iterable[Mapping[str, Any]]) -> list[Run]:
    """Check rows and bring them into an order that does not depend on the one they came in.

    Raises:
        ValueError: there are no rows, or a row does not fit the description of :class:`Run`.
        TypeError: a value of a row is of the wrong type.
    """
    runs = [read_row(row, f"rows[{position}]") for position, row in enumerate(rows)]
    if not runs:
        raise ValueError("rows must hold at least one result, got none; run an experiment first")
    return sorted(runs, key=place)


def place(run: Run) -> tuple[object, ...]:
    """What runs are sorted by; no two runs of a report share it."""
    texts = (run.experiment, run.preset, run.protocol, run.kind, run.method)
    numbers = (run.hops, run.features, run.order, *run.replica)
    return *texts, *(-1 if value is None else value for value in numbers), run.condition


def read_row(row: Mapping[str, Any], name: str) -> Run:
    """One checked row; ``name`` is how messages call it. Keys that a :class:`Run` does not have are passed over."""
    known = {field.name for field in fields(Run)}
    values = {key: value for key, value in row.items() if key in known and value is not None}
    required = {"experiment", *TEXTS, "kind", "metric"}
    if missing := sorted(required - values.keys()):
        raise ValueError(f"{name} must hold {missing[0]!r}, got the keys {sorted(row)}")
    experiment = check_choice(f"{name}['experiment']", values["experiment"], tuple(METRICS))
    check_choice(f"{name}['kind']", values["kind"], KINDS)
    check_choice(f"{name}['metric']", values["metric"], (METRICS[experiment],))
    for key in (*TEXTS, *PROVENANCE):
        if key in values:
            values[key] = check_text(f"{name}[{key!r}]", values[key])
    for key in COUNTS:
        if key in values:
            values[key] = check_integer(f"{name}[{key!r}]", values[key], minimum=0)
    for key in NEEDED_OF_MODELS[experiment] if values["kind"] == "model" else ():
        if key not in values:
            raise ValueError(f"{name}[{key!r}] must be an integer for a model of {experiment}, got None")
    values["value"] = check_number(f"{name}['value']", values.get("value", math.nan))
    values["validation"] = check_number(f"{name}['validation']", values.get("validation", math.nan))
    values["seconds"] = check_number(f"{name}['seconds']", values.get("seconds", 0.0))
    values["condition"] = check_condition(f"{name}['condition']", values.get("condition", {}), experiment)
    values["beta"] = check_numbers(f"{name}['beta']", values.get("beta", ()), depth=1)
    values["weights"] = check_numbers(f"{name}['weights']", values.get("weights", ()), depth=3)
    values["settings"] = check_settings(f"{name}['settings']", values.get("settings", {}))
    return Run(**values)


def check_text(name: str, value: Any) -> str:
    """Return a text on one line, in printable characters."""
    if not isinstance(value, str) or not value.strip():
        raise TypeError(f"{name} must be a text that is not empty, got {value!r}")
    return "".join(
        letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in " ".join(value.split())
    )


def check_number(name: str, value: Any) -> float:
    """Return a float, which may be NaN or infinite."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, got {value!r} of type {type(value).__name__}")
    return float(value)


def check_numbers(name: str, value: Any, *, depth: int) -> Any:
    """Return lists nested ``depth`` deep as tuples of floats; None among the numbers, as JSON writes NaN, is NaN."""
    if depth == 0:
        return math.nan if value is None else check_number(name, value)
    if not isinstance(value, list | tuple):
        raise TypeError(f"{name} must be a list of numbers, {depth} deep, got {value!r}")
    return tuple(check_numbers(name, item, depth=depth - 1) for item in value)


def check_settings(name: str, value: Any) -> tuple[tuple[str, str], ...]:
    """Return settings as pairs of texts, by name."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} must be a mapping, got {value!r} of type {type(value).__name__}")
    return tuple((str(key), in_words(value[key])) for key in sorted(value, key=str))


def in_words(value: Any) -> str:
    """A JSON value as a reader would write it."""
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    if isinstance(value, list | tuple):
        return ", ".join(map(in_words, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def check_condition(name: str, value: Any, experiment: str) -> Condition:
    """Return the condition as pairs, if it is one that the experiment knows."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} must be a mapping, got {value!r} of type {type(value).__name__}")
    key = CONDITIONS.get(experiment)
    if experiment == "recommendation":
        if set(value) != {key}:
            raise ValueError(f"{name} must name the film and nothing else, got {dict(value)}")
        return (("film", check_text(f"{name}['film']", str(value["film"]))),)
    if set(value) - {key}:
        raise ValueError(f"{name} must be empty{f' or hold {key!r}' if key else ''} in {experiment}, got {dict(value)}")
    return tuple((str(kind), check_number(f"{name}[{kind!r}]", level)) for kind, level in value.items())
