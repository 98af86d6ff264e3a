"""Means, deviations and adaptive banks: what is attained, what is tried, and what is refused."""

import pytest
import torch

from graphact.guarantees import (
    EdgeNoise,
    LostLinks,
    certified_radius,
    certify,
    empirical_lipschitz,
    lipschitz_bound,
    lipschitz_constrained,
    topology_bound,
)
from graphact.guarantees.link_loss import is_enumerable
from graphact.nn import ACTIVATIONS, GCNN, AdaptiveFilterBank, GraphAdaptive, GraphNetwork, Residual, Sequential
from graphact.nn.graph_network import CONVOLUTIONS
from graphact.registry import FURTHER
from graphact.spec import UnsupportedModelError
from guarantees.draws import MEANS, check_sound, uniform
from support.graphs import random_case, random_graph

NAMES = ("mean-ga", "soft-maximum-ga", "trimmed-mean-ga")


@pytest.mark.parametrize("op", [op for op in MEANS if op != "std"])
def test_the_constant_of_an_activation_is_attained(op):
    """Constant signals move every mean by as much as the maximum."""
    graph = random_graph().normalize("random_walk")
    module = GraphAdaptive(op, hops=2).double()
    torch.nn.init.constant_(module.weights, 0.5)
    bound = lipschitz_bound(module, graph)
    assert bound.value == pytest.approx(2.0)  # 1 + 0.5 + 0.5, rows of S sum to 1
    found = empirical_lipschitz(module, graph, torch.ones(1, 12, 1, dtype=torch.float64), starts=1, steps=5)
    assert found.value == pytest.approx(2.0)


@pytest.mark.parametrize("name", NAMES)
def test_losses_of_links_are_bounded_not_tried(name):
    """Trying them all, and signed shares, know what selects a value; a mean selects none."""
    graph = random_graph()
    model = GCNN([1, 2], activation=name).double()
    assert not is_enumerable(model.layers())
    assert is_enumerable(GCNN([1, 2], activation="max-ga").double().layers())
    assert not topology_bound(model, graph, LostLinks(1), torch.randn(12, 1, dtype=torch.float64)).exact


def unknown_models():
    """With each of the activations and convolutions that have no rule, alone, in networks and in chains."""
    graph = random_graph()
    for name in [name for name in FURTHER if name not in NAMES]:
        yield name, lambda name=name: ACTIVATIONS[name](features=3) if name != "max-k" else ACTIVATIONS[name]()
        yield f"GCNN {name}", lambda name=name: GCNN([3, 3], activation=name, out_features=3)
        yield f"Residual {name}", lambda name=name: Residual(GCNN([3, 3], activation=name, out_features=3))
    for name in [name for name in CONVOLUTIONS if name == "EdgeNet"]:
        kind = {"name": name, **({"graph": graph} if name == "EdgeNet" else {})}
        make = lambda kind=kind: GraphNetwork([3, 3], convolution=kind, activation="relu", out_features=3)  # noqa: E731
        yield name, make
        yield f"Sequential {name}", lambda make=make: Sequential(torch.nn.Linear(3, 3), make())


UNKNOWN = dict(unknown_models())


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_has_no_rule_is_refused_everywhere(name):
    model, graph = UNKNOWN[name]().double(), random_graph()
    x = torch.randn(12, 3, dtype=torch.float64)
    for ask in (
        lambda: lipschitz_bound(model, graph),
        lambda: certify(model, graph, x, 0.1),
        lambda: certified_radius(model, graph, x),
        lambda: topology_bound(model, graph, LostLinks(1), x),
        lambda: topology_bound(model, graph, EdgeNoise(0.1), x),
        lambda: lipschitz_constrained(model, graph, 1.0),
    ):
        with pytest.raises(UnsupportedModelError):
            ask()


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("order", [1, 2])
def test_nothing_is_beyond_what_is_certified_of_adaptive_banks(order, closed):
    ops = ["max", "median", "std", "mean", ("kernel", {"gamma": 0.8})]
    for seed in range(4):
        case, generator = random_case(seed), torch.Generator().manual_seed(seed)
        graph, features = case.graph.to(torch.float64), case.x.shape[-1]
        x = uniform((2, graph.num_nodes, features), -2, 2, generator)
        bank = AdaptiveFilterBank(features, 3, order, ops=ops[seed % 2 :: 2], closed=closed).double()
        network = GCNN([features, 3, 3], order=order, bank="adaptive", ops=ops[:2], residual=True, bias=True).double()
        for module in (bank, network):
            check_sound(module, graph, x, generator, 0.3, ())


def test_the_bound_of_a_bank_is_at_most_the_sum_of_its_terms():
    """The largest, over output features, of sums over k and m; attained on a graph where no term cancels."""
    graph = random_graph().normalize("random_walk")
    bank = AdaptiveFilterBank(2, 3, 2, ops=["max", "std"], bias=False).double()
    bound = lipschitz_bound(bank, graph)
    linear, functions = bank.taps.abs().sum((0, 1)), bank.function_taps.abs().sum((0, 1, 2))
    assert bound.value <= (linear + functions).max().item() * (1 + 1e-9)  # rows of S sum to 1
    with torch.no_grad():
        bank.taps.copy_(bank.taps.abs())
        bank.function_taps.copy_(bank.function_taps.abs())
        bank.function_taps[1] = 0
    positive = lipschitz_bound(bank, graph)
    assert positive.value == pytest.approx((linear + bank.function_taps.sum((0, 1, 2))).max().item())
    ones = torch.ones(1, 12, 2, dtype=torch.float64)
    assert (bank(2 * ones, graph) - bank(ones, graph)).max().item() == pytest.approx(positive.value)


def test_lost_links_of_adaptive_banks_are_refused():
    model = GCNN([1, 2], order=1, bank="adaptive").double()
    with pytest.raises(UnsupportedModelError, match=r"filters\.0: .*'adaptive-filter' here"):
        topology_bound(model, random_graph(), LostLinks(1), torch.randn(12, 1, dtype=torch.float64))
