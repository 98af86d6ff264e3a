"""Activations in compiled code: one operator that takes the handle of its graph."""

import copy
import gc
import pickle

import pytest
import torch
import torch._dynamo
from torch._dynamo.utils import counters
from torch.autograd import forward_ad

from graphact import functional, nn
from graphact.graph.handles import find_object
from support.graphs import random_graph

TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-12}
KINDS = {
    "adaptive": functional.graph_adaptive,
    "unshifted": lambda *inputs, **options: functional.graph_adaptive(*inputs, unshifted=True, **options),
    "localized": functional.localized,
}


def outcome(function, graph, dtype, trained_width):
    """The result and all gradients on a signal of fixed seed."""
    generator = torch.Generator().manual_seed(3)
    shapes = (graph.num_nodes, 4), (), (2, 4)
    inputs = [torch.randn(shape, generator=generator, dtype=dtype).requires_grad_() for shape in shapes]
    width = torch.tensor(0.7, dtype=dtype, requires_grad=True) if trained_width else 0.7
    out = function(*inputs, width, graph)
    return [out, *torch.autograd.grad(out.square().sum(), [*inputs, *([width] if trained_width else [])])]


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize(
    ("op", "trained_width"), [("max", False), ("median", False), ("mean", False), ("kernel", False), ("kernel", True)]
)
@pytest.mark.parametrize("kind", KINDS)
def test_values_and_gradients_are_those_of_eager_code(kind, op, trained_width, closed, dtype):
    def activation(x, beta, weights, width, graph):
        options = {"gamma": width} if op == "kernel" else {}
        return KINDS[kind](x, graph, beta, weights, op, closed=closed, **options)

    torch.compiler.reset()
    compiled = torch.compile(activation, backend="aot_eager", fullgraph=True)
    for nodes in (12, 17):
        graph = random_graph(nodes, seed=nodes, dtype=dtype).normalize("laplacian")
        for hops in (1, 2):
            graph.hop_pattern(hops, closed=closed), graph.hop_pattern(hops, closed=closed, turned=True)
        found, right = (outcome(each, graph, dtype, trained_width) for each in (compiled, activation))
        torch.testing.assert_close(found, right, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


def test_twenty_graphs_of_other_sizes_take_three_compilations_at_most():
    torch.compiler.reset()
    counters.clear()
    model = nn.GCNN([1, 3, 3], order=2, activation="max-ga", hops=2)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    for nodes in range(8, 28):
        graph, x = random_graph(nodes, seed=nodes, dtype=torch.float32), torch.randn(nodes, 1)
        torch.testing.assert_close(compiled(x, graph), model(x, graph))
    assert counters["stats"]["unique_graphs"] <= 3


class OnOwnGraph(torch.nn.Module):
    """A model that keeps its graph, whose attributes compiled code must not take for constants."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x, self.graph)


@pytest.mark.parametrize("make", [nn.GraphAdaptiveMedian, lambda: nn.AdaptiveFilterBank(3, 3, ops=("max", "std"))])
def test_graphs_kept_by_the_model_take_three_compilations_at_most(make):
    torch.compiler.reset()
    counters.clear()
    model = OnOwnGraph(make())
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    for nodes in range(8, 28):
        model.graph, x = random_graph(nodes, seed=nodes, dtype=torch.float32), torch.randn(nodes, 3)
        torch.testing.assert_close(compiled(x), model(x))
    assert counters["stats"]["unique_graphs"] <= 3


def operators_of(model, graph, x):
    """The operators of graphact in the compiled code of a model."""
    found = []

    def keep(module, _):
        found.extend(str(node.target) for node in module.graph.nodes if "graphact" in str(node.target))
        return module.forward

    torch.compiler.reset()
    torch.compile(model, backend=keep, fullgraph=True)(x, graph)
    return found


def test_an_activation_is_one_operator():
    graph, x = random_graph(dtype=torch.float32), torch.randn(12, 4)
    assert operators_of(nn.GraphAdaptiveMedian(hops=3), graph, x) == ["graphact.activation"]
    assert operators_of(nn.LocalizedMax(), graph, x) == ["graphact.activation"]
    bank = nn.AdaptiveFilterBank(4, 4, order=2, ops=("max", "std"))
    assert set(operators_of(bank, graph, x)) == {"graphact.neighborhood_functions_by_handles"}


def test_half_precision_on_the_cpu_goes_pass_by_pass():
    graph, x = random_graph(dtype=torch.bfloat16), torch.randn(12, 4, dtype=torch.bfloat16)
    assert "graphact.activation" not in operators_of(nn.GraphAdaptiveMax().to(torch.bfloat16), graph, x)


def test_an_empty_signal():
    activation, graph = nn.GraphAdaptiveMax(), random_graph(dtype=torch.float32)
    compiled = torch.compile(activation, backend="aot_eager", fullgraph=True)
    x = torch.randn(0, 12, 4, requires_grad=True)
    compiled(x, graph).sum().backward()
    assert x.grad.shape == x.shape
    assert activation.weights.grad.abs().sum() == 0


def test_each_graph_and_each_copy_has_a_handle_of_its_own():
    graph = random_graph()
    others = [copy.deepcopy(graph), pickle.loads(pickle.dumps(graph)), graph.normalize("symmetric"), graph.to("cpu")]
    everyone = [part for one in (graph, *others) for part in (one, one.incoming)]
    for one in everyone:
        assert find_object(one.key.size(0)) is one
    assert len({one.key.size(0) for one in everyone}) == len({id(one) for one in everyone})


def test_a_graph_that_is_gone_is_named():
    graph = random_graph(5)
    handle = graph.key.size(0)
    for other in [random_graph(4 + n) for n in range(10)]:  # those found last are kept
        find_object(other.key.size(0))
    del graph
    gc.collect()
    with pytest.raises(RuntimeError, match="keep the Graph"):
        find_object(handle)


def test_a_backward_pass_outlives_the_graph_of_its_call():
    activation, x = nn.GraphAdaptiveMax(start="uniform"), torch.randn(9, 3, requires_grad=True)
    compiled = torch.compile(activation, backend="aot_eager", fullgraph=True)
    expected = torch.autograd.grad(activation(x, random_graph(9, dtype=torch.float32)).sum(), x)
    graph = random_graph(9, dtype=torch.float32)
    out = compiled(x, graph).sum()
    del graph
    gc.collect()
    torch.testing.assert_close(torch.autograd.grad(out, x), expected)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # torch looks at it as it traces on
def test_forward_mode_in_compiled_code_runs_eagerly_or_raises():
    graph, x = random_graph(dtype=torch.float64), torch.randn(12, 4, dtype=torch.float64)
    activation = nn.GraphAdaptiveMax(hops=2, start="uniform").double()

    def tangent():
        return torch.func.jvp(lambda x: activation(x, graph), (x,), (torch.ones_like(x),))[1]

    torch.compiler.reset()
    torch.testing.assert_close(torch.compile(tangent)(), tangent())
    torch.compiler.reset()
    with pytest.raises(Exception, match="compile the function that it differentiates"):
        torch.compile(tangent, fullgraph=True)()


@pytest.mark.parametrize("model", [nn.GraphAdaptiveMax(hops=2, start="uniform"), nn.AdaptiveFilterBank(4, 4)])
def test_dual_numbers_in_compiled_code_keep_their_tangents(model):
    graph, x = random_graph(dtype=torch.float64), torch.randn(12, 4, dtype=torch.float64)
    model = model.double().requires_grad_(False)
    torch.compiler.reset()
    compiled = torch.compile(lambda x: 2 * model(x, graph), backend="aot_eager")
    expected = 2 * torch.func.jvp(lambda x: model(x, graph), (x,), (torch.ones_like(x),))[1]
    torch.testing.assert_close(compiled(x), 2 * model(x, graph))
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones_like(x))
        torch.testing.assert_close(forward_ad.unpack_dual(compiled(dual)).tangent, expected)


def test_second_derivatives_of_compiled_code_are_refused():
    graph, x = random_graph(dtype=torch.float64), torch.randn(12, 4, dtype=torch.float64, requires_grad=True)
    torch.compiler.reset()
    compiled = torch.compile(nn.GraphAdaptiveKernel(start="uniform").double(), backend="eager")
    (grad,) = torch.autograd.grad(compiled(x, graph).square().sum(), x, create_graph=True)
    for energy in (grad.square().sum(), (grad * x).sum()):  # x also counts beside the activation
        with pytest.raises(NotImplementedError, match="no second derivatives"):
            torch.autograd.grad(energy, x, retain_graph=True)
