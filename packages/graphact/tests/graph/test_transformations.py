"""Graphs made from graphs, against dense linear algebra."""

import dataclasses

import numpy as np
import pytest
import torch

from graphact import Graph
from support import oracle
from support.graphs import random_case, random_graph


@pytest.mark.parametrize("seed", range(60))
def test_spectral_normalisation(seed):
    case = random_case(seed)
    expected = oracle.normalized(case.matrix, "spectral")
    if expected is not None:
        np.testing.assert_allclose(case.graph.normalize("spectral").to_dense(), expected, rtol=1e-9)


@pytest.mark.parametrize("directed", [False, True])
def test_spectral_normalisation_of_a_large_graph_uses_the_sparse_solver(directed):
    rng = np.random.default_rng(0)
    matrix = np.where(rng.random((400, 400)) < 0.03, rng.normal(size=(400, 400)) + 0.5, 0)
    matrix = matrix if directed else np.triu(matrix) + np.triu(matrix, 1).T
    graph = Graph.from_dense(matrix).normalize("spectral")
    assert np.abs(np.linalg.eigvals(graph.to_dense().numpy())).max() == pytest.approx(1, abs=1e-8)
    again = Graph.from_dense(matrix).normalize("spectral")
    assert torch.equal(graph.weight, again.weight)


def test_spectral_normalisation_of_a_graph_without_cycles():
    acyclic = Graph.from_edge_index([[0, 1, 2, 0], [1, 2, 3, 3]])
    with pytest.raises(ValueError, match="graphs without cycles have none"):
        acyclic.normalize("spectral")
    tail_on_a_cycle = Graph.from_edge_index([[0, 1, 1], [1, 0, 2]], torch.tensor([4.0, 4.0, 9.0]))
    assert tail_on_a_cycle.normalize("spectral").weight.tolist() == [1, 1, 2.25]
    no_edges = Graph.from_edge_index([[], []], num_nodes=2)
    assert no_edges.normalize("spectral").num_edges == 0
    loop = Graph.from_edge_index([[0], [0]], torch.tensor([-2.0]))
    assert loop.normalize("spectral").to_dense().item() == -1


@pytest.mark.parametrize("seed", range(30))
def test_other_normalisations(seed):
    case = random_case(seed)
    for kind in ("symmetric", "random_walk", "laplacian"):
        found = case.graph.normalize(kind)
        np.testing.assert_allclose(found.to_dense(), oracle.normalized(case.matrix, kind), atol=1e-14)
        assert torch.equal(found.degree, case.graph.degree)


def test_normalisation_keeps_an_undirected_graph_undirected():
    graph = random_graph(30)
    assert not graph.normalize("symmetric").is_directed
    assert not graph.normalize("spectral").is_directed
    assert graph.normalize("random_walk").is_directed
    with pytest.raises(ValueError, match="kind must be one of 'spectral', .* got 'row'"):
        graph.normalize("row")


@pytest.mark.parametrize("seed", range(30))
def test_permute(seed):
    case = random_case(seed)
    perm = torch.randperm(case.graph.num_nodes)
    expected = torch.from_numpy(case.matrix)[perm][:, perm]
    assert torch.equal(case.graph.permute(perm).to_dense(), expected)


@pytest.mark.parametrize(
    ("perm", "error"),
    [([0, 0, 1], ValueError), ([0, 1], ValueError), ([0.0, 1.0, 2.0], TypeError), ([1, 2, 3], ValueError)],
)
def test_bad_permutation(perm, error):
    with pytest.raises(error, match="perm must hold"):
        Graph.from_edge_index([[0, 1], [1, 2]]).permute(perm)


def test_drop_edges_takes_both_directions_and_leaves_the_rest():
    graph = Graph.stochastic_block_model([60, 60], 0.5, 0.2).normalize("laplacian")
    thin = graph.drop_edges(0.3, generator=torch.Generator().manual_seed(2))
    before, after = graph.to_dense(), thin.to_dense()
    assert torch.equal(after, after.T)
    assert torch.equal(after[after != 0], before[after != 0])
    assert torch.equal(after.diagonal(), before.diagonal())
    assert thin.num_edges / graph.num_edges == pytest.approx(0.7, abs=0.03)
    again = graph.drop_edges(0.3, generator=torch.Generator().manual_seed(2))
    assert torch.equal(after, again.to_dense())
    assert graph.drop_edges(0.0).num_edges == graph.num_edges
    assert graph.drop_edges(1.0).num_edges == 0
    with pytest.raises(ValueError, match="p must lie between 0 and 1, got -0.1"):
        graph.drop_edges(-0.1)


