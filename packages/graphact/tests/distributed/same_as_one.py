"""Every module on parts of a graph, compared with the same module on the whole graph. Runs in each of P processes."""

import traceback
from contextlib import contextmanager

import numpy as np
import torch
import torch.distributed as dist

import graphact
from graphact.distributed import PartitionedGraph, step_cost
from graphact.nn import FIR, GCNN, GraphAdaptive, GraphFilter, make_activation
from support.activations import ON_AGENTS
from support.graphs import random_matrix
from support.tolerances import TOLERANCE

NAMES = (*ON_AGENTS, "shiftless-max", "shiftless-median")
ALSO_IN_SINGLE_PRECISION = (
    "directed with loops, scattered",
    "islands, empty halos",
    "all nodes on the last process",
)


def graphs(parts):
    """Graphs of every kind, each with the process of every node."""
    rng = np.random.default_rng(3)
    directed = rng.uniform(-1, 1, (23, 23)) * (rng.random((23, 23)) < 0.2)
    symmetric = np.triu(rng.random((19, 19)) * (rng.random((19, 19)) < 0.3))
    symmetric = symmetric + symmetric.T
    islands = np.kron(np.eye(4), rng.uniform(0.1, 1, (5, 5)) * (rng.random((5, 5)) < 0.7))
    one_way = np.where(np.arange(16)[None, :] < 4, rng.random((16, 16)) < 0.5, False) * 0.7
    random = random_matrix(np.random.default_rng(11), 7)
    scattered = np.random.default_rng(parts).integers(0, parts, 23)
    return {
        "directed with loops, scattered": (directed, scattered),
        "symmetric, METIS": (symmetric, "metis"),
        "islands, empty halos": (islands, np.repeat(np.arange(4) % parts, 5)),
        "islands, blocks": (islands, "blocks"),
        "only the first part is heard": (one_way, np.minimum(np.arange(16) // 4, parts - 1)),
        "all nodes on the last process": (directed, np.full(23, parts - 1)),
        "fewer nodes than processes": (np.array([[0.0, 0.5], [0.8, 0.0]]), "blocks"),
        "no edge": (np.zeros((6, 6)), "blocks"),
        "random": (random, np.arange(7) % parts),
    }


def modules(features):
    """All activations that need no mean over all nodes, near and far, open and closed; an own function; filters."""
    for name in NAMES:
        for hops, closed in ((1, False), (3, False), (2, True)):
            options = {"hops": hops, "features": features, "closed": closed, "gamma": 0.7, "start": "uniform"}
            yield f"{name} {hops} {closed}", make_activation(name, **options)
    yield "own function", GraphAdaptive(lambda own, neighbors: (own * neighbors).mean(-2), hops=2, start="uniform")
    yield "filter that widens", GraphFilter(features, 5, order=2, bias=True)
    yield "filter that narrows", GraphFilter(features, 2, order=3)
    yield "FIR", FIR([features, 4, 2], order=2)


def networks(features):
    """Two layers, the first wider and the second narrower than its input, with each activation."""
    for name in NAMES:
        options = {"activation": name, "hops": 2, "gamma": 0.7, "learn_gamma": True, "start": "uniform"}
        yield f"GCNN {name}", GCNN([features, 4, 2], order=[2, 1], **options)
    options = {"bank": "adaptive", "ops": ["max", "median", "std", ("kernel", {"gamma": 0.7})], "bias": True}
    yield "GCNN adaptive", GCNN([features, 4, 4], order=[2, 1], residual=True, **options)
    unshifted = {"name": "max-ga", "unshifted": True}
    yield "GCNN unshifted", GCNN([features, 4, 2], order=[2, 1], activation=unshifted, hops=2, start="uniform")


def compare(model, whole, part, x):
    """Forward pass, gradients of the input and of every parameter, and what was exchanged for them."""
    expected, input_gradient, gradients, scale = reference(model, whole, x)
    cost = step_cost(model, part, x.size(-1), samples=x[..., 0, 0].numel(), dtype=x.dtype, input_gradient=True)
    part.traffic.reset()
    held = x[..., part.nodes, :].requires_grad_()
    model.zero_grad()
    with counted() as seen:
        out = model(held, part)
        (out * scale[..., part.nodes, :]).sum().backward()
    near(out, expected[..., part.nodes, :])
    near(held.grad, input_gradient[..., part.nodes, :])
    total = flat(parameter.grad for parameter in model.parameters())
    dist.all_reduce(total)
    near(total, gradients)
    traffic = part.traffic
    assert (traffic.exchanges, traffic.sent, traffic.received) == (cost.exchanges, cost.sent, cost.received)
    assert seen == [cost.exchanges, cost.sent, cost.received], f"{seen} went over the network, expected {cost}"


def reference(model, whole, x):
    """Compute outputs and gradients on the whole graph, in this process alone."""
    x = x.clone().requires_grad_()
    out = model(x, whole)
    scale = torch.randn(out.shape, dtype=x.dtype, generator=torch.Generator().manual_seed(5))
    model.zero_grad()
    (out * scale).sum().backward()
    return out, x.grad, flat(parameter.grad for parameter in model.parameters()), scale


def flat(gradients):
    return torch.cat([torch.empty(0), *(gradient.flatten() for gradient in gradients)])


@contextmanager
def counted():
    """Exchanges and bytes as they are handed to torch.distributed, whatever the package counts itself."""
    seen, original = [0, 0, 0], dist.all_to_all_single

    def count(received, sent, *arguments, **options):
        seen[0] += 1
        seen[1] += sent.nbytes
        seen[2] += received.nbytes
        return original(received, sent, *arguments, **options)

    dist.all_to_all_single = count
    try:
        yield seen
    finally:
        dist.all_to_all_single = original


def near(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=TOLERANCE[actual.dtype], atol=TOLERANCE[actual.dtype])


def signals(dtype, nodes):
    """A plain signal, and a batch with many ties, which must fall to the same node however the graph is cut."""
    torch.manual_seed(1)
    return torch.randn(nodes, 3, dtype=dtype), torch.randint(-2, 3, (2, nodes, 3)).to(dtype) / 2


def cases(parts):
    """Every network on every graph, on three of them in single precision, too; every module on the first."""
    for number, (name, (matrix, owner)) in enumerate(graphs(parts).items()):
        scaled = matrix / max(1.0, abs(matrix).sum(1).max())  # as users do, so that shifts keep the size of signals
        for dtype in (torch.float64, torch.float32)[: 2 if name in ALSO_IN_SINGLE_PRECISION else 1]:
            whole = graphact.Graph.from_dense(torch.from_numpy(scaled)).to(dtype)
            part = PartitionedGraph.from_graph(whole, owner if isinstance(owner, str) else torch.from_numpy(owner))
            plain, tied = signals(dtype, len(matrix))
            torch.manual_seed(2)
            chosen = [(title, model, plain) for title, model in networks(3)]
            if number == 0 and dtype == torch.float64:
                chosen += [(title, model, tied) for title, model in modules(3)]
            for title, model, x in chosen:
                yield f"{name}, {dtype}, {title}", model.to(dtype), whole, part, x


def run(parts):
    """Run all cases with this number of processes; the names of those that passed, tracebacks of those that failed."""
    passed, failed = [], {}
    for name, *case in cases(parts):
        try:
            compare(*case)
            passed.append(name)
        except AssertionError:
            failed[name] = traceback.format_exc()
    return {"passed": passed, "failed": failed}
