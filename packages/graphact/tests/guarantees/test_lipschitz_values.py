"""Certified constants against independent computations: literal cases, NumPy, and all vertices of tiny networks."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from graphact import Graph
from graphact.guarantees import lipschitz, lipschitz_bound
from graphact.guarantees.lipschitz import bank_norms
from graphact.nn import FIR, GCNN, GraphAdaptive, GraphAdaptiveKernel, GraphFilter, LocalizedMax, ReLU
from guarantees.draws import exactly, rational
from support import oracle
from support.graphs import random_case, random_graph

PATH = Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]]).to(torch.float64)


def set_parameters(module, **values):
    module = module.double()
    with torch.no_grad():
        for name, value in values.items():
            getattr(module, name).copy_(torch.as_tensor(value))
    return module


@pytest.mark.parametrize(
    ("module", "per_node"),
    [
        (ReLU(), [1.0, 1.0, 1.0]),
        # an end hears the middle, whose row of S is (1, 0, 1); the middle hears the ends, whose row is (0, 1, 0)
        (set_parameters(GraphAdaptive("max", hops=1), beta=-2.0, weights=[0.5]), [2.0, 1.5, 2.0]),
        (set_parameters(GraphAdaptive("max", hops=1), beta=2.0, weights=[0.5]), [3.0, 2.5, 3.0]),
        (set_parameters(GraphAdaptive("median", hops=2), beta=1.0, weights=[0.0, 1.0]), [3.0, 3.0, 3.0]),
        (set_parameters(LocalizedMax(hops=1), beta=1.0, weights=[-3.0]), [4.0, 4.0, 4.0]),
        # half the difference of the two ends; that of a single value is 0
        (set_parameters(GraphAdaptive("std", hops=1, unshifted=True), beta=0.0, weights=[1.0, 0.0]), [0.0, 1.0, 0.0]),
    ],
    ids=["relu", "max, signs cancel", "max", "median, two hops", "localized max", "deviation"],
)
def test_literal_activations(module, per_node):
    bound = lipschitz_bound(module, PATH)
    expected = torch.tensor(per_node, dtype=torch.float64)
    torch.testing.assert_close(bound.per_node, expected)
    assert bound.value == expected.max()


def test_the_paper_constant():
    module = set_parameters(GraphAdaptive("max", hops=2, features=2), beta=-1.5, weights=[[0.5, -0.2], [0.1, 0.3]])
    bound = lipschitz_bound(module, PATH)
    assert bound.paper == pytest.approx(1.5 + 2 * 0.5 * 2.0)  # the norms of S and of its square are 2
    assert bound.value <= bound.paper
    for other in (
        GraphAdaptive("median", hops=2),
        GraphAdaptiveKernel(),
        LocalizedMax(),
        ReLU(),
        GraphFilter(1, 1, order=1),
    ):
        assert lipschitz_bound(other, PATH).paper is None


def test_kernel_slope():
    """One pair of nodes: the derivative of exp(-d^2 / 2 gamma^2) by both values, at its steepest."""
    pair = Graph.from_dense(torch.tensor([[1.0, 0.5], [0.5, 1.0]], dtype=torch.float64))
    module = set_parameters(GraphAdaptiveKernel(hops=1, gamma=0.4), beta=0.0, weights=[2.0])
    expected = 2.0 * math.exp(-0.5) / 0.4 * 1.0  # rows of S differ by (0.5, -0.5)
    assert lipschitz_bound(module, pair).value == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(20))
def test_filter_banks_are_exact(seed):
    case = random_case(seed)
    rng = np.random.default_rng(seed)
    bank = GraphFilter(2, 3, order=int(rng.integers(0, 4))).double()
    size = len(case.matrix)
    rows = np.stack(
        [
            oracle.graph_filter(case.matrix, unit.reshape(size, 2), bank.taps.detach().numpy())
            for unit in np.eye(2 * size)
        ]
    )
    bound = lipschitz_bound(bank, case.graph)
    np.testing.assert_allclose(bound.per_node, np.abs(rows).sum(0).max(-1), rtol=1e-12)
    assert bound.value == pytest.approx(bound.composed)


def test_fir_is_exact():
    graph = random_graph(9, 0.5)
    model = FIR([2, 3, 3], order=2, out_features=2).double()
    jacobian = torch.func.jacrev(lambda x: model(x, graph))(torch.zeros(9, 2, dtype=torch.float64))
    assert lipschitz_bound(model, graph).value == pytest.approx(jacobian.abs().sum((-1, -2)).max().item())


@pytest.mark.parametrize("op", ["max", "min", "median"])
@pytest.mark.parametrize("seed", range(10))
def test_one_hop_is_the_largest_over_all_choices(seed, op):
    """beta d e_i + h S_j over d in {0, 1} and all neighbours j: nothing larger is possible, nothing less certified."""
    case = random_case(seed)
    rng = np.random.default_rng(seed)
    beta, weight = rng.normal(size=2)
    closed = bool(seed % 2)
    module = set_parameters(GraphAdaptive(op, hops=1, closed=closed), beta=beta, weights=[weight])
    unit = np.eye(len(case.matrix))
    expected = []
    for i in range(len(unit)):
        chosen = [weight * case.matrix[j] for j in oracle.neighbors(case.edges, i, closed)] or [0 * unit[i]]
        expected.append(max(np.abs(d * beta * unit[i] + row).sum() for d in (0, 1) for row in chosen))
    np.testing.assert_allclose(lipschitz_bound(module, case.graph).per_node, expected, rtol=1e-12)


def relaxed(matrix, edges, model, op):
    """The largest 1-norm of any output's row over all slopes of all ReLUs and all selections, by trying every one."""
    taps = [bank.taps.detach().numpy() for bank in model.filters]
    readout = model.readout.weight.detach().numpy()
    nodes, width = len(matrix), taps[0].shape[2]
    units = np.eye(nodes)
    first = np.stack([oracle.graph_filter(matrix, unit[:, None], taps[0]) for unit in units], -1)
    act = model.activations[0]
    beta, weight = act.beta.item(), act.weights.detach().numpy()[0]
    ways = []
    for i, f in itertools.product(range(nodes), range(width)):
        near = [matrix[j] @ first[:, f] for j in oracle.neighbors(edges, i, False)] or [0 * first[0, 0]]
        ways.append([d * beta * first[i, f] + weight[f] * row for d in (0, 1) for row in near])
    return max(
        np.abs(readout @ np.array(rows).reshape(nodes, width, -1)).sum(-1).max() for rows in itertools.product(*ways)
    )


