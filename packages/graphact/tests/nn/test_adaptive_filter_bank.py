"""Adaptive filter banks, the standard deviation and the unshifted term, against plain loops."""

import numpy as np
import pytest
import torch

import graphact
from graphact import Graph, nn
from graphact.functional import adaptive_filter, graph_adaptive, graph_adaptive_mixture, graph_filter
from graphact.functional.neighborhood import neighborhood
from graphact.kernels import reference
from support import oracle
from support.graphs import random_graph

OPS = ["max", "min", "median", "std", "mean", ("kernel", {"gamma": 0.7}), "log-mean-exp"]
GRAPH = random_graph(dtype=torch.float64)
MATRIX = GRAPH.to_dense().numpy()
EDGES = MATRIX != 0


def by_loops(bank, x, closed):
    taps, function_taps = bank.taps.detach().numpy(), bank.function_taps.detach().numpy()
    out = x @ taps[0] + (0 if bank.bias is None else bank.bias.detach().numpy())
    for k in range(len(taps) - 1):
        for number, op in enumerate(OPS):
            name, *gamma = (op,) if isinstance(op, str) else (op[0], op[1]["gamma"])
            out = out + oracle.neighborhoods(EDGES, x, name, *gamma, closed=closed) @ function_taps[number, k]
        x = MATRIX @ x
        out = out + x @ taps[k + 1]
    return out


def make(seed=0, **options):
    torch.manual_seed(seed)
    return nn.AdaptiveFilterBank(2, 3, **{"order": 2, "ops": OPS, **options}).double()


def signal(*shape, seed=1):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_a_bank_is_the_sum_of_its_definition(closed, bias):
    x, bank = signal(2, 12, 2), make(closed=closed, bias=bias)
    expected = np.stack([by_loops(bank, sample, closed) for sample in x.numpy()])
    np.testing.assert_allclose(bank(x, GRAPH).detach().numpy(), expected, rtol=1e-12, atol=1e-12)


def test_without_its_functions_it_is_the_linear_bank(real_start):
    x, bank = signal(12, 2), make(start="zero", bias=False)
    torch.testing.assert_close(bank(x, GRAPH), graph_filter(x, GRAPH, bank.taps), rtol=0, atol=1e-13)


@pytest.mark.parametrize("ops", [OPS, ["std"], ["median", "max"]], ids=str)
def test_gradients(ops):
    bank, x = make(ops=ops), signal(12, 2).requires_grad_()
    arrays = [bank.taps, bank.function_taps]
    assert torch.autograd.gradcheck(lambda x, *arrays: adaptive_filter(x, GRAPH, *arrays, bank.functions), [x, *arrays])


def test_the_standard_deviation_of_equal_values_is_exactly_0_and_so_is_its_gradient():
    x = torch.full((12, 1), 0.1, dtype=torch.float64)
    x[3] = 1.7  # so that some neighbourhoods differ
    x.requires_grad_()
    values = neighborhood(x, GRAPH, "std")
    (grad,) = torch.autograd.grad(values.sum(), x)
    lists = [oracle.neighbors(EDGES, i, False) for i in range(12)]
    equal = torch.tensor([3 not in members or len(members) == 1 for members in lists])
    assert 0 < equal.sum() < 12
    assert (values[equal] == 0).all()
    assert (values[~equal] > 0).all()
    assert grad.isfinite().all()
    own = neighborhood(torch.full((12, 1), 0.1).requires_grad_(), GRAPH.to(torch.float32), "std")
    assert (own == 0).all()


@pytest.mark.parametrize("batch", [(), (2,)], ids=["one signal", "two"])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("hops", [0, 1, 3])
@pytest.mark.parametrize("op", ["max", "min", "median", "kernel", "mean", "std"])
def test_the_unshifted_term_is_one_more_of_the_sum(op, hops, shared, batch):
    x, weights = signal(*batch, 12, 2), signal(hops + 1, seed=2) if shared else signal(hops + 1, 2, seed=2)
    out = graph_adaptive(x, GRAPH, 0.7, weights, op, gamma=0.7, unshifted=True)
    arrays = x.numpy(), 0.7, weights.numpy()
    expected = oracle.activation("graph_adaptive", MATRIX, EDGES, *arrays, op, gamma=0.7, unshifted=True)
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("unshifted", "hops"), [(True, 2), (True, 0), (False, 2)])
def test_the_unshifted_term_needs_no_further_pass(unshifted, hops, monkeypatch):
    """K + 1 passes over the edges with the term and without it: each function but the last gives the next shift."""
    fused, shifts = [], []
    functions, shift = reference.neighborhood_functions, reference.shift
    monkeypatch.setattr(reference, "neighborhood_functions", lambda *given: fused.append(given[4]) or functions(*given))
    monkeypatch.setattr(reference, "shift", lambda *given: shifts.append(1) or shift(*given))
    with graphact.backend("reference"):
        graph_adaptive(signal(12, 3), GRAPH, 1.0, signal(hops + unshifted, 3), "max", unshifted=unshifted)
    alone = len(shifts) - sum(fused)
    assert (len(fused), alone) == ((hops + 1, 0) if unshifted else (hops, 1))


def test_an_unshifted_mixture_is_the_sum_of_its_functions():
    x, weights = signal(12, 2), signal(2, 3, 2, seed=2)
    out = graph_adaptive_mixture(x, GRAPH, 1.0, weights, ["max", "std"], unshifted=True)
    each = [
        graph_adaptive(x, GRAPH, 0.5, weight, op, unshifted=True)
        for weight, op in zip(weights, ["max", "std"], strict=True)
    ]
    torch.testing.assert_close(out, each[0] + each[1], rtol=0, atol=1e-13)


