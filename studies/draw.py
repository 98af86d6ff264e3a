"""Figures of docs/results.md and of the paper, from docs/tables/, and of docs/scheduling.md, from its rows.

    python studies/draw.py                  docs/figures/*.svg
    python studies/draw.py --out DIR --pdf  the same for LaTeX

Each is one column wide, so that its letters are readable at 390 pixels, and two stand beside each other on a screen.
Lines are labelled at their ends; markers and strokes tell them apart without colour; bars are intervals of 95 %.
"""

import argparse
import sys
from itertools import pairwise
from pathlib import Path

from air_time import AirTime
from evidence import PROBLEMS
from graphact.storage import write_atomically
from graphact_lab import figures
from graphact_lab.experiments.scheduling.experiment import WIDTH as WIDTH_KEPT
from graphact_lab.experiments.scheduling.report import draw_gaps, draw_time
from graphact_lab.style import Variant, title_of
from lookup import KINDS, Lookup

FOLDER = Path(__file__).parent.parent / "docs" / "figures"
WIDTH, HEIGHT = 3.8, 2.7
LOSSES = (0, 0.025, 0.05, 0.075, 0.1, 0.125, 0.15)
DECIBELS = (0.0, 3.0, 6.0, 9.0, 12.0, 15.0)
ROUNDS_DRAWN = (
    *("gelu", "prelu", "max-l", "max-ga", "max-ga-unshifted"),
    *("bank-max", "bank-max-min", "bank-median", "bank-pna", "sage-max", "pna", "bank-mean", "mean-ga"),
)
ROUNDS_LOOKS = {2: ("#7d8590", "o"), 4: ("#0072b2", "s"), 6: ("#d55e00", "^"), 9: ("#1f2328", "D")}


def spread_out(places, distance):
    """Return places in the same order, at least a distance apart, near where they were."""
    order = sorted(range(len(places)), key=places.__getitem__)
    moved = list(places)
    for _ in range(200):
        for low, high in pairwise(order):
            lack = distance - (moved[high] - moved[low])
            if lack > 0:
                moved[low] -= lack / 2
                moved[high] += lack / 2
    return moved


def end_labels(axes, ends):
    """Write the name of each line beside its last point."""
    low, high = axes.get_ylim()
    heights = spread_out([end[1] for end in ends], 0.068 * (high - low))
    above = max(0, max(heights) - high + 0.04 * (high - low))
    heights = [height - above for height in heights]
    for (words, place, color), height in zip([(e[2], e[:2], e[3]) for e in ends], heights, strict=True):
        arrow = {"arrowstyle": "-", "color": color, "linewidth": 0.4, "shrinkA": 0, "shrinkB": 2}
        axes.annotate(
            words, place, xytext=(axes.get_xlim()[1], height), color=color, fontsize=7.5, va="center",
            annotation_clip=False, arrowprops=arrow,
        )  # fmt: skip


def lines_panel(title, xlabel, ylabel, series, ticks, *, zero=False, right=0.33):
    """Draw a panel of lines with intervals; a series is its label, its look, and points (x, mean, low, high)."""
    with figures.house_style():
        sheet = figures.new_sheet(HEIGHT, WIDTH)
        axes = sheet.subplots()
        ends = []
        for label, look, points in series:
            x, means, lows, highs = zip(*points, strict=True)
            reach = [
                [m - low for m, low in zip(means, lows, strict=True)],
                [h - m for m, h in zip(means, highs, strict=True)],
            ]
            axes.errorbar(x, means, yerr=reach, elinewidth=0.7, linewidth=1.2, **look)
            ends.append((x[-1], means[-1], label, look["color"]))
        if zero:
            axes.axhline(0, color=figures.INK, linewidth=0.7)
        axes.set_title(title, loc="left", fontsize=8.5)
        axes.set_xlabel(xlabel)
        axes.set_ylabel(ylabel)
        axes.set_xticks(list(ticks), [f"{tick:g}" for tick in ticks])
        axes.grid(axis="y")
        left, last = min(ticks), max(ticks)
        axes.set_xlim(left - 0.04 * (last - left), last + 0.06 * (last - left))
        end_labels(axes, ends)
        sheet.get_layout_engine().set(rect=(0, 0, 1 - right * 0.62, 1))
        return sheet


def look_of(method):
    """Return how a method is drawn."""
    own = Variant(method, None).style
    return {"color": own.color, "marker": own.marker, "linestyle": own.line, "markersize": 4.2 * own.size}


def own_interval(x, line):
    """Return a point: a mean with its interval."""
    return x, line["mean"], line["mean"] - line["margin"], line["mean"] + line["margin"]


def over_fir(x, line):
    """Return a point: a paired difference from FIR."""
    return x, line["minus_fir"], line["minus_fir_low"], line["minus_fir_high"]