@pytest.mark.parametrize("seed", range(4))
def test_one_layer_is_above_every_choice(seed):
    """All choices of a tiny network, tried one by one."""
    matrix = np.array([[0, 1, 0], [1, 0, 0.5], [0, 0.5, 0]])
    torch.manual_seed(seed)
    model = GCNN([1, 2], order=1, activation="max-ga", out_features=2).double()
    graph = Graph.from_dense(torch.from_numpy(matrix))
    truth = relaxed(matrix, matrix != 0, model, "max")
    bound = lipschitz_bound(model, graph)
    assert truth <= bound.value * (1 + 1e-9)
    assert bound.value <= 1.3 * truth


def test_relu_network_is_above_every_pattern():
    """Two layers of ReLUs: all 2^8 patterns of slopes, and the bound is within a few per cent."""
    torch.manual_seed(1)
    graph = random_graph(2, 1.0)
    model = GCNN([1, 2, 2], order=1, activation="relu", out_features=1).double()
    first, second = (
        torch.func.jacrev(lambda x, bank=bank: bank(x, graph))(torch.zeros(2, width, dtype=torch.float64)).reshape(
            4, -1
        )
        for bank, width in zip(model.filters, (1, 2), strict=True)
    )
    readout = torch.block_diag(model.readout.weight, model.readout.weight)
    slopes = [
        torch.diag(torch.tensor(choice, dtype=torch.float64)) for choice in itertools.product((0.0, 1.0), repeat=4)
    ]
    truth = max((readout @ d2 @ second @ d1 @ first).abs().sum(-1).max().item() for d1 in slopes for d2 in slopes)
    value = lipschitz_bound(model, graph).value
    assert truth <= value * (1 + 1e-12)
    assert value <= 1.1 * truth


