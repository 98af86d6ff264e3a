"""Lost links: trying every set gives the exact change, and what is propagated where these are many stays above it."""

import itertools

import numpy as np
import pytest
import torch

from graphact import Graph
from graphact.guarantees import EdgeNoise, LostLinks, topology_bound
from graphact.guarantees.layers import read_layers, walk_errors
from graphact.guarantees.link_loss import (
    LinkList,
    is_enumerable,
    sets_of_links,
)
from graphact.nn import FIR, GCNN, GraphFilter, LocalizedMax, ReLU
from graphact.spec import Linear, Pointwise
from guarantees.draws import Chain, draw, exactly, rational, uniform
from support.graphs import random_graph

NAMES = ("relu", "max-l", "median-l", "max-ga", "median-ga", "kernel-ga")


def without(graph, links):
    """The graph without some links, by its dense matrix; entries of the diagonal stay."""
    edge_index, weight = graph.to_edge_index()
    lost = {frozenset(link) for link in links}
    keep = [source == target or frozenset((source, target)) not in lost for source, target in edge_index.T.tolist()]
    return Graph.from_edge_index(edge_index[:, keep], weight[keep], graph.num_nodes)


def links_of(graph):
    return sorted({tuple(sorted(edge)) for edge in graph.to_edge_index()[0].T.tolist() if edge[0] != edge[1]})


@torch.no_grad()
def by_trying_all(module, graph, x, count):
    """The largest change at each node, by the module itself on one whole graph after the other."""
    before, largest = module(x, graph), torch.zeros(graph.num_nodes, dtype=torch.float64)
    for size in range(1, count + 1):
        for lost in itertools.combinations(links_of(graph), size):
            change = (module(x, without(graph, lost)) - before).abs().amax(-1)
            largest = largest.maximum(change.reshape(-1, graph.num_nodes).amax(0))
    return largest


