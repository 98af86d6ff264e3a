"""The figure of graphact certify: constants of the nodes and, for given signals, what is kept within a radius."""

from typing import Any

from graphact.commands.certify_findings import Findings
from graphact.experiments.style import house_style, new_sheet, settle, to_png, to_svg

CERTIFIED, FOUND = "#0072b2", "#d55e00"
PANEL = 2.3


def draw(findings: Findings) -> tuple[bytes, str]:
    """The figure as PNG and SVG."""
    panels = 2 if findings.radii else 1
    with house_style():
        sheet = new_sheet(PANEL * panels)
        axes = sheet.subplots(panels, squeeze=False)[:, 0]
        draw_nodes(axes[0], findings)
        if findings.radii:
            draw_radii(axes[1], findings)
        settle(sheet)
        return to_png(sheet), to_svg(sheet)


def draw_nodes(axes: Any, findings: Findings) -> None:
    """Certified and found constants, from the most sensitive node to the least."""
    order = findings.bound.per_node.argsort(descending=True)
    certified, found = findings.bound.per_node[order].tolist(), findings.found.per_node[order].tolist()
    places = range(1, len(certified) + 1)
    axes.vlines(places, found, certified, color="#d5d9de", linewidth=1.2, zorder=1)
    axes.plot(places, certified, "o", color=CERTIFIED, markersize=3, markeredgewidth=0, label="certified, at most")
    axes.plot(places, found, "^", color=FOUND, markersize=3, markeredgewidth=0, label="found, at least")
    if min([*found, *certified]) > 0:
        logarithmic(axes, min(found), max(certified))
    axes.set_xlabel("Nodes, the most sensitive first")
    axes.set_ylabel("Lipschitz constant")
    axes.grid(axis="y")
    legend_above(axes)


def draw_radii(axes: Any, findings: Findings) -> None:
    """The share of decisions, or the width of outputs, over the radius."""
    radii = [line.radius for line in findings.radii]
    factor = 100 if findings.classifier else 1
    certified = [factor * line.certified for line in findings.radii]
    found = [factor * line.found for line in findings.radii]
    names = (
        ("certified to stay", "no change found") if findings.classifier else ("certified, at most", "found, at least")
    )
    axes.fill_between(radii, certified, found, color="#d5d9de", alpha=0.5, linewidth=0)
    axes.plot(radii, certified, "o-", color=CERTIFIED, markersize=3.5, linewidth=1.4, label=names[0])
    axes.plot(radii, found, "^-", color=FOUND, markersize=3.5, linewidth=1.4, label=names[1])
    axes.set_xscale("log")
    axes.set_xticks(radii, [f"{radius:.3g}" for radius in radii])
    axes.set_xticks([], minor=True)
    axes.set_xlabel("Largest change of any input")
    axes.grid(axis="y")
    if findings.classifier:
        axes.set_ylabel("Decisions (%)")
        axes.set_ylim(-3, 103)
    else:
        axes.set_ylabel("Change of outputs (mean)")
        if min([*certified, *found]) > 0:
            logarithmic(axes, min(found), max(certified))
    legend_above(axes)


def logarithmic(axes: Any, low: float, high: float) -> None:
    """A logarithmic scale with plain numbers at its ticks."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_yscale("log")
    steps = (1.0, 2.0, 5.0) if high < 100 * low else (1.0,)
    axes.yaxis.set_major_locator(LogLocator(subs=steps, numticks=12))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def legend_above(axes: Any) -> None:
    """One line above the panel."""
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=2,
        borderaxespad=0.2,
        borderpad=0,
        handletextpad=0.5,
        columnspacing=1.5,
    )
