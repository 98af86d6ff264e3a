"""EdgeNet against dense NumPy, and networks of any convolution and any activation."""

import copy

import numpy as np
import pytest
import safetensors.torch
import torch

import graphact
from graphact import Graph, nn
from graphact.distributed import PartitionedGraph, exchanges_of
from graphact.guarantees import lipschitz_bound
from graphact.nn.graph_network import CONVOLUTIONS
from graphact.registry import CONVOLUTIONS as LISTED
from graphact.spec import UnsupportedModelError
from support.graphs import random_case, random_graph
from support.tolerances import assert_near

RING = Graph.from_edge_index([[0, 1, 2], [1, 2, 0]])


def array(parameter):
    return parameter.detach().numpy()


def edge_net(module, case):
    size, (own, edge) = len(case.matrix), (array(module.own), array(module.edge))
    pattern = case.edges & ~np.eye(size, dtype=bool)
    out = np.zeros((*case.x.shape[:-1], module.out_features))
    for g, f in np.ndindex(module.in_features, module.out_features):
        z = own[0, :, g, f] * case.x[..., g]
        out[..., f] += z
        for k in range(module.order):
            phi = np.diag(own[k + 1, :, g, f])
            phi[pattern] = edge[k, :, g, f]  # row by row, ascending, as neighbour lists are
            z = np.einsum("ij,...j->...i", phi, z)
            out[..., f] += z
    return out


def make(graph, inputs=2, outputs=4):
    return nn.EdgeNet(inputs, outputs, graph, order=3, bias=True).double()


def test_values_on_graphs_of_every_kind():
    for seed in range(20):
        case = random_case(seed)
        module = make(case.graph, inputs=case.x.shape[-1])
        assert_near(module(case.signal, case.graph), edge_net(module, case) + array(module.bias))


def test_an_edge_net_holds_polynomial_filters():
    graph, x = random_graph(), torch.randn(4, 12, 2, dtype=torch.float64)
    module, taps = nn.EdgeNet(2, 3, graph, order=2).double(), torch.rand(3, 2, 3, dtype=torch.float64) + 0.5
    with torch.no_grad():
        module.own.zero_()
        module.own[0] = taps[0]
        for k in (1, 2):
            module.edge[k - 1] = graph.weight.view(-1, 1, 1) * (taps[k] / taps[k - 1])
    torch.testing.assert_close(module(x, graph), graphact.functional.graph_filter(x, graph, taps))


def test_an_edge_net_belongs_to_one_graph():
    graph = Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]])
    net, x = nn.EdgeNet(1, 1, graph), torch.randn(2, 3, 1)
    same = Graph.from_edge_index([[2, 0, 1, 1], [1, 1, 0, 2]], torch.rand(4))  # other order, other weights
    assert torch.equal(net(x, same), net(x, graph))
    assert torch.equal(net(x, torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])), net(x, graph))
    other = Graph.from_edge_index([[0, 2, 1, 2], [2, 0, 2, 1]])
    with pytest.raises(ValueError, match="with 3 nodes and 4 edges, got other edges"):
        net(x, other)
    with pytest.raises(ValueError, match=r"with 3 nodes and 4 edges, got Graph\(num_nodes=4"):
        net(torch.randn(4, 1), Graph.from_edge_index([[0], [1]], num_nodes=4))
    with pytest.raises(UnsupportedModelError, match="an EdgeNet needs the whole graph"):
        net(x, PartitionedGraph.from_graph(graph))
    with pytest.raises(TypeError, match="graph must be the Graph whose edges get coefficients"):
        nn.EdgeNet(1, 1)


def two_rings():
    """Two graphs of the same size."""
    return Graph.from_edge_index([[0, 1, 2], [1, 2, 0]]), Graph.from_edge_index([[0, 2, 1], [2, 1, 0]])


class TestStateOfAnEdgeNet:
    def test_coefficients_of_another_graph_are_refused(self):
        one, other = two_rings()
        net, alien = nn.EdgeNet(1, 2, one, order=2), nn.EdgeNet(1, 2, other, order=2)
        before = net.own.detach().clone()
        with pytest.raises(RuntimeError, match="belongs to a graph with 3 nodes and 3 edges, and the state to another"):
            net.load_state_dict(alien.state_dict())
        assert torch.equal(net.own, before)
        with pytest.raises(RuntimeError, match="belongs to a graph"):
            net.load_state_dict({**alien.state_dict()}, strict=False)
        twin = nn.EdgeNet(1, 2, one, order=2)
        twin.load_state_dict(net.state_dict())
        assert torch.equal(twin.own, net.own)

    def test_inside_a_network(self, tmp_path):
        nets = [nn.GraphNetwork([1, 2], convolution={"name": "EdgeNet", "graph": graph}) for graph in two_rings()]
        torch.save(nets[0].state_dict(), tmp_path / "state.pt")
        with pytest.raises(RuntimeError, match=r"EdgeNet belongs to a graph"):
            nets[1].load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
        nets[0].load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))

    def test_a_file_is_as_it_was(self, tmp_path):
        one, other = two_rings()
        net = nn.EdgeNet(1, 2, one, bias=True).half()
        graphact.save(net, tmp_path / "net.safetensors")
        assert {*safetensors.torch.load_file(tmp_path / "net.safetensors")} == {"own", "edge", "bias"}
        found = graphact.load(tmp_path / "net.safetensors")
        assert found.state_dict().keys() == net.state_dict().keys()
        assert torch.equal(found.graph_digest, net.graph_digest)
        with pytest.raises(RuntimeError, match="belongs to a graph"):
            nn.EdgeNet(1, 2, other, bias=True).load_state_dict(found.state_dict())


