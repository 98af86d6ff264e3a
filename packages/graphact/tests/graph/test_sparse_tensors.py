"""Sparse torch tensors are shift operators: constructors, and in the place of an edge_index."""

import pytest
import torch

from graphact import Graph, nn

# torch says so of every sparse tensor
pytestmark = [
    pytest.mark.filterwarnings("ignore:Sparse (CSR|CSC|BSR|BSC) tensor support is in beta state"),
    pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled"),
]

MATRIX = torch.tensor([[0.5, 0.0, 2.0, 0.0], [0.0, 0.0, -1.0, 0.0], [0.0, 3.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
LAYOUTS = {
    "coo": torch.Tensor.to_sparse_coo,
    "csr": torch.Tensor.to_sparse_csr,
    "csc": torch.Tensor.to_sparse_csc,
    "bsr": lambda matrix: matrix.to_sparse_bsr((1, 1)),
    "bsc": lambda matrix: matrix.to_sparse_bsc((1, 1)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_entries_are_those_of_the_shift_operator(layout):
    graph = Graph.from_sparse(LAYOUTS[layout](MATRIX))
    assert torch.equal(graph.to_dense(), MATRIX)
    assert torch.equal(graph.diagonal, torch.tensor([0.5, 0, 0, 0]))
    assert graph.num_edges == 3
    assert torch.equal(graph.incoming.rowptr, torch.tensor([0, 1, 2, 3, 3]))


def test_repeated_entries_are_summed_and_stored_zeros_are_edges():
    repeated = torch.sparse_coo_tensor([[0, 0, 1], [1, 1, 0]], [1.0, 2.0, 0.0], (3, 3))
    graph = Graph.from_sparse(repeated)
    assert graph.num_edges == 2
    assert graph.weight.tolist() == [3, 0]
    crow, col, zero = torch.tensor([0, 1, 1]), torch.tensor([1]), torch.zeros(1)
    assert Graph.from_sparse(torch.sparse_csr_tensor(crow, col, zero, (2, 2))).num_edges == 1


def test_indices_out_of_range_are_found():
    beyond = torch.sparse_coo_tensor([[0], [3]], [1.0], (4, 4))
    beyond._indices()[0] = 4
    with pytest.raises(ValueError, match="must hold node indices from 0 to 3, got 4"):
        Graph.from_sparse(beyond)


def test_gradients_flow_back_to_the_entries():
    values = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    graph = Graph.from_sparse(torch.sparse_coo_tensor([[0, 1, 2], [1, 2, 0]], values, (3, 3)))
    (graph.weight * torch.tensor([1.0, 10.0, 100.0])).sum().backward()
    assert values.grad.tolist() == [1, 10, 100]


def test_integers_and_booleans_weigh_in_the_default_dtype():
    pattern = (MATRIX != 0).to_sparse_coo()
    assert Graph.from_sparse(pattern).dtype == torch.float32
    assert torch.equal(Graph.from_sparse(pattern.long()).to_dense(), (MATRIX != 0).float())


def test_a_bare_pattern_that_answers_like_torch_sparse():
    class SparseTensor:
        def sparse_sizes(self):
            return (3, 3)

        def coo(self):
            return torch.tensor([0, 2]), torch.tensor([1, 0]), None

    assert torch.equal(Graph.from_sparse(SparseTensor()).to_edge_index()[0], torch.tensor([[1, 0], [0, 2]]))


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (torch.eye(3), "matrix must be a sparse torch.Tensor, got a dense tensor of shape \\(3, 3\\)"),
        ([[1]], "matrix must be a sparse torch.Tensor, got list"),
        (torch.ones(2, 3).to_sparse(), "matrix must be square"),
        (torch.ones(2, 2, 3).to_sparse(2), "matrix must be square"),
        (torch.full((2, 2), torch.nan).to_sparse(), "matrix must be finite"),
        (torch.ones(2, 2, dtype=torch.complex64).to_sparse(), "matrix must hold real numbers"),
    ],
)
def test_other_things_are_refused(matrix, message):
    with pytest.raises((TypeError, ValueError), match=message):
        Graph.from_sparse(matrix)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("module", [nn.GraphAdaptiveMax(hops=2), nn.LocalizedMedian(), nn.GraphFilter(3, 2, order=2)])
def test_modules_take_them_for_an_edge_index(layout, module):
    graph, x = Graph.from_dense(MATRIX), torch.randn(2, 4, 3)
    assert torch.equal(module(x, LAYOUTS[layout](MATRIX)), module(x, graph))


def test_weights_of_an_edge_index_do_not_go_with_a_sparse_tensor():
    with pytest.raises(TypeError, match="edge_weight goes with an edge_index; a sparse tensor holds its own weights"):
        nn.GraphAdaptiveMax()(torch.randn(4, 2), MATRIX.to_sparse(), torch.ones(4))
