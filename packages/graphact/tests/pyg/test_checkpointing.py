"""Gradients with torch.utils.checkpoint inside and around PassGraph, against the same model without it."""

import copy
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from graphact import nn
from graphact.pyg import PassGraph, PerLayer, bind_graph
from support.graphs import random_graph

KINDS = pytest.mark.parametrize("is_reentrant", [True, False], ids=["reentrant", "not reentrant"])
GRAPHS = [random_graph(num_nodes=12, seed=seed).normalize("symmetric") for seed in range(3)]


class Model(torch.nn.Module):
    """Three layers, each of which may be computed again in the backward pass; ``act`` may count its uses."""

    def __init__(self, act, wrap=None, parts=3):
        super().__init__()
        self.maps = torch.nn.ModuleList([torch.nn.Linear(4, 4) for _ in range(parts)])
        self.act, self.wrap = act, wrap

    def forward(self, x, edge_index):
        for layer in self.maps:
            x = x + 0.5 * self.act(x)
            block = Block(layer, self.act)
            x = block(x) if self.wrap is None else self.wrap(block, x)
        return x


class Block:
    """Two uses of an activation and a map between them."""

    def __init__(self, layer, act):
        self.layer, self.act = layer, act

    def __call__(self, x):
        return torch.tanh(self.act(self.layer(self.act(x))))


def bound(is_reentrant):
    def wrap(block, x):
        return checkpoint(bind_graph(block), x, use_reentrant=is_reentrant)

    return wrap


def plain(is_reentrant):
    return lambda block, x: checkpoint(block, x, use_reentrant=is_reentrant)


def one_activation():
    return nn.GraphAdaptiveMax(hops=2, start="uniform")


def per_layer():
    """As many copies as uses, all with coefficients of their own."""
    act = PerLayer(nn.GraphAdaptiveMax(hops=2), layers=9)
    for number, part in enumerate(act):
        torch.nn.init.normal_(part.weights, generator=torch.Generator().manual_seed(number))
    return act


ACTIVATIONS = pytest.mark.parametrize("make", [one_activation, per_layer], ids=["one", "per layer"])


def pair(make, wrap):
    """A model with checkpoints, the same without, and an input, all in double precision."""
    torch.manual_seed(1)
    model = Model(make(), wrap).double()
    expected = copy.deepcopy(model)
    expected.wrap = None
    return PassGraph(model), PassGraph(expected), torch.randn(12, 4, dtype=torch.float64)


def gradients(model, x):
    return {"x": x.grad, **{name: parameter.grad for name, parameter in model.named_parameters()}}


def expected_gradients(model, x, graph):
    x = x.clone().requires_grad_()
    model.zero_grad()
    model(x, None, graph=graph).square().sum().backward()
    return gradients(model, x)


def assert_equal(found, expected):
    assert all(gradient is not None for gradient in expected.values())
    assert max(gradient.abs().max() for gradient in expected.values()) > 0.01
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=0, atol=1e-12, msg=name)


class Outer(torch.nn.Module):
    """A model that makes something else during its own call, and answers its input."""

    def __init__(self, act, meanwhile):
        super().__init__()
        self.act, self.meanwhile = act, meanwhile

    def forward(self, x, edge_index):
        self.meanwhile()
        return self.act(x)


def call(model, x, graph=GRAPHS[0]):
    return model(x, None, graph=graph)


def loss(model, x):
    return call(model, x).square().sum()


def in_another_thread(model, x):
    with ThreadPoolExecutor(1) as pool:
        pool.submit(loss(model, x).backward).result()


def inside_another_call(model, x):
    outer = PassGraph(Outer(nn.GraphAdaptiveMax(start="uniform").double(), lambda: loss(model, x).backward()))
    out = call(outer, x.detach(), GRAPHS[1])
    assert torch.equal(out, outer.model.act(x.detach(), GRAPHS[1]))


def inside_a_checkpoint(is_reentrant):
    def run(model, x):
        checkpoint(partial(call, model), x, use_reentrant=is_reentrant).square().sum().backward()

    return run


def backward(model, x):
    loss(model, x).backward()


def unwrapped(is_reentrant):
    return None


def bound_twice(outer):
    """A bound part inside a bound part."""

    def bound_inside(is_reentrant):
        def wrap(block, x):
            def last(x):
                return torch.tanh(block.act(block.layer(x)))

            def whole(x):
                return last(checkpoint(bind_graph(block.act), x, use_reentrant=is_reentrant))

            return checkpoint(bind_graph(whole), x, use_reentrant=outer)

        return wrap

    return bound_inside


