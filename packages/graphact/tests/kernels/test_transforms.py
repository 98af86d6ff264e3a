"""Derivatives of any order by `torch.func`, with respect to signals and edge weights, against autograd's own."""

from dataclasses import replace

import pytest
import torch
from torch.autograd import forward_ad
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vmap

import graphact
from graphact import Graph, functional, nn
from graphact.kernels import autograd

NODES = 6
# two-way and one-way edges, a self-loop, and a node that hears nobody and that nobody hears
EDGES = torch.tensor([[0, 1, 2, 3, 4, 0, 2, 1], [1, 0, 3, 2, 1, 3, 1, 1]])
KINDS = (None, "symmetric", "gcn", "random_walk", "laplacian")
OPS = ("shift", "max", "median", "kernel")
HESSIANS = {
    "hessian": hessian,
    "jacfwd of jacfwd": lambda f: jacfwd(jacfwd(f)),
    "jacrev of jacfwd": lambda f: jacrev(jacfwd(f)),
    "jacrev of jacrev": lambda f: jacrev(jacrev(f)),
}
each_hessian = pytest.mark.parametrize("of", HESSIANS.values(), ids=HESSIANS)
each_op = pytest.mark.parametrize("op", OPS)
each_kind = pytest.mark.parametrize("kind", KINDS)


def weights():
    return torch.rand(EDGES.size(1), dtype=torch.float64) + 0.3


def signal(*shape):
    return torch.randn(*shape, NODES, 2, dtype=torch.float64)


def graph_of(weight, kind=None):
    graph = Graph.from_edge_index(EDGES, weight, NODES)
    return graph if kind is None else graph.normalize(kind)


def energy(x, graph, op):
    """A number that depends on signal and weights in a nonlinear way."""
    if op == "shift":
        return functional.shift(functional.shift(x, graph), graph).pow(3).sum()
    h = torch.tensor([0.7, -0.4], dtype=torch.float64)
    return functional.graph_adaptive(x, graph, 1.0, h, op, gamma=1.5).pow(3).sum()


@each_hessian
@each_op
def test_second_derivatives_by_a_signal(op, of):
    graph, x = graph_of(weights()), signal()

    def grad_x(x):
        return energy(x, graph, op)

    torch.testing.assert_close(of(grad_x)(x), torch.autograd.functional.hessian(grad_x, x))


@pytest.mark.parametrize(("op", "kind"), [*((op, None) for op in OPS), *(("shift", kind) for kind in KINDS[1:])])
@each_hessian
def test_second_derivatives_by_edge_weights(op, of, kind):
    x, weight = signal(), weights()

    def grad_weight(weight):
        return energy(x, graph_of(weight, kind), op)

    torch.testing.assert_close(of(grad_weight)(weight), torch.autograd.functional.hessian(grad_weight, weight))


@pytest.mark.parametrize("outer", [jacfwd, jacrev])
@each_hessian
def test_third_derivatives(of, outer):
    x, weight = signal(), weights()

    def grad_weight(weight):
        graph = graph_of(weight)
        return functional.neighborhood_kernel(functional.shift(functional.shift(x, graph), graph), graph, 2.0).sum()

    def second(weight):
        return torch.autograd.functional.hessian(grad_weight, weight, create_graph=True)

    torch.testing.assert_close(outer(of(grad_weight))(weight), torch.autograd.functional.jacobian(second, weight))


