"""PyG's own models with our activations: called with x alone, they work on the graph of the call."""

import copy
import threading

import pytest
import torch
from torch._dynamo.utils import counters
from torch_geometric import EdgeIndex
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import GAT, GCN, GIN, GraphSAGE, SAGEConv, Sequential, to_hetero
from torch_geometric.utils import erdos_renyi_graph, k_hop_subgraph

from graphact import Graph, nn
from graphact.pyg import AttachGraph, PassGraph, PerLayer
from support.activations import ANY_WIDTH


@pytest.fixture
def data():
    torch.manual_seed(3)
    edge_index = erdos_renyi_graph(20, 0.2, directed=True)
    return Data(x=torch.randn(20, 5), edge_index=edge_index, edge_weight=torch.rand(edge_index.size(1)))


def symmetric(data):
    return Graph.from_edge_index(data.edge_index, data.edge_weight, data.num_nodes).normalize("symmetric")


def test_gcn_is_its_convolutions_with_the_activation_between(data):
    act = nn.GraphAdaptiveMax(hops=2, features=8)
    model = GCN(5, 8, num_layers=3, out_channels=2, act=act)
    x, graph = data.x, symmetric(data)
    for conv in model.convs[:-1]:
        x = act(conv(x, data.edge_index, data.edge_weight), graph)
    expected = model.convs[-1](x, data.edge_index, data.edge_weight)
    passing = PassGraph(model)
    assert torch.equal(passing(data.x, data.edge_index, data.edge_weight), expected)
    assert torch.equal(passing(data.x, data.edge_index, edge_weight=data.edge_weight), expected)
    assert torch.equal(passing(data.x, data.edge_index, data.edge_weight, graph=graph), expected)


@pytest.mark.parametrize("name", nn.ACTIVATIONS)
@pytest.mark.parametrize("model", [GCN, GraphSAGE, GIN, GAT])
@pytest.mark.parametrize("options", [{}, {"jk": "cat", "norm": "batch_norm", "act_first": True}])
def test_every_model_trains_with_every_activation(data, name, model, options):
    any_width = model is GIN and name in ANY_WIDTH  # GIN acts on the output features, too
    act = nn.make_activation(name, **({} if any_width else {"features": 8}))
    out = 8 if model is GIN and not any_width else 3
    model = PassGraph(model(5, 8, num_layers=2, out_channels=out, act=act, **options))
    model(data.x, data.edge_index).square().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
    assert all(parameter.grad.abs().sum() > 0 for parameter in act.parameters())


@pytest.mark.parametrize("normalize", [None, "symmetric", "random_walk"])
def test_normalisation_of_an_edge_index(data, normalize):
    graph = Graph.from_edge_index(data.edge_index, num_nodes=20)
    graph = graph if normalize is None else graph.normalize(normalize)
    act = nn.GraphAdaptiveMedian(hops=2)
    alone = Sequential("x, edge_index", [(act, "x -> x")])
    passing = PassGraph(alone, normalize=normalize)
    assert torch.equal(passing(data.x, data.edge_index), act(data.x, graph))
    assert torch.equal(passing.graph_of(data.x, data.edge_index).to_dense(), graph.to_dense())
    assert torch.equal(PassGraph(alone)(data.x, data.edge_index, graph=graph), act(data.x, graph))
    in_double = passing.double()(data.x.double(), data.edge_index)
    torch.testing.assert_close(in_double.float(), act.float()(data.x, graph))


@pytest.mark.filterwarnings("ignore:Sparse (CSR|invariant)")
def test_adj_t_is_taken_as_it_is(data):
    graph = Graph.from_pyg(data)
    adj_t = graph.to_dense().to_sparse_csr()
    model = GraphSAGE(5, 8, num_layers=2, act=nn.GraphAdaptiveMax(hops=2))
    x = model.act(model.convs[0](data.x, adj_t), graph)
    assert torch.equal(PassGraph(model)(data.x, adj_t), model.convs[1](x, adj_t))


def test_an_edge_index_that_knows_its_order(data):
    edge_index = EdgeIndex(data.edge_index, sparse_size=(20, 20)).sort_by("col").values
    model = PassGraph(GCN(5, 8, num_layers=2, act=nn.GraphAdaptiveMax()))
    torch.testing.assert_close(model(data.x, edge_index), model(data.x, data.edge_index))


def test_the_graph_is_built_once_a_call(data, monkeypatch):
    built, build = [], Graph.from_edge_index.__func__
    monkeypatch.setattr(
        Graph, "from_edge_index", classmethod(lambda *given, **named: built.append(1) or build(*given, **named))
    )
    model = PassGraph(GCN(5, 8, num_layers=5, act=nn.GraphAdaptiveMax()))
    model(data.x, data.edge_index)
    assert len(built) == 1
    model(data.x, data.edge_index, graph=Graph.from_dense(torch.eye(20)))
    assert len(built) == 1


