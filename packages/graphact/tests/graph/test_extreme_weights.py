"""Weights near the largest and the smallest float: normalised rightly in single precision, refused in double."""

import numpy as np
import pytest
import torch

from graphact import Graph
from support import oracle

# |S| of four graphs in units of the scale: undirected, directed with a diagonal, one with a node that has no edge
PATTERNS = {
    "undirected": [[0, 1, 1, 1], [1, 0, 0.75, 0], [1, 0.75, 0, 0], [1, 0, 0, 0]],
    "directed": [[0.5, 1, 0, -1], [0, 0, 1, 0], [1, 0.25, 0, 1], [0.5, 1, 0, 1]],
    "alone": [[0, 1, 0], [1, 0, 0], [0, 0, 0]],
}
SCALES = {
    torch.float32: (3e38, 1.5e-38, 1e-42),
    torch.float64: (1e307, 1e-307),
    torch.bfloat16: (3e38, 1.5e-38),
    torch.float16: (6e4, 6e-5),
}
CASES = [(dtype, scale) for dtype, scales in SCALES.items() for scale in scales]


def normalized(matrix, kind):
    """Dense and in extended precision, whose range is wider than that of float64."""
    wide = matrix.to(torch.float64).numpy().astype(np.longdouble)
    return torch.from_numpy(oracle.normalized(wide / abs(wide).max(), kind).astype(np.float64))


@pytest.mark.parametrize("kind", ["symmetric", "random_walk", "spectral"])
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize(("dtype", "scale"), CASES)
def test_normalisations_of_weights_at_the_ends_of_the_range(kind, pattern, dtype, scale):
    matrix = torch.tensor(PATTERNS[pattern], dtype=torch.float64).mul(scale).to(dtype)
    found = Graph.from_dense(matrix).normalize(kind).to_dense()
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), normalized(matrix, kind), rtol=8 * torch.finfo(dtype).eps, atol=0)


@pytest.mark.parametrize("kind", ["symmetric", "random_walk"])
@pytest.mark.parametrize("scale", [1.7e308, 1e-310])
def test_sums_that_leave_the_range_of_double_precision_are_refused(kind, scale):
    graph = Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]], torch.full((4,), scale, dtype=torch.float64))
    with pytest.raises(ValueError, match="sums of weights and 1 / sums must be finite, got inf"):
        graph.normalize(kind)


@pytest.mark.parametrize("kind", ["symmetric", "random_walk"])
def test_gradients_of_weights_near_the_largest_float(kind):
    """The normalised operator does not depend on the scale of all weights, so gradients are inverse to it."""
    edges, gradients = [[0, 1, 1, 2, 2, 0], [1, 0, 2, 1, 0, 2]], []
    for scale in (1.0, 2.0**127):
        weight = (torch.tensor([1.0, 1.5, 1.25, 1.75, 1.0, 1.5]) * scale).requires_grad_()
        normalized = Graph.from_edge_index(edges, weight).normalize(kind).to_dense()
        (gradient,) = torch.autograd.grad((normalized * torch.arange(9.0).view(3, 3)).sum(), weight)
        gradients.append(gradient.double() * scale)
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["symmetric", "random_walk", "spectral"])
def test_usual_weights_are_normalised_to_the_same_bits_at_every_power_of_two(kind):
    weight = torch.rand(8, generator=torch.Generator().manual_seed(0)) + 0.5
    edges = [[0, 1, 1, 2, 3, 4, 4, 5], [1, 0, 2, 1, 4, 3, 5, 4]]
    usual, large = (Graph.from_edge_index(edges, weight * 4.0**power).normalize(kind) for power in (0, 62))
    if kind != "spectral":
        assert torch.equal(usual.weight, large.weight)
    torch.testing.assert_close(usual.weight, large.weight)


@pytest.mark.parametrize("scale", [3e38, -3e38])
def test_a_laplacian_whose_row_sums_overflow_is_refused(scale):
    graph = Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]], torch.full((4,), scale))
    with pytest.raises(ValueError, match=r'row sums of kind "laplacian" must be finite, got -?inf'):
        graph.normalize("laplacian")
