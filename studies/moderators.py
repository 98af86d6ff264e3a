"""Moderators of gains in node classification: homophily of the graph, size of the network, exchanges, noise."""

from collections import defaultdict
from statistics import fmean

from scipy.stats import spearmanr

from evidence import NotRunError
from graphact_lab.descriptions import find_experiment
from graphact_lab.figures import house_style, new_sheet
from graphact_lab.style import INK, title_of

# By name: what an axis says, and whether it is a property of the graph or of the network on it
FACTORS = {
    "homophily": ("Adjusted homophily of the graph", "graph"),
    "degree": ("Mean degree of the graph", "graph"),
    "width": ("Features of a layer", "network"),
    "layers": ("Layers", "network"),
    "parameters": ("Parameters of the pointwise network", "network"),
    "exchanges": ("Exchanges of the pointwise network", "network"),
}
DRAWN = ("homophily", "width", "parameters", "exchanges")
TICKS = {
    "width": {size: str(size) for size in (4, 16, 64, 256)},
    "parameters": {10**4: "10,000", 10**5: "100,000", 10**6: "1 million"},
}
HIGHEST = 8  # points; wider intervals leave the frame


def factors_of(cell, graphs):
    """All factors of a setting."""
    if cell.setting.level not in graphs:
        raise NotRunError(
            f"graphs.json lacks {cell.setting.level}: python benchmarks/graph_statistics.py writes it again"
        )
    graph, first = graphs[cell.setting.level], cell.rows[cell.pointwise][0]
    protocol = find_experiment(cell.setting.experiment).protocols_at("full")[cell.setting.protocol]
    return {
        "homophily": graph["adjusted_homophily"],
        "degree": 2 * graph["edges"] / graph["nodes"],
        "width": cell.setting.width,
        "layers": protocol.layers,
        "parameters": first["parameters"],
        "exchanges": first["exchanges"],
    }


def association(cells, graphs, factor):
    """Spearman's rank correlation of gains with a factor, and over how many points.

    For a property of the graph, of the mean gain of each data set. For one of the network, of gains minus that mean,
    over data sets with several values of the factor: data sets differ in more than their networks.
    """
    own = defaultdict(list)
    for cell in cells:
        own[cell.setting.level].append((factors_of(cell, graphs)[factor], cell.gain().mean))
    if FACTORS[factor][1] == "graph":
        points = [(pairs[0][0], fmean(gain for _, gain in pairs)) for pairs in own.values()]
    else:
        several = [pairs for pairs in own.values() if len({value for value, _ in pairs}) > 1]
        points = [(value, gain - fmean(g for _, g in pairs)) for pairs in several for value, gain in pairs]
    return spearmanr(*zip(*points, strict=True)).statistic, len(points)


def moderators_table(cells, graphs):
    """Lines of Markdown: a factor, its range, and the rank correlation of gains with it."""
    lines = ["| factor | from | to | rank correlation with the gain | over |", "|---|---|---|---|---|"]
    for factor, (words, kind) in FACTORS.items():
        values = [factors_of(cell, graphs)[factor] for cell in cells]
        if len(set(values)) == 1:
            continue
        rho, count = association(cells, graphs, factor)
        over = f"{count} data sets" if kind == "graph" else f"{count} settings, within data sets"
        ends = (f"{end:,.0f}" if end > 100 else f"{end:.3g}" for end in (min(values), max(values)))
        lines.append(f"| {words} | {' | '.join(ends)} | {rho:+.2f} | {over} |")
    return "\n".join(lines)


def noise_table(benchmarks):
    """Lines of Markdown: the gain over the best pointwise activation where edges or words are perturbed at random."""
    levels = ["none", *(f"{kind} {share} %" for kind in ("edges", "words") for share in (5, 10, 25))]
    lines = [f"| | {' | '.join(map(title_of, levels))} |", "|---" * (len(levels) + 1) + "|"]
    for protocol in find_experiment("robustness").protocols_at("full"):
        cells = {cell.setting.level: cell for cell in benchmarks.of("robustness", protocol)}
        if not all(level in cells for level in levels):
            continue
        gaps = [cells[level].gain(cells["none"].ours, cells["none"].pointwise) for level in levels]
        texts = [f"{gap.mean:+.1f} ± {gap.margin:.1f}" for gap in gaps]
        lines.append(f"| {title_of(protocol)} | {' | '.join(texts)} |")
    return "\n".join(lines)


def draw_moderators(cells, graphs, finish):
    """Gains with their intervals over four of the factors; a colour and a marker for each data set."""
    levels = list(dict.fromkeys(cell.setting.level for cell in cells))
    colors = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8b949e")
    looks = {level: (colors[n % len(colors)], "osD^v<>P"[n % 8]) for n, level in enumerate(levels)}
    with house_style():
        sheet = new_sheet(4.6, 6.4)
        panels = sheet.subplots(2, 2, sharey=True)
        for axes, factor in zip(panels.flat, DRAWN, strict=True):
            for cell in cells:
                (color, marker), gap = looks[cell.setting.level], cell.gain()
                look = {"color": color, "marker": marker, "markersize": 4, "elinewidth": 0.7, "linestyle": "none"}
                name, known = title_of(cell.setting.level), axes.get_legend_handles_labels()[1]
                look["label"] = None if name in known else name
                axes.errorbar(factors_of(cell, graphs)[factor], gap.mean, yerr=gap.margin, **look)
            axes.axhline(0, color=INK, linewidth=0.7)
            axes.set_xlabel(FACTORS[factor][0])
            axes.grid(axis="y")
            axes.margins(x=0.08)
            if factor in TICKS:
                axes.set_xscale("log")
                axes.minorticks_off()
                axes.set_xticks(list(TICKS[factor]), list(TICKS[factor].values()))
        panels[1, 1].xaxis.get_major_locator().set_params(integer=True)
        panels[0, 0].set_ylim(-HIGHEST, HIGHEST)
        for axes in panels[:, 0]:
            axes.set_ylabel("Gain (points)")
        handles = panels[0, 0].get_legend_handles_labels()
        sheet.legend(*handles, frameon=False, fontsize=7, loc="outside upper center", ncols=4)
        finish(sheet)
