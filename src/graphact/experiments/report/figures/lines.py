"""Draw a line chart."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from graphact.experiments.report.figures.canvas import new_sheet
from graphact.experiments.report.figures.charts import LineChart, Reference, Series
from graphact.experiments.report.figures.legend import add_legends, legend_height, reference_texts
from graphact.experiments.report.figures.scale import Scale, scale_of, set_scale
from graphact.experiments.report.figures.tags import write_tags
from graphact.experiments.report.methods import GREY

PLOT_HEIGHT = 2.5
BAND_OPACITY = 0.1
GEOMETRIC_FROM = 1.5


def draw_lines(chart: LineChart) -> Any:
    """Lines with markers and a band of one standard deviation; baselines as grey lines with letters."""
    results = [(point.mean, point.std) for series in chart.series for point in series.points]
    scale = scale_of(results, chart.references)
    texts = reference_texts(chart.references, chart.measure, scale)
    labels = [series.label for series in chart.series]
    sheet = new_sheet(PLOT_HEIGHT + legend_height(labels, texts))
    axes = sheet.subplots()
    prepare_axes(axes, chart, scale)
    shifts = side_by_side(chart)
    handles = [
        draw_series(axes, series, is_main(series, chart.series), shift)
        for series, shift in zip(chart.series, shifts, strict=True)
    ]
    for reference in chart.references:
        draw_reference(axes, reference)
    ends = [(reference.points[-1].mean, text.tag) for reference, text in zip(chart.references, texts, strict=True)]
    write_tags(axes, ends, scale, vertical=True)
    add_legends(sheet, handles, labels, texts)
    return sheet


def side_by_side(chart: LineChart) -> list[float | None]:
    """Where there is one place on the axis, how far each network stands from it, so that none hides another."""
    count = len(chart.series)
    if len(chart.xs) != 1:
        return [None] * count
    return [(number - (count - 1) / 2) / max(count, 1) for number in range(count)]


def prepare_axes(axes: Any, chart: LineChart, scale: Scale) -> None:
    """Labels, ticks where there are results, and the scales."""
    xs = chart.xs
    axes.set_xlabel(chart.x_label)
    axes.set_ylabel(chart.measure.axis)
    axes.grid(axis="y")
    if len(xs) > 2 and min(xs) > 0 and is_geometric(xs):
        axes.set_xscale("log", base=2)
    axes.set_xticks(xs, [f"{x:g}" for x in xs])
    axes.set_xticks([], minor=True)
    axes.margins(x=0.04)
    if len(xs) == 1:
        axes.set_xlim(xs[0] - 0.55, xs[0] + 0.55)
    set_scale(axes.yaxis, scale)


def is_geometric(xs: Sequence[float]) -> bool:
    """Whether numbers grow by a constant factor."""
    ratios = [after / before for before, after in pairwise(xs)]
    return max(ratios) - min(ratios) < 1e-9 and ratios[0] >= GEOMETRIC_FROM


def is_main(series: Series, every: Sequence[Series]) -> bool:
    """Whether a network has the most hops of its method; the others are drawn thinner."""
    same = [other.variant.hops or 0 for other in every if other.variant.method == series.variant.method]
    return (series.variant.hops or 0) == max(same)


def draw_series(axes: Any, series: Series, main: bool, shift: float | None = None) -> Any:
    """One network; the line is what the legend shows. A single place has a bar instead of a band."""
    xs, means = [point.x + (shift or 0.0) for point in series.points], [point.mean for point in series.points]
    style = series.variant.style
    lower = [point.mean - point.std for point in series.points]
    upper = [point.mean + point.std for point in series.points]
    if shift is None:
        axes.fill_between(xs, lower, upper, color=style.color, alpha=BAND_OPACITY, linewidth=0)
    else:
        axes.vlines(xs, lower, upper, color=style.color, linewidth=1.5)
    (line,) = axes.plot(
        xs,
        means,
        color=style.color,
        linestyle=style.line,
        linewidth=1.5 if main else 0.9,
        marker=style.marker,
        markersize=style.size * (5 if main else 3.2),
        markeredgewidth=0,
    )
    return line


def draw_reference(axes: Any, reference: Reference) -> None:
    """A baseline: straight through where it holds everywhere, a tick where it is known at one place."""
    style = {"color": GREY, "linewidth": 0.9, "linestyle": (0, (1, 1.6)), "zorder": 1.5}
    if reference.constant:
        axes.axhline(reference.points[0].mean, **style)
    elif len(reference.points) == 1:
        axes.plot([reference.points[0].x], [reference.points[0].mean], marker="_", markersize=9, **style)
    else:
        axes.plot([point.x for point in reference.points], [point.mean for point in reference.points], **style)