def hops_of(method):
    return None if method in ("fir", "relu", "silu", "tanh", "maxout") else 1


def consensus_orders(known):
    """Figure 2a: consensus over the order of the filters, from the protocol whose readout has a constant."""
    series = []
    for method in ("fir", "relu", "median-ga", "median-l", "max-ga", "kernel-ga", "max-l"):
        lines = [(k, known.agreeing(method, hops_of(method), "readout-bias", k)) for k in (20, 25, 30, 35)]
        series.append((known.name({"method": method}), look_of(method), [own_interval(*pair) for pair in lines]))
    return lines_panel(
        "a. Longer filters change nothing", "Order K of the filters", "RMSE of consensus", series, (20, 25, 30, 35)
    )


def lost_links(known):
    """Figure 2b: consensus where links are lost, raw inputs."""
    series = []
    for method in ("max-ga", "fir", "median-ga", "max-l", "kernel-ga", "relu", "silu"):
        lines = [(100 * p, known.agreeing(method, hops_of(method), loss=p)) for p in LOSSES]
        series.append((known.name({"method": method}), look_of(method), [own_interval(*pair) for pair in lines]))
    title = "b. Lost links cost Max G.A. more than SiLU"
    return lines_panel(title, "Links lost (%)", "RMSE of consensus", series, (0, 5, 10, 15))


def denoising_orders(known):
    """Figure 2c: denoising over the order of the filters."""
    series = []
    for method in ("relu", "tanh", "kernel-ga", "median-l", "median-ga", "max-l", "max-ga"):
        lines = [(k, known.denoising(method, hops_of(method), k)) for k in (1, 2, 4, 8)]
        series.append((known.name({"method": method}), look_of(method), [over_fir(*pair) for pair in lines]))
    title = "c. Denoising: all beat FIR, Max G.A. most"
    return lines_panel(title, "Order K of the filters", "RMSE minus FIR's (K)", series, (1, 2, 4, 8), zero=True)


def denoising_noise(known):
    """Figure 2d: denoising over the ratio of signal to noise."""
    series = []
    for method in ("relu", "kernel-ga", "median-l", "median-ga", "max-l", "max-ga"):
        lines = [(snr, known.denoising(method, hops_of(method), snr=snr)) for snr in DECIBELS]
        series.append((known.name({"method": method}), look_of(method), [over_fir(*pair) for pair in lines]))
    title = "d. The gain shrinks as noise falls"
    return lines_panel(title, "Signal-to-noise ratio (dB)", "RMSE minus FIR's (K)", series, DECIBELS, zero=True)


def forest(title, xlabel, entries, *, height=0.19, bounds=None):
    """Draw one interval a line; an entry is its label, a line of a table, and whether it is significant."""
    with figures.house_style():
        sheet = figures.new_sheet(0.85 + height * len(entries), WIDTH)
        axes = sheet.subplots()
        for row, (_, line, is_sure) in enumerate(entries):
            reach = [[line["gain"] - line["gain_low"]], [line["gain_high"] - line["gain"]]]
            face = figures.INK if is_sure else "white"
            axes.errorbar(
                line["gain"], row, xerr=reach, color=figures.INK, marker="o", markersize=4, markerfacecolor=face,
                elinewidth=1, linestyle="none",
            )  # fmt: skip
        axes.axvline(0, color=figures.INK, linewidth=0.7)
        axes.set_yticks(range(len(entries)), [label for label, *_ in entries], fontsize=7)
        axes.set_ylim(len(entries) - 0.4, -0.6)
        if bounds:
            axes.set_xlim(*bounds)
        sheet.supxlabel(xlabel, fontsize=8.5)
        sheet.suptitle(title, fontsize=8.5, x=0.01, ha="left")
        axes.grid(axis="x")
        return sheet


def localization_gains(known):
    """Gains in source localization over the strongest pointwise network, F = 8."""
    wanted = [
        *(("median-l", 2), ("max-l", 2), ("max-ga", 2), ("max-ga", 1), ("max-l", 1), ("median-ga", 2)),
        *(("median-l", 1), ("median-ga", 1), ("kernel-ga", 1), ("maxout", None), ("gelu", None), ("relu", None)),
    ]
    lines = [known.locating(*pair) for pair in wanted]
    entries = [(known.name(line), line, line["gain_low"] > 0 or line["gain_high"] < 0) for line in lines]
    return forest("Two-hop Median L. leads, not Max G.A.", "Accuracy minus PReLU's (points)", entries)


