"""Models that were changed after they were made: refused, also where no random signal would show the change."""

import copy
import functools
import subprocess
import sys
import types

import pytest
import torch
import torch_geometric.nn.conv.gcn_conv
from torch import nn
from torch.nn.utils import parametrizations, parametrize
from torch_geometric.nn import (
    GCN,
    ChebConv,
    GCNConv,
    GINConv,
    MaxAggregation,
    MeanAggregation,
    MessagePassing,
    SAGEConv,
    SumAggregation,
)
from torch_geometric.nn import Sequential as PyGSequential

import graphact.functional
import graphact.nn.neighborhood_activation
from graphact import Graph
from graphact.guarantees import (
    EdgeNoise,
    LostLinks,
    certified_radius,
    certify,
    lipschitz_bound,
    lipschitz_constrained,
    topology_bound,
)
from graphact.nn import GCNN, GraphAdaptive, GraphAdaptiveMax, GraphFilter, Residual, Sequential
from graphact.pyg import PassGraph, PerLayer
from graphact.spec import UnsupportedModelError
from support.graphs import random_graph

NODES = 8
GRAPH = Graph.from_dense(random_graph(NODES, dtype=torch.float64).to_dense().abs().triu(1))
GRAPH = Graph.from_dense(GRAPH.to_dense() + GRAPH.to_dense().T)
X = torch.randn(NODES, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
FAR = 1e6  # where the changes show; no random signal of a comparison is as large
CHECKS = {
    "lipschitz": lambda model: lipschitz_bound(model, GRAPH),
    "certify": lambda model: certify(model, GRAPH, X, 0.1),
    "radius": lambda model: certified_radius(model, GRAPH, X),
}
OWN = {
    "lost links": lambda model: topology_bound(model, GRAPH, LostLinks(1), X),
    "noise": lambda model: topology_bound(model, GRAPH, EdgeNoise(0.1)),
    "constrained": lambda model: lipschitz_constrained(model, GRAPH, 1.0),
}


def louder(result):
    return torch.where(result.abs() > FAR, 1000 * result, result)


def hooked(part):
    part.register_forward_hook(lambda module, inputs, result: louder(result))


def hooked_in_front(part):
    part.register_forward_pre_hook(lambda module, inputs: (louder(inputs[0]), *inputs[1:]))


def replaced(part):
    before = part.forward
    part.forward = types.MethodType(lambda self, *arguments: louder(before(*arguments)), part)


def with_another_class(part):
    kind = type(part)

    class Other(kind):
        def forward(self, *arguments):
            return louder(super().forward(*arguments))

    part.__class__ = Other


def called_otherwise(part):
    class Other(type(part)):
        def __call__(self, *arguments):
            return louder(super().__call__(*arguments))

    part.__class__ = Other


CHANGES = (hooked, hooked_in_front, replaced, with_another_class, called_otherwise)


def own_model():
    inner = nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.Tanh()), nn.Linear(4, 2))
    return Sequential(GCNN([3, 4], order=1, activation="max-ga", out_features=4), inner).double()


OWN_PARTS = ["", "parts.0", "parts.0.filters.0", "parts.0.activations.0", "parts.0.readout"]
OWN_PARTS += ["parts.1", "parts.1.0", "parts.1.0.0", "parts.1.0.1", "parts.1.1"]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("part", OWN_PARTS)
def test_every_guarantee_refuses_a_changed_part_of_a_chain(part, change):
    model = own_model()
    for check in (CHECKS | OWN).values():
        check(copy.deepcopy(model))
    change(model.get_submodule(part))
    for check in (CHECKS | OWN).values():
        with pytest.raises(UnsupportedModelError, match=r"replaced|hooks|what a Other|does not describe") as caught:
            check(model)
        assert caught.value.part == part


def pyg_model():
    act = PerLayer(GraphAdaptiveMax(features=4, start="uniform"), layers=2)
    model = PassGraph(GCN(3, 4, 2, 4, act=act, jk="last", norm=nn.LayerNorm(4, eps=0.5)))
    both = PyGSequential("x, edge_index", [(SAGEConv(4, 4), "x, edge_index -> x"), (nn.Tanh(), "x -> x")])
    gin = GINConv(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)))
    return Sequential(model, Residual(both), gin, ChebConv(4, 4, K=2, decomposed_layers=2)).double().eval()


