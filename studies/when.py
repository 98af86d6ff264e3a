"""When does a graph-adaptive activation pay? docs/when-it-pays.md, its tables and its figures, from rows of benchmarks.

    python studies/when.py                    write the page and the figures again
    python studies/when.py --check            compare the page with the rows; exit status 1 where they differ
    python studies/when.py FOLDER --out DIR   from other rows, to another folder

A setting is an experiment, a protocol (backbone), a width and a data set. In each, one pointwise activation and one
neighbourhood activation stand for their kind: those with the best mean validation score, on splits that are not
reported where the protocol has some. The gain is the paired difference of their test scores, with an interval that is
corrected for the test samples that splits share.
"""

import argparse
import sys
from collections import defaultdict
from functools import partial
from pathlib import Path
from statistics import fmean

from benchmark_rows import Benchmarks, common_to, is_ours, is_pointwise
from evidence import PROBLEMS, Evidence
from graphact.storage import write_atomically
from graphact_lab.classifiers.node_classifier import GAMMA
from graphact_lab.descriptions import find_experiment
from graphact_lab.experiments.flocking.experiment import ORDER
from graphact_lab.experiments.graph_classification.experiment import PUBLISHED, SETS
from graphact_lab.figures import house_style, new_sheet
from graphact_lab.statistics import ALPHA, holm
from graphact_lab.store import Store
from graphact_lab.style import INK, Variant, title_of
from grids import Grids
from moderators import association, draw_moderators, moderators_table, noise_table
from page import ROOT, make_environment
from quotes import sure
from ranking import draw_ranking, finish, ranking_of
from when_tables import (
    by_data_set,
    certain_pairs,
    controls_table,
    gains_table,
    label,
    missing,
    scores_table,
    verdicts,
)

RESULTS = ROOT / "results" / "benchmarks"
# GCN of DiGRAF's Table 1 (Mantri et al., NeurIPS 2024), in its own protocol: see the page for what differs
DIGRAF = {
    "relu": {"blogcatalog": 72.1, "flickr": 50.7, "citeseer": 67.7, "cora": 79.2, "pubmed": 77.6},
    "shiftless-max": {"blogcatalog": 72.0, "flickr": 47.5, "citeseer": 59.7, "cora": 76.0, "pubmed": 75.0},
    "shiftless-median": {"blogcatalog": 77.7, "flickr": 58.3, "citeseer": 61.3, "cora": 77.1, "pubmed": 75.7},
    "grelu": {"blogcatalog": 73.7, "flickr": 54.4, "citeseer": 68.5, "cora": 81.8, "pubmed": 78.9},
    "digraf": {"blogcatalog": 81.6, "flickr": 69.6, "citeseer": 69.5, "cora": 82.8, "pubmed": 79.3},
}
# GCN of Luo et al. (NeurIPS 2024, Datasets and Benchmarks), whose recipes the tuned protocols are
TUNED = {"relu": {"squirrel_filtered": 45.0, "chameleon_filtered": 46.3, "minesweeper": 97.9}}


def furthest_from(cells, published, method):
    """By how much the means of a method differ from published ones at most, and on which data set."""
    known = {
        cell.setting.data_set: cell.mean((method, None)) - published[method][cell.setting.data_set]
        for cell in cells
        if (method, None) in cell.rows and cell.setting.data_set in published[method]
    }
    level = max(known, key=lambda one: abs(known[one]), default=None)
    return (0.0, None) if level is None else (known[level], level)


def below_published(cells):
    """Return whether no activation that was run reaches DiGRAF's published figure, in any of the cells."""
    return all(cell.mean(one) < DIGRAF["digraf"][cell.setting.level] for cell in cells for one in cell.rows)


def lacks_the_shift(cells, within=3.0):
    """Return whether a maximum without the shift is near its published figure, and one with it far above."""
    without, with_it = ("shiftless-max", None), ("max-ga", 1)
    return bool(cells) and all(
        {without, with_it} <= set(cell.rows)
        and abs(cell.mean(without) - DIGRAF["shiftless-max"][cell.setting.level]) < within
        and cell.mean(with_it) - cell.mean(without) > within
        for cell in cells
    )


