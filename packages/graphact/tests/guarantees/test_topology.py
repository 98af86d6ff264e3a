"""No perturbed graph moves outputs by more than the topology bound allows."""

import itertools

import numpy as np
import pytest
import torch

from graphact import Graph
from graphact.guarantees import EdgeNoise, LostLinks, empirical_topology, topology_bound
from graphact.guarantees.rules import OPERATIONS
from graphact.nn import GCNN, GraphAdaptive, GraphFilter, ReLU
from graphact.spec.reductions import find_operation
from guarantees.draws import KINDS, draw, uniform
from support.graphs import random_graph

PATH = Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]]).to(torch.float64)
DRAWS = 10


def perturbation_of(seed):
    if seed % 2:
        return LostLinks(1 + seed // 2 % 4)
    return EdgeNoise(float(10 ** uniform((), -3, 0, torch.Generator().manual_seed(seed))))


def broken(module, graph, bound, x, perturbed):
    with torch.no_grad():
        before, after = module(x, graph), module(x, perturbed)
    moved = (after - before).abs().amax(-1).flatten(0, -2).amax(0)
    return int((moved > bound.per_node * (1 + 1e-9) + 1e-12 * (1 + before.abs().max() + after.abs().max())).sum())


@pytest.mark.parametrize("seed", range(60))
def test_any_draw(seed):
    """Modules of every kind on 8 graphs each, 10 perturbations, 6 signals, four bounds; and attacks along gradients."""
    case = draw(seed, KINDS[seed % len(KINDS)], max_nodes=4)
    generator = torch.Generator().manual_seed(seed)
    perturbation = perturbation_of(seed // len(KINDS))
    x = uniform((6, case.graph.num_nodes, case.features), -1, 1, generator)
    x[::2] = x[::2].sign()
    bounds = [
        topology_bound(case.module, case.graph, perturbation, signals, trials=trials)
        for signals in (x, None)
        for trials in (None, 0)
    ]
    for smaller, larger in ((0, 1), (2, 3), (0, 2), (1, 3)):
        allowed = bounds[larger].per_node * (1 + 1e-9) + 1e-9
        assert (bounds[smaller].per_node <= allowed).all(), "exact or with fewer signals: a smaller bound"
    for _ in range(DRAWS):
        perturbed = perturbation.draw(case.graph, generator)
        for bound in bounds:
            assert broken(case.module, case.graph, bound, x, perturbed) == 0
    found = empirical_topology(case.module, case.graph, x, perturbation, draws=4, generator=generator)
    assert (found <= bounds[0].per_node * (1 + 1e-9) + 1e-9).all()


def test_attained_and_the_check_can_fail():
    """One shift of a path: losing a link takes what it carried, and noise of a row acts on its largest value."""
    one_shift = GraphFilter(1, 1, order=1).double()
    with torch.no_grad():
        one_shift.taps.copy_(torch.tensor([0.0, 2.0]).view(2, 1, 1))
    x = torch.tensor([[1.0], [-3.0], [2.0]], dtype=torch.float64)
    lost = topology_bound(one_shift, PATH, LostLinks(1), x)
    torch.testing.assert_close(lost.per_node, torch.tensor([6.0, 4.0, 6.0], dtype=torch.float64))
    noise = topology_bound(one_shift, PATH, EdgeNoise(0.5), x)
    torch.testing.assert_close(noise.per_node, torch.tensor([3.0, 2.0, 3.0], dtype=torch.float64))
    without = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=3).to(torch.float64)
    assert broken(one_shift, PATH, lost, x[None], without) == 0
    small = type(lost)(0.99 * lost.value, 0.99 * lost.per_node, lost.perturbation)
    assert broken(one_shift, PATH, small, x[None], without) > 0


def test_errors_through_two_shifts_are_attained():
    """Ones on a complete graph, noise of one sign: (c + eps)^2 - c^2 behind a shift, another shift and a maximum."""
    graph = Graph.from_dense(0.5 * (torch.ones(4, 4) - torch.eye(4)).double())
    model = GCNN([1, 1], order=1, activation="max-ga", out_features=None).double()
    with torch.no_grad():
        model.filters[0].taps.copy_(torch.tensor([0.0, 1.0]).view(2, 1, 1))
        model.activations[0].beta.zero_()
        model.activations[0].weights.fill_(-1.0)
    x, eps = torch.ones(1, 4, 1, dtype=torch.float64), 0.3
    bound = topology_bound(model, graph, EdgeNoise(eps), x)
    assert bound.value == pytest.approx((1.5 + eps) ** 2 - 1.5**2)
    noisy = Graph.from_dense((0.5 + eps / 3) * (torch.ones(4, 4) - torch.eye(4)).double())
    assert broken(model, graph, bound, x, noisy) == 0
    small = type(bound)(0.99 * bound.value, 0.99 * bound.per_node, bound.perturbation)
    assert broken(model, graph, small, x, noisy) > 0


OPTIONS = {"log-mean-exp": {"temperature": 0.4}, "trimmed-mean": {"trim": 0.3}}


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("op", ["max", "min", "median", "mean", *OPTIONS])
@pytest.mark.parametrize("lost", [0, 1, 2, 3, 5])
def test_lost_neighbours_by_trying_all(op, lost, closed):
    """Known values: the change is exactly the largest over all subsets that can be lost."""
    operation, options = find_operation(op), OPTIONS.get(op, {})
    layer = GraphAdaptive(op, closed=closed, **options).double().layers()[0]
    values = np.random.default_rng(lost).normal(size=(5, 1))
    before, largest = operation(values[:1], values, options).item(), 0.0
    for count in range(lost + 1):
        for gone in itertools.combinations(range(5), count):
            left = np.delete(values, gone, axis=0)
            if len(left) or not closed:
                after = operation(left[:1], left, options).item() if len(left) else 0.0
                largest = max(largest, abs(after - before))
    x, table = torch.from_numpy(values), torch.arange(5).unsqueeze(0)
    change = OPERATIONS[operation].loss(layer, x, torch.zeros_like(x), torch.zeros(1, dtype=torch.long), table, lost)
    assert change.item() == pytest.approx(largest)


@pytest.mark.parametrize("loops", [0.0, 2.0])
def test_draws_and_attacks_are_what_they_say(loops):
    graph = random_graph(9, 0.5)
    graph = Graph.from_dense(graph.to_dense() + loops * torch.eye(9).double())
    (source, target), weight = graph.to_edge_index()
    last = (source + target == (source + target)[source != target].max()) & (source != target)  # of the links
    gradient = -(last + 100.0 * (source == target)) / weight
    for count in (1, 3, 100):
        for thinned in (LostLinks(count).draw(graph), LostLinks(count).attack(graph, gradient)):
            assert graph.num_edges - thinned.num_edges == min(2 * count, graph.num_edges)
            assert torch.equal(thinned.to_dense().diagonal(), graph.to_dense().diagonal())
            assert not thinned.is_directed
    change = graph.to_dense() - LostLinks(1).attack(graph, gradient).to_dense()
    assert {*map(tuple, change.nonzero().tolist())} <= {*zip(target[last].tolist(), source[last].tolist(), strict=True)}
    for perturbation in (LostLinks(2), EdgeNoise(0.3)):
        same = [perturbation.draw(graph, torch.Generator().manual_seed(0)).to_dense() for _ in range(2)]
        assert torch.equal(*same)
    noisy = EdgeNoise(0.3).draw(graph)
    change = (noisy.to_dense() - graph.to_dense()).abs().sum(1)
    torch.testing.assert_close(change, torch.where(graph.degree > 0, 0.3, 0.0).double())
    assert torch.equal(noisy.degree, graph.degree)


def test_mistakes():
    with pytest.raises(TypeError, match="perturbation must be EdgeNoise or LostLinks, got float"):
        topology_bound(ReLU(), PATH, 0.1)
    with pytest.raises(ValueError, match="x must have 1 features, got 2"):
        topology_bound(GCNN([1, 2]), PATH, LostLinks(1), torch.zeros(3, 2, dtype=torch.float64))
    with pytest.raises(ValueError, match="norm must be a finite number above 0"):
        EdgeNoise(0.0)
    with pytest.raises(ValueError, match="count must be at least 1"):
        LostLinks(0)
    with pytest.raises(ValueError, match="magnitude"):
        topology_bound(ReLU(), PATH, LostLinks(1), magnitude=-1.0)
    assert topology_bound(ReLU(), PATH, LostLinks(1)).value == 0
    alone = Graph.from_edge_index([[], []], num_nodes=2).to(torch.float64)
    assert topology_bound(GCNN([1, 2]).double(), alone, LostLinks(2)).value == 0


def test_what_the_bound_does_not_hold_for_is_refused():
    class Both(LostLinks):
        """Anything may be overridden here."""

    with pytest.raises(TypeError, match="got Both"):
        topology_bound(ReLU(), PATH, Both(1))
    x = torch.zeros(3, 1, dtype=torch.float64)
    with pytest.raises(ValueError, match="magnitude must be left out"):
        topology_bound(ReLU(), PATH, LostLinks(1), x, magnitude=2.0)


@pytest.mark.parametrize("perturbation", [EdgeNoise(0.01), LostLinks(2)])
def test_graphs_beyond_memory_are_refused_before_any_work(perturbation):
    """A cycle of 20,000 nodes: its bounds would need a matrix of as many rows and columns."""
    nodes = torch.arange(20_000)
    cycle = Graph.from_edge_index(torch.stack([nodes, (nodes + 1) % len(nodes)]))
    model = GCNN([1, 8], order=1, activation="max-ga", out_features=2)
    for x in (None, torch.zeros(len(nodes), 1)):
        with pytest.raises(ValueError, match=r"graph must be smaller .* 20000 nodes"):
            topology_bound(model, cycle, perturbation, x, trials=0)
