"""Results of benchmarks/robustness.py: two figures, and tables with paired intervals and adjusted p."""

import math
import statistics
from collections import defaultdict

import scipy.stats
from matplotlib.ticker import NullFormatter
from output import echo

from graphact_lab.figures import GREY, house_style, new_sheet, settle, to_png
from graphact_lab.statistics import estimate, holm
from graphact_lab.style import METHODS, Style

CONTROL_LOOKS = {
    "tanh": Style("Tanh", "tanh", GREY, "P", (0, (1.2, 1.2)), 1.1),
    "square": Style("Signed square", "signed square (not Lipschitz)", "#cc79a7", "X", (0, (1.2, 1.2)), 1.1),
    "root": Style("Signed root", "signed root (not Lipschitz)", "#8c564b", "p", (0, (1.2, 1.2)), 1.1),
}
LOOKS = {name: style for name, style in METHODS.items() if name != "fir"} | CONTROL_LOOKS
TITLES = {"source-localization": "Source localization", "cora": "Cora"}
MEASURES = {
    "accuracy": lambda row: row["accuracy"],
    "under noise": lambda row: statistics.fmean(row["gaussian"]),
    "under attack": lambda row: statistics.fmean(row["attack"]),
    "lost to noise": lambda row: row["accuracy"] - statistics.fmean(row["gaussian"]),
    "lost to attack": lambda row: row["accuracy"] - statistics.fmean(row["attack"]),
}


def draw(rows, levels, folder):
    """Both figures and all tables, for the tasks and activations that have rows."""
    cells = defaultdict(dict)
    for row in rows:
        cells[row["task"], row["activation"], row["limit"]][row["unit"]] = row
    folder.mkdir(parents=True, exist_ok=True)
    tasks = [task for task in TITLES if (task, "relu", None) in cells]
    against_relu(cells, tasks, levels, folder / "robustness.png")
    tradeoff(cells, tasks, levels, folder / "robustness-limits.png")
    for task in tasks:
        echo(f"\nIn brackets: paired differences with 95 % intervals; * Holm-adjusted p below 0.05.\n\n{TITLES[task]}")
        for title, comparisons in families(cells, task, levels[task].limits):
            echo(f"\n{title}")
            compare(cells, comparisons)
        echo(f"\nBy limit, at level {levels[task].attack[-2]:g} where attacked or certified")
        by_limit(cells, task, [name for name in LOOKS if (task, name, levels[task].limits[0]) in cells], levels[task])
        echo("\n" + constants_and_losses(cells, task))
    echo("\n" + check_attacks(rows))


def families(cells, task, limits):
    """Tables, each one family of tests: a title, and lines of a label and two cells, the second to be subtracted."""
    names, tuned = [name for name in LOOKS if (task, name, None) in cells], limits[-1]
    shown = {name: LOOKS[name].short for name in names}
    yield (
        "Trained normally, minus ReLU",
        [(shown[name], (task, name, None), (task, "relu", None)) for name in names],
    )
    yield (
        "Trained normally, Lipschitz minus not Lipschitz",
        [
            (f"{shown[ours]} minus {shown[theirs].lower()}", (task, ours, None), (task, theirs, None))
            for ours in ("relu", "max-ga", "median-ga")
            for theirs in ("square", "root")
            if ours in names and theirs in names
        ],
    )
    yield (
        f"Limit {limits[1]:,g}, minus the same activation without a limit",
        [
            (shown[name], (task, name, limits[1]), (task, name, None))
            for name in names
            if (task, name, limits[1]) in cells
        ],
    )
    yield (
        "Limits, minus the same activation tuned for as long without one",
        [
            (f"{shown[name]}, {limit:,g}", (task, name, limit), (task, name, tuned))
            for name in names
            for limit in limits[:-1]
            if (task, name, limit) in cells and (task, name, tuned) in cells
        ],
    )


# Statistics


def pairs(first, second, measure):
    """The values of two cells on the graphs or seeds that both have."""
    units = sorted(first.keys() & second.keys())
    return [measure(first[unit]) for unit in units], [measure(second[unit]) for unit in units]


def mean_and_margin(values):
    """A mean and half the width of its 95 % interval (Student's t)."""
    found = estimate(values)
    return found.mean, found.margin


def compare(cells, comparisons):
    """A line for each pair of cells; one family of tests for the whole table."""
    found = {}
    for label, first, second in comparisons:
        for name, measure in MEASURES.items():
            ours, theirs = pairs(cells[first], cells[second], measure)
            apart = [a - b for a, b in zip(ours, theirs, strict=True)]
            found[label, name] = statistics.fmean(ours), apart if first != second else None
    tested = [key for key, (_, apart) in found.items() if apart is not None]
    adjusted = dict(zip(tested, holm([estimate(found[key][1]).p_unlike() for key in tested]), strict=True))
    echo("| | constant | " + " | ".join(MEASURES) + " |\n|---" + "|---" * (len(MEASURES) + 1) + "|")
    for label, first, _ in comparisons:
        line = [label, constant_of(cells[first])]
        for name in MEASURES:
            mean, apart = found[label, name]
            text = f"{mean:.1f}"
            if apart is not None:
                difference, margin = mean_and_margin(apart)
                text += f" ({difference:+.1f} ± {margin:.1f}{'*' if adjusted[label, name] < 0.05 else ''})"
            line.append(text)
        echo("| " + " | ".join(line) + " |")


