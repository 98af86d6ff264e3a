"""Without faults agents give what the centralised model gives, at the stated cost, on graphs of every shape."""

import numpy as np
import pytest
import torch

import graphact_agents
from agents.networks import GRAPHS
from graphact import nn
from graphact_agents import Deployment, cost_of_inference, load_graph, simulate_inference
from graphact_agents.messages import datagram_bytes
from support.activations import ON_AGENTS
from support.on_agents import deploy, to_model

TOLERANCE = 1e-12
OPS = ["max", "min", "median", "std", "mean", ("kernel", {"gamma": 0.9}), "trimmed-mean"]
BARE = {
    "filter": lambda: nn.GraphFilter(2, 3, order=2, bias=True),
    "min": lambda: nn.GraphAdaptive("min", hops=2, features=2),
    "kernel": lambda: nn.GraphAdaptiveKernel(hops=3, gamma=0.7, learn_gamma=True),
    "max-l": lambda: nn.LocalizedMax(closed=True),
    "relu": lambda: nn.ReLU(),
    "unshifted kernel": lambda: nn.GraphAdaptiveKernel(2, hops=2, unshifted=True, gamma=0.7, start="uniform"),
    "unshifted median alone": lambda: nn.GraphAdaptiveMedian(2, hops=0, unshifted=True, start="uniform"),
    "unshifted mixture": lambda: nn.GraphAdaptiveMixture(2, hops=1, unshifted=True, start="uniform"),
    "adaptive bank": lambda: nn.AdaptiveFilterBank(2, 3, order=2, ops=OPS),
    "closed adaptive bank": lambda: nn.AdaptiveFilterBank(2, 3, ops=OPS, closed=True, bias=False),
    "residual adaptive banks": lambda: nn.GCNN(
        [2, 3, 3, 3], order=1, bank="adaptive", ops=OPS, bias=True, residual=True, out_features=2
    ),
    "scaling": lambda: scaled(),
    "scaling of each node": lambda: scaled(nodes=[f"station {i}" for i in range(9)]),
    "fir": lambda: nn.FIR([2, 3, 2], order=[3, 0], out_features=None, bias=True),
}


def scaled(nodes=None):
    """A network in the user's units, whose nodes share a scaling or have one each."""
    network = nn.GCNN([4, 3], order=2, bank="adaptive", ops=["median", "std"], out_features=1)
    model = nn.ScaledNetwork(network, 1, out_features=1, window=2, mask=True, nodes=nodes)
    for end in (model.input, model.output):
        end.set(torch.linspace(5.0, 6.0, end.mean.numel()).view(end.mean.shape), torch.full(end.mean.shape, 1.5))
    return model


def gcnn(name, **options):
    """Two layers; graph-adaptive activations look two hops far."""
    hops = 2 if name.endswith("-ga") else 1
    return nn.GCNN([2, 4, 3], order=[2, 1], activation=name, hops=hops, out_features=2, gamma=0.8, **options).double()


def check(model, graph, x):
    """Agents against the model, and the cost against the count."""
    answer = simulate_inference(deploy(model, graph), x)
    with torch.no_grad():
        expected = model(torch.from_numpy(x), graph).numpy()
    np.testing.assert_allclose(answer.outputs, expected, rtol=TOLERANCE, atol=TOLERANCE)
    assert all(result.complete for result in answer.outcome.results.values())
    plain = deploy(model, graph)[0].model
    cost = cost_of_inference(plain, graph.num_edges, x.shape[1:-2], features=x.shape[-1])
    counters = answer.outcome.counters
    assert counters.data_sent == len(x) * cost.messages
    assert counters.bytes_sent == counters.data_bytes_sent == len(x) * cost.bytes
    assert counters.rounds == len(x) * cost.rounds * graph.num_nodes
    assert answer.outcome.network["bytes_sent"] == len(x) * cost.bytes


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("activation", ON_AGENTS)
def test_two_layers_on_every_graph(graph, activation):
    graph = GRAPHS[graph]()
    x = np.random.default_rng(0).normal(size=(2, 3, graph.num_nodes, 2))
    check(gcnn(activation), graph, x)


@pytest.mark.parametrize("activation", ON_AGENTS)
def test_closed_neighborhoods_shared_weights_and_bias(activation):
    graph = GRAPHS["directed with a diagonal"]()
    x = np.random.default_rng(1).normal(size=(1, graph.num_nodes, 2))
    check(gcnn(activation, closed=True, per_feature=False, bias=True, learn_gamma=True), graph, x)


@pytest.mark.parametrize("name", BARE)
def test_everything_that_load_gives(name):
    graph = GRAPHS["random"]()
    check(BARE[name]().double(), graph, np.random.default_rng(2).normal(size=(1, 2, graph.num_nodes, 2)))


