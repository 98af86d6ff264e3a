"""Tables as figures: lines with bands or dots with error bars, in pixels and as SVG for light and dark ground."""

import textwrap
from collections import namedtuple
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from graphact_lab import style
from graphact_lab.report.content import Figure
from graphact_lab.style import GREY, INK, Variant, drawable, format_number, short_names

PLOT, ROW, PANEL, AXIS = 2.6, 0.19, 0.4, 0.6  # inches of a line chart; of a network, a panel and the axis of dots
LABELLED = 4.4  # inches of a line chart that has names at its right
LETTERS = 70  # to a line below the figure
BESIDE, BEFORE = 17, 24  # letters to a line of a baseline's name at the right of lines, and in a row of dots
AXES, LEADING = 1.95, 8.4 / 72  # inches of a line chart's axes, and from line to line of names beside it
FEW, FAR = 4.0, 30.0  # from how large a ratio an axis is logarithmic, and how far references may then be away
DOTTED: Any = {"color": GREY, "linewidth": 0.9, "linestyle": (0, (1, 1.6)), "zorder": 1.5}
FILLED: Any = {"linewidth": 1.3, "markeredgewidth": 0}
HOLLOW: Any = {"linewidth": 0.7, "markeredgewidth": 0.8, "markerfacecolor": "none"}
TAG: Any = {"xycoords": "axes fraction", "color": INK, "weight": "bold", "fontsize": 8.5}
NAME: Any = {"color": GREY, "fontsize": 7, "linespacing": 1.05}
WHOLE = ", no link lost"  # how names of baselines end; said once where all do
Scale = namedtuple("Scale", "low high logarithmic")  # the ends of an axis and whether it is logarithmic
Unseen = tuple[str, str, float, float]  # a baseline that is named below the figure, why, its least and largest value
Drawn = tuple[float, list[Any], list[Unseen]]  # the height of a plot in inches, what its legend shows, and these


def render(figure: Figure) -> tuple[bytes, str, str]:
    """A figure in pixels, as an SVG file, and as an SVG element of a page."""
    with style.house_style():
        sheet = draw(figure)
        style.settle(sheet)
        svgs = style.light_and_dark(style.to_svg(sheet), name=figure.name, title=figure.title, alt=figure.alt)
        return style.to_png(sheet), *svgs


def draw(figure: Figure) -> Any:
    """Networks with a legend above; baselines dotted, each with its name beside it or, off the scale, below."""
    entries, digits = figure.table.entries, figure.table.measure.digits
    networks = entries[(entries.kind == "model") & entries[["mean", "paper_mean"]].notna().any(axis=1)]
    baselines = entries[(entries.kind == "baseline") & entries["mean"].notna()]
    whole = len(baselines) and baselines.line.str.endswith(WHOLE).all()
    named = baselines.line.str.removesuffix(WHOLE) if whole else baselines.line
    baselines = baselines.assign(line=named, short=named.map(short_names(named.unique())))
    papers = networks[["paper_mean", "paper_std"]].set_axis(["mean", "std"], axis=1)
    results = pd.concat([networks[["mean", "std"]], papers]).dropna(subset="mean").fillna(0.0)
    scale = scale_of(results["mean"], results["std"], baselines["mean"], figure.table.measure.limits)
    sheet = style.new_sheet(PLOT, style.WIDTH if figure.axis is None or baselines.empty else LABELLED)
    plot = draw_dots if figure.axis is None else draw_lines
    height, handles, unseen = plot(sheet, figure, networks, baselines, scale)
    texts = [f"Dotted: baselines{WHOLE}."] if whole else []
    for where in ("Above the scale", "Below the scale", "Also dotted"):
        listed = [
            f"{drawable(line)} ({' to '.join(dict.fromkeys(format_number(end, digits, small=True) for end in ends))})"
            for line, place, *ends in unseen
            if place == where
        ]
        texts += textwrap.wrap(f"{where}: {', '.join(listed)}.", LETTERS) if listed else []
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