def test_an_edge_net_moves_with_its_nodes():
    for seed in range(20):
        case = random_case(seed)
        net = nn.EdgeNet(case.x.shape[-1], 2, case.graph, order=2, bias=True).double()
        perm = torch.randperm(case.graph.num_nodes)
        moved = net.permuted(case.graph, perm)(case.signal[..., perm, :], case.graph.permute(perm))
        assert_near(moved, net(case.signal, case.graph)[..., perm, :].detach())


@pytest.mark.parametrize("activation", ["relu", "median-ga", "max-l", "mixture-ga", "digraf"])
@pytest.mark.parametrize("name", ["GraphFilter", "EdgeNet"])
def test_networks_train_and_are_saved(name, activation, tmp_path):
    graph, x = random_graph(dtype=torch.float32).normalize("symmetric"), torch.randn(5, 12, 2)
    convolution = {"name": name, "graph": graph} if name == "EdgeNet" else name
    model = nn.GraphNetwork([2, 4, 3], convolution=convolution, activation=activation, out_features=2)
    model(x, graph).square().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
    graphact.save(model, tmp_path / "model.safetensors")
    loaded = graphact.load(tmp_path / "model.safetensors")
    assert torch.equal(loaded(x, graph), model(x, graph))
    before = model(x, graph)
    model.reset_parameters()
    assert not torch.equal(model(x, graph), before)


def test_half_precision():
    graph, x = random_graph(), torch.randn(3, 12, 2, dtype=torch.float64)
    graph = graph.normalize("symmetric")
    module = make(graph)
    half = copy.deepcopy(module).bfloat16()(x.bfloat16(), graph.to(dtype=torch.bfloat16))
    torch.testing.assert_close(half.double(), module(x, graph), rtol=0.1, atol=0.1)


def test_refusals_in_one_line():
    graph = random_graph(dtype=torch.float32)
    model = nn.GraphNetwork([2, 4], convolution={"name": "EdgeNet", "graph": graph})
    for run in (lambda: lipschitz_bound(model, graph), lambda: exchanges_of(model, 2)):
        with pytest.raises(UnsupportedModelError, match="convolution|EdgeNet") as caught:
            run()
        assert "\n" not in str(caught.value)


def test_a_network_of_filters_is_a_gcnn():
    graph, x = random_graph(), torch.randn(3, 12, 2, dtype=torch.float64)
    model = nn.GraphNetwork([2, 4, 3], convolution={"name": "GraphFilter", "order": 2}, hops=2, out_features=2).double()
    gcnn = nn.GCNN([2, 4, 3], order=2, hops=2, out_features=2).double()
    gcnn.load_state_dict({key.replace("convolutions", "filters"): value for key, value in model.state_dict().items()})
    assert torch.equal(model(x, graph), gcnn(x, graph))
    assert lipschitz_bound(model, graph).value == lipschitz_bound(gcnn, graph).value


def test_every_convolution_is_listed():
    assert set(LISTED) == set(CONVOLUTIONS)


def test_half_precision_sums_of_a_hub_do_not_stop_growing():
    """Added up in bfloat16, ones stop at 256; signals come in batches, of which torch adds one row after another."""
    leaves = 3000
    pair = torch.stack([torch.arange(1, leaves + 1), torch.zeros(leaves, dtype=torch.long)])
    hub = Graph.from_edge_index(pair, num_nodes=leaves + 1)
    x = torch.ones(2, leaves + 1, 1)
    x[:, leaves // 2 :] = 3.0
    half = x.bfloat16()
    for dtype, signal in ((torch.bfloat16, half), (torch.float32, x)):
        own, edge = torch.zeros(2, leaves + 1, 1, 1), torch.full((1, leaves, 1, 1), 2.0**-11)
        found = graphact.functional.edge_varying(signal, hub, own.to(dtype) + 1, edge.to(dtype))
        assert found.dtype == dtype
        expected = 2 * x[:, :1] + x[:, 1:].sum(1, keepdim=True) * 2.0**-11
        torch.testing.assert_close(found[:, :1].float(), expected, rtol=0.01, atol=0)


def test_coefficients_of_another_precision_are_refused_by_their_name():
    graph = random_graph(dtype=torch.float64)
    module = make(graph).float()
    with pytest.raises(TypeError, match="own must have the dtype of x, torch.float64, got torch.float32"):
        module(torch.randn(12, 2, dtype=torch.float64), graph)
    assert module(torch.randn(12, 2).bfloat16(), graph.to(torch.float32)).shape == (12, 4)
