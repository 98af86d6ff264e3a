"""Activations of other authors against plain NumPy, in files, fleets, agents and guarantees."""

import copy
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GCN, GCNConv
from torch_geometric.nn import Sequential as PyGSequential

import graphact
from graphact import Graph, nn
from graphact.functional.neighborhood import neighborhood
from graphact.functional.segments import log_mean_exp
from graphact.pyg import PassGraph
from graphact.registry import FURTHER
from support import oracle
from support.general_models import check_as_alone
from support.gradients import as_function
from support.graphs import random_case, random_graph
from support.tasks import make_tasks
from support.tolerances import assert_near

OTHERS = ("mixture-ga", "shiftless-max", "shiftless-median", "max-k", "grelu", "digraf")


def array(parameter):
    return parameter.detach().numpy()


def mixture(case, module):
    out, power = module.beta.item() * np.maximum(case.x, 0), case.x
    for hop in range(module.hops):
        power = case.matrix @ power
        for name, weights in zip(module.ops, array(module.weights), strict=True):
            out = out + weights[hop] * oracle.neighborhoods(case.edges, power, name, closed=module.closed)
    return out


def shiftless(case, module):
    read = oracle.neighborhoods(case.edges, case.x, module.op, closed=module.op == "median")
    out = module.beta.item() * np.maximum(case.x, 0)
    for weight, bias in zip(array(module.weight), array(module.bias), strict=True):
        out = out + np.einsum("...f,of->...o", read, weight) + bias
    return out


