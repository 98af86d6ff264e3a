"""Guarantees of layers in any order, and refusals of what nothing is known about."""

import pytest
import torch

from graphact.guarantees import (
    EdgeNoise,
    LostLinks,
    certify,
    lipschitz_bound,
    lipschitz_constrained,
    release,
    topology_bound,
)
from graphact.guarantees.rules import POINTWISE, PointwiseRule
from graphact.nn import GCNN, GraphAdaptive, GraphAdaptiveMax, GraphFilter, GraphModule, ReLU
from graphact.spec import Layer, Pointwise, UnsupportedModelError
from graphact.spec.reductions import Operation, register_operation
from guarantees.draws import Chain, check_sound, draw
from support.graphs import random_graph

GRAPH = random_graph(7, 0.5)
MEAN = register_operation(Operation("mean-of-the-tests", lambda neighbors, xp: xp.mean(neighbors, -2)))
SIGNALS = torch.randn(3, 7, 1, dtype=torch.float64)


def certified_values(module, graph, x):
    """All that is certified of a module, in one list of tensors."""
    certificate = certify(module, graph, x, 0.1)
    bounds = [topology_bound(module, graph, what, x).per_node for what in (EdgeNoise(0.1), LostLinks(2))]
    boxes = [topology_bound(module, graph, what).per_node for what in (EdgeNoise(0.1), LostLinks(2))]
    return [lipschitz_bound(module, graph).per_node, certificate.lower, certificate.upper, *bounds, *boxes]


@pytest.mark.parametrize("names", [["max-ga", "relu"], ["kernel-ga", "median-l"], [torch.nn.ReLU(), "max-l"]])
def test_another_activation_in_each_layer(names):
    torch.manual_seed(0)
    model = GCNN([1, 3, 3], order=1, activation=names, out_features=2).double()
    check_sound(model, GRAPH, SIGNALS, torch.Generator().manual_seed(0))
    assert [name for name, _ in lipschitz_bound(model, GRAPH).layers] == [
        "filter 1",
        "activation 1",
        "filter 2",
        "activation 2",
        "readout",
    ]


def test_a_relu_of_torch_is_a_relu():
    ours, theirs = (GCNN([1, 3, 3], activation=which, out_features=2).double() for which in ("relu", torch.nn.ReLU()))
    theirs.load_state_dict(ours.state_dict())
    for one, other in zip(*(certified_values(model, GRAPH, SIGNALS) for model in (ours, theirs)), strict=True):
        assert torch.equal(one, other)


