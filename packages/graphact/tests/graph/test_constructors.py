"""Every way to build a graph, and every way to fail at it."""

import networkx
import numpy as np
import pytest
import scipy.sparse
import torch
from torch_geometric.data import Batch, Data

from graphact import Graph
from support.graphs import random_case

MATRIX = torch.tensor([[0.5, 2.0, 0.0], [0.0, 0.0, -1.0], [3.0, 0.0, 0.0]])


def same(graph, matrix):
    return torch.equal(graph.to_dense(), torch.as_tensor(matrix, dtype=graph.dtype))


@pytest.mark.parametrize("seed", range(60))
def test_round_trips(seed):
    case = random_case(seed)
    matrix = torch.from_numpy(case.matrix)
    assert same(case.graph, matrix)
    assert same(Graph.from_dense(matrix), matrix)
    assert same(Graph.from_dense(case.matrix), matrix)
    assert same(Graph.from_scipy(scipy.sparse.coo_array(case.matrix)), matrix)
    assert same(Graph.from_scipy(scipy.sparse.csr_matrix(case.matrix)), matrix)
    edge_index, edge_weight = case.graph.to_edge_index()
    assert same(Graph.from_edge_index(edge_index, edge_weight, case.graph.num_nodes), matrix)
    assert case.graph.is_directed == (case.matrix != case.matrix.T).any()
    off_diagonal = case.edges & ~np.eye(len(case.matrix), dtype=bool)
    assert case.graph.num_edges == off_diagonal.sum()
    assert case.graph.degree.tolist() == off_diagonal.sum(1).tolist()


def test_edge_index_follows_pyg():
    graph = Graph.from_edge_index(torch.tensor([[0, 2], [1, 1]]), torch.tensor([5.0, 7.0]))
    assert graph.to_dense().tolist() == [[0, 0, 0], [5, 0, 7], [0, 0, 0]]
    assert graph.incoming.col.tolist() == [0, 2]


def test_no_edges():
    graph = Graph.from_edge_index(torch.empty(2, 0, dtype=torch.int64), num_nodes=3)
    assert (graph.num_nodes, graph.num_edges, graph.is_directed) == (3, 0, False)
    assert Graph.from_dense(torch.zeros(1, 1)).num_nodes == 1


def test_from_networkx():
    undirected = networkx.path_graph(3)
    undirected.add_node("alone")
    undirected.add_edge(0, 0, weight=4.0)
    graph = Graph.from_networkx(undirected)
    assert graph.to_dense().tolist() == [[4, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]]
    directed = networkx.MultiDiGraph([("a", "b", {"cost": 2}), ("a", "b", {"cost": 3})])
    assert Graph.from_networkx(directed, weight="cost").to_dense().tolist() == [[0, 0], [5, 0]]


@pytest.mark.parametrize(
    ("attributes", "weight"),
    [
        ({}, [1, 1]),
        ({"edge_weight": torch.tensor([2.0, 3.0])}, [2, 3]),
        ({"edge_attr": torch.tensor([[2.0], [3.0]])}, [2, 3]),
        ({"edge_attr": torch.rand(2, 4)}, [1, 1]),  # vectors
        ({"edge_attr": torch.tensor([3, 7])}, [1, 1]),  # categories
    ],
)
def test_from_pyg(attributes, weight):
    graph = Graph.from_pyg(Data(edge_index=torch.tensor([[0, 1], [1, 2]]), num_nodes=5, **attributes))
    assert (graph.num_nodes, graph.weight.tolist()) == (5, weight)


def test_stochastic_block_model():
    sizes, generator = [30, 40, 30], torch.Generator().manual_seed(1)
    graph = Graph.stochastic_block_model(sizes, 0.8, 0.1, generator=generator)
    dense = graph.to_dense()
    assert torch.equal(dense, dense.T)
    assert dense.diagonal().sum() == 0
    community = torch.repeat_interleave(torch.arange(3), torch.tensor(sizes))
    inside = community[:, None] == community
    assert dense[~inside].mean() == pytest.approx(0.1, abs=0.02)
    assert dense[inside].sum() / (inside.sum() - 100) == pytest.approx(0.8, abs=0.03)
    again = Graph.stochastic_block_model(sizes, 0.8, 0.1, generator=torch.Generator().manual_seed(1))
    assert torch.equal(dense, again.to_dense())
    assert Graph.stochastic_block_model([3, 2], 1.0, 0.0).num_edges == 8


