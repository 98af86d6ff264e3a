"""Tables as figures: lines with bands or dots with error bars, in pixels and as SVG for light and dark ground."""

import textwrap
from collections import namedtuple
from typing import Any

import numpy as np
import pandas as pd

from graphact.experiments.report import style
from graphact.experiments.report.content import Figure
from graphact.experiments.report.style import GREY, INK, Variant, drawable
from graphact.experiments.report.tables import format_number

PLOT, ROW, PANEL, AXIS = 2.6, 0.19, 0.4, 0.6  # inches of a line chart; of a network, a panel and the axis of dots
LETTERS, SHORT = 70, 12  # letters to a line below the figure; letters of a name that is its own tag
CLOSE, MANY = 0.045, 4  # part of an axis that a tag takes; tags that have room at one place
DOTTED: Any = {"color": GREY, "linewidth": 0.9, "linestyle": (0, (1, 1.6)), "zorder": 1.5}
FILLED: Any = {"linewidth": 1.3, "markeredgewidth": 0}
HOLLOW: Any = {"linewidth": 0.7, "markeredgewidth": 0.8, "markerfacecolor": "none"}
TAG: Any = {"xycoords": "axes fraction", "color": GREY, "weight": "bold", "fontsize": 7.5}
Scale = namedtuple("Scale", "low high logarithmic")  # the ends of an axis and whether it is logarithmic


def render(figure: Figure) -> tuple[bytes, str, str]:
    """A figure in pixels, as an SVG file, and as an SVG element of a page."""
    with style.house_style():
        sheet = draw(figure)
        style.settle(sheet)
        svgs = style.light_and_dark(style.to_svg(sheet), name=figure.name, title=figure.title, alt=figure.alt)
        return style.to_png(sheet), *svgs


