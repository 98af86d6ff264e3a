"""Chains, residual blocks, torch's modules and PyG's: exact constants where they are linear, sound ones elsewhere."""

import itertools
import operator

import numpy
import pytest
import torch
from torch import nn
from torch_geometric.nn import (
    GCN,
    GIN,
    MLP,
    BatchNorm,
    ChebConv,
    GATConv,
    GCNConv,
    GINConv,
    GraphSAGE,
    MeanAggregation,
    SAGEConv,
)
from torch_geometric.nn import LayerNorm as PyGLayerNorm
from torch_geometric.nn import Linear as PyGLinear
from torch_geometric.nn import Sequential as PyGSequential

import graphact
from graphact import Graph
from graphact.guarantees import (
    LostLinks,
    attack,
    certify,
    empirical_lipschitz,
    lipschitz,
    lipschitz_bound,
    lipschitz_constrained,
    topology_bound,
)
from graphact.guarantees.layers import evaluate, read_model
from graphact.guarantees.rules import layer_norm_slope
from graphact.nn import GCNN, GraphAdaptiveMax, GraphFilter, GraphModule, Residual, Sequential
from graphact.nn.description import call_on_graph
from graphact.pyg import PassGraph, PerLayer
from graphact.spec import UnsupportedModelError
from guarantees.draws import check_certificate
from guarantees.test_lost_links import by_trying_all
from support.graphs import random_graph

NODES, FEATURES = 12, 3
MATRIX = random_graph(NODES, dtype=torch.float64).to_dense().abs()
MATRIX = torch.where(torch.arange(NODES) == torch.arange(NODES)[:, None], 0, MATRIX)
WEIGHTED = Graph.from_dense(MATRIX)  # directed, positive weights
LOOPS = Graph.from_dense(MATRIX + torch.diag(torch.arange(NODES) % 3 == 0).double())
SYMMETRIC = Graph.from_dense(MATRIX + MATRIX.T)
ZERO = torch.zeros(NODES, FEATURES, dtype=torch.float64)
GRAPHS = {"directed": WEIGHTED, "loops": LOOPS, "symmetric": SYMMETRIC}


def max_ga(features=4):
    return GraphAdaptiveMax(features=features, start="uniform")


LINEAR = {
    "gcn": lambda: GCNConv(3, 4),
    "gcn improved": lambda: GCNConv(3, 4, improved=True, bias=False),
    "gcn without loops": lambda: GCNConv(3, 4, add_self_loops=False),
    "gcn without norm": lambda: GCNConv(3, 4, normalize=False),
    "gcn cached": lambda: GCNConv(3, 4, cached=True),
    "cheb 1": lambda: ChebConv(3, 4, K=1),
    "cheb 2": lambda: ChebConv(3, 4, K=2, normalization=None),
    "cheb 5": lambda: ChebConv(3, 4, K=5, normalization="rw"),
    "sage": lambda: SAGEConv(3, 4),
    "sage sum": lambda: SAGEConv(3, 4, aggr="sum", root_weight=False, bias=False),
    "gin": lambda: GINConv(nn.Linear(3, 4), eps=0.3, train_eps=True),
    "gin without map": lambda: GINConv(nn.Sequential(nn.Identity(), nn.Linear(3, 4, bias=False)), eps=-0.4),
    "gin of PyG": lambda: GINConv(MLP([3, 5, 4], act=None, norm=None)),
    "linear": lambda: nn.Linear(3, 4),
    "batch norm after a filter": lambda: Sequential(GraphFilter(3, 4, order=1), nn.BatchNorm1d(4)),
    "mean": lambda: SAGEConv(3, 4, aggr=MeanAggregation()),
    "linear of PyG": lambda: PyGLinear(3, 4),
    "residual": lambda: Residual(GraphFilter(3, 3, order=2), GCNConv(3, 3)),
    "chain": lambda: Sequential(nn.Linear(3, 5), GCNConv(5, 2), Residual(SAGEConv(2, 2)), nn.Linear(2, 4)),
    "residual of PyG": lambda: PyGSequential(
        "x, edge_index, edge_weight",
        [
            (GCNConv(3, 4), "x, edge_index, edge_weight -> h"),
            (GCNConv(4, 4), "h, edge_index -> y"),
            (torch.add, "h, y -> h"),
            (GraphFilter(4, 2, order=1), "h, edge_index -> y"),
        ],
    ),
}
OTHERS = {
    "PassGraph": lambda: PassGraph(GCN(3, 4, 2, 2, act=max_ga())),
    "PerLayer": lambda: PassGraph(GCN(3, 4, 3, 2, act=PerLayer(max_ga(), layers=2), dropout=0.5), normalize=None),
    "GraphSAGE": lambda: GraphSAGE(3, 4, 2, 2, act="tanh", act_first=True),
    "GIN": lambda: GIN(3, 4, 2, 2, jk="last", act="leaky_relu"),
    "layer norm": lambda: GCN(3, 4, 2, 2, norm=nn.LayerNorm(4, eps=0.3), act="elu"),
    "gin with relu": lambda: GINConv(nn.Sequential(nn.Linear(3, 5), nn.SiLU(), nn.Linear(5, 2))),
    "gin relu first": lambda: GINConv(nn.Sequential(nn.ReLU(), nn.Linear(3, 2))),
    "torch": lambda: nn.Sequential(nn.Linear(3, 4), max_ga(), nn.GELU(), nn.Linear(4, 2), nn.Sigmoid()),
    "PyG": lambda: PyGSequential(
        "x, edge_index",
        [
            (GCNConv(3, 3), "x, edge_index -> h"),
            (max_ga(3), "h, edge_index -> h"),
            (operator.add, "x, h -> x"),
            (nn.LayerNorm(3, eps=1.0, elementwise_affine=False), "x -> x"),
            (SAGEConv(3, 2), "x, edge_index -> x"),
        ],
    ),
    "residual": lambda: Sequential(
        GCNConv(3, 4),
        Residual(GraphFilter(4, 4, order=1), max_ga(), nn.Dropout(0.5), nn.LayerNorm(4, eps=0.5)),
        Residual(max_ga()),
        nn.Linear(4, 2),
    ),
    "gcnn inside": lambda: Sequential(GCNN([3, 4], activation="kernel-ga", gamma=1.0, out_features=4), nn.ELU()),
}