def test_nearest_neighbors_against_brute_force():
    points = np.random.default_rng(3).normal(size=(25, 2))
    graph = Graph.nearest_neighbors(points, 4, scale=0.7)
    distance = np.linalg.norm(points[:, None] - points, axis=-1)
    chosen = np.zeros((25, 25), dtype=bool)
    for i in range(25):
        chosen[i, np.argsort(distance[i])[1:5]] = True
    expected = np.where(chosen | chosen.T, np.exp(-(distance**2) / (2 * 0.7**2)), 0)
    torch.testing.assert_close(graph.to_dense(), torch.from_numpy(expected))
    assert not graph.is_directed
    assert graph.dtype == torch.float64


def test_nearest_neighbors_of_repeated_points():
    graph = Graph.nearest_neighbors(torch.zeros(6, 2), 2)
    assert (graph.degree >= 2).all()
    assert (graph.weight == 1).all()


def test_a_union_remembers_the_graphs_of_its_nodes():
    left, right = Graph.from_dense(MATRIX), Graph.from_dense(torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
    both = Graph.union([left, right, left])
    assert left.batch is None
    assert Graph.union([left]).batch is None
    assert both.batch.tolist() == [0, 0, 0, 1, 1, 2, 2, 2]
    assert both.normalize("symmetric").batch is both.batch
    assert both.normalize("gcn").batch is both.batch
    assert both.to(torch.float64).batch.tolist() == both.batch.tolist()
    assert both.drop_edges(0.5).batch is both.batch
    assert both.permute([7, 4, 0, 1, 2, 3, 5, 6]).batch.tolist() == [2, 1, 0, 0, 0, 1, 2, 2]
    # graphs of a union that is joined again stay apart, below N, whatever numbers they get
    again = Graph.union([right, both, right]).batch
    assert again.max() < 12
    groups = [(again == number).nonzero().flatten().tolist() for number in again.unique()]
    assert groups == [[0, 1], [2, 3, 4], [5, 6], [7, 8, 9], [10, 11]]
    assert Graph.union([both]).batch is both.batch
    far = right.with_batch(torch.tensor([7, 2]))  # graphs without nodes between them
    assert Graph.union([far, right, far]).batch.unique().numel() == 5


def test_the_graphs_of_a_batch_of_pyg():
    data = [Data(edge_index=torch.tensor([[0], [1]]), num_nodes=nodes) for nodes in (3, 2, 4)]
    graph = Graph.from_pyg(Batch.from_data_list(data))
    assert graph.batch.tolist() == [0, 0, 0, 1, 1, 2, 2, 2, 2]
    assert Graph.from_pyg(graph.to_pyg()).batch.tolist() == graph.batch.tolist()
    assert Graph.from_pyg(data[0]).batch is None
    assert graph.with_batch(None).batch is None


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (torch.zeros(4, dtype=torch.int64), r"for each of 3 nodes, in int64 or int32, got the shape \(4,\) in"),
        (torch.zeros(3), r"got the shape \(3,\) in torch.float32"),
        ([0, 0, 1], "got list"),
        (torch.tensor([0, -2, 1]), "batch must hold numbers of graphs from 0 on, got -2"),
        (torch.tensor([0, -2, 1], dtype=torch.int32), "batch must hold numbers of graphs from 0 on, got -2"),
        (torch.zeros(3, dtype=torch.int64, device="meta"), "batch must be on the device of the graph, cpu, got meta"),
    ],
)
def test_graphs_of_nodes_that_do_not_fit(batch, message):
    with pytest.raises(ValueError, match=message):
        Graph.from_dense(MATRIX).with_batch(batch)


BAD_EDGES = [
    (dict(edge_index=torch.ones(2, 2)), TypeError, "edge_index must hold integers, got torch.float32"),
    (dict(edge_index=torch.ones(3, 2, dtype=torch.int64)), ValueError, r"shape \(2, E\), got \(3, 2\)"),
    (dict(edge_index=[[0], [1]], edge_weight=torch.ones(2)), ValueError, r"shape \(1,\), got \(2,\)"),
    (dict(edge_index=[[0], [1]], edge_weight=torch.ones(1, 1)), ValueError, r"shape \(1,\), got \(1, 1\)"),
    (dict(edge_index=[[0], [1]], edge_weight=torch.ones(1, dtype=torch.complex64)), TypeError, "real numbers"),
    (dict(edge_index=[[], []]), ValueError, "num_nodes must be given for a graph without edges"),
    (dict(edge_index=[[0], [1]], is_coalesced=True), ValueError, "num_nodes must be given with is_coalesced=True"),
    (dict(edge_index=[[], []], num_nodes=0), ValueError, "num_nodes must be at least 1, got 0"),
    (dict(edge_index=[[0], [1]], num_nodes=2.0), TypeError, "num_nodes must be an integer, got 2.0"),
]