def draw(figure: Figure) -> Any:
    """Networks with a legend above, baselines as dotted lines with letters, which the text below explains."""
    entries, digits = figure.table.entries, figure.table.measure.digits
    networks = entries[(entries.kind == "model") & entries[["mean", "paper_mean"]].notna().any(axis=1)]
    baselines = entries[(entries.kind == "baseline") & entries["mean"].notna()]
    papers = networks[["paper_mean", "paper_std"]].set_axis(["mean", "std"], axis=1)
    results = pd.concat([networks[["mean", "std"]], papers]).dropna(subset="mean").fillna(0.0)
    scale = scale_of(results["mean"], results["std"], baselines["mean"], figure.table.measure.limits)
    tags, texts = {}, []
    for position, (line, means) in enumerate(baselines.groupby("line", sort=False)["mean"]):
        low, high = means.min(), means.max()
        values = " to ".join(dict.fromkeys(format_number(end, digits) for end in (low, high)))
        outside = ", above the scale" if low > scale.high else ", below the scale" if high < scale.low else ""
        tags[line] = chr(ord("a") + position % 26) + (str(position // 26 + 1) if position >= 26 else "")
        words = drawable(f"{tags[line]}\N{NO-BREAK SPACE} {line} ({values}{outside})")
        texts += textwrap.wrap(words, LETTERS, subsequent_indent="\N{NO-BREAK SPACE}" * 4)
    if len(tags) == 1 and len(line) <= SHORT and not outside:
        tags, texts = {line: drawable(line)}, []
    sheet = style.new_sheet(PLOT)
    plot = draw_dots if figure.axis is None else draw_lines
    height, handles = plot(sheet, figure, networks, baselines.assign(tag=baselines.line.map(tags)), scale)
    below = sheet.supxlabel("\n".join(texts), x=0.015, ha="left", fontsize=7.5, linespacing=1.4)
    spaces = {"handlelength": 2.6, "columnspacing": 1.2}
    for columns in range(min(4, len(handles)), 0, -1):
        legend = sheet.legend(handles=handles, ncols=columns, loc="outside upper left", **spaces)
        if legend.get_window_extent().width <= 0.97 * sheet.bbox.width or columns == 1:
            break
        legend.remove()
    around = legend.get_window_extent().height + (below.get_window_extent().height if texts else 0)
    sheet.set_figheight(height + around / sheet.dpi)
    return sheet


def draw_lines(sheet: Any, figure: Figure, networks: Any, baselines: Any, scale: Scale) -> tuple[float, list[Any]]:
    """Means over the columns, with bands."""
    axes, xs = sheet.subplots(), np.unique(networks.key.astype(float))
    ratios = xs[1:] / xs[:-1] if xs[0] > 0 else np.zeros(0)
    if len(ratios) > 1 and np.ptp(ratios) < 1e-9 and ratios[0] >= 1.5:
        axes.set_xscale("log", base=2)
    axes.set_xticks(xs, [f"{x:g}" for x in xs])
    axes.set_xticks([], minor=True)
    axes.set(xlabel=figure.axis, ylabel=figure.table.measure.axis, xmargin=0.04)
    axes.grid(axis="y")
    set_scale(axes.yaxis, scale)
    hops = networks.hops.map(lambda value: value or 0)
    is_main = hops == hops.groupby(networks.method).transform("max")
    handles = []
    for _, line in networks.groupby("line_index"):
        look, main = Variant(line.method.iloc[0], None).style, is_main[line.index[0]]
        x = line.key.astype(float)
        low, high = within(line["mean"], line["std"].fillna(0), figure.table.measure.limits)
        axes.fill_between(x, low, high, color=look.color, alpha=0.1, linewidth=0)
        kind: Any = {"color": look.color, "linestyle": look.line, "marker": look.marker, "markeredgewidth": 0}
        size = {"linewidth": 1.5 if main else 0.9, "markersize": look.size * (5 if main else 3.2)}
        handles += axes.plot(x, line["mean"], label=drawable(line.line.iloc[0]), **kind, **size)
    if scale.low < 0 < scale.high:
        axes.axhline(0.0, color=INK, linewidth=0.7, zorder=1.4)
    for _, line in baselines.groupby("line_index"):
        if line.constant.all():
            axes.axhline(line["mean"].iloc[0], **DOTTED)
        else:
            marker = "_" if len(line) == 1 else ""
            axes.plot(line.key.astype(float), line["mean"], marker=marker, markersize=9, **DOTTED)
    write_tags(axes, baselines.drop_duplicates("line_index", keep="last"), vertical=True)
    return PLOT, handles


def draw_dots(sheet: Any, figure: Figure, networks: Any, baselines: Any, scale: Scale) -> tuple[float, list[Any]]:
    """A panel for each column; ours filled, the paper's hollow, with bars."""
    from matplotlib.lines import Line2D

    rows = [int((networks.column_index == index).sum()) for index in range(len(figure.table.columns))]
    panels = sheet.subplots(len(rows), sharex=True, squeeze=False, height_ratios=[count + 0.6 for count in rows])[:, 0]
    kinds = ("ours", "mean", "std", -0.17, FILLED), ("paper", "paper_mean", "paper_std", 0.17, HOLLOW)
    for index, (axes, title) in enumerate(zip(panels, figure.table.columns, strict=True)):
        shown, simple = networks[networks.column_index == index], baselines[baselines.column_index == index]
        axes.annotate(drawable(title), (-0.013, 1.01), ha="right", **TAG | {"color": INK, "fontsize": 8.5})
        set_scale(axes.xaxis, scale)
        axes.set_ylim(len(shown) - 0.4, -0.75)
        axes.set_yticks(range(len(shown)), map(drawable, shown.line))
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.grid(axis="x")
        for row, entry in enumerate(shown.to_dict("records")):
            look = Variant(entry["method"], None).style
            both = entry["mean"] == entry["mean"] and entry["paper_mean"] == entry["paper_mean"]
            for _, mean, std, offset, kind in kinds:
                size: Any = {"color": look.color, "marker": look.marker, "markersize": 4.5 * look.size}
                if entry[mean] == entry[mean]:  # is known
                    ends = within(entry[mean], np.nan_to_num(entry[std]), figure.table.measure.limits)
                    bar = [[max(entry[mean] - ends[0], 0.0)], [max(ends[1] - entry[mean], 0.0)]]
                    axes.errorbar(entry[mean], row + offset * both, xerr=bar, **size, **kind)
        for mean in simple["mean"]:
            axes.axvline(mean, **DOTTED)
        write_tags(axes, simple, vertical=False)
    panels[-1].set_xlabel(figure.table.measure.axis)
    of_pairs = figure.table.measure.limits[0] < 0
    words = "difference with 95 % interval" if of_pairs else "{}, mean ± standard deviation"
    handles = [
        Line2D([], [], color=INK, marker="o", markersize=4.5, label=words.format(name), **kind)
        for name, mean, _, _, kind in kinds
        if networks[mean].notna().any()
    ]
    return ROW * sum(rows) + PANEL * len(rows) + AXIS, handles


def write_tags(axes: Any, baselines: pd.DataFrame, *, vertical: bool) -> None:
    """Write the tags of baselines at the end of a vertical axis or above a horizontal one.

    Those outside of the scale stand at its end with an arrow; those too close to each other share a place.
    """
    low, high = axes.get_ylim() if vertical else axes.get_xlim()
    arrows = ("↓", "↑") if vertical else ("←", "→")
    groups: list[list[tuple[float, str]]] = []
    for mean, tag in sorted(zip(baselines["mean"], baselines.tag, strict=True)):
        share = (axes.transData - axes.transAxes).transform((mean, mean))[int(vertical)] if low <= mean <= high else 0.0
        if not low <= mean <= high:
            share, tag = float(mean > high), f"{tag} {arrows[int(mean > high)]}"
        shares = [share for share, _ in groups[-1]] if groups else [-np.inf]
        end = shares[-1] + CLOSE if vertical else np.mean(shares) + CLOSE * (len(shares) + 2) / 2
        groups += [[]] if share >= end else []
        groups[-1].append((share, tag))
    for group in groups:
        tags = [tag for _, tag in (reversed(group) if vertical else group)]
        text = ", ".join(tags if len(tags) <= MANY else [*tags[: MANY - 1], "…"])
        share = float(np.mean([share for share, _ in group]))
        if vertical:
            axes.annotate(text, (1.012, share), va="center", **TAG)
        else:
            edge = "left" if share < 0.08 else "right" if share > 0.95 else "center"
            axes.annotate(text, (share, 1.01), ha=edge, **TAG)


def within(mean: Any, spread: Any, limits: tuple[float, float]) -> tuple[Any, Any]:
    """The ends of a band or bar, not beyond what values can be; a mean that is beyond itself keeps its own."""
    low, high = np.minimum(mean, limits[0]), np.maximum(mean, limits[1])
    return np.maximum(mean - spread, low), np.minimum(mean + spread, high)


def scale_of(
    means: pd.Series, spreads: pd.Series, references: pd.Series, limits: tuple[float, float] = (0.0, np.inf)
) -> Scale:
    """A range that holds every mean with its spread, and the references that are not far from them.

    A reference far from all results would press them into a line: it is named below the figure instead.
    Where means differ by a factor of 30 or more, the axis is logarithmic.
    """
    if np.isfinite(limits[0]) and means.min() > 0 and means.max() / means.min() >= 30:  # differences have no end
        shown = pd.concat([means, references[references > 0]])
        return Scale(shown.min() / 1.5, shown.max() * 1.5, logarithmic=True)
    ends = within(means, spreads, limits)
    low, high = ends[0].min(), ends[1].max()
    reach = max(0.35 * (high - low), 0.05 * abs(high), 1e-9)
    near = references[references.between(low - reach, high + reach)]
    low, high = min([low, *near]), max([high, *near])
    margin = 0.06 * max(high - low, 0.05 * abs(high), 1e-9)
    floor = limits[0] if means.min() >= limits[0] else -np.inf
    return Scale(max(low - margin, floor), high + margin, logarithmic=False)


def set_scale(axis: Any, scale: Scale) -> None:
    """Give an axis its ends, and plain numbers where it is logarithmic."""
    if scale.logarithmic:
        axis.axes.set(**{f"{axis.axis_name}scale": "log"})
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter("")
    axis.axes.set(**{f"{axis.axis_name}lim": (scale.low, scale.high)})