def max_k(case, module):
    out = np.zeros_like(case.x)
    for index in np.ndindex(case.x.shape[:-1]):
        row = case.x[index]
        kept = sorted(range(len(row)), key=lambda f, row=row: (-row[f], f))[: module.k or -(-len(row) // 4)]
        out[index][kept] = row[kept]
    return out


def grelu(case, module):
    out, flat = np.empty_like(case.x), case.x.reshape(-1, *case.x.shape[-2:])
    value = {name: array(parameter) for name, parameter in module.named_parameters()}
    for number, x in enumerate(flat):
        z = x
        for _ in range(module.hops):
            z = 0.9 * case.matrix @ z + 0.1 * x
        score = np.maximum(z @ value["node_hidden"].T + value["node_bias"], 0) @ value["node_out"].T
        share = np.exp(score - score.max())
        node = len(x) * share / share.sum()
        hidden = np.maximum(z.mean(0) @ value["channel_hidden"].T + value["channel_bias"], 0)
        made = np.tanh(hidden @ value["channel_out"].T + value["channel_offset"])
        slopes, offsets = made.reshape(2, module.pieces, x.shape[1])
        pieces = [((p == 0) + node * slopes[p]) * x + node * offsets[p] for p in range(module.pieces)]
        out.reshape(flat.shape)[number] = np.max(pieces, axis=0)
    return out


def digraf(case, module):
    out, flat = np.empty_like(case.x), case.x.reshape(-1, *case.x.shape[-2:])
    value = {name: array(parameter) for name, parameter in module.named_parameters()}
    vertices = np.linspace(-module.radius, module.radius, module.cells + 1)
    for number, x in enumerate(flat):
        z = x
        for layer in range(module.hops):
            taps = value[f"taps_{layer}"]
            z = np.maximum(z @ taps[0] + case.matrix @ z @ taps[1] + value[f"bias_{layer}"], 0)
        theta = np.tanh(value["theta_map"] @ z.mean(0) + value["theta"])
        velocity = 2 * module.radius * np.concatenate([[0], theta, [0]])
        field = lambda _, y, velocity=velocity: np.interp(y, vertices, velocity)  # noqa: E731
        moved = solve_ivp(field, (0, 1), x.ravel(), rtol=1e-10, atol=1e-11, max_step=1e-2).y[:, -1].reshape(x.shape)
        out.reshape(flat.shape)[number] = np.where(np.abs(x) < module.radius, moved, x)
    return out


REFERENCES = {
    "mixture-ga": mixture,
    "shiftless-max": shiftless,
    "shiftless-median": shiftless,
    "max-k": max_k,
    "grelu": grelu,
    "digraf": digraf,
}


@pytest.mark.parametrize("hops", [1, 3])
@pytest.mark.parametrize("name", OTHERS)
def test_values_on_graphs_of_every_kind(name, hops):
    """Directed, weighted, with loops, with nodes without neighbours; batches of signals."""
    for seed in range(6 if name == "digraf" else 25):  # integrating takes time
        case = random_case(seed)
        options = {"cells": 5, "radius": 1.2} if name == "digraf" else {}
        module = nn.make_activation({"name": name, **options}, hops=hops, features=case.x.shape[-1]).double()
        found, expected = module(case.signal, case.graph), REFERENCES[name](case, module)
        if name == "digraf":  # the integrator is the less accurate one
            torch.testing.assert_close(found.detach(), torch.from_numpy(expected), rtol=1e-6, atol=1e-6)
        else:
            assert_near(found, expected)


@pytest.mark.parametrize("name", [*OTHERS, "EdgeNet"])
def test_gradients(name):
    graph = Graph.from_dense(torch.tensor([[0, 1.0, 0.5], [0, 0.3, 0], [0, 0, 0]], dtype=torch.float64))
    if name == "EdgeNet":
        module = nn.EdgeNet(2, 4, graph, order=3, bias=True).double()
    else:
        module = nn.make_activation(name, hops=2, features=2).double()
    run, values = as_function(module, graph)
    x = torch.randn(2, 3, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(run, (x, *values), check_forward_ad=True, fast_mode=True)
    assert torch.autograd.gradgradcheck(run, (x, *values), fast_mode=True)


def test_how_they_start(real_start):
    x, graph = torch.randn(2, 12, 8), random_graph(dtype=torch.float32)
    assert torch.equal(nn.GReLU(8)(x, graph), torch.relu(x))
    assert torch.equal(nn.GReLU(8, pieces=4)(x, graph), torch.relu(x))
    assert torch.equal(nn.GraphAdaptiveMixture(8, hops=2)(x, graph), torch.relu(x))
    torch.testing.assert_close(nn.DiGRAF(8)(x, graph), x, rtol=0, atol=1e-6)
    for module in (nn.GReLU(8), nn.DiGRAF(8), nn.GraphAdaptiveMixture(8)):  # and training moves them away
        module(x, graph).square().sum().backward()
        assert any(parameter.grad.abs().max() > 1e-3 for parameter in module.parameters())


def test_a_diffeomorphism_for_all_graphs():
    module, x = nn.DiGRAF(adaptive=False).double(), torch.randn(7, 3, dtype=torch.float64)
    assert [name for name, _ in module.named_parameters()] == ["theta"]
    assert torch.equal(module(x), module(x, random_graph(7)))
    expected = graphact.functional.cpab(x, torch.tanh(module.theta), 5.0)
    assert torch.equal(module(x), expected)


def test_the_learned_parameters_of_means():
    soft, weighted = nn.GraphAdaptiveSoftMaximum(hops=2), nn.GraphAdaptiveWeightedMean(width=0.5)
    assert [name for name, _ in soft.named_parameters()] == ["beta", "weights", "log_temperature"]
    assert weighted.log_width.exp().item() == pytest.approx(0.5)
    assert nn.GraphAdaptiveSoftMaximum(learn_temperature=False).log_temperature is None
    trimmed = nn.GraphAdaptiveTrimmedMean(trim=0.1)
    assert [name for name, _ in trimmed.named_parameters()] == ["beta", "weights"]


def test_soft_maximum_between_mean_and_maximum():
    graph, x = random_graph(), torch.randn(12, 3, dtype=torch.float64)
    largest, mean = neighborhood(x, graph, "max"), neighborhood(x, graph, "mean")
    cold, warm, hot = (log_mean_exp(x, graph.incoming, False, temperature) for temperature in (1e-3, 1.0, 1e6))
    torch.testing.assert_close(cold, largest, rtol=0, atol=1e-2)
    torch.testing.assert_close(hot, mean, rtol=0, atol=1e-4)
    assert ((warm > mean) & (warm < largest))[graph.degree > 1].all()


@pytest.mark.slow
@pytest.mark.parametrize("name", FURTHER)
def test_a_fleet_trains_as_each_alone(name):
    tasks = make_tasks(4, graphs=2, samples=400, classes=4, dtype=torch.float64)
    make = partial(nn.GCNN, [1, 4], order=1, activation=name, hops=2, out_features=4)
    check_as_alone(make, tasks, epochs=2, batch_size=100)


POOLED = pytest.mark.parametrize("name", ["grelu", "digraf"])


@pytest.mark.parametrize("kind", [nn.DiGRAF, nn.GReLU])
def test_means_of_large_graphs_in_half_precision(kind):
    """A count in bfloat16 stops at 256, and a sum where the next value is less than half a step."""
    torch.manual_seed(0)
    graph, batch = random_graph(dtype=torch.float32), torch.zeros(12, dtype=torch.long)
    graph, batch = Graph.union([graph] * 100).with_batch(None), batch.repeat(100)
    module = kind(features=2, start="uniform").bfloat16()
    x = torch.rand(3, 1200, 2).bfloat16()
    torch.testing.assert_close(module(x, graph, batch=batch), module(x, graph), rtol=0.01, atol=0.01)


def in_half_precision(name, dtype, directed, loops):
    """A module, a graph and a signal in half precision, and all three in float64 with the same numbers."""
    torch.manual_seed(0)
    matrix = torch.rand(30, 30) * (torch.rand(30, 30) < 0.3)
    matrix = (matrix if directed else matrix + matrix.T).fill_diagonal_(0.0)
    matrix = (matrix + torch.diag(torch.rand(30))) if loops else matrix
    graph = Graph.from_dense(matrix).normalize("random_walk").to(dtype)
    options = {"radius": 20.0} if name == "digraf" else {}
    module = nn.make_activation({"name": name, **options}, features=4, hops=3).to(dtype)
    with torch.no_grad():  # so large that the function of the signal depends on it, and not so large that it saturates
        for parameter in module.parameters():
            parameter.uniform_(-1, 1)
    x = (5 * torch.randn(30, 4)).to(dtype)
    return module, graph, x, copy.deepcopy(module).double(), graph.to(torch.float64), x.double()


HALF = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])


@POOLED
@HALF
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("loops", [False, True])
def test_a_graph_in_half_precision_rounds_nothing_but_the_result(name, dtype, directed, loops):
    module, graph, x, wide, wide_graph, wide_x = in_half_precision(name, dtype, directed, loops)
    case = SimpleNamespace(matrix=wide_graph.to_dense().numpy(), x=wide_x.numpy())
    expected = torch.from_numpy(REFERENCES[name](case, wide))
    half_a_step = torch.finfo(dtype).eps / 2
    torch.testing.assert_close(module(x, graph).double(), expected, rtol=1.01 * half_a_step, atol=1e-4)
    union, batch = Graph.union([graph, graph]), torch.tensor([7, 3]).repeat_interleave(30)
    both = torch.cat([x, -x])
    alone = torch.cat(
        [expected, torch.from_numpy(REFERENCES[name](SimpleNamespace(matrix=case.matrix, x=-case.x), wide))]
    )
    torch.testing.assert_close(module(both, union).double(), alone, rtol=1.01 * half_a_step, atol=1e-4)
    torch.testing.assert_close(module(both, union, batch=batch).double(), alone, rtol=1.01 * half_a_step, atol=1e-4)


@POOLED
@HALF
@pytest.mark.parametrize("loops", [False, True])
def test_gradients_on_a_graph_in_half_precision(name, dtype, loops):
    """They are those of float32, which near a fixed point of DiGRAF's flow are less accurate than a step of float16."""
    module, graph, x, *_ = in_half_precision(name, dtype, True, loops)
    wide, wide_graph = copy.deepcopy(module).float(), graph.to(torch.float32)
    found, expected = [], []
    for own, place, signal, grads in ((module, graph, x, found), (wide, wide_graph, x.float(), expected)):
        edge_index, weight = place.to_edge_index()
        weight, signal = weight.detach().requires_grad_(), signal.clone().requires_grad_()
        result = own(signal, Graph.from_edge_index(edge_index, weight, 30))
        direction = (
            torch.linspace(-1, 1, result.numel(), dtype=torch.float64).view_as(result).to(dtype).to(result.dtype)
        )
        grads += torch.autograd.grad(result, (signal, weight, *own.parameters()), direction)
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.dtype == dtype
        step = torch.finfo(dtype).eps
        torch.testing.assert_close(mine.float(), theirs, rtol=step, atol=step * theirs.abs().max().item())


def test_max_k_of_signals_without_features():
    assert nn.MaxK()(torch.zeros(4, 0)).shape == (4, 0)


@pytest.mark.parametrize("kind", [nn.DiGRAF, nn.GReLU])
@pytest.mark.parametrize("shape", [(11,), (12, 1), (1,)])
def test_graphs_of_nodes_that_do_not_fit_are_refused(kind, shape):
    graph, module = random_graph(dtype=torch.float32), kind(features=2)
    x = torch.randn(12, 2)
    with pytest.raises(ValueError, match="batch must hold the number of a graph for each of 12 nodes"):
        module(x, graph, batch=torch.zeros(shape, dtype=torch.long))
    with pytest.raises(ValueError, match=r"got the shape \(12,\) in torch.float32"):
        module(x, graph, batch=torch.zeros(12))
    torch.testing.assert_close(module(x, graph, batch=torch.zeros(12, dtype=torch.int32)), module(x, graph))


def side_by_side(name):
    """Graphs of several sizes, each normalised on its own, with a signal each; and a model."""
    torch.manual_seed(4)
    graphs = [random_graph(n, seed=n) for n in (4, 2, 7)]
    signals = [torch.randn(graph.num_nodes, 3, dtype=torch.float64) for graph in graphs]
    return graphs, signals, nn.make_activation(name, features=3, hops=2).double()


@POOLED
def test_a_union_is_pooled_graph_by_graph(name):
    graphs, signals, module = side_by_side(name)
    alone = torch.cat([module(x, graph) for x, graph in zip(signals, graphs, strict=True)])
    union, x = Graph.union(graphs), torch.cat(signals)
    torch.testing.assert_close(module(x, union), alone)
    nested = Graph.union([Graph.union(graphs[:2]), graphs[2]])
    torch.testing.assert_close(module(x, nested), alone)
    perm = torch.randperm(13)
    torch.testing.assert_close(module(x[perm], union.permute(perm)), alone[perm])
    one = union.with_batch(None)
    assert not torch.allclose(module(x, one), alone)
    # the given batch overrides that of the union
    torch.testing.assert_close(module(x, union, batch=torch.zeros(13, dtype=torch.long)), module(x, one))


NUMBERS = {  # of three graphs, in whose place others have no node
    "in front": [2, 3, 4],
    "in the middle": [0, 5, 6],
    "far beyond the number of nodes": [0, 40, 10**12],
    "out of order": [9, 0, 30],
}


def batch_of(numbers, signals, dtype):
    numbers = torch.tensor(numbers).clamp_max(torch.iinfo(dtype).max).to(dtype)
    return numbers.repeat_interleave(torch.tensor([len(signal) for signal in signals]))


def each_batch(test):
    test = pytest.mark.parametrize("numbers", NUMBERS.values(), ids=NUMBERS)(test)
    return pytest.mark.parametrize("dtype", [torch.int64, torch.int32])(test)


@POOLED
@each_batch
def test_graphs_without_nodes_are_left_out(name, numbers, dtype):
    """As in PyG, where a batch may hold graphs without nodes, numbers need not follow each other."""
    graphs, signals, module = side_by_side(name)
    alone = torch.cat([module(x, graph) for x, graph in zip(signals, graphs, strict=True)])
    union, x = Graph.union(graphs).with_batch(None), torch.cat(signals)
    batch = batch_of(numbers, signals, dtype)
    torch.testing.assert_close(module(x, union, batch=batch), alone)
    torch.testing.assert_close(module(x, union.with_batch(batch)), alone)
    perm = torch.randperm(13)
    shuffled = union.permute(perm)
    torch.testing.assert_close(module(x[perm], shuffled, batch=batch[perm]), alone[perm])
    # joined with others, numbers beyond the nodes of a part do not meet those of the next part
    joined = Graph.union([union.with_batch(batch), graphs[0], union.with_batch(batch)])
    expected = torch.cat([alone, module(signals[0], graphs[0]), alone])
    torch.testing.assert_close(module(torch.cat([x, signals[0], x]), joined), expected)


@POOLED
@each_batch
def test_compiled_code_leaves_them_out(name, numbers, dtype):
    graphs, signals, module = side_by_side(name)
    union, x = Graph.union(graphs).with_batch(None), torch.cat(signals)
    batch = batch_of(numbers, signals, dtype)
    compiled = torch.compile(module, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x, union, batch=batch), module(x, union, batch=batch))


