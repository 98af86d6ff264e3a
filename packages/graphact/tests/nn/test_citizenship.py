"""Compile, export, vmap, autocast, copies: what a torch module is expected to do.

That each of them compiles in one piece is tested in `test_compile_counts.py`.
"""

import copy
import pickle

import pytest
import torch

from graphact import Graph, nn
from support.activations import ADAPTIVE
from support.graphs import random_graph

HOPS = 2


MODELS = [*nn.ACTIVATIONS, *ADAPTIVE, "edge net"]


def make(name):
    torch.manual_seed(7)
    if name == "edge net":
        return nn.EdgeNet(1, 4, random_graph().normalize("laplacian"), order=3, bias=True)
    options = {"hops": HOPS, "out_features": 2, "learn_gamma": True, "gamma": 0.7}
    return nn.GCNN([1, 4, 4], order=2, **options, **ADAPTIVE.get(name, {"activation": name}))


@pytest.fixture
def graph():
    graph = random_graph(dtype=torch.float32).normalize("laplacian")
    graph.hop_pattern(HOPS)
    return graph


@pytest.fixture
def x():
    return torch.randn(3, 12, 1)


def gradients(model, run, x):
    model.zero_grad()
    run(x).square().sum().backward()
    return [parameter.grad.clone() for parameter in model.parameters()]


@pytest.mark.slow
def test_compile_with_the_default_backend(graph, x):
    torch.compiler.reset()
    model = make("max-ga")
    compiled = torch.compile(model, fullgraph=True)
    expected = gradients(model, lambda x: model(x, graph), x)
    torch.testing.assert_close(gradients(model, lambda x: compiled(x, graph), x), expected)


def test_compile_a_users_function(graph, x):
    torch.compiler.reset()
    model = nn.GraphAdaptive(lambda own, neighbors: (own - neighbors).abs().amax(-2), hops=2)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, graph), model(x, graph))


@pytest.mark.slow
def test_compile_with_an_edge_index_breaks_once_and_is_right(x):
    torch.compiler.reset()
    model, (edge_index, weight) = make("max-ga"), random_graph(dtype=torch.float32).to_edge_index()
    compiled = torch.compile(model, backend="aot_eager")
    torch.testing.assert_close(compiled(x, edge_index, weight), model(x, edge_index, weight))
    torch.compiler.reset()
    whole = torch.compile(model, backend="aot_eager", fullgraph=True)
    with pytest.raises(Exception, match="build a graphact.Graph once and compile with it"):
        whole(x, edge_index, weight)


def test_compile_before_the_hop_pattern_is_known(x):
    torch.compiler.reset()
    fresh = random_graph(dtype=torch.float32)
    compiled = torch.compile(nn.LocalizedMedian(hops=2), fullgraph=True, backend="aot_eager")
    with pytest.raises(Exception, match="once before torch.compile"):
        compiled(x, fresh)


@pytest.mark.parametrize("name", nn.ACTIVATIONS)
def test_export(name, graph, x):
    model = make(name)
    exported = torch.export.export(model, (x, graph))
    torch.testing.assert_close(exported.module()(x + 1, graph), model(x + 1, graph))


@pytest.mark.parametrize("name", ["grelu", "digraf"])
def test_graphs_side_by_side_are_compiled_and_exported(name):
    graphs = [random_graph(n, seed=n, dtype=torch.float32) for n in (5, 7)]
    model, x, union = nn.GCNN([3, 4], activation=name), torch.randn(12, 3), Graph.union(graphs)
    alone = torch.cat([model(x[:5], graphs[0]), model(x[5:], graphs[1])])
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x, union), alone)
    torch.testing.assert_close(compiled(x, union.with_batch(None), batch=union.batch), alone)
    torch.testing.assert_close(torch.export.export(model, (x, union)).module()(x, union), alone)


@pytest.mark.parametrize("name", MODELS)
def test_vmap_over_parameters_and_signals(name, graph, x):
    models, graph, x = [copy.deepcopy(make(name).double()) for _ in range(3)], graph.to(dtype=torch.float64), x.double()
    graph.hop_pattern(HOPS)
    for model in models:
        model.reset_parameters()
    parameters, buffers = torch.func.stack_module_state(models)

    def run(parameters, x):
        return torch.func.functional_call(models[0], (parameters, buffers), (x, graph))

    together = torch.func.vmap(run, (0, None))(parameters, x)
    torch.testing.assert_close(together, torch.stack([model(x, graph) for model in models]))
    pairwise = torch.func.vmap(run)(parameters, x)
    torch.testing.assert_close(pairwise, torch.stack([model(x[i], graph) for i, model in enumerate(models)]))

    per_sample = torch.func.vmap(torch.func.grad(lambda p, x: run(p, x).square().sum()))(parameters, x)
    for i, model in enumerate(models):
        expected = gradients(model, lambda signal, model=model: model(signal, graph), x[i])
        torch.testing.assert_close([per_sample[key][i] for key, _ in model.named_parameters()], expected)


def test_vmap_over_the_nodes_axis_moved(graph, x):
    model = make("kernel-ga")
    moved = torch.func.vmap(lambda signal: model(signal, graph), in_dims=2, out_dims=1)(x.permute(1, 2, 0))
    torch.testing.assert_close(moved.transpose(0, 1), model(x, graph))


@pytest.mark.parametrize("name", MODELS)
def test_copies_and_state(name, graph, x):
    model = make(name)
    twin = make(name)
    twin.reset_parameters()
    twin.load_state_dict(model.state_dict())
    for other in (twin, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(other(x, graph), model(x, graph))