def per_layer(layers):
    return PerLayer(max_ga(), layers=layers)


def inside_of_gin(act):
    parts = [(GINConv(nn.Sequential(nn.Linear(3, 4), act, nn.Linear(4, 2))), "x, edge_index -> x")]
    return PassGraph(PyGSequential("x, edge_index", parts))


def without_weights():
    return PassGraph(PyGSequential("x, edge_index", [(GCNConv(3, 4), "x, edge_index -> x"), max_ga()]))


def shared_in_a_chain(part, *others):
    return nn.Sequential(part, *others, part)


TWICE = {  # named_children of torch leaves the second out, and with it all that it does
    "activation": lambda: Sequential(
        GraphFilter(3, 4, order=1), shared_in_a_chain(nn.Tanh(), nn.Linear(4, 4)), nn.Linear(4, 2)
    ),
    "parameters": lambda: Sequential(GraphFilter(3, 4, order=1), shared_in_a_chain(nn.Linear(4, 4, bias=False))),
    "torch": lambda: shared_in_a_chain(nn.ReLU(), nn.Linear(3, 3)),
    "gin": lambda: GINConv(nn.Sequential(nn.Linear(3, 4), shared_in_a_chain(nn.ReLU(), nn.Linear(4, 4)))),
}
FURTHER = {
    "batch norm of torch": lambda: nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2)),
    "batch norm without weights": lambda: nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, affine=False), nn.Tanh()),
    "batch norm of PyG": lambda: GCN(3, 4, 2, 2, norm="batch_norm"),
    "batch norm in front": lambda: Sequential(BatchNorm(3), GCNConv(3, 4), nn.ReLU()),
    "batch norm in GIN": lambda: GINConv(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))),
    "batch norm first in GIN": lambda: GINConv(nn.Sequential(nn.BatchNorm1d(3), nn.ReLU(), nn.Linear(3, 2))),
    "MLP": lambda: MLP([3, 4, 2]),
    "MLP in GIN": lambda: GINConv(MLP([3, 4, 2])),
    "layer norm of PyG": lambda: GCN(3, 4, 2, 2, norm=PyGLayerNorm(4, eps=0.3, mode="node")),
    "swish": lambda: GCN(3, 4, 2, 2, act="swish"),
    "prelu": lambda: nn.Sequential(nn.Linear(3, 4), nn.PReLU(init=-0.7)),
    "prelu of features": lambda: nn.Sequential(nn.Linear(3, 4), nn.PReLU(4)),
    "slope of numpy": lambda: nn.Sequential(nn.Linear(3, 4), nn.LeakyReLU(numpy.float64(0.1))),
    "slope of torch": lambda: nn.Sequential(nn.Linear(3, 4), nn.LeakyReLU(torch.tensor(0.1))),
    "alpha of numpy": lambda: nn.Sequential(nn.Linear(3, 4), nn.ELU(numpy.float32(2.0))),
    "dropout": lambda: nn.Sequential(nn.Linear(3, 4), nn.Dropout1d(), nn.AlphaDropout()),
    "PerLayer inside of GIN": lambda: inside_of_gin(per_layer(1)),
    "PerLayer inside and outside": lambda: PassGraph(GIN(3, 4, 2, act=per_layer(3))),
    "edges without weights": without_weights,
    **{f"{name} twice": make for name, make in TWICE.items()},
}