def road(nodes):
    """A path with a few bridges and weights of either sign: links reach some of the nodes only."""
    here = torch.arange(nodes - 1)
    edges = torch.cat([torch.stack([here, here + 1]), torch.tensor([[0, nodes // 2], [2, nodes // 2 + 3]])], 1)
    weight = uniform((2 * edges.size(1),), -1, 1, torch.Generator().manual_seed(nodes))
    return Graph.from_edge_index(torch.cat([edges, edges.flip(0)], 1), weight, nodes)


def model_of(name, hops=1, order=1, features=2):
    options = {} if name == "relu" else {"start": "uniform", "hops": hops}
    return GCNN([features, 3, 2], order=order, activation=name, bias=True, out_features=2, **options).double()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("hops", "count"), [(1, 1), (2, 2)])
def test_exact_where_links_reach_a_part_of_the_graph(name, hops, count):
    graph, generator = road(17), torch.Generator().manual_seed(count)
    torch.manual_seed(hops)
    model, x = model_of(name, hops), uniform((3, 17, 2), -1, 1, generator)
    bound = topology_bound(model, graph, LostLinks(count), x)
    expected = by_trying_all(model, graph, x, count)
    assert bound.exact
    torch.testing.assert_close(bound.per_node, expected, rtol=1e-9, atol=1e-9)
    assert (bound.per_node >= expected).all()
    assert bound.value == bound.per_node.max()


@pytest.mark.parametrize("seed", range(12))
def test_exact_on_any_draw(seed):
    """All kinds of layers, directed and signed graphs, self-loops, closed neighbourhoods, isolated nodes."""
    case = draw(seed, "chain" if seed % 2 else None, max_nodes=4)
    count = 1 + seed % 2
    x = uniform((2, case.graph.num_nodes, case.features), -1, 1, torch.Generator().manual_seed(seed))
    bound = topology_bound(case.module, case.graph, LostLinks(count), x)
    assert bound.exact
    expected = by_trying_all(case.module, case.graph, x, count)
    torch.testing.assert_close(bound.per_node, expected, rtol=1e-7, atol=1e-7 * max(1.0, expected.max().item()))


def test_the_worst_links_attain_the_value_and_one_percent_less_is_caught():
    graph = random_graph(9, 0.5)
    torch.manual_seed(0)
    for name in NAMES:
        model, x = model_of(name, features=1), torch.randn(4, 9, 1, dtype=torch.float64)
        bound = topology_bound(model, graph, LostLinks(2), x)
        with torch.no_grad():
            thinned = without(graph, bound.worst.tolist())
            change = (model(x, thinned) - model(x, graph)).abs().max().item()
        assert change <= bound.value
        assert change > 0.99 * bound.value, "a bound that is one percent too small must be caught"


def test_all_signals_of_a_linear_network_exactly():
    """A linear network is worst for signs: they are tried, all of them."""
    graph = road(7)
    torch.manual_seed(0)
    model = FIR([1, 2], order=2, out_features=2, bias=True).double()
    signs = torch.tensor(list(itertools.product([-1.0, 1.0], repeat=7)), dtype=torch.float64).unsqueeze(-1)
    bound = topology_bound(model, graph, LostLinks(2), magnitude=0.5)
    expected = by_trying_all(model, graph, 0.5 * signs, 2)
    assert bound.exact
    torch.testing.assert_close(bound.per_node, expected, rtol=1e-9, atol=1e-12)
    assert (expected > 0.99 * bound.per_node).all(), "a bound that is one percent too small must be caught"
    assert topology_bound(model, graph, LostLinks(2), magnitude=0.5, trials=0).value > bound.value
    assert not topology_bound(model_of("relu"), graph, LostLinks(1)).exact, "all signals of a network are too many"


@pytest.mark.parametrize("size", [1e-3, 1.0, 30.0])
@pytest.mark.parametrize("count", [1, 2])
def test_biases_in_front_of_a_filter_are_lost_with_links(size, count):
    """The change is affine in the signal, and its constant is what lost links keep of biases; every corner is tried."""
    graph, worst = road(7), 0.0
    signs = torch.tensor(list(itertools.product([-1.0, 1.0], repeat=7)), dtype=torch.float64).unsqueeze(-1)
    for seed in range(4):
        torch.manual_seed(seed)
        model = FIR([1, 2, 2, 1], order=1, bias=True, out_features=None).double()
        with torch.no_grad():
            for bank in model.filters:
                bank.bias.mul_(size)
        bound = topology_bound(model, graph, LostLinks(count), magnitude=0.5)
        expected = by_trying_all(model, graph, 0.5 * signs, count)
        assert bound.exact
        assert (bound.per_node >= expected).all()
        torch.testing.assert_close(bound.per_node, expected, rtol=1e-9, atol=1e-9)
        propagated = topology_bound(model, graph, LostLinks(count), magnitude=0.5, trials=0)
        assert bound.value <= propagated.value * (1 + 1e-9)
        worst = max(worst, (bound.per_node / expected).max().item())
    assert worst < 1.01, "a bound that is one percent too small must be caught"


@pytest.mark.slow
def test_propagated_bounds_stay_above_on_any_draw():
    for seed in range(100, 220):
        case, lost = draw(seed, [None, "chain", "activation"][seed % 3], max_nodes=5), LostLinks(1 + seed % 4)
        x = uniform((3, case.graph.num_nodes, case.features), -1, 1, torch.Generator().manual_seed(seed))
        exact = topology_bound(case.module, case.graph, lost, x)
        if exact.exact and links_of(case.graph):
            propagated = topology_bound(case.module, case.graph, lost, x, trials=0)
            assert not propagated.exact
            slack = 1e-9 * (1 + exact.value)
            assert (exact.per_node <= propagated.per_node * (1 + 1e-9) + slack).all(), f"draw {seed}"


def test_sets_that_no_node_notices_together_are_left_out():
    graph = road(60)
    layers, _ = read_layers(Chain(GraphFilter(1, 1, order=1), LocalizedMax(hops=1)).double(), 1)
    links, x = LinkList(graph), torch.zeros(1, 60, 1, dtype=torch.float64)
    one, two = sets_of_links(links, layers, x, 2, None)
    assert len(one) == len(links) == 61
    reached = links.distances(one, 1) <= 1
    near = {pair for pair in itertools.combinations(range(61), 2) if reached[list(pair)].all(0).any()}
    assert {tuple(pair) for pair in two.tolist()} == near
    assert len(two) < 61 * 60 // 2
    assert sets_of_links(links, layers, x, 2, len(one) + len(two)) is not None
    assert sets_of_links(links, layers, x, 2, len(one) + len(two) - 1) is None


@pytest.mark.parametrize("name", ["relu", "max-ga"])
def test_what_rounding_loses_is_less_than_the_allowance(name):
    graph = road(8)
    matrix = rational(graph.to_dense())
    torch.manual_seed(0)
    for size in (1e-6, 1.0, 1e6):
        model, x = model_of(name, order=3), size * torch.randn(5, 8, 2, dtype=torch.float64)
        with torch.no_grad():
            layers, _ = read_layers(model, 2)
            exact = np.stack([exactly(layers, rational(signal), matrix) for signal in x])
            lost = abs(rational(model(x, graph)) - exact).max((0, 2)).astype(float)
            allowed = walk_errors(layers, x.abs().amax(0), torch.zeros_like(x[0]), graph)[1].amax(-1).numpy()
        assert (lost <= allowed).all()
        assert 0 < lost.max() < allowed.max() < 1e-11 * (1 + size)


def test_layers_of_another_kind_are_left_to_the_propagated_errors():
    """Trials do not know what a layer of a new kind does; a subclass may do anything."""
    layers, _ = read_layers(model_of("max-ga"), 2)
    assert is_enumerable(layers)
    assert not is_enumerable((*layers, Pointwise("tanh")))
    assert not is_enumerable((*layers, type("Wider", (Linear,), {})(layers[-1].weight)))


def test_mistakes():
    graph, x = road(9), torch.zeros(1, 9, 2, dtype=torch.float64)
    with pytest.raises(ValueError, match="trials must be at least 0, got -1"):
        topology_bound(model_of("relu"), graph, LostLinks(1), x, trials=-1)
    assert not topology_bound(model_of("relu"), graph, EdgeNoise(0.1), x).exact
    assert not topology_bound(model_of("relu"), graph, LostLinks(1), x, trials=3).exact
    assert topology_bound(model_of("relu"), graph, LostLinks(100), x, trials=10**6).exact
    assert repr(topology_bound(ReLU(), graph, LostLinks(2), x)) == (
        "TopologyBound(value=0, perturbation=LostLinks(count=2), exact)"
    )
