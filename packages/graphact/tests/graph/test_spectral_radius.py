"""Spectral normalisation of directed graphs whose weights differ widely: known radii, high precision, refusals."""

import contextlib

import mpmath
import numpy as np
import pytest
import scipy.sparse
import torch

from graphact import Graph
from graphact.graph import spectral_radius as module

RANGES = {"tiny": (2.0**-30, 2.0**-20), "wide": (2.0**-200, 1.0), "whole": (1e-300, 1e300), "usual": (0.75, 1.0)}
UNTRUSTED = "no largest eigenvalue of this graph of {} nodes that can be trusted: its weights differ too much"


def cycle(weight):
    nodes = torch.arange(len(weight))
    return Graph.from_edge_index(torch.stack([nodes, nodes.roll(-1)]), torch.as_tensor(weight), len(weight))


def precise_radius(matrix, digits):
    """The largest eigenvalue magnitude with so many digits."""
    with mpmath.workdps(digits):
        values = mpmath.eig(mpmath.matrix(matrix.tolist()), left=False, right=False)
        return float(max(map(abs, values)))


def radius_of(matrix):
    """The radius by which a matrix was divided."""
    matrix = np.asarray(matrix)
    largest = np.unravel_index(np.abs(matrix).argmax(), matrix.shape)
    return matrix[largest] / Graph.from_dense(matrix).normalize("spectral").to_dense().numpy()[largest]


@pytest.mark.parametrize("sign", [1, -1], ids=["positive", "signed"])
@pytest.mark.parametrize("kind", RANGES)
@pytest.mark.parametrize("nodes", [4, 40, 260])
def test_a_cycle_is_divided_by_the_geometric_mean_of_its_weights(nodes, kind, sign):
    low, high = RANGES[kind]
    weight = np.tile([low, high], nodes)[:nodes]
    np.random.default_rng(nodes).shuffle(weight)
    mean = np.log2(weight).mean()
    weight[::2] *= sign
    found = cycle(weight).normalize("spectral").weight.roll(-1).numpy()  # rows are targets
    np.testing.assert_allclose(np.log2(np.abs(found)), np.log2(np.abs(weight)) - mean, rtol=1e-9, atol=1e-9)
    assert (np.sign(found) == np.sign(weight)).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_cycles_in_other_precisions(dtype):
    weight = torch.tensor([2.0**-30, 2.0**-20] * 150, dtype=dtype)
    found = cycle(weight).normalize("spectral").weight.roll(-1)
    assert found.dtype == dtype
    torch.testing.assert_close(found, torch.tensor([2.0**-5, 2.0**5] * 150, dtype=dtype))


def test_weights_that_leave_the_range_are_refused():
    weight = torch.full((9,), 1e-37)
    weight[0] = 1e38
    with pytest.raises(ValueError, match='weights of kind "spectral" must be finite, got inf'):
        cycle(weight).normalize("spectral")


def one_way(nodes, back):
    """A path whose edges have weight 1 in one direction."""
    return np.diag(np.ones(nodes - 1), 1) + np.diag(np.full(nodes - 1, back), -1)


@pytest.mark.parametrize("back", [2.0**-60, 0.25])
@pytest.mark.parametrize("nodes", [5, 300])
def test_a_path_that_is_heavier_in_one_direction(nodes, back):
    """Its period is 2: the radius and its negative are eigenvalues."""
    expected = 2 * np.sqrt(back) * np.cos(np.pi / (nodes + 1))
    assert radius_of(one_way(nodes, back)) == pytest.approx(expected, rel=1e-9)


def test_loops_along_a_cycle_that_is_hardly_closed():
    """A Jordan block but for one entry: rounding errors of 1e-16 would move its eigenvalue by 80 %."""
    matrix = np.eye(300) + np.diag(np.ones(299), -1)
    matrix[0, -1] = 2.0**-900
    assert radius_of(matrix) == pytest.approx(1 + 2.0**-3, rel=1e-9)


def test_the_largest_component_decides():
    """Whatever leads from one to another, and whichever has the larger weights."""
    small, large = one_way(280, 2.0**-60), 2.0**-25 * np.roll(np.diag([1.0, 4.0] * 10), 1, axis=1)
    matrix = scipy.sparse.block_diag([small, large]).toarray()
    matrix[290, 3] = matrix[285, 100] = 7.0
    assert radius_of(matrix) == pytest.approx(2.0**-24, rel=1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_random_positive_weights_in_high_precision(seed):
    rng = np.random.default_rng(seed)
    nodes, span = rng.integers(3, 9), rng.choice([2, 30, 100])
    matrix = np.where(rng.random((nodes, nodes)) < 0.6, np.exp2(rng.uniform(-span, span, (nodes, nodes))), 0)
    matrix[np.arange(nodes), np.arange(nodes) - 1] = np.exp2(rng.uniform(-span, span, nodes))
    assert radius_of(matrix) == pytest.approx(precise_radius(matrix, 400), rel=1e-9)


@pytest.mark.parametrize("nodes", [40, 300])
def test_what_a_solver_finds_keeps_its_bits(nodes):
    rng = np.random.default_rng(nodes)
    matrix = np.where(rng.random((nodes, nodes)) < 0.3, rng.random((nodes, nodes)), 0) + np.eye(nodes) / 4
    graph, expected = Graph.from_dense(matrix), module.solve(scipy.sparse.csr_array(matrix))
    assert nodes == 300 or expected == np.abs(np.linalg.eigvals(matrix)).max()
    assert torch.equal(graph.normalize("spectral").weight, graph.weight / expected)


@pytest.mark.parametrize("weight", [[2.0**-30] * 20 + [-(2.0**-20)] * 20, [1.0, 1.5] * 8], ids=["signed", "positive"])
def test_solvers_that_disagree_are_not_believed(monkeypatch, weight):
    answers, solve = iter([1.0, 2.0, 3.0, 4.0]), module.solve
    monkeypatch.setattr(module, "solve", lambda *args, **options: next(answers) * solve(*args, **options))
    with pytest.raises(ValueError, match=UNTRUSTED.format(len(weight))):
        cycle(torch.tensor(weight, dtype=torch.float64)).normalize("spectral")


def test_laplacians_of_rings_that_lapack_gets_wrong():
    """LAPACK gets some of these wrong by up to 7e-5, depending on the processor; the tolerance holds on all."""
    solved = 0
    for seed in (4, 5, 9, 20):
        rng = np.random.default_rng(seed)
        weight = np.exp2(rng.integers(-30, -19, 28).astype(float))
        ring = np.zeros((28, 28))
        ring[np.arange(28), np.arange(28) - 1] = weight
        order = rng.permutation(28)
        laplacian = (np.diag(weight) - ring)[order][:, order]
        with contextlib.suppress(ValueError):  # refused
            assert radius_of(laplacian) == pytest.approx(precise_radius(laplacian, 50), rel=5e-6)
            solved += 1
    assert solved >= 2