@pytest.mark.parametrize("op", ["max", "median", "kernel", "std"])
def test_gradients_of_the_unshifted_term(op):
    x, beta, weights = signal(12, 2).requires_grad_(), signal().requires_grad_(), signal(3, 2, seed=2).requires_grad_()

    def function(*given):
        return graph_adaptive(given[0], GRAPH, *given[1:], op, gamma=0.7, unshifted=True)

    assert torch.autograd.gradcheck(function, (x, beta, weights))


MODULES = {
    "bank": lambda: make(),
    "unshifted": lambda: nn.GraphAdaptiveMedian(2, hops=2, unshifted=True, start="uniform").double(),
    "network": lambda: nn.GCNN(
        [2, 4, 4, 4], order=1, bank="adaptive", ops=["max", "std"], residual=True, bias=True, out_features=2
    ).double(),
}


@pytest.mark.parametrize("name", MODULES)
def test_equivariance_and_files(name, tmp_path):
    model, x, perm = MODULES[name](), signal(3, 12, 2), torch.randperm(12, generator=torch.Generator().manual_seed(3))
    out = model(x, GRAPH)
    torch.testing.assert_close(model(x[:, perm], GRAPH.permute(perm)), out[:, perm], rtol=1e-12, atol=1e-12)
    graphact.save(model, tmp_path / "model.safetensors")
    loaded = graphact.load(tmp_path / "model.safetensors")
    assert torch.equal(loaded(x, GRAPH), out)
    assert type(model)(**model.config()).config() == model.config()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_precisions(dtype):
    bank, x = make(), signal(3, 12, 2)
    out = bank.to(dtype)(x.to(dtype), GRAPH.to(dtype))
    assert out.dtype == dtype
    tolerance = {torch.float32: 1e-5, torch.float16: 2e-2, torch.bfloat16: 1e-1}[dtype]
    torch.testing.assert_close(out.double(), make()(x, GRAPH), rtol=tolerance, atol=tolerance)


def test_a_function_of_ones_own_and_registered_ones():
    def span(neighbors):
        return neighbors.amax(-2) - neighbors.amin(-2)

    bank, x = make(ops=[span]), signal(12, 2)
    parts = make(ops=["max", "min"])
    parts.load_state_dict(bank.state_dict() | {"function_taps": torch.cat([bank.function_taps, -bank.function_taps])})
    torch.testing.assert_close(bank(x, GRAPH), parts(x, GRAPH), rtol=0, atol=1e-13)
    with pytest.raises(TypeError, match="Python function that is not registered"):
        graphact.save(bank, "nowhere")


def test_edge_index_and_nodes_without_neighbors():
    edge_index, x = torch.tensor([[0, 1, 2], [1, 0, 0]]), signal(4, 2)
    bank = make(normalize=None)
    graph = Graph.from_edge_index(edge_index, torch.ones(3, dtype=torch.float64), 4)
    torch.testing.assert_close(bank(x, edge_index), bank(x, graph), rtol=0, atol=0)
    alone = bank(x, graph)[3] - x[3] @ bank.taps[0] - bank.bias
    kernel = bank.function_taps[5].sum((0, 1))  # over no neighbours it is 1, all others 0
    torch.testing.assert_close(alone, kernel, rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: nn.AdaptiveFilterBank(2, 3, 0), ValueError, "order must be at least 1, got 0"),
        (lambda: nn.AdaptiveFilterBank(2, 3, ops=[]), ValueError, r"ops must list at least one operation, .* got \[\]"),
        (lambda: nn.AdaptiveFilterBank(2, 3, ops="max"), ValueError, "ops must list at least one operation"),
        (lambda: nn.AdaptiveFilterBank(2, 3, ops=[["max", "min"]]), ValueError, r"got \['max', 'min'\]"),
        (lambda: nn.AdaptiveFilterBank(2, 3, ops=["maximum"]), ValueError, "op must be one of 'max'.* got 'maximum'"),
        (
            lambda: nn.AdaptiveFilterBank(2, 3, ops=[("kernel", {"gama": 1.0})]),
            TypeError,
            "gama is not a parameter of 'kernel', which has gamma; did you mean 'gamma'",
        ),
        (
            lambda: nn.AdaptiveFilterBank(2, 3, ops=[("kernel", {"gamma": 0.0})]),
            ValueError,
            "gamma must be .*, got 0.0",
        ),
        (lambda: nn.AdaptiveFilterBank(2, 3, ops=[torch.nn.Linear(2, 2)]), TypeError, "without parameters to train"),
        (lambda: nn.GCNN([1, 2], ops=["max"]), ValueError, 'set bank="adaptive"'),
        (lambda: nn.GCNN([1, 2], bank="adaptiv"), ValueError, "bank must be .*'adaptive', got 'adaptiv'"),
        (lambda: nn.LocalizedMax(unshifted=True), TypeError, "unshifted is not a parameter"),
        (lambda: make()(signal(12, 3), GRAPH), ValueError, "in_features"),
        (
            lambda: adaptive_filter(signal(12, 2), GRAPH, signal(1, 2, 3), signal(1, 1, 2, 3)),
            ValueError,
            "taps must have the shape .* with K at least 1 and F_in = 2.* got \\(1, 2, 3\\)",
        ),
        (
            lambda: adaptive_filter(signal(12, 2), GRAPH, signal(2, 2, 3), signal(2, 1, 2, 3)),
            ValueError,
            r"function_taps must have the shape .* = \(1, 1, 2, 3\) for 1 ops .* got \(2, 1, 2, 3\)",
        ),
    ],
)
def test_bad_arguments(build, error, message):
    with pytest.raises(error, match=message):
        build()