def more_parameters(cells):
    """By how many percent neighbourhood activations enlarge a network at most."""
    shares = [0.0]
    for cell in cells:
        if ("relu", None) in cell.rows:
            relu = cell.rows["relu", None][0]["parameters"]
            shares += [100 * (cell.rows[one][0]["parameters"] / relu - 1) for one in cell.rows if is_ours(one)]
    return max(shares)


def explained_by_a_hop(cell):
    """Return whether most of a gain is there with a mean of neighbours, which is linear."""
    mean = ("mean-ga", None)
    return mean in cell.rows and cell.gain(mean).mean > abs(cell.gain(reference=mean).mean)


def no_protection(cells):
    """Return whether under no attack a neighbourhood activation is certainly better than the best pointwise one."""
    attacked = [cell for cell in cells if cell.setting.level.startswith("attack")]
    pairs = [(cell, one) for cell in attacked for one in cell.rows if is_ours(one)]
    adjusted = holm([cell.gain(one).p_unlike() for cell, one in pairs])
    return all(p >= ALPHA or cell.gain(one).mean <= 0 for (cell, one), p in zip(pairs, adjusted, strict=True))


def transferred(benchmarks, protocol, level, variant):
    """The mean accuracy under attacks that were made for another network, a further one with ReLU."""
    [cell] = [one for one in benchmarks.of("robustness", protocol) if one.setting.level == level]
    return cell.mean(variant, "transferred_attack")


def minutes_by_device(benchmarks):
    """Return how long the processes of all rows took, by device in words."""
    spent = defaultdict(float)
    for cell in (*benchmarks.cells.values(), *benchmarks.optimistic.values()):
        for row in (row for rows in cell.rows.values() for row in rows):
            spent["CPU cores" if row["device"] == "cpu" else f"an {row['device']}"] += row["seconds"] / 60
    return dict(sorted(spent.items(), reverse=True))


def leads_in_flocking(method, folder=ROOT / "results" / "flocking" / "full"):
    """Return whether a method has the lowest mean cost of all policies as trained, with fewer exchanges than ours.

    Of those with filters of the usual order, whose messages take no time.
    """
    rows = [row for row in Store(folder).rows() if row["kind"] == "model" and not row["condition"]]
    costs, exchanges = defaultdict(list), {}
    for row in rows:
        if row["order"] == ORDER and not row["delayed"]:
            variant = row["method"], row["hops"]
            costs[variant].append(row["value"])
            exchanges[variant] = row["exchanges"]
    means = {variant: fmean(values) for variant, values in costs.items()}
    ours = [exchanges[variant] for variant in means if is_ours(variant)]
    lowest = min(means, key=means.get)
    return lowest[0] == method and bool(ours) and exchanges[lowest] < min(ours)


def draw_gains(cells, file):
    """The gain in every setting with its interval, one dot each."""
    with house_style():
        sheet = new_sheet(1.1 + 0.19 * len(cells))
        axes = sheet.subplots()
        for row, cell in enumerate(cells):
            gap, style = cell.gain(), Variant(*cell.ours).style
            look = {"color": style.color, "marker": style.marker, "markersize": 4.5 * style.size}
            look["label"] = None if style.short in axes.get_legend_handles_labels()[1] else style.short
            axes.errorbar(gap.mean, row, xerr=min(gap.margin, 1e3), elinewidth=0.8, linestyle="none", **look)
        axes.axvline(0, color=INK, linewidth=0.7)
        axes.locator_params(axis="x", nbins=8)
        axes.set_yticks(range(len(cells)), [str(cell.setting) for cell in cells])
        axes.set_ylim(len(cells) - 0.4, -0.6)
        sheet.supxlabel("Gain over the best pointwise activation (points)", fontsize=8.5)
        axes.grid(axis="x")
        sheet.legend(*axes.get_legend_handles_labels(), frameon=False, fontsize=7, loc="outside upper center", ncols=3)
        finish(sheet, file)