def constant_of(cell):
    """The geometric mean of the certified constants."""
    constants = [row["constant"] for row in cell.values()]
    return "" if None in constants else f"{statistics.geometric_mean(constants):,.3g}".replace("e+0", "e")


def by_limit(cells, task, names, levels):
    place = len(levels.attack) - 2
    columns = {
        "accuracy": lambda row: row["accuracy"],
        "attacked": lambda row: row["attack"][place],
        "certified": lambda row: row["certified"][place],
    }
    echo("| | limit | constant | " + " | ".join(columns) + " |\n|---|---|---|---|---|---|")
    for name in names:
        for limit in (*levels.limits, None):
            if not (cell := cells.get((task, name, limit))):
                continue
            values = [mean_and_margin([read(row) for row in cell.values()]) for read in columns.values()]
            shown = " | ".join(f"{mean:.1f} ± {margin:.1f}" for mean, margin in values)
            words = "none" if limit is None else "none, tuned" if math.isinf(limit) else f"{limit:,g}"
            echo(f"| {LOOKS[name].short} | {words} | {constant_of(cell)} | {shown} |")


def constants_and_losses(cells, task):
    """Does the constant tell how much is lost? Ranks over all networks of the library that learned something."""
    rows = [row for key, cell in cells.items() if key[0] == task and key[2] is None for row in cell.values()]
    rows = [row for row in rows if row["constant"] is not None]
    texts = []
    for name in ("lost to noise", "lost to attack"):
        ranks = scipy.stats.spearmanr([row["constant"] for row in rows], [MEASURES[name](row) for row in rows])
        texts.append(f"{ranks.statistic:+.2f} with what is {name}")
    return f"{TITLES[task]}, {len(rows)} networks: rank correlation of the certified constant " + ", ".join(texts)


def check_attacks(rows):
    """Return whether an attack was ever weaker than noise in the same box, or than the attack on another network."""
    compared = weaker = transferred = stronger = violated = 0
    for row in rows:
        compared += len(row["attack"])
        weaker += sum(attack > noise for attack, noise in zip(row["attack"], row["uniform"], strict=True))
        violated += sum(sure > kept for sure, kept in zip(row.get("certified", []), row["attack"], strict=False))
        if row["activation"] != "relu" or row["limit"] is not None:
            own = row["attack"] if len(row["transfer"]) > 1 else row["attack"][1:2]
            transferred += len(own)
            stronger += sum(theirs < ours for theirs, ours in zip(row["transfer"], own, strict=True))
    return (
        f"attacks: {compared}, of which {weaker} weaker than uniform noise in the same box; of {transferred}, "
        f"{stronger} weaker than the attack on the ReLU network of the same graph or seed; certified above attacked: "
        f"{violated}"
    )


# Figures


def bars(axes, positions, values, style, **options):
    """Means with their intervals, joined by a thin line."""
    means, margins = zip(*map(mean_and_margin, values), strict=True)
    axes.errorbar(
        positions,
        means,
        yerr=[0.0 if math.isnan(margin) else margin for margin in margins],
        **{"color": style.color, "marker": style.marker, "markersize": 3.6 * style.size, "markeredgewidth": 0},
        **{"linestyle": style.line, "linewidth": 0.9, "elinewidth": 0.8, "capsize": 0} | options,
    )


def band(axes, values, style, *, main):
    """Means as a line with their 95 % intervals as a band; controls thinner and without a band."""
    means, margins = map(list, zip(*map(mean_and_margin, values), strict=True))
    places = range(len(means))
    if main:
        margins = [0.0 if math.isnan(margin) else margin for margin in margins]
        ends = [[mean + sign * margin for mean, margin in zip(means, margins, strict=True)] for sign in (-1, 1)]
        axes.fill_between(places, *ends, color=style.color, alpha=0.09, linewidth=0)
    look = {"color": style.color, "marker": style.marker, "markersize": 4 * style.size, "markeredgewidth": 0}
    axes.plot(places, means, linestyle=style.line, linewidth=1.3 if main else 0.8, label=style.long, **look)


def new_wide_sheet(height):
    sheet = new_sheet(height)
    sheet.set_size_inches(8.0, height)
    return sheet


