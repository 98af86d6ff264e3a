"""The six activations against the loops of the specification, on random graphs of every kind."""

import functools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphact import functional
from support import oracle
from support.graphs import random_case, random_graph
from support.tolerances import assert_near

CASES = 200
KINDS = {"localized": functional.localized, "graph_adaptive": functional.graph_adaptive}
ACTIVATIONS = [
    ("localized", "max"),
    ("localized", "median"),
    ("graph_adaptive", "max"),
    ("graph_adaptive", "median"),
    ("graph_adaptive", "kernel"),
]
EXTRA = [("localized", "min"), ("localized", "kernel"), ("graph_adaptive", "min")]


def random_coefficients(rng, hops, features, per_feature):
    weights = rng.normal(size=(hops, features) if per_feature else (hops,))
    return float(rng.normal()), weights


@functools.cache
def prepared(seed):
    return random_case(seed)


@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
@pytest.mark.parametrize("per_feature", [False, True], ids=["shared", "per-feature"])
@pytest.mark.parametrize(("kind", "op"), ACTIVATIONS + EXTRA)
def test_values(kind, op, per_feature, closed):
    for seed in range(CASES):
        case, rng = prepared(seed), np.random.default_rng(seed)
        hops, gamma = 1 + seed % 4, [0.1, 1.0][seed % 2]
        beta, weights = random_coefficients(rng, hops, case.x.shape[-1], per_feature)
        expected = oracle.activation(kind, case.matrix, case.edges, case.x, beta, weights, op, gamma, closed)
        actual = KINDS[kind](case.signal, case.graph, beta, torch.from_numpy(weights), op, gamma=gamma, closed=closed)
        assert_near(actual, expected)


@pytest.mark.slow
@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
@pytest.mark.parametrize("per_feature", [False, True], ids=["shared", "per-feature"])
@pytest.mark.parametrize(("kind", "op"), ACTIVATIONS + EXTRA)
def test_gradients(kind, op, per_feature, closed):
    for seed in range(CASES):
        case, rng = prepared(seed), np.random.default_rng(seed)
        hops = 1 + seed % 4
        beta, weights = random_coefficients(rng, hops, case.x.shape[-1], per_feature)
        x = case.signal.requires_grad_()
        coefficients = [torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (beta, weights, 0.9)]

        def run(x, beta, weights, gamma, case=case):
            return KINDS[kind](x, case.graph, beta, weights, op, gamma=gamma, closed=closed)

        assert torch.autograd.gradcheck(run, (x, *coefficients), fast_mode=True), seed


@given(seed=st.integers(0, 2**32 - 1), hops=st.integers(1, 3), closed=st.booleans())
@pytest.mark.parametrize("op", ["max", "min", "median"])
def test_gradient_of_ties_goes_to_the_lowest_index(op, seed, hops, closed):
    case = random_case(seed)
    x = torch.from_numpy(np.round(case.x)).requires_grad_()
    weights = torch.zeros(hops, dtype=torch.float64)
    weights[-1] = 1.0
    out = functional.localized(x, case.graph, 0.0, weights, op, closed=closed)
    cotangent = torch.randn_like(out)
    (gradient,) = torch.autograd.grad(out, x, cotangent)

    values, sent = x.detach().numpy().reshape(-1, *x.shape[-2:]), cotangent.numpy().reshape(-1, *x.shape[-2:])
    expected = np.zeros_like(values)
    for sample in range(len(values)):
        for i in range(values.shape[1]):
            members = oracle.reachable(case.edges, i, hops, closed)
            for f in range(values.shape[2]):
                if members:
                    winner = members[oracle.choose([values[sample, j, f] for j in members], op)]
                    expected[sample, winner, f] += sent[sample, i, f]
    assert_near(gradient, expected.reshape(x.shape))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_left_out(kind):
    """Maxima over the neighbours alone, and kernels of the width 0.1."""
    x = torch.randn(12, 3, dtype=torch.float64) / 10
    arguments = x, random_graph(), 0.5, torch.tensor([1.0, 2.0], dtype=torch.float64)
    assert torch.equal(KINDS[kind](*arguments), KINDS[kind](*arguments, "max", closed=False))
    kernel = KINDS[kind](*arguments, "kernel")
    assert torch.equal(kernel, KINDS[kind](*arguments, "kernel", gamma=0.1, closed=False))
    assert not torch.allclose(kernel, KINDS[kind](*arguments, "kernel", gamma=0.2))