def test_outside_a_call_there_is_no_graph(data):
    act = nn.GraphAdaptiveMax(hops=1, features=8)
    model = GCN(5, 8, num_layers=2, act=act)
    for call in (lambda: act(torch.randn(20, 8)), lambda: model(data.x, data.edge_index)):
        with pytest.raises(TypeError, match=r"got NoneType: call .* through graphact.pyg.PassGraph\(model\)") as caught:
            call()
        assert "\n" not in str(caught.value)
    passing = PassGraph(model)
    passing(data.x, data.edge_index)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        passing(torch.randn(20, 4), data.edge_index)  # an error inside leaves nothing behind
    with pytest.raises(TypeError, match="got None"):
        act(torch.randn(20, 8))
    assert nn.ReLU()(torch.tensor([[-1.0]])).item() == 0


def test_calls_nest_and_threads_are_apart(data):
    act, other = nn.GraphAdaptiveMax(), Graph.from_dense(torch.rand(20, 20))
    outer_graph = symmetric(data)

    class Nested(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = PassGraph(Sequential("x, edge_index", [(act, "x -> x")]))

        def forward(self, x, edge_index, edge_weight):
            before = act(x)
            inside = self.inner(x, edge_index, graph=other)
            return before, inside, act(x)

    before, inside, after = PassGraph(Nested())(data.x, data.edge_index, data.edge_weight)
    assert torch.equal(before, act(data.x, outer_graph))
    assert torch.equal(inside, act(data.x, other))
    assert torch.equal(after, before)

    seen = []

    class Waiting(torch.nn.Module):
        def forward(self, x, edge_index):
            def elsewhere():
                with pytest.raises(TypeError, match="got None"):
                    act(x)
                seen.append(True)

            thread = threading.Thread(target=elsewhere)
            thread.start()
            thread.join()
            return x

    PassGraph(Waiting())(data.x, data.edge_index)
    assert seen == [True]


def test_parameters_of_its_own_in_each_layer(data):
    act = PerLayer(nn.GraphAdaptiveMax(hops=1, features=8), layers=2)
    first, second = act
    assert not torch.equal(first.weights, second.weights)
    model = GCN(5, 8, num_layers=3, act=act)
    x, graph = data.x, symmetric(data)
    x = first(model.convs[0](x, data.edge_index, data.edge_weight), graph)
    x = second(model.convs[1](x, data.edge_index, data.edge_weight), graph)
    expected = model.convs[2](x, data.edge_index, data.edge_weight)
    passing = PassGraph(model)
    for _ in range(2):
        assert torch.equal(passing(data.x, data.edge_index, data.edge_weight), expected)
    with pytest.raises(TypeError, match="PerLayer counts the layers of a call"):
        act(data.x)
    with pytest.raises(ValueError, match="layers must be at least the number of calls in one forward pass, got 2"):
        PassGraph(GCN(5, 8, num_layers=4, act=act))(data.x, data.edge_index)


def test_copies_states_and_modes(data):
    act = PerLayer(nn.GraphAdaptiveKernel(features=8, learn_gamma=True), layers=2)
    model = PassGraph(GCN(5, 8, num_layers=3, dropout=0.5, act=act)).eval()
    assert not act[1].training
    expected = model(data.x, data.edge_index)
    assert torch.equal(copy.deepcopy(model)(data.x, data.edge_index), expected)
    names = set(model.state_dict())
    assert {"model.act.copies.0.weights", "model.act.copies.1.log_gamma", "model.convs.0.bias"} <= names
    state = copy.deepcopy(model.state_dict())
    model.reset_parameters()
    assert not torch.equal(act[0].weights, state["model.act.copies.0.weights"])
    assert not torch.equal(model(data.x, data.edge_index), expected)
    model.load_state_dict(state)
    assert torch.equal(model(data.x, data.edge_index), expected)
    assert not torch.equal(model.train()(data.x, data.edge_index), expected)
    assert "normalize='symmetric'" in repr(model)


@pytest.mark.slow
def test_compiled_the_values_are_the_same(data):
    model = PassGraph(GCN(5, 8, num_layers=3, act=PerLayer(nn.GraphAdaptiveMax(features=8), layers=2), normalize=False))
    graph = symmetric(data)
    expected = model(data.x, data.edge_index, graph=graph)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(data.x, data.edge_index, graph=graph), expected)
    torch.testing.assert_close(compiled(data.x, data.edge_index, graph=graph), expected)


