"""The operators as torch sees them: schemas, shapes, autograd registration, and the reference behind them."""

import pytest
import torch
from support.graphs import random_graph

from graphact import Graph, functional
from graphact.kernels import gradients
from graphact.kernels.reference import Lists

DIRECTED = Graph.from_edge_index([[0, 1, 1, 2, 4], [1, 0, 2, 3, 2]], torch.rand(5), num_nodes=6)


def lists(graph):
    return list(Lists.of(graph.incoming)), list(Lists.of(graph.outgoing))


@pytest.mark.parametrize("graph", [random_graph(dtype=torch.float32), DIRECTED], ids=["undirected", "directed"])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_opcheck(graph, requires_grad):
    incoming, outgoing = lists(graph)
    x = torch.randn(2, graph.num_nodes, 3, requires_grad=requires_grad)
    turned = graph.outgoing_weight.clone()
    weight = graph.weight.clone().requires_grad_(requires_grad)
    torch.library.opcheck(torch.ops.graphact.shift.default, (x, weight, turned, incoming, outgoing))
    torch.library.opcheck(torch.ops.graphact.spread.default, (x, incoming, outgoing))
    fixed = x.detach()
    for op in ("max", "min", "median"):
        torch.library.opcheck(torch.ops.graphact.select.default, (x, None, incoming, op, False))
        torch.library.opcheck(torch.ops.graphact.select.default, (x, None, incoming, op, True))
    chosen = torch.ops.graphact.select(fixed, None, incoming, "max", False)[1]
    torch.library.opcheck(torch.ops.graphact.select.default, (x, chosen, incoming, "max", False))
    torch.library.opcheck(torch.ops.graphact.route.default, (fixed, chosen))
    torch.library.opcheck(torch.ops.graphact.pull.default, (fixed, fixed, incoming, outgoing))
    torch.library.opcheck(torch.ops.graphact.shift_weight_grad.default, (fixed, fixed, incoming))
    weights = (weight.detach(), turned, graph.places)
    for op, closed, shifting in (("max", False, True), ("median", True, False), ("kernel", False, True)):
        around = (*weights, incoming, outgoing, op, closed, shifting, 12)
        torch.library.opcheck(torch.ops.graphact.hop.default, (x, *around))
        if op != "kernel":
            places = torch.ops.graphact.hop(fixed, *around)[1]
            back = (fixed, places, fixed if shifting else None, *weights, incoming, outgoing, closed)
            torch.library.opcheck(torch.ops.graphact.turn.default, back)


def test_compiled_form_and_eager_form_have_the_same_gradients():
    incoming, outgoing = lists(DIRECTED)
    weight = DIRECTED.weight.double().requires_grad_()
    turned = DIRECTED.outgoing_weight.double()
    x = torch.randn(2, 6, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda x, w: torch.ops.graphact.shift(x, w, turned, incoming, outgoing), (x, weight)
    )
    assert torch.autograd.gradcheck(lambda x: torch.ops.graphact.spread(x, incoming, outgoing), x)


@pytest.mark.parametrize("op", ["max", "min", "median", "kernel"])
@pytest.mark.parametrize("closed", [False, True])
def test_hop_has_the_gradients_of_its_parts(op, closed):
    """In the form for compilers, in the eager form, and twice."""
    incoming, outgoing = lists(DIRECTED)
    graph = DIRECTED.to(torch.float64)
    around = (graph.weight, graph.outgoing_weight, graph.places, incoming, outgoing, op, closed, True, 3)
    x = torch.randn(2, 6, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: torch.ops.graphact.hop(x, *around)[::2], x)
    assert torch.autograd.gradcheck(lambda x: gradients.hop(x, graph, op, closed, True), x)
    assert torch.autograd.gradgradcheck(lambda x: gradients.hop(x, graph, op, closed, True), x)
    together = gradients.hop(x, graph, op, closed, True)
    apart = gradients.select(x, None, graph.incoming, op, closed)[0] if op != "kernel" else None
    if apart is not None:
        torch.testing.assert_close(together[0], apart)
    torch.testing.assert_close(together[1], gradients.shift(x, graph))


@pytest.mark.parametrize("op", ["max", "median", "kernel"])
def test_gradients_of_an_activation_over_two_hops(op):
    graph = DIRECTED.to(torch.float64)
    x = torch.randn(2, 6, 3, dtype=torch.float64, requires_grad=True)
    beta = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)

    def run(x, beta, weights):
        return functional.graph_adaptive(x, graph, beta, weights, op, gamma=2.0)

    assert torch.autograd.gradcheck(run, (x, beta, weights))
    assert torch.autograd.gradgradcheck(run, (x, beta, weights))


def test_vmap_over_graphs_is_refused():
    incoming, outgoing = lists(DIRECTED)
    weights = torch.rand(3, DIRECTED.num_edges)

    def run(weight):
        return torch.ops.graphact.shift(torch.ones(6, 1), weight, weight, incoming, outgoing)

    with pytest.raises(NotImplementedError, match="vmap over graphs is not supported"):
        torch.func.vmap(run)(weights)