@pytest.mark.parametrize("batch", [(), (1,), (5,), (2, 3)])
def test_batches_and_streams(batch):
    graph = GRAPHS["line"]()
    check(gcnn("median-ga"), graph, np.random.default_rng(3).normal(size=(4, *batch, graph.num_nodes, 2)))


def test_ties_and_numbers_that_are_not_finite():
    graph = GRAPHS["complete"]()
    x = np.random.default_rng(4).choice([0.0, -0.0, 1.0, 1.0, np.nan], size=(1, 40, graph.num_nodes, 2))
    for op in ("max", "min", "median"):
        check_bare = nn.GraphAdaptive(op, hops=1).double()
        with np.errstate(invalid="ignore"):
            outputs = simulate_inference(deploy(check_bare, graph), x).outputs
        expected = check_bare(torch.from_numpy(x), graph).detach().numpy()
        np.testing.assert_allclose(outputs, expected, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)


def test_single_precision_computes_in_float32():
    graph = GRAPHS["random"]()
    model = gcnn("max-ga").float()
    x = np.random.default_rng(5).normal(size=(1, graph.num_nodes, 2)).astype(np.float32)
    outputs = simulate_inference(deploy(model, graph), x).outputs
    assert outputs.dtype == np.float32
    expected = model(torch.from_numpy(x), graph.to(torch.float32)).detach().numpy()
    np.testing.assert_allclose(outputs, expected, rtol=1e-5, atol=1e-5)


def test_the_cost_by_hand():
    """Line of 6: 10 directed edges. Filters of order 2 and 1, activations of 2 hops: 2 + 3 + 1 + 3 rounds."""
    graph = GRAPHS["line"]()
    nodes = deploy(gcnn("max-ga"), graph)
    cost = cost_of_inference(nodes[0].model, graph.num_edges, (5,), slot=0.1)
    widths = [2, 2, 4, 4, 4, 4, 3, 3, 3]
    assert cost.rounds == 9
    assert cost.messages == 90
    assert cost.bytes == 10 * sum(52 + 4 * 2 + 8 * 5 * width for width in widths)
    assert cost.longest == pytest.approx(0.9)
    assert datagram_bytes((5, 2), float) == 52 + 8 + 80


def test_all_functions_of_a_bank_share_the_messages_of_the_shift():
    """Line of 6: 10 directed edges; three layers of one round each, whatever functions they form of it."""
    one, several = (
        nn.GCNN([2, 3, 3, 3], order=1, bank="adaptive", ops=ops, residual=True).double() for ops in (["max"], OPS)
    )
    linear = nn.GCNN([2, 3, 3, 3], order=1, activation="relu").double()
    costs = [cost_of_inference(to_model(model), 10, slot=0.1) for model in (linear, one, several)]
    assert [cost.rounds for cost in costs] == [3, 3, 3]
    assert [cost.messages for cost in costs] == [30, 30, 30]
    assert len({cost.bytes for cost in costs}) == 1


def test_a_node_hears_its_neighbors_alone_and_holds_its_row_alone(tmp_path):
    graph = GRAPHS["directed"]()
    matrix = graph.to_dense().numpy()
    for i, node in enumerate(deploy(gcnn("relu"), graph)):
        assert node.links.hears == tuple(np.flatnonzero(matrix[i]))
        assert node.links.heard_by == tuple(np.flatnonzero(matrix[:, i]))
        np.testing.assert_array_equal(node.row.weights, matrix[i][matrix[i] != 0])
        node.save(tmp_path / f"node-{i}")
        again = Deployment.load(tmp_path / f"node-{i}")
        assert again.links == node.links
        np.testing.assert_array_equal(again.row.weights, node.row.weights)


def test_localized_activations_over_several_hops_are_refused():
    with pytest.raises(ValueError, match="a localized activation must have one hop to run on agents .* got 2"):
        deploy(nn.GCNN([1, 2], activation="max-l", hops=2), GRAPHS["line"]())


def test_functions_and_what_is_not_a_file_are_refused(tmp_path):
    GRAPHS["line"]().save(tmp_path / "graph.npz")
    with pytest.raises(TypeError, match="Python function"):
        deploy(nn.GraphAdaptive(lambda neighbors: neighbors.sum(-2)), GRAPHS["line"]())
    with pytest.raises(TypeError, match=r"model must be the path of a file that graphact\.save wrote, got FIR"):
        graphact_agents.deploy(nn.FIR([1, 1]), load_graph(tmp_path / "graph.npz"))
    with pytest.raises(TypeError, match=r"graph must be the path .* graphact\.Graph\.save wrote, got Graph"):
        graphact_agents.deploy(to_model(nn.FIR([1, 1])), GRAPHS["line"]())


@pytest.mark.parametrize("shape", [(6, 2), (1, 5, 2), (1, 6, 3)])
def test_signals_of_the_wrong_shape(shape):
    with pytest.raises(ValueError, match="must have (the shape|2 features)"):
        simulate_inference(deploy(gcnn("relu"), GRAPHS["line"]()), np.zeros(shape))