PYG_PARTS = ["parts.0", "parts.0.model", "parts.0.model.convs.0", "parts.0.model.convs.1.lin"]
PYG_PARTS += ["parts.0.model.convs.0.aggr_module", "parts.0.model.act", "parts.0.model.act.copies.1"]
PYG_PARTS += ["parts.0.model.norms.0", "parts.0.model.dropout", "parts.0.model.lin"]
PYG_PARTS += ["parts.1", "parts.1.parts.0", "parts.1.parts.0.module_0", "parts.1.parts.0.module_0.aggr_module"]
PYG_PARTS += ["parts.2", "parts.2.nn", "parts.2.nn.1", "parts.3", "parts.3.lins.1"]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("part", PYG_PARTS)
def test_a_changed_part_of_a_model_of_pyg_is_refused(part, change):
    model = pyg_model()
    change(model.get_submodule(part))
    with pytest.raises(UnsupportedModelError):
        lipschitz_bound(model, GRAPH)


def test_models_as_pyg_makes_them_are_no_changed_ones():
    """It compiles methods of its own into instances: of a Sequential, and of layers that are decomposed."""
    model = pyg_model()
    for same in (model, copy.deepcopy(model)):
        assert lipschitz_bound(same, GRAPH).value > 0


@pytest.mark.parametrize("name", ["message", "aggregate", "update", "propagate", "collect"])
def test_a_step_of_a_convolution_that_was_replaced_is_refused(name):
    conv = GCNConv(3, 2).double()
    before = getattr(conv, name, None) or (lambda *arguments, **options: None)
    setattr(conv, name, lambda *arguments, **options: before(*arguments, **options))
    with pytest.raises(UnsupportedModelError, match=f"the {name} of this GCNConv was replaced"):
        lipschitz_bound(conv, GRAPH)


def under_the_same_name(before):
    """As decorators do it: functools.wraps copies the module and the name."""

    @functools.wraps(before)
    def wrapper(*arguments, **options):
        return louder(before(*arguments, **options))

    return wrapper


def under_the_same_name_without_a_trace(before):
    wrapper = under_the_same_name(before)
    del wrapper.__wrapped__
    return wrapper


def as_partial_method(before):
    return functools.partialmethod(lambda self, *arguments, **options: louder(before(self, *arguments, **options)))


def as_static_method(before):
    return staticmethod(under_the_same_name(before))


def as_property(before):
    return property(lambda self: lambda *arguments, **options: louder(before(self, *arguments, **options)))


def in_a_mode_of_torch(before):
    return torch.no_grad()(under_the_same_name(before))


def compiled(before):
    return torch.compile(under_the_same_name(before), backend="eager")


def as_callable(before):
    class Faked:
        def __get__(self, module, kind=None):
            return lambda *arguments, **options: louder(before(module, *arguments, **options))

        def __call__(self, *arguments, **options):
            return louder(before(*arguments, **options))

    Faked.__module__ = before.__module__
    return functools.update_wrapper(Faked(), before)


WRAPPERS = (
    under_the_same_name,
    under_the_same_name_without_a_trace,
    as_partial_method,
    as_static_method,
    as_property,
    in_a_mode_of_torch,
    compiled,
    as_callable,
)
REPLACED = {
    (nn.ReLU, "forward"): lambda: nn.Sequential(nn.Linear(3, 2), nn.ReLU()),
    (nn.Linear, "forward"): lambda: GCNN([3, 2], activation="max-ga", out_features=2),
    (nn.Linear, "__call__"): lambda: nn.Linear(3, 2),  # which its class does not define
    (nn.Module, "__call__"): lambda: nn.Linear(3, 2),
    (nn.Module, "_call_impl"): lambda: nn.Linear(3, 2),
    (nn.BatchNorm1d, "_check_input_dim"): lambda: nn.BatchNorm1d(3).eval(),
    (GCNConv, "forward"): lambda: GCNConv(3, 2),
    (GCNConv, "message"): lambda: GCNConv(3, 2),
    (GCNConv, "propagate"): lambda: GCNConv(3, 2),
    (MessagePassing, "aggregate"): lambda: GCNConv(3, 2),
    (MessagePassing, "_lift"): lambda: GCNConv(3, 2),
    (SumAggregation, "forward"): lambda: GCNConv(3, 2),
    (MeanAggregation, "reduce"): lambda: SAGEConv(3, 2),
    (type(SumAggregation()).__mro__[1], "__call__"): lambda: GCNConv(3, 2),
    (ChebConv, "__norm__"): lambda: ChebConv(3, 2, K=2),
    (GraphAdaptiveMax, "forward"): lambda: GraphAdaptiveMax(features=3),
    (GraphAdaptive, "describe"): lambda: GraphAdaptiveMax(features=3),
    (GraphAdaptiveMax.__mro__[2], "describe"): lambda: GraphAdaptiveMax(features=3),
    (GCNN.__mro__[1], "forward"): lambda: GCNN([3, 2], activation="max-ga"),
    (GCNN, "forward"): lambda: GCNN([3, 2], activation="max-ga"),
}