USES = {
    "in a call": (bound, backward),
    "in another thread": (bound, in_another_thread),
    "inside another call": (bound, inside_another_call),
    "in a reentrant checkpoint": (bound, inside_a_checkpoint(True)),
    "in a checkpoint": (bound, inside_a_checkpoint(False)),
    "without parts, in a reentrant checkpoint": (unwrapped, inside_a_checkpoint(True)),
    "without parts, in a checkpoint": (unwrapped, inside_a_checkpoint(False)),
    "bound twice, reentrant": (bound_twice(True), backward),
    "bound twice": (bound_twice(False), backward),
}


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")  # the outer one runs without gradients
@pytest.mark.parametrize("use", USES)
@KINDS
@ACTIVATIONS
def test_gradients_are_those_without_checkpoints(make, is_reentrant, use):
    wrap, run = USES[use]
    model, expected, x = pair(make, wrap(is_reentrant))
    given = x.clone().requires_grad_()
    run(model, given)
    assert_equal(gradients(model, given), expected_gradients(expected, x, GRAPHS[0]))


@KINDS
@ACTIVATIONS
def test_several_calls_before_one_backward_pass(make, is_reentrant):
    model, expected, x = pair(make, bound(is_reentrant))
    given, other = (x.clone().requires_grad_() for _ in range(2))
    for one, inputs in ((model, given), (expected, other)):
        sum(call(one, inputs, graph).square().sum() for graph in GRAPHS).backward()
    assert torch.equal(call(model, x), call(expected, x))
    assert_equal(gradients(model, given), gradients(expected, other))


@KINDS
@ACTIVATIONS
def test_a_backward_pass_before_the_call_is_over(make, is_reentrant):
    """A model that computes gradients in its own forward pass, behind which it uses its activation again."""

    class WithGradient(Model):
        def forward(self, x, edge_index):
            with torch.enable_grad():
                super().forward(x, edge_index).square().sum().backward()
            return self.act(x)

    act = make() if make is one_activation else PerLayer(nn.GraphAdaptiveMax(hops=2, start="uniform"), layers=10)
    models = [WithGradient(copy.deepcopy(act), wrap).double() for wrap in (bound(is_reentrant), None)]
    models[1].load_state_dict(models[0].state_dict())
    x = torch.randn(12, 4, dtype=torch.float64)
    found = []
    for model in models:
        given = x.clone().requires_grad_()
        out = PassGraph(model)(given, None, graph=GRAPHS[2])
        found.append((out.detach(), {"x": given.grad, **{n: p.grad for n, p in model.maps.named_parameters()}}))
    assert torch.equal(found[0][0], found[1][0])
    assert_equal(found[0][1], found[1][1])


def test_graphs_with_trained_weights():
    """The graph is built once: gradients of its weights go through the call and the recomputation."""
    edge_index = torch.tensor([[0, 1, 2, 3, 1], [1, 2, 3, 0, 3]])
    found = []
    for wrap in (bound(False), None):
        torch.manual_seed(0)
        model, weight = PassGraph(Model(one_activation(), wrap)).double(), torch.rand(5, dtype=torch.float64)
        model.model.forward = lambda x, edge_index, weight, inner=model.model: type(inner).forward(inner, x, edge_index)
        x = torch.randn(4, 4, dtype=torch.float64)
        model(x, edge_index, weight.requires_grad_()).square().sum().backward()
        found.append({"weight": weight.grad})
    assert_equal(*found)


@pytest.mark.parametrize("name", nn.ACTIVATIONS)
@pytest.mark.parametrize("is_trained", [False, True], ids=["fixed weights", "trained weights"])
def test_every_activation_unpacks_what_it_saved_once(name, is_trained):
    """A non-reentrant checkpoint refuses to give a tensor twice; here also for second derivatives."""
    edge_index = torch.tensor([[0, 1, 2, 3, 1, 2], [1, 2, 3, 0, 3, 0]])
    torch.manual_seed(0)
    act = nn.make_activation(name, features=3).double()
    x, weight = torch.randn(4, 3, dtype=torch.float64), torch.rand(6, dtype=torch.float64)
    found = []
    for is_checkpointed in (True, False):
        given, weights = x.clone().requires_grad_(), weight.clone().requires_grad_(is_trained)
        graph = PassGraph(act).graph_of(given, edge_index, weights)
        act.zero_grad()
        out = checkpoint(act, given, graph, use_reentrant=False) if is_checkpointed else act(given, graph)
        wanted = [given, *act.parameters(), *([weights] if is_trained else [])]
        first = torch.autograd.grad(out.square().sum(), wanted, create_graph=True, allow_unused=True)
        total = sum(gradient.square().sum() for gradient in first if gradient is not None)
        second = torch.autograd.grad(total, wanted, allow_unused=True, materialize_grads=True)
        found.append([gradient for gradient in (*first, *second) if gradient is not None])
    assert found[1]
    torch.testing.assert_close(*found, rtol=0, atol=1e-12)