@pytest.mark.slow
def test_compiled_with_an_edge_index_there_is_one_break(data):
    torch.compiler.reset()
    counters.clear()
    model = PassGraph(GCN(5, 8, num_layers=3, act=nn.GraphAdaptiveMax(features=8), normalize=False))
    compiled = torch.compile(model, backend="aot_eager")
    torch.testing.assert_close(compiled(data.x, data.edge_index), model(data.x, data.edge_index))
    assert [*counters["graph_break"].values()] == [1]


def test_sampled_subgraphs_need_nothing_attached(data):
    """Batches as NeighborLoader makes them: the relabelled edges of a few hops."""
    model = PassGraph(GCN(5, 8, num_layers=2, act=nn.GraphAdaptiveMax(features=8)))
    full = PassGraph(GCN(5, 8, num_layers=2, act=nn.LocalizedMax(features=8), normalize=False), normalize=None)
    for seed in range(5):
        subset, edge_index, mapping, _ = k_hop_subgraph(seed, 4, data.edge_index, relabel_nodes=True, num_nodes=20)
        assert model(data.x[subset], edge_index).shape == (len(subset), 8)
        torch.testing.assert_close(full(data.x[subset], edge_index)[mapping], full(data.x, data.edge_index)[[seed]])


def hetero_data():
    data = HeteroData()
    data["paper"].x, data["author"].x = torch.randn(6, 5), torch.randn(4, 5)
    data["author", "writes", "paper"].edge_index = torch.tensor([[0, 1, 2, 3], [0, 1, 2, 5]])
    data["paper", "cites", "paper"].edge_index = torch.tensor([[0, 1, 2], [1, 2, 3]])
    data["paper", "by", "author"].edge_index = torch.tensor([[0, 1, 2], [0, 1, 2]])
    return data


def test_several_kinds_of_nodes_are_refused_in_one_line():
    data = hetero_data()
    gnn = GraphSAGE((5, 5), 8, num_layers=2, act=nn.GraphAdaptiveMax(features=8))
    hetero = to_hetero(gnn, data.metadata())
    refusals = [
        (lambda: hetero(data.x_dict, data.edge_index_dict), "got NoneType: call the activation as module"),
        (lambda: PassGraph(hetero)(data.x_dict, data.edge_index_dict), r"got dictionaries: .* \(HeteroData\) have"),
        (lambda: to_hetero(PassGraph(gnn), data.metadata()), "PassGraph cannot be traced by torch.fx, which to_het"),
    ]
    for refused, message in refusals:
        with pytest.raises(TypeError, match=message) as caught:
            refused()
        assert "\n" not in str(caught.value).split("\n\nCall using an FX-traced Module")[0]


def test_bipartite_inputs_are_refused_in_one_line(data):
    pair = (torch.randn(4, 5), torch.randn(6, 5))
    edge_index = torch.tensor([[0, 1], [5, 2]])
    model = PassGraph(SAGEConv((5, 5), 8))
    for refused in (lambda: model(pair, edge_index), lambda: nn.GraphAdaptiveMax()(pair, edge_index)):
        with pytest.raises(TypeError, match="x must be one tensor on the nodes of one graph, got 2 of them"):
            refused()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda model, x, e: model(x, e, graph=e), TypeError, "graph must be a graphact.Graph, got Tensor"),
        (lambda model, x, e: model(x, Graph.from_edge_index(e, num_nodes=20)), TypeError, "which is given as graph="),
        (lambda model, x, e: model(x, e, num_sampled_nodes_per_hop=[1]), ValueError, "num_sampled_nodes_per_hop must"),
        (lambda model, x, e: model(x, e.tolist()), TypeError, "graph must be a graphact.Graph or an edge_index tensor"),
        (
            lambda model, x, e: model(x, e, graph=Graph.from_dense(torch.eye(3))),
            ValueError,
            "N = 3, the number of nodes",
        ),
        (lambda *_: PassGraph(nn.GraphAdaptiveMax), TypeError, "model must be a torch.nn.Module, got type"),
        (lambda model, *_: PassGraph(model, normalize="sym"), ValueError, "normalize must be one of .* got 'sym'"),
        (lambda *_: AttachGraph("sym"), ValueError, "normalize must be one of 'spectral', .* got 'sym'"),
        (lambda *_: PerLayer(nn.GraphAdaptiveMax(), 0), ValueError, "layers must be at least 1, got 0"),
    ],
)
def test_wrong_calls(data, call, error, message):
    with pytest.raises(error, match=message):
        call(PassGraph(GCN(5, 8, num_layers=2, act=nn.GraphAdaptiveMax())), data.x, data.edge_index)
