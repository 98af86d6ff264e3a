"""A column of a grid in a sentence."""

import math
from collections.abc import Hashable

from graphact.experiments.pairing import difference
from graphact.experiments.registry import find_experiment
from graphact.experiments.report.grid import Grid, GridLine
from graphact.experiments.report.measures import Measure, cost
from graphact.experiments.report.rows import Run
from graphact.experiments.report.summary import Summary, number


def headline(grid: Grid, column: Hashable) -> str:
    """The best network of a column beside ReLU, FIR and the best baseline.

    It reads like "graph-adaptive max (2 hops) 73.1 % ± 7.0, ReLU 47.5 % ± 13.0; chance 25.0 %".
    """
    measure = grid.measure
    best, simple = grid.best(grid.models, column), grid.best(grid.baselines, column)
    if best is None:
        return "No network has a result yet" + (f"; {name_and_value(simple, column, measure)}." if simple else ".")
    usual = [grid.best((line for line in grid.models if is_method(line, name)), column) for name in ("relu", "fir")]
    shown = [best, *(line for line in usual if line is not None and line is not best)]
    sentence = ", ".join(name_and_value(line, column, measure) for line in shown)
    if simple is None:
        return f"{sentence}."
    if len(grid.baselines) == 1 and beats(best, simple, column, measure):
        return f"{sentence}; {name_and_value(simple, column, measure)}."
    verdict = "which the best network beats" if beats(best, simple, column, measure) else "which no network beats"
    if are_alike(best, simple, column):
        verdict = "from which the best network does not clearly differ"
    return f"{sentence}; the best simple baseline is {name_and_value(simple, column, measure)}, {verdict}."


def is_method(line: GridLine, method: str) -> bool:
    """Whether a line is of a method."""
    return line.variant is not None and line.variant.method == method


def beats(one: GridLine, other: GridLine, column: Hashable, measure: Measure) -> bool:
    """Whether one line has the better mean in a column."""
    ours, theirs = one.mean(column), other.mean(column)
    return ours is not None and theirs is not None and cost(measure, ours) < cost(measure, theirs)


def are_alike(one: GridLine, other: GridLine, column: Hashable) -> bool:
    """Whether the 95 % interval of the difference of two lines, run by run, holds 0."""
    ours, theirs = ({run.replica: run for run in line.cells[column].runs if is_finite(run)} for line in (one, other))
    places = ours.keys() & theirs.keys()
    if len(places) < 3:
        return False
    overlap = find_experiment(next(iter(ours.values())).experiment).overlap
    pairs = ([vars(runs[place]) for place in places] for runs in (ours, theirs))
    return not difference(*pairs, overlap=overlap).is_certain


def is_finite(run: Run) -> bool:
    """Whether a run ended in a number."""
    return run.value is not None and math.isfinite(run.value)


def name_and_value(line: GridLine, column: Hashable, measure: Measure) -> str:
    """A line's name in a sentence with its mean and standard deviation; a baseline without."""
    name = line.variant.long_label if line.variant else line.label
    summary = line.cells[column].summary
    return f"{name} {with_unit(summary, measure, with_std=line.variant is not None)}"


def with_unit(summary: Summary, measure: Measure, *, with_std: bool = True) -> str:
    """A mean with its unit, then the standard deviation."""
    if summary.mean is None:
        return "diverged"
    std = f" ± {number(summary.std, measure.digits)}" if with_std and summary.std is not None else ""
    return f"{number(summary.mean, measure.digits)}{measure.unit}{std}"