def draw_lines(sheet: Any, figure: Figure, networks: Any, baselines: Any, scale: Scale) -> Drawn:
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
    names, unseen = [], []
    for _, line in baselines.groupby("line_index"):
        low, high = line["mean"].min(), line["mean"].max()
        if low > scale.high or high < scale.low:
            where = "Above the scale" if low > scale.high else "Below the scale"
            unseen.append((line.line.iloc[0], where, low, high))
            continue
        names.append((line["mean"].iloc[-1], line.short.iloc[0], (line.line.iloc[0], "Also dotted", low, high)))
        if line.constant.all():
            axes.axhline(line["mean"].iloc[0], **DOTTED)
        else:
            marker = "_" if len(line) == 1 else ""
            axes.plot(line.key.astype(float), line["mean"], marker=marker, markersize=9, **DOTTED)
    return PLOT, handles, unseen + write_names(axes, names)


def write_names(axes: Any, names: list[tuple[float, str, Unseen]]) -> list[Unseen]:
    """Names of lines at the right of the axes, each as near to the end of its line as the others let it.

    Each is given with its value there and with what to say of it elsewhere. Returns those of the names without room,
    the first of the list.
    """
    low, high = (axes.transData - axes.transAxes).inverted().transform([(0.0, 0.0), (0.0, 1.0)])[:, 1]
    step = LEADING / AXES  # of the axes' height, from line to line
    rows: list[tuple[float, list[str], Unseen]] = []
    for value, name, words in names:
        share = float((axes.transData - axes.transAxes).transform((1.0, min(max(value, low), high)))[1])
        rows.append((share, textwrap.wrap(name, BESIDE), words))
    kept = rows
    while sum(len(lines) + 0.35 for _, lines, _ in kept) * step > 1.2:  # the best baselines come last
        kept = kept[1:]
    ordered = sorted(kept, key=lambda row: row[0])
    halves = [(len(lines) + 0.35) * step / 2 for _, lines, _ in ordered]
    places = [min(share, 1.1 - half) for (share, *_), half in zip(ordered, halves, strict=True)]
    for _ in range(200):  # those that overlap move apart, each by half
        for index, (one, other) in enumerate(pairwise(places)):
            overlap = halves[index] + halves[index + 1] - (other - one)
            if overlap > 1e-6:
                places[index], places[index + 1] = one - overlap / 2, other + overlap / 2
        places = [min(max(place, half - 0.1), 1.1 - half) for place, half in zip(places, halves, strict=True)]
    line: Any = {"arrowstyle": "-", "color": GREY, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 0}
    for (share, lines, _), place in zip(ordered, places, strict=True):
        ends: Any = {"xycoords": "axes fraction", "textcoords": "axes fraction", "annotation_clip": False}
        axes.annotate(
            "\n".join(lines),
            (1.005, share),
            (1.06, place),
            va="center",
            arrowprops=line | {"relpos": (0, 0.5)},
            **ends,
            **NAME,
        )
    return [words for *_, words in rows[: len(rows) - len(kept)]]