def test_a_linear_map_is_a_filter_of_order_0():
    torch.manual_seed(0)
    linear, bank = torch.nn.Linear(2, 3).double(), GraphFilter(2, 3, order=0, bias=True).double()
    with torch.no_grad():
        bank.taps[0].copy_(linear.weight.T)
        bank.bias.copy_(linear.bias)
    first, last = GraphFilter(1, 2, order=1).double(), GraphAdaptiveMax(hops=1, features=3).double()
    chains = [Chain(first, middle, last, torch.nn.Linear(3, 1).double()) for middle in (linear, bank)]
    chains[1].parts[3] = chains[0].parts[3]
    for one, other in zip(*(certified_values(chain, GRAPH, SIGNALS) for chain in chains), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
    names = [name for name, _ in lipschitz_bound(chains[0], GRAPH).layers]
    assert names == ["filter 1", "linear 1", "activation 1", "readout"]


def test_literal_chain():
    """x -> 2 relu(relu(-3 x)) at every node: slopes 0 or -6, and 3 relu(x) where the maximum is over no neighbour."""
    minus_three, twice = torch.nn.Linear(1, 1, bias=False).double(), torch.nn.Linear(1, 1, bias=False).double()
    with torch.no_grad():
        minus_three.weight.fill_(-3.0)
        twice.weight.fill_(2.0)
    bound = lipschitz_bound(Chain(minus_three, torch.nn.ReLU(), ReLU(), twice), GRAPH)
    assert bound.value == bound.composed == 6.0
    x = torch.tensor([[0.5], [-1.0], [0.0], [2.0], [-0.1], [0.05], [1.0]], dtype=torch.float64)
    certificate = certify(Chain(minus_three, torch.nn.ReLU(), ReLU(), twice), GRAPH, x, 0.1)
    torch.testing.assert_close(certificate.outputs, (-6 * x).clamp_min(0))
    assert (certificate.upper >= (-6 * (x - 0.1)).clamp_min(0)).all()
    assert lipschitz_bound(Chain(), GRAPH).value == 1.0


INTERPRETERS = {
    "lipschitz_bound": lambda model: lipschitz_bound(model, GRAPH),
    "lipschitz_constrained": lambda model: lipschitz_constrained(model, GRAPH, 1.0),
    "topology_bound": lambda model: topology_bound(model, GRAPH, LostLinks(1)),
    "certify": lambda model: certify(model, GRAPH, SIGNALS, 0.1),
}


class Absolute(GraphModule):
    def forward(self, x, graph, edge_weight=None):
        return x.abs()

    def describe(self):
        return (Pointwise("absolute"),)


class Mystery(GraphModule):
    def forward(self, x, graph, edge_weight=None):
        return x

    def describe(self):
        return (MysteryLayer(),)


class MysteryLayer(Layer):
    kind = "mystery"


@pytest.mark.parametrize("interpreter", INTERPRETERS)
@pytest.mark.parametrize(
    ("model", "part", "reason"),
    [
        (GCNN([1, 2, 2], activation=["max-ga", GraphAdaptive(MEAN)]), "activations.1", "rule for 'mean-of-the-tests'"),
        (GraphAdaptive(MEAN), "", "rule for 'mean-of-the-tests'"),
        (Chain(GraphFilter(1, 1, order=1), Absolute()), "layer 1", "rule for 'absolute'"),
        (
            Chain(GraphFilter(1, 1, order=1), Mystery()),
            "layer 1",
            "nothing is known about layers of the kind 'mystery'",
        ),
        (
            Chain(GraphFilter(1, 2, order=1), GraphFilter(3, 1, order=1)),
            "parts.1",
            "takes 3 features, and the layer in front",
        ),
        (torch.nn.Conv1d(1, 1, 1), "", "Conv1d"),
    ],
    ids=["operation in a network", "operation", "pointwise", "kind", "widths", "torch"],
)
def test_what_is_not_known_is_refused_in_one_line(model, part, reason, interpreter):
    with pytest.raises(UnsupportedModelError) as caught:
        INTERPRETERS[interpreter](model)
    assert caught.value.part == part
    assert reason in caught.value.reason
    assert "\n" not in str(caught.value)


def absolute_band(lower, upper):
    """|z| is exact where the sign is known, and between 0 and the larger end elsewhere."""
    crossing = (lower < 0) & (upper > 0)
    half = torch.where(crossing, torch.maximum(-lower, upper) / 2, 0.0)
    return torch.where(crossing, 0.0, torch.where(lower >= 0, 1.0, -1.0).to(lower)), half, half


def test_a_pointwise_function_needs_one_rule(monkeypatch):
    monkeypatch.setitem(POINTWISE, "absolute", PointwiseRule((-1.0, 1.0), absolute_band))
    torch.manual_seed(0)
    parts = [GraphFilter(1, 2, order=1), Absolute(), GraphAdaptiveMax(hops=1), Absolute(), torch.nn.Linear(2, 2)]
    check_sound(Chain(*parts).double(), GRAPH, SIGNALS, torch.Generator().manual_seed(0))
    only = Chain(GraphFilter(1, 1, order=0), Absolute()).double()
    assert lipschitz_bound(only, GRAPH).value == pytest.approx(only.parts[0].taps.abs().item())


def with_a_shared_filter():
    bank = GraphFilter(1, 1, order=1)
    return Chain(bank, ReLU(), bank), "parts.0", "shared with another part"


def with_a_shared_parameter():
    model = Chain(GraphFilter(1, 1, order=1), ReLU(), GraphFilter(1, 1, order=1))
    model.parts[2].taps = model.parts[0].taps
    return model, "parts.0", "shared with another part"


def with_a_computed_weight():
    model = GCNN([1, 2])
    torch.nn.utils.parametrizations.weight_norm(model.readout)
    return model, "readout", "computed from other parameters"


@pytest.mark.parametrize("make", [with_a_shared_filter, with_a_shared_parameter, with_a_computed_weight])
def test_coefficients_that_cannot_be_rescaled(make):
    """The constant is not proportional to what occurs twice."""
    model, part, reason = make()
    with pytest.raises(UnsupportedModelError, match=reason) as caught:
        lipschitz_constrained(model, GRAPH, 1.0)
    assert caught.value.part == part


@pytest.mark.parametrize("seed", [600, 602, 603, 604, 606, 607, 609, 612, 615, 616])  # those that can be rescaled
def test_limits_hold_in_any_order(seed):
    case = draw(seed, "chain", max_nodes=4)
    free = lipschitz_bound(case.module, case.graph).value
    lipschitz_constrained(case.module, case.graph, free / 3)
    assert lipschitz_bound(case.module, case.graph).value <= free / 3
    release(case.module)
    assert 0.3 * free / 3 < lipschitz_bound(case.module, case.graph).value <= free / 3


def test_limits_and_lost_links_are_for_modules_of_graphact():
    for interpreter in ("lipschitz_constrained", "topology_bound"):
        with pytest.raises(UnsupportedModelError, match="must be a GCNN, FIR, GraphFilter or an activation"):
            INTERPRETERS[interpreter](torch.nn.Linear(1, 1))
    assert lipschitz_bound(torch.nn.Linear(1, 1), GRAPH).layers[0][0] == "readout"
