"""Tables as figures: lines with bands over a number, or else dots with bars."""

import base64
from typing import Any

import numpy as np

from graphact_lab.figures import GREY, INK, house_style, new_sheet, settle, to_png, to_svg
from graphact_lab.report.tables import Table
from graphact_lab.style import Variant, format_number

PLOT, ROW, PANEL, AXIS, LEGEND_ROW = 2.6, 0.19, 0.4, 0.6, 0.17  # inches
WIDTH = 5.0
DOTTED: Any = {"color": GREY, "linewidth": 0.9, "linestyle": (0, (1, 1.6)), "zorder": 1.5}
MIN_LOG_RATIO = 4.0  # of errors, from which on their axis is logarithmic


def render(table: Table) -> tuple[bytes, bytes, str]:
    """Return the figure of a table in pixels, as SVG, and as the address of an image that holds it."""
    with house_style():
        sheet = draw(table)
        settle(sheet)
        svg = to_svg(sheet).encode()
        return to_png(sheet), svg, f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"


def draw(table: Table) -> Any:
    """Draw networks and, dotted, baselines, as far as they are near the networks; the legend names all."""
    from matplotlib.ticker import LogLocator

    networks = table.networks[table.networks["mean"].notna()]
    baselines = table.entries[(table.entries.kind == "baseline") & table.entries["mean"].notna()]
    is_line = table.axis is not None and networks.column_index.nunique() > 1
    columns = sorted(networks.column_index.unique())
    counts = [sum(networks.column_index == column) for column in columns]
    names = networks.line.nunique() * is_line + baselines.line.nunique() + (not is_line and table.has_paper)
    height = PLOT if is_line else ROW * sum(counts) + PANEL * len(counts) + AXIS
    sheet = new_sheet(height + LEGEND_ROW * names, WIDTH)
    low, high, is_log = scale_of(table, networks, baselines)
    scale: Any = "log" if is_log else "linear"
    handles: dict[str, Any] = {}
    if is_line:
        axes = sheet.subplots()
        axes.set(xlabel=table.axis, ylabel=table.measure.axis, yscale=scale, ylim=(low, high))
        axes.grid(axis="y")
        axes.set_xticks(sorted(set(networks.key)), [f"{key:g}" for key in sorted(set(networks.key))])
        for label, line in networks.groupby("line", sort=False):
            look = Variant(line.method.iloc[0], None).style
            x, (least, most) = line.key.astype(float), ends_of(table, line)
            axes.fill_between(x, least, most, color=look.color, alpha=0.1, linewidth=0)
            kind: Any = {
                "color": look.color,
                "linestyle": look.line,
                "marker": look.marker,
                "markersize": 4 * look.size,
            }
            handles[label] = axes.plot(x, line["mean"], **kind)[0]
        for label, line in baselines.groupby("line", sort=False):
            (handles[label],) = axes.plot(line.key.astype(float), line["mean"], **DOTTED)
    else:
        panels = sheet.subplots(len(columns), sharex=True, squeeze=False, height_ratios=[n + 0.6 for n in counts])[:, 0]
        for axes, column in zip(panels, columns, strict=True):
            own = networks[networks.column_index == column]
            draw_dots(axes, table, own, handles)
            axes.set(xscale=scale, xlim=(low, high))
            for _, entry in baselines[baselines.column_index == column].iterrows():
                handles[entry.line] = axes.axvline(entry["mean"], **DOTTED)
        panels[-1].set_xlabel(table.measure.axis)
    if is_log:
        for axis in (axes.yaxis,) if is_line else (panel.xaxis for panel in panels):
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axis.set_major_formatter("{x:g}")
            axis.set_minor_formatter("")
    labels = {line: f"{line}: {baseline_range(table, own)}" for line, own in baselines.groupby("line", sort=False)}
    named = [handle.set_label(labels.get(label, label)) or handle for label, handle in handles.items()]
    if named:
        sheet.legend(handles=named, loc="outside lower left", handlelength=2.6)
    return sheet


def draw_dots(axes: Any, table: Table, entries: Any, handles: dict[str, Any]) -> None:
    """Draw a row for each network of a column: ours filled, the paper's hollow."""
    axes.set_title(entries.column.iloc[0], loc="left", weight="bold", color=INK)
    axes.set_yticks(range(len(entries)), entries.line)
    axes.set_ylim(len(entries) - 0.4, -0.6)
    axes.grid(axis="x")
    for row, (entry, least, most) in enumerate(zip(entries.itertuples(), *ends_of(table, entries), strict=True)):
        look = Variant(entry.method, None).style
        kind: Any = {"color": look.color, "marker": look.marker, "markersize": 4.5 * look.size}
        bar = [[max(entry.mean - least, 0)], [max(most - entry.mean, 0)]]
        axes.errorbar(entry.mean, row - 0.17 * table.has_paper, xerr=bar, **kind)
        if entry.paper_mean == entry.paper_mean:
            std = np.nan_to_num(entry.paper_std)
            hollow = axes.errorbar(
                entry.paper_mean, row + 0.17, xerr=std, markerfacecolor="none", linewidth=0.7, **kind
            )
            handles["hollow: the paper's"] = hollow


def ends_of(table: Table, entries: Any) -> tuple[Any, Any]:
    """Return the ends of bands or bars, not beyond what values can be."""
    mean, std = entries["mean"].to_numpy(float), np.nan_to_num(entries["std"].to_numpy(float))
    low, high = table.measure.limits
    return np.maximum(mean - std, np.minimum(mean, low)), np.minimum(mean + std, np.maximum(mean, high))


def baseline_range(table: Table, line: Any) -> str:
    """Return the least and largest mean of a baseline, in words."""
    ends = (format_number(end, table.measure.digits, small=True) for end in (line["mean"].min(), line["mean"].max()))
    return " to ".join(dict.fromkeys(ends))


def scale_of(table: Table, networks: Any, baselines: Any) -> tuple[float, float, bool]:
    """Return a range that holds all networks and the baselines near them, and whether its axis is logarithmic."""
    papers = [(networks.paper_mean - networks.paper_std).min(), (networks.paper_mean + networks.paper_std).max()]
    means, (least, most) = networks["mean"], ends_of(table, networks)
    is_log = table.measure.limits == (0.0, np.inf) and means.min() > 0 and means.max() / means.min() >= MIN_LOG_RATIO
    if is_log:
        near = baselines["mean"][baselines["mean"].between(means.min() / 30, 30 * means.max())]
        return min([means.min(), *near]) / 1.3, max([means.max(), *near]) * 1.3, True
    low, high = np.nanmin([*least, papers[0]]), np.nanmax([*most, papers[1]])
    reach = max(0.35 * (high - low), 0.05 * abs(high), 1e-9)
    near = baselines["mean"][baselines["mean"].between(low - reach, high + reach)]
    low, high = min([low, *near]), max([high, *near])
    margin = 0.06 * max(high - low, 0.05 * abs(high), 1e-9)
    return low - margin, high + margin, False
