"""Modules called like those of PyG: an edge_index, its normalization, and the operator of GCNConv."""

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import erdos_renyi_graph

from graphact import Graph, nn
from graphact.graph.normalize import KINDS
from graphact.registry import POINTWISE
from support.activations import ANY_WIDTH

WITH_PRODUCTS = ("grelu", "digraf", "shiftless-max", "shiftless-median")  # of matrices, in the activation itself
WITH_EXPONENTIALS = ("kernel-ga",)


def weighted_data():
    torch.manual_seed(1)
    for size in range(4, 9):  # the last of several draws
        edge_index = erdos_renyi_graph(size, 0.4)
        edge_weight, x = torch.rand(edge_index.size(1)), torch.randn(size, 3)
    return Data(x=x, edge_index=edge_index, edge_weight=edge_weight)


@pytest.mark.parametrize("name", nn.ACTIVATIONS)
@pytest.mark.parametrize("normalize", ["default", *KINDS, None])
def test_edge_index_and_graph_give_the_same(name, normalize):
    data = weighted_data()
    options = {} if normalize == "default" else {"normalize": normalize}
    activation = nn.make_activation(name, hops=2, features=None if name in ANY_WIDTH else 3, **options)
    graph = Graph.from_pyg(data)
    if normalize is not None:
        graph = graph.normalize("symmetric" if normalize == "default" else normalize)
    by_graph = activation(data.x, graph)
    assert torch.equal(activation(data.x, data.edge_index, data.edge_weight), by_graph)
    static = torch.stack([data.x, data.x + 1])
    together = activation(static, data.edge_index, data.edge_weight)[0]
    # exponentials, the ends of vectors and products of matrices round by their shapes
    if name in (*POINTWISE, *WITH_PRODUCTS, *WITH_EXPONENTIALS):
        torch.testing.assert_close(together, by_graph)
    else:
        assert torch.equal(together, by_graph)


MODULES = {
    "filter": lambda **options: nn.GraphFilter(3, 2, order=2, **options),
    "gcnn": lambda **options: nn.GCNN([3, 4, 2], activation="max-ga", hops=2, **options),
    "fir": lambda **options: nn.FIR([3, 2], **options),
    "own operation": lambda **options: nn.GraphAdaptive(lambda neighbors: neighbors.amin(-2), **options),
}


@pytest.mark.parametrize("make", MODULES.values(), ids=MODULES)
def test_every_module_normalises_an_edge_index_and_never_a_graph(make):
    data = weighted_data()
    raw, edges = Graph.from_pyg(data), (data.edge_index, data.edge_weight)
    module = make()
    assert torch.equal(module(data.x, *edges), module(data.x, raw.normalize("symmetric")))
    assert not torch.allclose(module(data.x, *edges), module(data.x, raw))
    module = make(normalize=None)
    assert torch.equal(module(data.x, *edges), module(data.x, raw))
    module = make(normalize="gcn")
    assert torch.equal(module(data.x, *edges), module(data.x, raw.normalize("gcn")))
    sparse = raw.to_dense().to_sparse_csr()
    assert torch.equal(module(data.x, sparse), module(data.x, Graph.from_sparse(sparse)))
    assert module.config()["normalize"] == "gcn"
    with pytest.raises(ValueError, match="normalize must be one of .* got 'row'"):
        make(normalize="row")


@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("directed", [False, True])
def test_gcn_is_the_operator_of_gcnconv(loops, weighted, directed):
    torch.manual_seed(3)
    edge_index = erdos_renyi_graph(9, 0.3, directed=directed)
    if loops:
        edge_index = torch.cat([edge_index, torch.tensor([[2, 5], [2, 5]])], 1)
    weight = torch.rand(edge_index.size(1), dtype=torch.float64) if weighted else None
    graph = Graph.from_edge_index(edge_index, weight, 10).to(torch.float64)  # node 9 is alone
    expected_index, expected_weight = gcn_norm(edge_index, weight, 10, dtype=torch.float64)
    expected = torch.zeros(10, 10, dtype=torch.float64)
    expected[expected_index[1], expected_index[0]] = expected_weight
    torch.testing.assert_close(graph.normalize("gcn").to_dense(), expected, rtol=1e-14, atol=1e-15)
    x, conv = torch.randn(10, 3, dtype=torch.float64), GCNConv(3, 2, bias=False).double()
    bank = nn.GraphFilter(3, 2, order=1, normalize="gcn").double()
    with torch.no_grad():
        bank.taps.copy_(torch.stack([torch.zeros(3, 2), conv.lin.weight.T]))
    torch.testing.assert_close(bank(x, edge_index, weight), conv(x, edge_index, weight))


def test_gradients_of_edge_weights_flow_through_the_normalisation():
    data = weighted_data()
    module = nn.GraphAdaptiveMax(hops=2).double()
    weight = data.edge_weight.double().requires_grad_()
    for normalize in ("symmetric", "gcn", "random_walk"):
        module.normalize = normalize
        assert torch.autograd.gradcheck(lambda w: module(data.x.double(), data.edge_index, w), weight)