@pytest.mark.parametrize("wrap", WRAPPERS)
@pytest.mark.parametrize("replaced", REPLACED, ids=lambda pair: f"{pair[0].__name__}.{pair[1]}")
def test_a_replacement_is_refused_whatever_it_says_of_itself(replaced, wrap, monkeypatch):
    kind, name = replaced
    model = REPLACED[replaced]().double()
    assert lipschitz_bound(model, GRAPH).value > 0
    monkeypatch.setattr(kind, name, wrap(getattr(kind, name)))
    with pytest.raises(
        UnsupportedModelError, match=rf"the {name} of this \w+ was replaced|does not describe the forward"
    ):
        lipschitz_bound(model, GRAPH)
    monkeypatch.undo()
    assert lipschitz_bound(model, GRAPH).value > 0


def test_a_method_with_another_class_and_other_code_in_the_same_function_are_refused(monkeypatch):
    model = nn.Sequential(nn.Linear(3, 2), nn.ReLU()).double()
    with monkeypatch.context() as patch:
        patch.setattr(nn.ReLU, "forward", nn.LeakyReLU.forward)
        with pytest.raises(UnsupportedModelError, match="the forward of this ReLU was replaced"):
            lipschitz_bound(model, GRAPH)
    other = lambda self, x: torch.where(x > FAR, 1000 * x, x.relu())  # noqa: E731
    monkeypatch.setattr(nn.ReLU.forward, "__code__", other.__code__)
    with pytest.raises(UnsupportedModelError, match="the forward of this ReLU was replaced"):
        lipschitz_bound(model, GRAPH)


@pytest.mark.parametrize("wrap", [under_the_same_name, under_the_same_name_without_a_trace, as_callable, compiled])
@pytest.mark.parametrize(
    ("place", "name", "make"),
    [
        (nn.functional, "relu", lambda: nn.Sequential(nn.Linear(3, 2), nn.ReLU())),
        (nn.functional, "linear", lambda: nn.Linear(3, 2)),
        (torch, "relu", lambda: nn.ReLU()),
        (torch, "tanh", lambda: nn.Tanh()),
        (torch_geometric.nn.conv.gcn_conv, "gcn_norm", lambda: GCNConv(3, 2)),
        (graphact.nn.neighborhood_activation, "graph_adaptive", lambda: GraphAdaptiveMax(features=3)),
        (graphact.nn.neighborhood_activation, "resolve_graph", lambda: GraphAdaptiveMax(features=3)),
        (graphact.nn.pointwise, "pointwise", lambda: graphact.nn.ReLU()),
        (graphact.nn.graph_filter, "graph_filter", lambda: GraphFilter(3, 2, order=1)),
    ],
)
def test_functions_that_a_forward_finds_by_name_are_refused_where_they_were_replaced(
    place, name, make, wrap, monkeypatch
):
    model = make().double()
    bound = lipschitz_bound(model, GRAPH).value
    monkeypatch.setattr(place, name, wrap(getattr(place, name)))
    with pytest.raises(UnsupportedModelError, match=f"the function {name}, which .* was replaced"):
        lipschitz_bound(model, GRAPH)
    monkeypatch.undo()
    assert lipschitz_bound(model, GRAPH).value == bound


def test_what_torch_puts_in_place_of_its_own_when_it_compiles_is_no_change():
    torch.compile(nn.Linear(3, 2), backend="eager")(torch.zeros(1, 3))
    assert nn.Module.__setstate__.__code__.co_filename.endswith("mutation_guard.py")
    for model in (nn.Linear(3, 2), GCNN([3, 2], activation="max-ga"), GCNConv(3, 2)):
        assert lipschitz_bound(model.double(), GRAPH).value > 0


def test_modules_that_were_compiled_in_place_are_refused_and_their_copies_are_not():
    model = nn.Sequential(nn.Linear(3, 2), nn.ReLU()).double()
    model[0].compile(backend="eager")
    with pytest.raises(UnsupportedModelError, match=r"0: it was compiled in place.*copy\.deepcopy"):
        lipschitz_bound(model, GRAPH)
    assert lipschitz_bound(copy.deepcopy(model), GRAPH).value > 0