def against_relu(cells, tasks, levels, file):
    """Accuracy minus that of the ReLU network on the same graph or seed, under noise and attack."""
    with house_style():
        sheet = new_wide_sheet(9.6)
        panels = sheet.subplots(4, len(tasks), squeeze=False)
        for column, task in enumerate(tasks):
            middle = levels[task].limits[1]
            for line, (kind, limit) in enumerate(
                (("gaussian", None), ("attack", None), ("gaussian", middle), ("attack", middle))
            ):
                axes = panels[line][column]
                panel(axes, cells, task, kind, limit, getattr(levels[task], kind))
                words = "Gaussian noise" if kind == "gaussian" else "attack"
                trained = "trained normally" if limit is None else f"limit {limit:,g}"
                axes.set_title(f"{TITLES[task]}: {words}, {trained}", loc="left")
                if column == 0:
                    axes.set_ylabel("Accuracy minus ReLU's\n(points)")
        sheet.supxlabel(
            "Size of the perturbation relative to the signal; below it, the accuracy of ReLU without a limit",
            size=8.5,
        )
        legend(sheet, panels[2][0], panels[0][0])
        finish(sheet, file)


def panel(axes, cells, task, kind, limit, levels):
    relu = cells[task, "relu", None]
    names = [name for name in LOOKS if (task, name, limit) in cells and (name, limit) != ("relu", None)]
    for name in names:
        cell = cells[task, name, limit]
        values = [differences(cell, relu, lambda row: row["accuracy"])]
        values += [differences(cell, relu, lambda row, k=k: row[kind][k]) for k in range(len(levels))]
        band(axes, values, LOOKS[name], main=name in METHODS)
    axes.axhline(0, color="#1f2328", linewidth=0.8)
    clean = [[row["accuracy"] for row in relu.values()]]
    clean += [[row[kind][k] for row in relu.values()] for k in range(len(levels))]
    words = ["none", *(f"{level:g}" for level in levels)]
    axes.set_xticks(
        range(len(words)),
        [f"{word}\n{statistics.fmean(values):.0f} %" for word, values in zip(words, clean, strict=True)],
    )
    axes.tick_params(axis="x", length=0)
    axes.grid(axis="y")


def differences(first, second, measure):
    ours, theirs = pairs(first, second, measure)
    return [a - b for a, b in zip(ours, theirs, strict=True)]


def legend(sheet, *panels):
    found = {}
    for axes in panels:
        found |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    shown = [style.long for style in LOOKS.values() if style.long in found]
    sheet.legend(
        [found[name] for name in shown],
        shown,
        loc="outside upper left",
        ncols=4,
        borderpad=0,
        handlelength=2.8,
        columnspacing=1.4,
    )


def tradeoff(cells, tasks, levels, file):
    """Over the limit: accuracy, accuracy under attack, and what is certified at the same level."""
    with house_style():
        sheet = new_wide_sheet(6.4)
        panels = sheet.subplots(3, len(tasks), squeeze=False, sharex="col")
        for column, task in enumerate(tasks):
            limits = levels[task].limits
            tuned, place = limits[-2] * 10, len(levels[task].attack) - 2
            where = {limit: limit for limit in limits} | {limits[-1]: tuned, None: 10 * tuned}
            level = levels[task].attack[place]
            readers = (
                ("Accuracy (%)", lambda row: row["accuracy"]),
                (f"... attacked, level {level:g} (%)", lambda row, k=place: row["attack"][k]),
                (f"... certified, level {level:g} (%)", lambda row, k=place: row["certified"][k]),
            )
            names = [name for name in METHODS if (task, name, limits[1]) in cells]
            for line, (label, read) in enumerate(readers):
                axes = panels[line][column]
                for number, name in enumerate(names):
                    factor = 1.07 ** (number - (len(names) - 1) / 2)
                    known = [limit for limit in (*limits, None) if (task, name, limit) in cells]
                    values = [[read(row) for row in cells[task, name, limit].values()] for limit in known]
                    places = [factor * where[limit] for limit in known]
                    style = LOOKS[name]
                    count = sum(place < tuned / 2 for place in places)
                    bars(axes, places[:count], values[:count], style, label=style.long)
                    bars(axes, places[count:], values[count:], style, linestyle="none")
                axes.set_xscale("log")
                words = [*(f"{limit:,g}" for limit in limits[:-1]), "none,\ntuned", "none"]
                axes.set_xticks(list(where.values()), words)
                axes.xaxis.set_minor_formatter(NullFormatter())
                axes.set_xticks([], minor=True)
                axes.set_ylabel(label)
                axes.grid(axis="y")
            panels[0][column].set_title(TITLES[task], loc="left")
            panels[-1][column].set_xlabel("Limit of the certified Lipschitz constant")
        legend(sheet, panels[0][0])
        finish(sheet, file)


def finish(sheet, file):
    settle(sheet)
    file.write_bytes(to_png(sheet))
