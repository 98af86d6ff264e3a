"""Learned activations: the size of h beside beta by layer and hop, and the trained activations as functions.

    python studies/learned.py [results]                    tables of |h| / |beta|, as Markdown
    python studies/learned.py [results] --figure FILE      and the functions, as a figure

Rows keep every trained parameter of the activations (beta by layer, h by layer, hop and feature): no model is needed. A
function is what a node answers to its own value while all other nodes of a graph hold one level, divided by |beta|.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

from evidence import PROBLEMS, RESULTS, Evidence, NotRunError, Study

LEVELS = {-0.5: "#d55e00", 0.0: "#1f2328", 0.5: "#0072b2"}
SHOWN = (("max-l", 1), ("max-ga", 2), ("median-ga", 2), ("kernel-ga", 1))
ALONE = 0.5  # the level of the others where single networks are drawn
GAMMA = 0.1  # of the kernel in every protocol


def shares(rows):
    """|h| / |beta| by layer: an array of networks, hops and features."""
    layers = range(len(rows[0]["beta"]))
    return [np.array([np.abs(row["weights"][layer]) / abs(row["beta"][layer]) for row in rows]) for layer in layers]


def lines_of(rows):
    """For each layer: median and quartiles of beta and of |h| / |beta| by hop, and how many h are positive."""
    for layer, by_hop in enumerate(shares(rows)):
        beta = np.array([row["beta"][layer] for row in rows])
        signs = np.array([row["weights"][layer] for row in rows]) > 0
        yield (
            [quartiles(beta), *(quartiles(by_hop[:, hop]) for hop in range(by_hop.shape[1]))],
            [f"{100 * signs[:, hop].mean():.0f} %" for hop in range(by_hop.shape[1])],
        )


def quartiles(values):
    low, middle, high = np.quantile(values, (0.25, 0.5, 0.75))
    return f"{middle:.2f} [{low:.2f}, {high:.2f}]"


def responses(row, layer, graph, node, values, level):
    """Return the answers of a node to its own values while all others hold a level, in units of |beta|."""
    import torch

    from graphact import functional

    signals = torch.full((len(values), graph.num_nodes, 1), level, dtype=torch.float64)
    signals[:, node, 0] = torch.as_tensor(values, dtype=torch.float64)
    op, _, family = row["method"].partition("-")
    function = functional.localized if family == "l" else functional.graph_adaptive
    weights = torch.tensor(row["weights"][layer], dtype=torch.float64)[:, 0]  # of the first feature
    answers = function(signals, graph, row["beta"][layer], weights, op, gamma=GAMMA)
    return answers[:, node, 0].numpy() / abs(row["beta"][layer])


def draw(evidence, study, features):
    """A panel for each layer and method: the median network at three levels, and some single ones at one level."""
    import torch

    from graphact_lab import style
    from graphact_lab.tasks import source_localization

    task = source_localization(dtype=torch.float64)
    node, values = int(task.node or 0), np.linspace(-1, 1, 81)
    found = {
        (method, hops): rows
        for cell, rows in evidence.cells[study].items()
        for method, hops in [(cell.method, cell.hops)]
        if (method, hops) in SHOWN and cell.features == features and not cell.condition
    }
    shown = [pair for pair in SHOWN if pair in found]
    if not shown:
        raise NotRunError(f"none of {', '.join(method for method, _ in SHOWN)} was run with {features} features")
    layers = len(found[shown[0]][0]["beta"])
    with style.house_style():
        sheet = style.new_sheet(1.5 * layers + 0.5)
        sheet.set_figwidth(1.75 * len(shown) + 0.4)
        panels = sheet.subplots(layers, len(shown), sharex=True, sharey="row", squeeze=False)
        for column, pair in enumerate(shown):
            for layer in range(layers):
                axes, rows = panels[layer][column], found[pair]
                single = f"single networks, others at {ALONE:g}"
                for row in rows[:: max(1, len(rows) // 12)]:
                    answers = responses(row, layer, task.graph, node, values, ALONE)
                    axes.plot(values, answers, color="#56b4e9", linewidth=0.5, alpha=0.7, label=single)
                    single = "_"  # named once
                for level, color in LEVELS.items():
                    some = [
                        responses(row, layer, task.graph, node, values, level)
                        for row in rows[:: max(1, len(rows) // 40)]
                    ]
                    words = f"median, others at {level:g}"
                    axes.plot(values, np.median(some, axis=0), color=color, linewidth=1.6, label=words)
                axes.grid()
                axes.set_ylim(-2.5, 2.5)
                if layer == 0:
                    axes.set_title(style.Variant(*pair).label)
                if column == 0:
                    axes.set_ylabel(f"layer {layer + 1}: output / |β|")
        sheet.supxlabel("a node's own value", fontsize=8.5)
        handles, _ = panels[0][0].get_legend_handles_labels()
        sheet.legend(handles=[*handles[1:], handles[0]], ncols=4, loc="outside upper left")
    return sheet


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", nargs="?", type=Path, default=RESULTS)
    parser.add_argument("--protocol", default="converged", help="of source localization (default: converged)")
    parser.add_argument("--features", type=int, default=8)
    parser.add_argument("--figure", type=Path, help="draw the functions here")
    options = parser.parse_args()
    evidence, study = Evidence(options.directory), Study("source-localization", "paper", options.protocol)
    try:
        cells = evidence.cells.get(study, {})
        for cell in sorted(cells, key=str):
            if cell.features == options.features and cells[cell][0].get("weights"):
                for layer, (numbers, signs) in enumerate(lines_of(cells[cell])):
                    words = f"{cell.method} ({cell.hops}), layer {layer + 1}"
                    sys.stdout.write(f"| {words} | {' | '.join([*numbers, *signs])} |\n")
        if options.figure:
            draw(evidence, study, options.features).savefig(options.figure, dpi=200, metadata={"Software": None})
    except PROBLEMS as problem:
        sys.exit(str(problem))


if __name__ == "__main__":
    main()