@KINDS
@ACTIVATIONS
def test_an_unbound_part_never_takes_the_graph_of_another_call(make, is_reentrant):
    raised = []

    def bound_late(block, x):
        """Bound when it runs, which is too late in a recomputation."""
        return checkpoint(lambda x: bind_graph(block)(x), x, use_reentrant=is_reentrant)

    for wrap in (plain(is_reentrant), bound_late):
        model, _, x = pair(make, wrap)

        def meanwhile(model=model, x=x):
            value = loss(model, x.clone().requires_grad_())
            with pytest.raises(
                TypeError, match=r"checkpoint\(graphact\.pyg\.bind_graph\(function\), \.\.\.\)"
            ) as caught:
                value.backward()
            assert "\n" not in str(caught.value)
            raised.append(True)

        outer = PassGraph(Outer(nn.GraphAdaptiveMax(start="uniform").double(), meanwhile))
        assert torch.equal(outer(x, None, graph=GRAPHS[1]), outer.model.act(x, GRAPHS[1]))
    assert raised == [True, True]


def test_bound_functions_keep_the_call_and_refuse_another():
    kept, act = [], one_activation().double()
    x = torch.randn(12, 4, dtype=torch.float64)

    class Keeping(torch.nn.Module):
        def forward(self, x, edge_index):
            kept.append(bind_graph(act))
            return kept[0](x)

    model = PassGraph(Keeping())
    first = model(x, None, graph=GRAPHS[0])
    assert torch.equal(first, act(x, GRAPHS[0]))
    assert torch.equal(kept[0](x), first)  # also when the call is over
    with pytest.raises(RuntimeError, match="function must be bound in the call that runs it"):
        model(x, None, graph=GRAPHS[1])
    assert bind_graph(act) is act  # outside of a call
    with pytest.raises(TypeError, match="function must be callable, got Tensor"):
        bind_graph(x)


def test_a_bound_function_that_counts_layers_runs_once_in_its_call():
    class Twice(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.act = PerLayer(nn.GraphAdaptiveMax(), layers=3)

        def forward(self, x, edge_index):
            again = bind_graph(self.act)
            return again(again(x))

    with pytest.raises(RuntimeError, match="function must be bound again for every use"):
        PassGraph(Twice())(torch.randn(12, 4), None, graph=GRAPHS[0].to(dtype=torch.float32))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("make", "is_full"),
    # torch.compile allows no counting inside a checkpoint, as PerLayer does, without a graph break
    [(one_activation, True), (one_activation, False), (per_layer, False)],
)
@KINDS
def test_compiled_models(make, is_reentrant, is_full):
    torch.compiler.reset()
    model, expected, x = pair(make, bound(is_reentrant))
    compiled = torch.compile(model, backend="aot_eager", fullgraph=is_full)
    for graph in GRAPHS[:2]:
        model.zero_grad()
        given = x.clone().requires_grad_()
        compiled(given, None, graph=graph).square().sum().backward()
        assert_equal(gradients(model, given), expected_gradients(expected, x, graph))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
@KINDS
def test_a_compiled_activation_never_takes_the_graph_of_another_call(is_reentrant):
    torch.compiler.reset()
    model, expected, x = pair(one_activation, bound(is_reentrant))
    model.model.act.compile(backend="aot_eager")
    given = x.clone().requires_grad_()

    def bound_part():
        model(given, None, graph=GRAPHS[0]).square().sum().backward()

    def unbound_part():
        model.model.wrap = plain(is_reentrant)
        loss = model(x.clone().requires_grad_(), None, graph=GRAPHS[0]).square().sum()
        with pytest.raises(TypeError, match="bind_graph"):
            loss.backward()

    act = one_activation().double()
    PassGraph(Outer(act, bound_part))(x, None, graph=GRAPHS[1])
    assert_equal(gradients(model, given), expected_gradients(expected, x, GRAPHS[0]))
    PassGraph(Outer(act, unbound_part))(x, None, graph=GRAPHS[1])