@pytest.mark.parametrize("built_inside", [False, True])
@pytest.mark.parametrize("kind", [None, "symmetric"])
@pytest.mark.parametrize("hops", [1, 2])
@pytest.mark.parametrize("op", ["max", "min", "median", "kernel", "mixture"])
def test_weights_that_only_an_outer_transform_tracks(op, hops, kind, built_inside):
    """Inside an inner `torch.func.grad` such weights do not require a gradient by their own account."""
    x, weight = signal(), weights()
    module = nn.GraphAdaptiveMixture(features=2, hops=hops, start="uniform").double()
    h = torch.linspace(0.5, 1.0, hops, dtype=torch.float64)

    def activation(x, graph):
        return module(x, graph) if op == "mixture" else functional.graph_adaptive(x, graph, 1.0, h, op, gamma=1.5)

    def by_transform(weight):
        graph = None if built_inside else graph_of(weight, kind)
        return grad(lambda x: activation(x, graph or graph_of(weight, kind)).pow(3).sum())(x).square().sum()

    def by_autograd(weight):
        given = x.clone().requires_grad_()
        out = activation(given, graph_of(weight, kind)).pow(3).sum()
        return torch.autograd.grad(out, given, create_graph=True)[0].square().sum()

    expected = torch.autograd.functional.jacobian(by_autograd, weight)
    assert expected.abs().max() > 0
    torch.testing.assert_close(grad(by_transform)(weight), expected)
    torch.testing.assert_close(torch.autograd.functional.jacobian(by_transform, weight), expected)


@each_kind
@each_op
def test_batches_of_edge_weights(op, kind):
    x, batch = signal(), torch.stack([weights(), weights().flip(0)])

    def grad_weight(weight):
        return energy(x, graph_of(weight, kind), op)

    torch.testing.assert_close(vmap(grad_weight)(batch), torch.stack([grad_weight(weight) for weight in batch]))
    torch.testing.assert_close(
        vmap(grad(grad_weight))(batch), torch.stack([grad(grad_weight)(weight) for weight in batch])
    )


def test_batches_of_weights_of_edges_that_repeat_and_go_both_ways():
    edge_index, x = torch.tensor([[0, 1, 0, 2], [1, 0, 1, 2]]), torch.randn(3, 1, dtype=torch.float64)
    batch = torch.rand(5, 4, dtype=torch.float64)

    def grad_weight(weight):
        return functional.shift(x, Graph.from_edge_index(edge_index, weight, 3))

    torch.testing.assert_close(vmap(grad_weight)(batch), torch.stack([grad_weight(weight) for weight in batch]))


def test_vmap_over_the_edges_themselves_is_refused():
    lists, x = graph_of(weights()).incoming, signal()

    def run(col):
        other = replace(lists, col=col)
        return autograd.sum_sq_diff(x, other, other)

    with pytest.raises(NotImplementedError, match="join them with Graph.union"):
        vmap(run)(torch.stack([lists.col, lists.col]))


def test_an_edge_net_whose_graph_is_built_inside():
    weight, x = weights(), signal(3)
    net = nn.EdgeNet(2, 3, graph_of(weight), order=2).double()
    values = {name: p.detach() for name, p in net.named_parameters()}

    def loss(values, x):
        return functional_call(net, values, (x, EDGES, weight)).square().sum()

    graph = graph_of(weight)
    alone = [grad(lambda v, x=x: functional_call(net, v, (x, graph)).square().sum())(values) for x in x]
    together = vmap(grad(loss), (None, 0))(values, x)
    for name in values:
        torch.testing.assert_close(together[name], torch.stack([each[name] for each in alone]))
    grad_x = torch.autograd.functional.hessian(lambda x: net(x, graph).square().sum(), x[0])
    torch.testing.assert_close(hessian(lambda x: loss(values, x))(x[0]), grad_x)


@pytest.mark.parametrize("backend", ["auto", "reference"])
@pytest.mark.parametrize("hops", [1, 2, 3])
@pytest.mark.parametrize("op", ["max", "kernel"])
def test_backward_of_a_tangent(op, hops, backend):
    """Torch fills in gradients of zeros that have no memory."""
    graph, x, h = graph_of(weights()), signal().requires_grad_(), torch.ones(hops, dtype=torch.float64)

    def run(x):
        return functional.graph_adaptive(x, graph, 1.0, h, op, gamma=1.5)

    direction = signal()
    expected = torch.autograd.functional.hvp(lambda x: run(x).sum(), x, direction)[1]
    with graphact.backend(backend), forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(run(forward_ad.make_dual(x, direction))).tangent
        (found,) = torch.autograd.grad(tangent.sum(), x)
    torch.testing.assert_close(forward_ad.unpack_dual(found.clone()).primal, expected)


