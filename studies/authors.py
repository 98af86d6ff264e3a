"""Operators of the published code, with its faults, beside the paper's definitions: docs/tables/authors-code.csv.

Nothing of that code is used: each departure is written down again from its description, on graphs and signals like the
paper's (stochastic block models of source localization, normal signals of 8 features, batches of 100).
"""

import numpy as np
import torch

from graphact import functional
from graphact_lab.tasks import consensus, source_localization

GRAPHS, BATCH, FEATURES, DEVIATION, GAMMA = 4, 100, 8, 0.1, 0.1


def padded_median(signal, neighbors, width):
    """The lower median over the neighbours and the node itself, repeated until every list is as long as the longest."""
    columns = []
    for node, own in enumerate(neighbors):
        padded = np.concatenate([own, np.full(width - len(own), node, dtype=int)])
        columns.append(np.sort(signal[:, padded], axis=1)[:, (width - 1) // 2])
    return np.stack(columns, axis=1)


def summed_kernel(signal, neighbors):
    """The Gaussian of differences summed over all samples and features, the same for each of them."""
    spreads = [((signal[:, [node]] - signal[:, own]) ** 2).sum() for node, own in enumerate(neighbors)]
    return np.exp(-np.array(spreads) / (2 * GAMMA**2))


def measure():
    """The figures by name."""
    medians, kernels, kernels_of_text, hops = [], [], [], []
    for number in range(GRAPHS):
        graph = source_localization(graph=number, dtype=torch.float64).graph
        dense = graph.to_dense().numpy()
        neighbors = [np.flatnonzero(line) for line in dense]
        shape = (BATCH, graph.num_nodes, FEATURES)
        signal = torch.from_numpy(np.random.default_rng(number).normal(0.0, DEVIATION, shape))
        paper_median = functional.neighborhood_median(signal, graph).numpy()
        code_median = padded_median(signal.numpy(), neighbors, max(map(len, neighbors)))
        medians.append(
            (
                np.mean(code_median != paper_median),
                np.abs(code_median - paper_median).mean(),
                np.abs(paper_median).mean(),
            )
        )
        shifted = functional.shift(signal, graph)
        kernels_of_text.append(functional.neighborhood_kernel(shifted, graph, GAMMA).numpy().mean())
        kernels.append(summed_kernel(shifted.numpy(), neighbors).mean())
        twice = 2 * functional.neighborhood_max(shifted, graph).numpy()  # a loop over hops that never shifts
        true = sum(functional.neighborhood_max(x, graph).numpy() for x in (shifted, functional.shift(shifted, graph)))
        hops.append(np.abs(twice - true).mean() / np.abs(true).mean())
    targets = consensus().targets
    changed, moved, size = np.mean(medians, axis=0)
    return {
        "median": f"{100 * changed:.0f} % of the values change, by {moved:.3f} on average at a mean size of {size:.3f}",
        "kernel": f"mean value {np.mean(kernels):.3f} instead of {np.mean(kernels_of_text):.3f}",
        "hops": f"the sum of two maxima moves by {100 * np.mean(hops):.0f} %",
        "targets": f"{100 * (targets.trunc() == 0).double().mean().item():.0f} % of the targets of consensus become 0",
    }


DEPARTURES = {
    "classes of maximum and median": ("defined", "raise a NameError as published"),
    "median": ("over the neighbours", "lists are padded to the longest one with the node itself"),
    "kernel": ("for each sample and feature on its own", "differences are summed over batch and features"),
    "hops": ("the signal is shifted before each hop", "the loop over hops never shifts"),
    "weights h": ("one for each feature", "shared by all features"),
    "direction": ("shift and neighbourhood use the same edges", "opposite ones on directed graphs"),
    "targets": ("real numbers", "truncated to integers"),
    "kept model": ("the best one", "in regression, the one with the worst RMSE"),
    "device": ("any", ".cuda() is hard-coded"),
}


def departures():
    """Return each departure of the published code from the text, with what it changes where that was measured."""
    measured = measure()
    return [
        {"of": name, "text": text, "code": code, "effect": measured.get(name, "")}
        for name, (text, code) in DEPARTURES.items()
    ]