def made(make, seed=0):
    """A model in evaluation mode; statistics of norms and slopes are drawn."""
    torch.manual_seed(seed)
    model = make().double().eval()
    for part in model.modules():
        if isinstance(part, nn.BatchNorm1d):
            part.running_mean.normal_()
            part.running_var.uniform_(0.1, 3)
            for parameter in part.parameters():
                nn.init.normal_(parameter)
        if isinstance(part, nn.PReLU):
            nn.init.normal_(part.weight)
    return model


MODELS = {**LINEAR, **OTHERS, **FURTHER}


def dense_jacobian(model, graph):
    """(N, O, N, F), of a linear model."""
    zero = torch.zeros(NODES, FEATURES, dtype=torch.float64)
    return torch.autograd.functional.jacobian(lambda x: call_on_graph(model, x, graph), zero)


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("name", LINEAR)
def test_linear_models_have_their_exact_constant(name, graph):
    """The largest row of the dense Jacobian; the search attains it, and one percent less would be wrong."""
    model, graph = made(LINEAR[name]), GRAPHS[graph]
    rows = dense_jacobian(model, graph).abs().sum((-2, -1))
    bound = lipschitz_bound(model, graph)
    torch.testing.assert_close(bound.per_node, rows.amax(-1), rtol=1e-9, atol=1e-12)
    found = empirical_lipschitz(model, graph, torch.randn(4, NODES, FEATURES, dtype=torch.float64), steps=5)
    assert 0.8 * bound.value < found.value <= bound.value * (1 + 1e-9)


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("name", MODELS)
def test_a_description_computes_what_the_model_does(name, graph):
    model, graph = made(MODELS[name]), GRAPHS[graph]
    layers, features = read_model(model, graph)
    x = torch.randn(NODES, features, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(evaluate(layers, x[None], graph)[0], call_on_graph(model, x, graph))


@pytest.mark.parametrize(("name", "seed"), [*itertools.product(OTHERS, range(3)), *((name, 1) for name in FURTHER)])
def test_no_pair_beats_a_constant_and_no_attack_leaves_a_certificate(name, seed):
    graph = [*GRAPHS.values()][seed]
    model = made(MODELS[name], seed)
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(3, NODES, FEATURES, dtype=torch.float64, generator=generator)
    bound = lipschitz_bound(model, graph)
    found = empirical_lipschitz(model, graph, x, generator=generator)
    assert 0 < found.value <= bound.value * (1 + 1e-9)  # a pair that attains it is evaluated with rounding errors
    assert bound.value <= bound.composed * (1 + 1e-9)
    assert bool((found.per_node <= bound.per_node * (1 + 1e-9)).all())
    for radius in (1e-3, 0.1, 1.0):
        check_certificate(certify(model, graph, x, radius), attack(model, graph, x, radius), room=1e-9)


@pytest.mark.parametrize("name", {**OTHERS, **FURTHER})
def test_models_and_graphs_in_float32(name):
    model, graph = made(MODELS[name]).float(), WEIGHTED.to(torch.float32)
    x = torch.randn(NODES, 3)
    certificate = certify(model, graph, x, 0.01)
    with torch.no_grad():
        outputs = call_on_graph(model, x, graph).double()
    assert bool((certificate.lower <= outputs).all() and (outputs <= certificate.upper).all())
    assert bool((graphact.guarantees.certified_radius(model, graph, x, [0, 1]).radius > 0).all())


def test_a_residual_block_on_a_large_graph_is_composed(monkeypatch):
    monkeypatch.setattr(lipschitz, "MAX_COEFFICIENTS", 0)
    model = made(OTHERS["residual"])
    bound = lipschitz_bound(model, WEIGHTED)
    found = empirical_lipschitz(model, WEIGHTED, torch.randn(2, NODES, 3, dtype=torch.float64))
    assert not bound.uses_forms
    assert found.value <= bound.value <= bound.composed


def test_the_input_of_a_residual_block_is_known_to_be_the_same():
    """x - ReLU-free x/2 moves by a half, not by one and a half."""
    half = GraphFilter(1, 1, order=0).double()
    nn.init.constant_(half.taps, -0.5)
    assert lipschitz_bound(Residual(half), WEIGHTED).value == pytest.approx(0.5, rel=1e-9)


@pytest.mark.parametrize(
    "part",
    [
        shared_in_a_chain(nn.ReLU(), nn.Linear(4, 4)),
        shared_in_a_chain(nn.Linear(4, 4, bias=False), nn.Linear(4, 4)),
        nn.BatchNorm1d(4),
    ],
    ids=["activation twice", "parameters twice", "batch norm"],
)
def test_lost_links_before_a_module(part):
    model = made(lambda: Sequential(GraphFilter(3, 4, order=1), part))
    x = torch.randn(NODES, FEATURES, dtype=torch.float64)
    largest = by_trying_all(model, SYMMETRIC, x, 1)
    torch.testing.assert_close(
        topology_bound(model, SYMMETRIC, LostLinks(1), x).per_node, largest, rtol=1e-9, atol=1e-12
    )


def test_a_limit_holds_with_a_module_that_stands_in_two_places():
    """The readout is rescaled by a constant that knows both; coefficients that stand in two places are refused."""
    model = lipschitz_constrained(made(TWICE["activation"]), WEIGHTED, 0.2)
    assert lipschitz_bound(model, WEIGHTED).value <= 0.2
    assert empirical_lipschitz(model, WEIGHTED, ZERO.expand(2, -1, -1)).value <= 0.2
    with pytest.raises(UnsupportedModelError, match="shared with another part"):
        lipschitz_constrained(made(TWICE["parameters"]), WEIGHTED, 0.2)


def test_a_description_of_your_own_that_is_not_true_is_refused():
    class Doubled(GraphModule):
        def __init__(self):
            super().__init__()
            self.bank = GraphFilter(3, 2, order=1)

        def forward(self, x, graph, edge_weight=None):
            return 2 * self.bank(x, graph)

        def describe(self):
            return self.bank.layers()

    for check in (
        lambda: lipschitz_bound(Doubled(), WEIGHTED),
        lambda: topology_bound(Doubled(), WEIGHTED, LostLinks(1)),
        lambda: lipschitz_constrained(Doubled(), WEIGHTED, 1.0),
    ):
        with pytest.raises(UnsupportedModelError, match="does not compute what its layers do"):
            check()


def test_a_constrained_chain_in_single_precision_is_compared_with_its_own_coefficients():
    """They are rescaled in float32: a copy that rescales in float64 computes something else."""
    model = lipschitz_constrained(made(TWICE["activation"]).float(), WEIGHTED, 0.2)
    assert 0.1 < lipschitz_bound(model, WEIGHTED).value <= 0.2


class Louder(GCNConv):
    def forward(self, x, edge_index, edge_weight=None):
        return 2 * super().forward(x, edge_index, edge_weight)


def with_hook(register):
    conv = GCNConv(3, 4)
    getattr(conv, register)(lambda *arguments: None)
    return conv


def parametrized():
    conv = GCNConv(3, 4)
    nn.utils.parametrizations.weight_norm(conv.lin)
    return conv


def cached_for_another_graph():
    conv = GCNConv(3, 4, cached=True)
    conv(torch.randn(20, 3), torch.tensor([[0, 18], [1, 19]]))
    return conv


def training(model):
    model.train()
    return model


def around_a_chain_of_torch():
    """A model that PassGraph refuses, put in the place of another one."""
    model = PassGraph(GCN(3, 4, 2, 2))
    model.model = nn.Sequential(nn.Linear(3, 4))
    return model


REFUSED = {
    "subclass": (lambda: Louder(3, 4), "", "nothing is known about what a Louder"),
    "message hook": (lambda: with_hook("register_message_forward_hook"), "", "carries hooks"),
    "propagate hook": (lambda: with_hook("register_propagate_forward_pre_hook"), "", "carries hooks"),
    "parametrized": (parametrized, "lin", "parametrized"),
    "flow": (lambda: GCNConv(3, 4, flow="target_to_source"), "", "flow"),
    "aggregation": (lambda: GCNConv(3, 4, aggr="max"), "", "aggregation 'max'"),
    "sage max": (lambda: SAGEConv(3, 4, aggr="max"), "", "aggregation 'max'"),
    "sage normalize": (lambda: SAGEConv(3, 4, normalize=True), "", "normalize=True"),
    "sage project": (lambda: SAGEConv(3, 4, project=True), "", "project=True"),
    "gin of anything": (lambda: GINConv(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))), "nn.1", "BatchNorm1d"),
    "attention": (lambda: GATConv(3, 4), "", "what a GATConv computes"),
    "not initialised": (lambda: GCNConv(-1, 4), "lin", "not known before the model is called"),
    "cached": (cached_for_another_graph, "", "does not fit"),
    "dropout": (lambda: training(GCN(3, 4, 2, 2, dropout=0.5)), "dropout", "training mode"),
    "dropout of torch": (lambda: training(Sequential(nn.Dropout(0.1))), "parts.0", "training mode"),
    "dropout of an MLP": (lambda: training(GINConv(MLP([3, 4, 2], norm=None, dropout=0.5))), "nn", "training mode"),
    "jumping knowledge": (lambda: GCN(3, 4, 2, 2, jk="cat"), "jk", "jk='cat'"),
    "batch norm": (
        lambda: training(GCN(3, 4, 2, 2, norm="batch_norm")),
        "norms.0.module",
        r"training mode.*call eval\(\)",
    ),
    "epsilon": (lambda: nn.LayerNorm(3, eps=0.0), "", "no bound"),
    "layer norm of nodes": (lambda: nn.LayerNorm([12, 3]), "", "mixes nodes"),
    "gelu": (lambda: nn.GELU(approximate="tanh"), "layer 0", "no rule for 'gelu approximated by tanh'"),
    "function": (
        lambda: PyGSequential("x, edge_index", [(lambda x: x**2, "x -> x"), (GCNConv(3, 4), "x, edge_index -> x")]),
        "module_0",
        "is a function",
    ),
    "batch": (lambda: PyGSequential("x, batch", [(GCNConv(3, 4), "x, batch -> x")]), "module_0", "arguments"),
    "widths": (lambda: Residual(nn.Linear(3, 4)), "parts.0", "adds values of 3 and 4 features"),
    "call": (around_a_chain_of_torch, "", "cannot be called"),
    "bilinear": (lambda: Sequential(nn.Bilinear(3, 3, 3)), "parts.0", "what a Bilinear computes"),
    "batch norm without statistics": (
        lambda: nn.Sequential(nn.BatchNorm1d(3, track_running_stats=False)).eval(),
        "0",
        "those of all nodes",
    ),
    "layer norm of PyG": (lambda: GCN(3, 4, 2, 2, norm="layer_norm"), "norms.0", "mode='node' is described"),
    "epsilon of PyG": (lambda: GCN(3, 4, 2, norm=PyGLayerNorm(4, 0.0, mode="node")), "norms.0", "eps > 0"),
    "in place": (lambda: Residual(nn.ReLU(inplace=True), GraphFilter(3, 3, order=1)), "", "inplace=True"),
    "lazy": (lambda: nn.Sequential(nn.Tanh(), nn.LazyLinear(2)), "1", "for the first time: call it"),
    "roots": (lambda: GCNConv(3, 4), "", "normalize=False", Graph.from_dense(-MATRIX - MATRIX.T)),
    "powers": (lambda: ChebConv(3, 4, K=45), "", "beyond the order 20", SYMMETRIC),
    "softmax": (lambda: Sequential(nn.Tanh(), nn.Softmax(-1)), "parts.1", "a GraphModule may describe itself"),
    "calls": (lambda: inside_of_gin(nn.Sequential(*[per_layer(1)] * 2)), "model.module_0.nn.1.1", "more often"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_known_is_refused_by_name(name):
    make, part, reason, *own = REFUSED[name]
    graph = own[0] if own else WEIGHTED
    torch.manual_seed(0)
    model = make()
    for check in (lambda: lipschitz_bound(model, graph), lambda: certify(model, graph, ZERO, 0.1)):
        with pytest.raises(UnsupportedModelError, match=reason) as caught:
            check()
        assert caught.value.part == part


@pytest.mark.parametrize(
    "interpret",
    [
        lambda model, path: topology_bound(model, WEIGHTED, LostLinks(1)),
        lambda model, path: lipschitz_constrained(model, WEIGHTED, 1.0),
        lambda model, path: graphact.save(model, path / "model.safetensors"),
    ],
    ids=["topology", "constrained", "files"],
)
@pytest.mark.parametrize("part", [Residual(max_ga(3)), nn.LayerNorm(3), GCNConv(3, 3)], ids=["sum", "norm", "conv"])
def test_others_refuse_what_they_cannot_do(part, interpret, tmp_path):
    with pytest.raises(UnsupportedModelError):
        interpret(Sequential(part), tmp_path)


def test_a_plain_chain_is_described_as_any_model():
    model = Sequential(GraphFilter(3, 4, order=1), max_ga(), nn.Linear(4, 2))
    assert [layer.kind for layer in model.layers()] == ["filter", "hop-mixture", "linear"]
    assert model.layers()[2].weight is model.parts[2].weight


def test_a_cached_operator_is_the_one_that_counts():
    torch.manual_seed(0)
    conv = GCNConv(3, 4, cached=True).double()
    conv(torch.randn(NODES, 3, dtype=torch.float64), torch.tensor([[0, 1], [1, 2]]))
    assert conv._cached_edge_index is not None
    expected = dense_jacobian(conv, WEIGHTED).abs().sum((-2, -1)).amax(-1)
    torch.testing.assert_close(lipschitz_bound(conv, WEIGHTED).per_node, expected, rtol=1e-9, atol=1e-12)


def test_a_chain_takes_an_edge_index_as_pass_graph_does():
    """Convolutions take the weights as they are, activations the normalised graph."""
    torch.manual_seed(0)
    conv, act = GCNConv(3, 4), max_ga()
    x, (edge_index, weight) = torch.randn(NODES, 3), SYMMETRIC.to(torch.float32).to_edge_index()
    expected = act(conv(x, edge_index, weight), SYMMETRIC.to(torch.float32).normalize("symmetric"))
    torch.testing.assert_close(Sequential(conv, act)(x, edge_index, weight), expected)


@pytest.mark.parametrize("features", [1, 2, 3, 8, 33])
@pytest.mark.parametrize("epsilon", [1e-5, 0.3])
def test_no_jacobian_of_a_layer_norm_beats_its_slope(features, epsilon):
    """Rows of the Jacobian by autograd, also where the variance is near that of the worst case."""
    norm = nn.LayerNorm(features, eps=epsilon, elementwise_affine=False).double()
    slope = layer_norm_slope(features, epsilon).item()
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(200, features, generator=generator, dtype=torch.float64) * epsilon**0.5
    x[100:] = torch.eye(features, dtype=torch.float64)[torch.arange(100) % features] * epsilon**0.5
    x = x * 10 ** torch.linspace(-2, 2, 200, dtype=torch.float64)[torch.randperm(200, generator=generator), None]
    x[0] = 0
    rows = torch.func.vmap(torch.func.jacrev(norm))(x).abs().sum(-1)
    assert rows.max() <= slope * (1 + 1e-9)
    assert slope <= 2.1 * rows.max() + 1e-12


def test_pass_graph_uses_a_graph_unchanged_without_normalization():
    """Bounds hold for the edges; activations use another graph unchanged where nothing is normalised."""
    torch.manual_seed(0)
    inner = GCN(3, 4, 2, 2, act=GraphAdaptiveMax(features=4, start="uniform")).double().eval()
    edge_index, weight = SYMMETRIC.to_edge_index()
    x = torch.randn(NODES, 3, dtype=torch.float64)
    for model, own in (
        (PassGraph(inner, normalize=None), SYMMETRIC),
        (PassGraph(inner), SYMMETRIC.normalize("symmetric")),
    ):
        layers, _ = read_model(model, SYMMETRIC)
        with torch.no_grad():
            expected = model(x, edge_index, weight, graph=own)
        torch.testing.assert_close(evaluate(layers, x, SYMMETRIC), expected)