def test_a_replacement_made_before_graphact_was_imported_is_refused():
    """In a process of its own, as everything here has been imported long since."""
    code = """
import functools, torch
from torch import nn
before = nn.ReLU.forward

@functools.wraps(before)
def forward(self, x):
    return torch.where(x > 1e6, 1000 * x, before(self, x))

nn.ReLU.forward = forward
import graphact
from graphact.guarantees import lipschitz_bound
try:
    print(lipschitz_bound(nn.Sequential(nn.Linear(3, 2), nn.ReLU()), graphact.Graph.from_edge_index([[0], [1]])))
except graphact.spec.UnsupportedModelError as error:
    print("refused:", error)
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "refused: 1: the forward of this ReLU was replaced" in shown


def test_descriptions_that_were_replaced_are_refused():
    for name in ("layers", "describe"):
        model = GraphFilter(3, 2, order=1).double()
        smaller = copy.deepcopy(model)
        setattr(model, name, smaller.layers)
        for check in (CHECKS | OWN).values():
            with pytest.raises(UnsupportedModelError, match=f"the {name} of this GraphFilter was replaced"):
                check(model)


def test_an_aggregation_that_was_replaced_is_refused_whatever_the_convolution_says():
    for conv in (GCNConv(3, 2), SAGEConv(3, 2), GINConv(nn.Linear(3, 2)), ChebConv(3, 2, K=2)):
        conv.aggr_module = MaxAggregation()
        with pytest.raises(UnsupportedModelError, match="MaxAggregation"):
            lipschitz_bound(conv, GRAPH)


@pytest.mark.parametrize("part", [nn.ReLU(), nn.Sequential(nn.Linear(3, 2), nn.ReLU()), nn.Bilinear(3, 3, 2)])
def test_a_map_of_a_convolution_that_was_replaced_is_refused_by_name(part):
    conv = GCNConv(3, 2)
    conv.lin = part
    with pytest.raises(UnsupportedModelError, match=r"no linear map|what a Bilinear computes") as caught:
        lipschitz_bound(conv, GRAPH)
    assert caught.value.part == "lin"


def test_jumping_knowledge_that_was_replaced_is_refused():
    class Sum(nn.Module):
        def forward(self, values):
            return values[-1] + louder(values[0]) - values[0]

    model = GCN(3, 4, 2, 2, jk="last").eval()
    model.jk = Sum()
    with pytest.raises(UnsupportedModelError, match="replaced") as caught:
        lipschitz_bound(model, GRAPH)
    assert caught.value.part == "jk"


def network():
    torch.manual_seed(0)
    return GCNN([3, 4], order=1, activation="relu", out_features=2).double()


@pytest.mark.parametrize(
    "add", [parametrizations.weight_norm, parametrizations.spectral_norm, parametrizations.orthogonal]
)
def test_parametrizations_of_torch_count_by_the_values_that_they_give(add):
    model, plain = network().eval(), network()
    add(model.readout)
    with torch.no_grad():
        plain.readout.weight.copy_(model.readout.weight)
    for check in (CHECKS["lipschitz"], OWN["lost links"]):
        torch.testing.assert_close(check(model).per_node, check(plain).per_node, rtol=1e-12, atol=0)


def test_a_parametrization_that_changes_in_training_is_refused_there():
    model = network()
    parametrizations.spectral_norm(model.readout)
    for check in (CHECKS["lipschitz"], OWN["lost links"]):
        with pytest.raises(UnsupportedModelError, match=r"another weight in every call: call eval") as caught:
            check(model.train())
        assert caught.value.part == "readout"
        check(model.eval())


class Later(nn.Module):
    """Ten times as large from the hundredth call on, which no reading before tells."""

    def __init__(self):
        super().__init__()
        calls = []
        self.count = lambda: calls.append(None) or len(calls) >= 100

    def forward(self, weight):
        return (10.0 if self.count() else 1.0) * weight


class Torchs(Later):
    """Says that torch has defined it."""

    __module__ = "torch.nn.utils.parametrizations"


def hooked_norm(model):
    parametrizations.weight_norm(model.readout)
    hooked(model.readout.parametrizations.weight[0])


def replaced_limit(model):
    lipschitz_constrained(model, GRAPH, 0.1)
    replaced(model.readout.parametrizations.weight[0])


@pytest.mark.parametrize(
    "change",
    [
        lambda model: parametrize.register_parametrization(model.readout, "weight", Later()),
        lambda model: parametrize.register_parametrization(model.readout, "weight", Torchs()),
        hooked_norm,
        replaced_limit,
    ],
    ids=["later", "under another name", "hook", "replaced"],
)
def test_other_parametrizations_are_refused(change):
    for check in (CHECKS["lipschitz"], CHECKS["certify"], OWN["lost links"]):
        model = network().eval()
        change(model)
        with pytest.raises(UnsupportedModelError, match=r"parametrization|hooks|was replaced") as caught:
            check(model)
        assert caught.value.part.startswith("readout")
