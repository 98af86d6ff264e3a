"""Graphs that share a recording would compile the same kernels; asked of Triton without a device.

Triton compiles a kernel again for an integer that is 1 (which becomes a constant of it) and for one that 16 divides. A
recording made on one graph holds the kernels compiled for that one.
"""

from itertools import combinations

import pytest
import torch

import graphact

pytest.importorskip("triton")


@pytest.fixture
def launched(monkeypatch):
    """Return the launches: kernel and Triton's specialization of it; nothing runs."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import make_backend
    from triton.runtime.jit import create_function_from_signature

    from graphact import _triton

    backend, found = make_backend(GPUTarget("cuda", 90, 32)), []

    def note(kernel, grid, *arguments, **constants):
        bind = create_function_from_signature(kernel.signature, kernel.params, backend)
        _, specialization, _ = bind(*arguments, **constants, debug=False)
        found.append((kernel.fn.__name__, specialization, sorted((k, str(v)) for k, v in constants.items())))

    monkeypatch.setattr(_triton, "launch", note)
    return found


def plan_of(nodes, features, op, shifted):
    from graphact.kernels import triton
    from graphact.kernels.triton.plan import RecordedPlan

    generator = torch.Generator().manual_seed(nodes)
    edge_index = torch.randint(nodes, (2, 3 * nodes), generator=generator)
    graph = graphact.Graph.from_edge_index(edge_index[:, edge_index[0] != edge_index[1]], num_nodes=nodes)
    plan = RecordedPlan(graph.normalize("random_walk"), torch.randn(nodes, features), op, False, shifted)
    plan.backend = triton
    return plan


def launches_of(plan, launched, nodes, features):
    from graphact.kernels.activation_plan import ActivationPlan

    x, beta, weights = torch.randn(nodes, features), torch.ones(()), torch.ones(2 if plan.shifted else 1, features)
    gamma = 1.0 if plan.op == "kernel" else None
    launched.clear()
    _, saved = ActivationPlan.forward(plan, x, beta, weights, gamma)
    ActivationPlan.backward(plan, torch.randn_like(x), x, beta, weights, gamma, saved, True)
    return [*launched]


@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("op", ["max", "kernel"])
@pytest.mark.parametrize("features", [1, 4, 16, 33])
def test_graphs_that_share_recordings_share_compiled_kernels(features, op, shifted, launched):
    sizes = (257, 272, 301, 701, 704, 3000, 8193, 8208, 16384)  # one tile and many, 16 times an integer or not
    plans = {nodes: plan_of(nodes, features, op, shifted) for nodes in sizes}
    found = {nodes: launches_of(plan, launched, nodes, features) for nodes, plan in plans.items()}
    sharing = [(a, b) for a, b in combinations(sizes, 2) if plans[a].recordings is plans[b].recordings]
    assert (301, 701) in sharing
    assert (272, 704) in sharing
    for a, b in sharing:
        assert len(found[a]) > 3
        assert found[a] == found[b], (a, b)


def test_widths_that_change_do_not_pile_up_recordings(monkeypatch):
    from graphact.kernels.triton import plan as plans

    monkeypatch.setattr(plans, "MAX_RECORDINGS", 4)
    plan, x = plan_of(301, 4, "kernel", True), torch.randn(301, 4)
    plan.known.clear()
    for gamma in range(1, 20):
        for _ in range(2):
            plan._run(("forward", (1, 4), float(gamma)), (x,), lambda: [x.clone()])
            assert len(plan.recordings) <= len(plan.known) <= 4
    monkeypatch.setattr(plans, "MAX_SHARED_KINDS", 3)
    for features in range(1, 10):
        plan_of(301, features, "kernel", True)
        assert len(plans._shared) <= 3