@POOLED
def test_networks_and_chains_pool_graph_by_graph(name):
    graphs, signals, _ = side_by_side(name)
    models = {
        "gcnn": nn.GCNN([3, 3, 3], activation=name, order=1),
        "network": nn.GraphNetwork([3, 3], activation=name),
        "chain": nn.Sequential(torch.nn.Linear(3, 3), nn.Residual(nn.make_activation(name, features=3))),
        "model of PyG": PassGraph(GCN(3, 3, 2, 2, act=nn.make_activation(name, features=3))),
        "convolution": PassGraph(PyGSequential("x, edge_index", [(GCNConv(3, 3), "x, edge_index -> x"),
                                                                    (nn.make_activation(name, features=3), "x -> x")])),
        "model in a chain": nn.Sequential(PassGraph(GCN(3, 3, 2, 2, act=nn.make_activation(name, features=3)))),
    }  # fmt: skip
    data = [
        Data(x=x, edge_index=graph.to_edge_index()[0], num_nodes=len(x))
        for x, graph in zip(signals, graphs, strict=True)
    ]
    batch = Batch.from_data_list(data)
    for kind, model in models.items():
        model.double()
        alone = torch.cat([model(item.x, item.edge_index) for item in data])
        found = model(batch.x, batch.edge_index, batch=batch.batch)
        torch.testing.assert_close(found, alone, msg=lambda text, kind=kind: f"{kind}: {text}")
        assert not torch.allclose(model(batch.x, batch.edge_index), alone), kind  # taken for one graph
        if not isinstance(model, PassGraph):
            own = [Graph.from_pyg(item).to(torch.float64).normalize("symmetric") for item in (*data, batch)]
            expected = torch.cat([model(item.x, graph) for item, graph in zip(data, own[:-1], strict=True)])
            torch.testing.assert_close(model(batch.x, own[-1]), expected)