def draw_dots(sheet: Any, figure: Figure, networks: Any, baselines: Any, scale: Scale) -> Drawn:
    """A panel for each column, a row for each network, ours filled, the paper's hollow, and for each baseline."""
    from matplotlib.lines import Line2D

    columns = range(len(figure.table.columns))
    shown = [networks[networks.column_index == index] for index in columns]
    simple = [baselines[baselines.column_index == index].to_dict("records") for index in columns]
    names = [[textwrap.wrap(entry["short"], BEFORE) for entry in own] for own in simple]
    tall = [[0.75 + 0.45 * (len(lines) - 1) for lines in own] for own in names]  # rows of baselines are lower
    rows = [len(own) + sum(heights) + bool(heights) * 0.3 for own, heights in zip(shown, tall, strict=True)]
    panels = sheet.subplots(len(rows), sharex=True, squeeze=False, height_ratios=[count + 0.6 for count in rows])[:, 0]
    kinds = ("ours", "mean", "std", -0.17, FILLED), ("paper", "paper_mean", "paper_std", 0.17, HOLLOW)
    for index, (axes, title) in enumerate(zip(panels, figure.table.columns, strict=True)):
        own, count = shown[index], len(shown[index])
        axes.annotate(drawable(title), (-0.013, 1.01), ha="right", **TAG)
        set_scale(axes.xaxis, scale)
        ends_of_rows = count - 0.2 + np.cumsum([0.0, *tall[index]])
        middles = (ends_of_rows[:-1] + ends_of_rows[1:]) / 2
        axes.set_ylim(rows[index] - 0.4, -0.75)
        labels = [*map(drawable, own.line), *("\n".join(lines) for lines in names[index])]
        axes.set_yticks([*range(count), *middles], labels)
        for label in axes.get_yticklabels()[count:]:
            label.set(**NAME)
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.grid(axis="x")
        for row, entry in enumerate(own.to_dict("records")):
            look = Variant(entry["method"], None).style
            both = entry["mean"] == entry["mean"] and entry["paper_mean"] == entry["paper_mean"]
            for _, mean, std, offset, kind in kinds:
                size: Any = {"color": look.color, "marker": look.marker, "markersize": 4.5 * look.size}
                if entry[mean] == entry[mean]:  # is known
                    ends = within(entry[mean], np.nan_to_num(entry[std]), figure.table.measure.limits)
                    bar = [[max(entry[mean] - ends[0], 0.0)], [max(ends[1] - entry[mean], 0.0)]]
                    axes.errorbar(entry[mean], row + offset * both, xerr=bar, **size, **kind)
        for entry, middle in zip(simple[index], middles, strict=True):
            value = format_number(entry["mean"], figure.table.measure.digits, small=True)
            if scale.low <= entry["mean"] <= scale.high:
                axes.plot([entry["mean"]] * 2, [-0.75, middle], **DOTTED)
                axes.plot(entry["mean"], middle, "|", color=GREY, markersize=6, markeredgewidth=1.2)
            else:
                above = entry["mean"] > scale.high
                words, place = (f"{value} →", 0.99) if above else (f"← {value}", 0.01)
                at: Any = {"transform": axes.get_yaxis_transform(), "ha": "right" if above else "left"}
                axes.text(place, middle, words, va="center", color=GREY, fontsize=7, **at)
    panels[-1].set_xlabel(figure.table.measure.axis)
    is_difference = figure.table.measure.limits[0] < 0
    words = "difference with 95 % interval" if is_difference else "{}, mean ± standard deviation"
    handles = [
        Line2D([], [], color=INK, marker="o", markersize=4.5, label=words.format(name), **kind)
        for name, mean, _, _, kind in kinds
        if networks[mean].notna().any()
    ]
    return ROW * sum(rows) + PANEL * len(rows) + AXIS, handles, []


def within(mean: Any, spread: Any, limits: tuple[float, float]) -> tuple[Any, Any]:
    """The ends of a band or bar, not beyond what values can be; a mean that is beyond itself keeps its own."""
    low, high = np.minimum(mean, limits[0]), np.maximum(mean, limits[1])
    return np.maximum(mean - spread, low), np.minimum(mean + spread, high)


def scale_of(
    means: pd.Series, spreads: pd.Series, references: pd.Series, limits: tuple[float, float] = (0.0, np.inf)
) -> Scale:
    """A range that holds every mean with its spread, and the references that are not far from them.

    A reference far from all results would press them into a line: it is named below the figure instead.
    Where errors, which have no upper limit, differ by a factor of 4 or more, the axis is logarithmic.
    """
    least, most = means.min(), means.max()
    if limits == (0.0, np.inf) and least > 0 and most / least >= FEW:
        near = references[references.between(least / FAR, most * FAR)]
        return Scale(min([least, *near]) / 1.3, max([most, *near]) * 1.3, logarithmic=True)
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
    from matplotlib.ticker import LogLocator

    if scale.logarithmic:
        axis.axes.set(**{f"{axis.axis_name}scale": "log"})
        decades = np.log10(scale.high / scale.low)
        steps = (1.0,) if decades > 3 else (1.0, 3.0) if decades > 1.6 else (1.0, 2.0, 5.0)
        axis.set_major_locator(LogLocator(subs=steps, numticks=12))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter("")
    axis.axes.set(**{f"{axis.axis_name}lim": (scale.low, scale.high)})