def draw_cost(cells, file):
    """The mean score over data sets beside exchanges for an answer."""
    common = sorted(common_to(cells), key=lambda one: Variant(*one).rank)
    with house_style():
        sheet = new_sheet(3.2)
        axes = sheet.subplots()
        scores = {variant: fmean(cell.mean(variant) for cell in cells) for variant in common}
        costs = {variant: cells[0].rows[variant][0]["exchanges"] for variant in common}
        best = {max((one for one in common if costs[one] == cost), key=scores.get) for cost in set(costs.values())}
        for variant in common:
            style, place = Variant(*variant).style, (costs[variant], scores[variant])
            axes.plot(*place, color=style.color, marker=style.marker, markersize=4.5 * style.size)
            if variant in best or variant[0] == "relu":  # the others are in the table
                axes.annotate(Variant(*variant).label, place, xytext=(6, -2), textcoords="offset points", fontsize=7.5)
        axes.set_xticks(sorted(set(costs.values())))
        axes.set_xlim(min(costs.values()) - 0.4, max(costs.values()) + 1)
        axes.set_xlabel("Exchanges between neighbours for an answer")
        axes.set_ylabel(f"Mean test score over {len(cells)} data sets (%)")
        axes.grid(axis="y")
        finish(sheet, file)


def render(benchmarks, evidence=None):
    """The text of the page; sentences on the four experiments are checked where their evidence is given."""
    names = {
        "of": benchmarks.of,
        "comparable": benchmarks.comparable,
        "unlisted_settings": benchmarks.unlisted_settings,
        "missing": lambda: missing(benchmarks),
        "optimistic_of": benchmarks.optimistic_of,
        "by_data_set": by_data_set,
        "certain_pairs": certain_pairs,
        "gains_table": gains_table,
        "controls_table": controls_table,
        "graphs": benchmarks.graphs,
        "correlation": lambda cells, factor: association(cells, benchmarks.graphs, factor)[0],
        "moderators_table": lambda cells: moderators_table(cells, benchmarks.graphs),
        "noise_table": lambda: noise_table(benchmarks),
        "verdicts": verdicts,
        "scores_table": scores_table,
        "ranking_of": ranking_of,
        "furthest_from": furthest_from,
        "more_parameters": more_parameters,
        "is_pointwise": is_pointwise,
        "below_published": below_published,
        "lacks_the_shift": lacks_the_shift,
        "under": {cell.setting.level: cell for cell in benchmarks.of("robustness", "cora")},
        "no_protection": no_protection,
        "transferred": partial(transferred, benchmarks),
        "explained_by_a_hop": explained_by_a_hop,
        "depth_limit": "" if evidence is None else Grids(evidence).depth_limit(),
        "tanh_leads_in_flocking": evidence is None or leads_in_flocking("tanh"),
        "sure": sure,
        "protocols": lambda experiment: find_experiment(experiment).protocols_at("full"),
        "label": label,
        "title_of": title_of,
        "digraf": DIGRAF,
        "digraf_graphs": {method: dict(zip(SETS, means, strict=True)) for method, means in PUBLISHED.items()},
        "tuned": TUNED,
        "gamma": GAMMA,
        "minutes": minutes_by_device(benchmarks),
    }
    environment = make_environment(names)
    environment.filters |= {
        "title_of": title_of,
        "margin": lambda cell: cell.gain().margin,
        "detectable": lambda cell: cell.gain().detectable(),
    }
    return environment.get_template("when-it-pays.md.j2").render()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", nargs="?", type=Path, default=RESULTS)
    parser.add_argument("--out", type=Path, default=ROOT / "docs", help="folder of the page (default: docs)")
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args()
    try:
        benchmarks = Benchmarks(options.directory)
        text = render(benchmarks, Evidence() if options.directory == RESULTS else None)
    except PROBLEMS as problem:
        sys.exit(str(problem))
    page = options.out / "when-it-pays.md"
    if options.check:
        return int(not page.exists() or page.read_text() != text)
    figures = options.out / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    if cells := benchmarks.comparable("node-classification"):
        draw_gains(cells, figures / "when-gains.png")
        if benchmarks.graphs:
            draw_moderators(cells, benchmarks.graphs, partial(finish, file=figures / "when-factors.png"))
    if ranking := ranking_of(benchmarks.of("node-classification", "gcn")):
        draw_ranking(ranking, figures / "when-ranks.png")
        cells = [cell for cell in benchmarks.of("node-classification", "gcn") if cell.setting.level in ranking.levels]
        draw_cost(cells, figures / "when-cost.png")
    write_atomically(page, text.encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
