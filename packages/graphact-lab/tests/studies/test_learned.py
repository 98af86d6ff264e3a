"""Learned activations: sizes beside beta against NumPy, functions against their formula."""

import numpy as np
import pytest
import torch

import graphact
from learned import lines_of, responses, shares

ROWS = [
    {"method": "max-ga", "beta": [2.0, -1.0], "weights": [[[1.0], [-0.5]], [[0.2], [0.4]]]},
    {"method": "max-ga", "beta": [-4.0, 1.0], "weights": [[[-1.0], [1.0]], [[0.1], [-0.3]]]},
    {"method": "max-ga", "beta": [1.0, 0.5], "weights": [[[3.0], [2.0]], [[1.0], [1.0]]]},
]


def test_sizes_are_shares_of_beta():
    first, second = shares(ROWS)
    assert first[:, :, 0].tolist() == [[0.5, 0.25], [0.25, 0.25], [3.0, 2.0]]
    assert second[:, :, 0] == pytest.approx(np.array([[0.2, 0.4], [0.1, 0.3], [2.0, 2.0]]))


def test_lines_hold_medians_quartiles_and_signs():
    (numbers, signs), _ = lines_of(ROWS)
    assert numbers[0] == "1.00 [-1.50, 1.50]"
    assert numbers[1] == "0.50 [0.38, 1.75]"
    assert signs == ["67 %", "67 %"]


@pytest.mark.parametrize(("method", "hops"), [("max-ga", 2), ("median-ga", 1), ("kernel-ga", 1), ("max-l", 1)])
def test_functions_are_the_formula_on_a_dense_graph(method, hops):
    rng = np.random.default_rng(0)
    dense = np.triu((rng.uniform(size=(6, 6)) < 0.7) * rng.uniform(0.2, 1.0, (6, 6)), 1)
    dense += dense.T
    graph = graphact.Graph.from_dense(torch.from_numpy(dense))
    weights, beta = rng.normal(size=hops), -1.7
    row = {"method": method, "beta": [1.0, beta], "weights": [[[0.0]] * hops, weights[:, None].tolist()]}
    values = np.linspace(-1, 1, 5)
    found = responses(row, 1, graph, 2, values, 0.3)
    for value, answer in zip(values, found, strict=True):
        signal = np.full(6, 0.3)
        signal[2] = value
        total, shifted = beta * max(signal[2], 0.0), signal
        for hop in range(hops):
            shifted = signal if method == "max-l" else dense @ shifted
            near = np.sort(shifted[dense[2] != 0])
            term = {
                "max": near[-1],
                "median": near[(len(near) - 1) // 2],
                "kernel": np.exp(-((shifted[2] - near) ** 2).sum() / (2 * 0.1**2)),
            }[method.split("-")[0]]
            total += weights[hop] * term
        assert answer == pytest.approx(total / abs(beta), abs=1e-9)