def node_gains(known):
    """Gains in every setting of node classification."""
    lines = sorted(known.settings(), key=lambda line: -line["gain"])
    entries = [
        (f"{title_of(line['level'])}, {line['protocol']}, {line['width']}", line, line["p_holm"] < 0.05)
        for line in lines
    ]
    title = "Node classification: no gain, three losses"
    xlabel = "Score minus the best pointwise (points)"
    return forest(title, xlabel, entries, height=0.155, bounds=(-8, 8))


def rounds_panel(known, split):
    """Quality against rounds, a line for each kind of network; None where fewer than two numbers of rounds were run."""
    own = [line for line in known.lines("rounds", split=split) if line["kind"] in ROUNDS_DRAWN]
    numbers = sorted({line["rounds"] for line in own})
    if len(numbers) < 2:
        return None
    shared = max(numbers, key=lambda number: len([line for line in own if line["rounds"] == number]))
    means = {line["kind"]: line["mean"] for line in own if line["rounds"] == shared}
    kinds = sorted(dict.fromkeys(line["kind"] for line in own), key=lambda kind: -means.get(kind, 0))
    most, few = max(line["networks"] for line in own), min(line["networks"] for line in own)
    with figures.house_style():
        sheet = figures.new_sheet(1.15 + 0.24 * len(kinds), WIDTH)
        axes = sheet.subplots()
        for number in numbers:
            color, marker = ROUNDS_LOOKS[number]
            axes.plot([], [], linestyle="none", color=color, marker=marker, markersize=4.5, label=f"{number} rounds")
            for line in (one for one in own if one["rounds"] == number):
                place = kinds.index(line["kind"]) + 0.16 * (numbers.index(number) - (len(numbers) - 1) / 2)
                face = color if line["networks"] == most else "white"
                look = {"color": color, "marker": marker, "markersize": 4.5, "markerfacecolor": face, "elinewidth": 0.8}
                axes.errorbar(line["mean"], place, xerr=line["margin"], **look)
        axes.set_yticks(range(len(kinds)), [rounds_label(kind) for kind in kinds], fontsize=7.5)
        axes.set_ylim(len(kinds) - 0.5, -0.5)
        axes.grid(axis="x")
        seen = known.mean(known.seeing_all("nearest-neighbor", split))
        sheet.supxlabel(f"Accuracy (%); a nearest neighbour that sees all nodes: {seen}", fontsize=8)
        title = {"random": "Random split", "unseen": "Unseen sources"}[split] + f", {most} networks"
        sheet.suptitle(title + (f" (hollow: {few})" if few < most else ""), fontsize=8.5, x=0.01, ha="left")
        legend = axes.legend(
            loc="lower left", bbox_to_anchor=(-0.4, 1.0), ncols=len(numbers), fontsize=7.5, frameon=False,
            handletextpad=0, columnspacing=0.8,
        )  # fmt: skip
        legend.set_in_layout(False)
        sheet.get_layout_engine().set(rect=(0.03, 0, 0.97, 0.94))
        return sheet


def rounds_label(kind):
    """Return a short name of a kind of network."""
    words = KINDS[kind].replace("adaptive bank", "bank").replace(" with the unshifted term", " from k = 0")
    return words.replace(", a linear control", ", linear")


FIGURES = {
    "consensus-orders": consensus_orders,
    "lost-links": lost_links,
    "denoising-orders": denoising_orders,
    "denoising-noise": denoising_noise,
    "localization-gains": localization_gains,
    "node-gains": node_gains,
    "rounds-random": lambda known: rounds_panel(known, "random"),
    "rounds-unseen": lambda known: rounds_panel(known, "unseen"),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=FOLDER)
    parser.add_argument("--pdf", action="store_true", help="for LaTeX instead of pages")
    options = parser.parse_args()
    try:
        draw_all(Lookup(), options.out, is_pdf=options.pdf)
        if not options.pdf:
            draw_air_time(AirTime(), options.out)
    except PROBLEMS as problem:
        sys.exit(str(problem))


def draw_air_time(air, folder):
    """Write the figures of link scheduling."""
    with figures.house_style():
        drawn = {"rounds": draw_gaps(air.rows, WIDTH_KEPT), "time": draw_time(air.rows)}
        for name, sheet in drawn.items():
            figures.settle(sheet)
            write_atomically(folder / f"scheduling-{name}.svg", figures.to_svg(sheet).encode())


def draw_all(known, folder, *, is_pdf=False):
    """Write every figure that the tables have rows for."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in FIGURES.items():
        if (sheet := draw(known)) is None:
            continue
        with figures.house_style():  # whose salt makes the same file again
            figures.settle(sheet)
            if is_pdf:
                sheet.savefig(folder / f"{name}.pdf", metadata={"CreationDate": None})
            else:
                write_atomically(folder / f"{name}.svg", figures.to_svg(sheet).encode())


if __name__ == "__main__":
    main()
