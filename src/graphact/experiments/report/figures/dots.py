"""Draw a dot chart."""

from collections.abc import Sequence
from typing import Any

from graphact.experiments.report.figures.canvas import drawable, new_sheet
from graphact.experiments.report.figures.charts import Dot, DotChart, Panel, Point, Reference
from graphact.experiments.report.figures.legend import add_legends, legend_height, reference_texts
from graphact.experiments.report.figures.scale import Scale, scale_of, set_scale
from graphact.experiments.report.figures.tags import write_tags
from graphact.experiments.report.methods import GREY, INK, Style
from graphact.experiments.report.paper import Published

ROW = 0.19  # inches from one network to the next
PANEL_EXTRA = 0.34
BOTTOM = 0.45
OFFSET = 0.17  # of a row: ours above its middle, the paper's below
OURS, PAPER = "ours, mean ± standard deviation", "paper, mean ± standard deviation"


def draw_dots(chart: DotChart) -> Any:
    """Panels from top to bottom; ours filled, the paper's hollow, baselines as vertical lines with letters."""
    dots = [dot for panel in chart.panels for dot in panel.dots]
    references = over_panels(chart.panels)
    results = [result for dot in dots for result in results_of(dot)]
    scale = scale_of(results, references)
    texts = reference_texts(references, chart.measure, scale)
    handles, labels = legend_entries(dots)
    rows = [len(panel.dots) for panel in chart.panels]
    height = ROW * sum(rows) + PANEL_EXTRA * len(rows) + BOTTOM
    sheet = new_sheet(height + legend_height(labels, texts))
    tags = {reference.label: text.tag for reference, text in zip(references, texts, strict=True)}
    every = sheet.subplots(len(rows), 1, sharex=True, squeeze=False, height_ratios=[count + 0.6 for count in rows])
    for axes, panel in zip(every[:, 0], chart.panels, strict=True):
        draw_panel(axes, panel, scale, tags)
    every[-1, 0].set_xlabel(chart.measure.axis)
    add_legends(sheet, handles, labels, texts)
    return sheet


def results_of(dot: Dot) -> list[tuple[float, float]]:
    """The means of a network with their standard deviations, ours and the paper's."""
    return [(result.mean, result.std) for result in (dot.ours, dot.paper) if result is not None]


def over_panels(panels: Sequence[Panel]) -> list[Reference]:
    """Every baseline once, with its points in all panels."""
    points: dict[str, list[Point]] = {}
    for panel in panels:
        for reference in panel.references:
            points.setdefault(reference.label, []).extend(reference.points)
    return [Reference(label, tuple(found), constant=False) for label, found in points.items()]


def draw_panel(axes: Any, panel: Panel, scale: Scale, tags: dict[str, str]) -> None:
    """One setting."""
    axes.text(
        -0.013,
        1.01,
        drawable(panel.title),
        transform=axes.transAxes,
        weight="bold",
        fontsize=8.5,
        ha="right",
        va="bottom",
    )
    set_scale(axes.xaxis, scale)
    axes.set_ylim(len(panel.dots) - 0.4, -0.6)
    axes.set_yticks(range(len(panel.dots)), [drawable(dot.label) for dot in panel.dots])
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
    for row, dot in enumerate(panel.dots):
        both = dot.ours is not None and dot.paper is not None
        draw_result(axes, dot.ours, row - OFFSET * both, dot.variant.style, hollow=False)
        draw_result(axes, dot.paper, row + OFFSET * both, dot.variant.style, hollow=True)
    for reference in panel.references:
        axes.axvline(reference.points[0].mean, color=GREY, linewidth=0.9, linestyle=(0, (1, 1.6)), zorder=1.5)
    places = [(reference.points[0].mean, tags[reference.label]) for reference in panel.references]
    write_tags(axes, places, scale, vertical=False)


def draw_result(axes: Any, result: Point | Published | None, row: float, style: Style, *, hollow: bool) -> None:
    """A marker with its standard deviation to both sides."""
    if result is None:
        return
    axes.plot(
        [result.mean - result.std, result.mean + result.std],
        [row, row],
        color=style.color,
        linewidth=0.7 if hollow else 1.3,
        solid_capstyle="butt",
    )
    axes.plot(
        [result.mean],
        [row],
        color=style.color,
        marker=style.marker,
        markersize=style.size * (4.2 if hollow else 4.8),
        markerfacecolor="none" if hollow else style.color,
        markeredgewidth=0.8 if hollow else 0,
        linestyle="none",
    )


def legend_entries(dots: Sequence[Dot]) -> tuple[list[Any], list[str]]:
    """What filled and hollow markers mean, as far as they occur."""
    from matplotlib.lines import Line2D

    style: Any = {"color": INK, "marker": "o", "markersize": 4.5}
    ours = Line2D([], [], linewidth=1.3, markeredgewidth=0, **style)
    paper = Line2D([], [], linewidth=0.7, markerfacecolor="none", markeredgewidth=0.8, **style)
    entries = [(ours, OURS)] if any(dot.ours for dot in dots) else []
    entries += [(paper, PAPER)] if any(dot.paper for dot in dots) else []
    return [handle for handle, _ in entries], [label for _, label in entries]