def test_chunks_change_nothing(monkeypatch):
    graph = random_graph(10, 0.4)
    for name in ("max-ga", "kernel-ga"):
        model = GCNN([2, 3, 3], activation=name, hops=2, out_features=2).double()
        whole = lipschitz_bound(model, graph)
        for module in ("layers", "lipschitz", "rules"):
            monkeypatch.setattr(f"graphact.guarantees.{module}.MAX_ENTRIES", 50)
        parts = lipschitz_bound(model, graph)
        monkeypatch.undo()
        torch.testing.assert_close(parts.per_node, whole.per_node)
        assert parts.composed == pytest.approx(whole.composed)


def test_a_filter_of_one_tap_has_the_norms_of_its_dense_matrix():
    """A matrix over nodes times one over features, as a GCNConv is, needs no table of all entries."""
    graph = random_graph(9, 0.4).to(torch.float64)
    for power in range(3):
        taps = torch.zeros(3, 4, 5, dtype=torch.float64)
        taps[power] = torch.randn(4, 5, dtype=torch.float64)
        rows = torch.linalg.matrix_power(graph.to_dense(), power).abs().sum(1)
        expected = rows[:, None] * taps[power].abs().sum(0)
        torch.testing.assert_close(bank_norms(taps, graph), expected)
        torch.testing.assert_close(bank_norms(taps.requires_grad_(), graph), expected)


def test_the_largest_float_error_is_on_the_safe_side():
    """Linear networks with exact constants, by rational arithmetic on the very numbers that float64 holds."""
    torch.manual_seed(0)
    for _ in range(10):
        graph = random_graph(6, 0.6)
        model = FIR([1, 2, 1], order=1).double()
        layers, matrix = model.layers(), rational(graph.to_dense())
        columns = [exactly(layers, unit[:, None], matrix) for unit in rational(np.eye(6))]
        exact = abs(np.hstack(columns) - exactly(layers, rational(np.zeros((6, 1))), matrix)).sum(1).max()
        value = lipschitz_bound(model, graph).value
        assert Fraction(value) >= exact
        assert value == pytest.approx(float(exact), rel=1e-12)


def test_fewer_signs_are_tried_where_there_are_too_many(monkeypatch):
    """All signs of the last ReLUs, some, none: ever larger, and nothing changes at once."""
    graph, model = random_graph(12, 0.3), GCNN([1, 6], order=1, activation="relu", out_features=3).double()
    values = []
    for most in (10**9, 12 * 12 * 3 * 16, 12 * 12 * 3 * 4, 0):
        monkeypatch.setattr(lipschitz, "MAX_SIGN_WORK", most)
        values.append(lipschitz_bound(model, graph).value)
    assert values == sorted(values)
    assert values[0] < values[-1]


def test_mistakes():
    with pytest.raises(TypeError, match="function of your own"):
        lipschitz_bound(GraphAdaptive(lambda neighbors: neighbors.mean(-2)), PATH)
    with pytest.raises(TypeError, match="nothing is known about what a Conv1d computes"):
        lipschitz_bound(torch.nn.Conv1d(1, 1, 1), PATH)
    with pytest.raises(TypeError, match=r"module must be a torch.nn.Module, got function"):
        lipschitz_bound(test_mistakes, PATH)
    with pytest.raises(TypeError, match="graph must be a graphact.Graph"):
        lipschitz_bound(ReLU(), torch.zeros(2, 2))