def test_a_signal_of_zeros_without_memory():
    graph, zeros = graph_of(weights()), torch._efficientzerotensor((NODES, 2), dtype=torch.float64)
    assert functional.shift(zeros, graph).eq(0).all()
    assert functional.graph_adaptive(zeros, graph, 1.0, torch.ones(1).double(), "max").eq(0).all()
    assert functional.graph_adaptive(zeros, graph, 1.0, torch.ones(3).double(), "max").eq(0).all()


@each_op
def test_a_self_loop_of_weight_zero_has_its_derivative(op):
    x, weight = signal(), weights()
    weight[-1] = 0  # of the loop
    direction = torch.zeros_like(weight)
    direction[-1] = 1

    def grad_weight(weight):
        return energy(x, graph_of(weight), op)

    expected = torch.autograd.functional.jacobian(grad_weight, weight)[-1]
    step = 1e-6 * direction
    torch.testing.assert_close(expected, (grad_weight(weight + step) - grad_weight(weight - step)) / 2e-6)
    assert expected.abs() > 0
    torch.testing.assert_close(jvp(grad_weight, (weight,), (direction,))[1], expected)
    torch.testing.assert_close(jacfwd(grad_weight)(weight)[-1], expected)
    with forward_ad.dual_level():
        dual = grad_weight(forward_ad.make_dual(weight, direction))
        torch.testing.assert_close(forward_ad.unpack_dual(dual).tangent, expected)


def test_a_dense_operator_has_the_tangent_of_a_loop_of_weight_zero():
    weight = weights()
    weight[-1] = 0
    tangent = jvp(lambda weight: graph_of(weight).to_dense(), (weight,), (torch.ones_like(weight),))[1]
    assert torch.equal(tangent, (graph_of(torch.ones_like(weight)).to_dense() != 0).double())


class TestKernelTangents:
    """Samples and features do not affect each other."""

    def graph(self):
        return Graph.stochastic_block_model([10, 10], 0.4, 0.2, generator=torch.Generator().manual_seed(0))

    def second(self, x):
        """A gradient of a gradient."""
        graph, x = self.graph().to(x.dtype), x.clone().requires_grad_()
        (first,) = torch.autograd.grad(functional.neighborhood_kernel(x, graph, 2.0).sum(), x, create_graph=True)
        return torch.autograd.grad(first.square().sum(), x)[0]

    def tangent(self, x):
        return jvp(lambda x: functional.neighborhood_kernel(x, self.graph(), 2.0), (x,), (x.sin(),))[1]

    @pytest.mark.parametrize("other", [0.0, 1e3, 1e6, float("inf"), float("nan")])
    @pytest.mark.parametrize("dim", [0, 2])
    @pytest.mark.parametrize("way", ["second", "tangent"])
    def test_alone_and_beside_another(self, way, dim, other):
        x = torch.randn(1, 20, 1)
        beside = torch.randn(1, 20, 1)
        beside[0, 3] = other
        alone, together = (getattr(self, way)(each) for each in (x, torch.cat([x, beside * 10], dim)))
        torch.testing.assert_close(together.narrow(dim, 0, 1), alone, rtol=1e-6, atol=0)

    def test_small_differences_beside_large_ones_keep_their_digits(self):
        """The product of differences that are a million times apart, at nodes that differ from all others."""
        graph = Graph.from_edge_index([[0, 1, 2, 3], [1, 0, 3, 2]])
        x, t = torch.tensor([[0.0], [1e-6], [0.0], [1.0]]), torch.tensor([[0.0], [1.0], [0.0], [1e-6]])
        tangent = jvp(lambda x: functional.neighborhood_kernel(x, graph, 1.0).log(), (x,), (t,))[1]
        torch.testing.assert_close(tangent.squeeze(), torch.full((4,), -1e-6), rtol=1e-5, atol=0)