@pytest.mark.parametrize("seed", range(40))
def test_hop_patterns(seed):
    case = random_case(seed)
    for hops in (1, 2, 3):
        for closed in (False, True):
            for turned in (False, True):
                edges = case.edges.T if turned else case.edges
                pattern = case.graph.hop_pattern(hops, closed=closed, turned=turned)
                lists = pattern.col.tensor_split(pattern.rowptr[1:-1])
                assert [part.tolist() for part in lists] == [
                    oracle.reachable(edges, i, hops, closed) for i in range(len(edges))
                ]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_sums_do_not_saturate(dtype):
    leaves = 4000
    edge_index = torch.stack([torch.arange(1, leaves + 1), torch.zeros(leaves, dtype=torch.int64)])
    star = Graph.from_edge_index(edge_index, torch.ones(leaves, dtype=dtype))
    assert star.normalize("laplacian").diagonal[0] == torch.tensor(float(leaves), dtype=dtype)
    assert star.normalize("random_walk").weight.float().sum() == pytest.approx(1, abs=0.01)
    repeated = Graph.from_edge_index(torch.tensor([[0], [1]]).expand(2, leaves), torch.ones(leaves, dtype=dtype))
    assert repeated.weight.item() == torch.tensor(float(leaves), dtype=dtype)


def path_matrix(n):
    return np.diag(np.ones(n - 1), 1) + np.diag(np.ones(n - 1), -1)


@pytest.mark.parametrize(
    ("matrix", "radius"),
    [
        (path_matrix(1500), 2 * np.cos(np.pi / 1501)),
        (np.roll(np.eye(600), 1, axis=1), 1.0),
        (-path_matrix(700), 2 * np.cos(np.pi / 701)),
    ],
    ids=["path", "directed ring", "negative path"],
)
def test_spectra_that_converge_slowly(matrix, radius):
    normalized = Graph.from_dense(matrix).normalize("spectral")
    assert normalized.weight.abs().max().item() == pytest.approx(1 / radius, rel=1e-8)


def ring_with_an_edge_of_weight_zero(nodes):
    weight = torch.ones(nodes, dtype=torch.float64)
    weight[0] = 0
    ring = torch.stack([torch.arange(nodes), torch.arange(1, nodes + 1) % nodes])
    return Graph.from_edge_index(ring, weight)


@pytest.mark.parametrize(
    "graph",
    [
        Graph.from_dense(torch.tensor([[1.0, -1.0], [1.0, -1.0]])),
        ring_with_an_edge_of_weight_zero(4),
        ring_with_an_edge_of_weight_zero(300),
    ],
    ids=["signed", "small ring", "large ring"],
)
def test_eigenvalues_that_are_all_zero(graph):
    """Iterations on such an operator find the roots of rounding errors."""
    with pytest.raises(ValueError, match="needs an eigenvalue that is not zero"):
        graph.normalize("spectral")


def test_to():
    laplacian = random_graph().normalize("laplacian").to(dtype=torch.float32)
    assert (laplacian.diagonal.dtype, laplacian.outgoing_weight.dtype) == (torch.float32,) * 2
    with pytest.raises(ValueError, match="weights in torch.float16 must be finite, got inf"):
        Graph.from_edge_index([[0], [1]], torch.tensor([1e6])).to(torch.float16)
    graph = random_graph()
    with pytest.raises(dataclasses.FrozenInstanceError):
        graph.weight = graph.weight * 2
    graph.hop_pattern(2)
    assert graph.to(torch.float64) is graph
    assert graph.to("cpu") is graph
    single = graph.to(torch.float32)
    assert single.dtype == torch.float32
    assert torch.equal(single.hop_pattern(2).col, graph.hop_pattern(2).col)
    for dtype in ("float64", torch.int64):
        with pytest.raises(TypeError, match="dtype must be a floating-point torch.dtype, got "):
            graph.to(dtype=dtype)


def test_walks_of_a_huge_hub_are_refused():
    leaves = 30_000
    edge_index = torch.stack([torch.arange(1, leaves + 1), torch.zeros(leaves, dtype=torch.int64)])
    star = Graph.from_edge_index(torch.cat([edge_index, edge_index.flip(0)], dim=1))
    with pytest.raises(ValueError, match="hops=2 would follow 900,030,000 walks .* use fewer hops"):
        star.hop_pattern(2)


@pytest.mark.parametrize("symmetric", [True, False])
def test_second_derivatives_reach_edge_weights(symmetric):
    from graphact import functional

    edge_index = torch.tensor([[0, 1, 1, 2, 0], [1, 0, 2, 1, 0]])
    values = [1.0, 1.0, 1.0, 1.0, 0.0] if symmetric else [1.0, 2.0, 3.0, 4.0, 0.5]
    weight = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    x = torch.randn(2, 3, 1, dtype=torch.float64, requires_grad=True)

    def run(weight, x):
        graph = Graph.from_edge_index(edge_index, weight, 3).permute([2, 0, 1])
        return functional.shift(functional.shift(x, graph).square(), graph)

    assert torch.autograd.gradcheck(run, (weight, x))
    assert torch.autograd.gradgradcheck(run, (weight, x))