@pytest.mark.parametrize(("arguments", "error", "message"), BAD_EDGES)
def test_bad_edges(arguments, error, message):
    with pytest.raises(error, match=message):
        Graph.from_edge_index(**arguments)


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: Graph.from_dense(torch.ones(2, 3)), ValueError, r"square, of shape \(N, N\), got \(2, 3\)"),
        (lambda: Graph.from_dense(torch.ones(3)), ValueError, r"got \(3,\)"),
        (lambda: Graph.from_dense(torch.empty(0, 0)), ValueError, "at least one node"),
        (lambda: Graph.from_dense(torch.full((2, 2), torch.nan)), ValueError, r"nan at index \[0, 0\] \(4 such"),
        (lambda: Graph.from_scipy(np.eye(2)), TypeError, "SciPy sparse matrix, got ndarray"),
        (lambda: Graph.from_scipy(scipy.sparse.csr_array((2, 3))), ValueError, r"got \(2, 3\)"),
        (lambda: Graph.from_networkx(networkx.Graph()), ValueError, "at least one node"),
        (lambda: Graph.from_networkx([1]), TypeError, "NetworkX graph, got list"),
        (lambda: Graph.from_networkx(Graph.from_dense(MATRIX)), TypeError, "NetworkX graph, got Graph"),
        (lambda: Graph.from_pyg({"x": 1}), TypeError, "PyG Data object with an edge_index, got dict"),
        (lambda: Graph.stochastic_block_model([], 0.5, 0.1), ValueError, "sizes must name at least one community"),
        (lambda: Graph.stochastic_block_model([0], 0.5, 0.1), ValueError, "sizes must be at least 1, got 0"),
        (lambda: Graph.stochastic_block_model([3], 1.5, 0.1), ValueError, "p must lie between 0 and 1, got 1.5"),
        (lambda: Graph.stochastic_block_model([3], 0.5, "q"), TypeError, "q must be a number, got 'q'"),
        (lambda: Graph.nearest_neighbors(torch.ones(3), 1), ValueError, r"shape \(N, D\) .* got \(3,\)"),
        (lambda: Graph.nearest_neighbors(torch.rand(3, 2), 3), ValueError, "below the number of points, 3, got 3"),
        (lambda: Graph.nearest_neighbors(torch.rand(3, 2), 0), ValueError, "k must be at least 1, got 0"),
        (lambda: Graph.nearest_neighbors(torch.rand(3, 2), 1, scale=0.0), ValueError, "scale must be a finite number"),
        (lambda: Graph.union([1]), TypeError, "graphs must hold graphact.Graph objects, got int"),
        (lambda: Graph.stochastic_block_model(5, 0.5, 0.1), TypeError, "sizes must list the size of each community"),
        (lambda: Graph.stochastic_block_model([5], 0.5, 0.1, generator=0), TypeError, "generator must be a torch.Gen"),
        (lambda: Graph.nearest_neighbors(torch.zeros(3, 0), 1), ValueError, r"D at least 1, got \(3, 0\)"),
        (lambda: Graph.from_edge_index([[0], [1, 2]]), TypeError, "edge_index must be a tensor or an array of numbers"),
        (
            lambda: Graph.nearest_neighbors(np.array([["s0", 1.5], ["s1", 2.5]], object), 1),
            TypeError,
            r"coordinates must be a tensor or an array of numbers, got array\(\[\['s0', 1.5\]",
        ),
        (lambda: Graph.from_dense("abc"), TypeError, "matrix must be a tensor or an array of numbers, got 'abc'"),
        (lambda: Graph.from_dense(torch.eye(2).to_sparse()), TypeError, "must be a dense tensor, got one of layout"),
        (lambda: Graph.from_networkx(networkx.Graph([(0, 1, {"weight": "a"})])), TypeError, r"got 'a' on the edge"),
        (lambda: Graph.union(Graph.from_dense(MATRIX)), TypeError, "graphs must list graphact.Graph objects, got one"),
        (lambda: Graph.union([]), ValueError, "graphs must hold at least one graph"),
        (
            lambda: Graph.union([Graph.from_dense(MATRIX), Graph.from_dense(MATRIX.double())]),
            ValueError,
            "must agree in dtype and device, got torch.float32 on cpu and torch.float64",
        ),
    ],
)
def test_bad_arguments(build, error, message):
    with pytest.raises(error, match=message) as caught:
        build()
    assert len(str(caught.value).splitlines()) == 1


def test_plain_python_numbers_take_the_default_dtype():
    assert Graph.from_dense([[0, 0.5], [0.5, 0]]).dtype == torch.float32
    assert Graph.from_edge_index([[0], [1]], [0.5]).dtype == torch.float32
    assert Graph.from_dense(np.array([[0, 0.5], [0.5, 0]])).dtype == torch.float64


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64], ids=str)
def test_every_integer_type(dtype):
    graph = Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]], dtype=dtype))
    assert graph.permute(torch.tensor([2, 1, 0], dtype=dtype)).num_edges == 2
