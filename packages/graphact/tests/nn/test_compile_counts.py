"""Graph breaks and recompilations of torch.compile: building a graph is one break, and a batch may have any size."""

import pytest
import torch
import torch._dynamo
from torch._dynamo.utils import counters

from graphact import Graph, nn
from support.activations import ADAPTIVE
from support.graphs import random_graph

GRAPH = random_graph(dtype=torch.float32)
DENSE, (EDGE_INDEX, WEIGHT) = GRAPH.to_dense(), GRAPH.to_edge_index()
POINTS = torch.rand(12, 2, generator=torch.Generator().manual_seed(0))
BUILDERS = {
    "edge_index": lambda: Graph.from_edge_index(EDGE_INDEX, WEIGHT, 12),
    "normalized": lambda: Graph.from_edge_index(EDGE_INDEX, WEIGHT, 12).normalize("symmetric"),
    "spectral": lambda: GRAPH.normalize("spectral"),
    "dense": lambda: Graph.from_dense(DENSE),
    "sparse": lambda: Graph.from_sparse(DENSE.to_sparse()),
    "neighbors": lambda: Graph.nearest_neighbors(POINTS, 3),
    "permuted": lambda: GRAPH.permute(torch.arange(11, -1, -1)),
    "union": lambda: Graph.union([Graph.from_dense(DENSE)]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BUILDERS)
def test_building_a_graph_is_one_break(name):
    torch.compiler.reset()
    model, build, x = nn.GCNN([1, 3, 3], order=2, activation="max-ga", hops=2), BUILDERS[name], torch.randn(3, 12, 1)

    def run(x):
        return model(2 * x, build()) + 1

    found = torch._dynamo.explain(run)(x)
    assert len({each.reason for each in found.break_reasons}) == 1  # each function on the way names it again
    assert found.graph_count <= 4  # what comes before, what comes after, and the rest of each function on the way
    compiled = torch.compile(run, backend="aot_eager")
    torch.testing.assert_close(compiled(x), run(x))


@pytest.mark.slow
@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("name", [*nn.ACTIVATIONS, *ADAPTIVE, "edge net"])
def test_batches_of_any_size_share_one_compilation(name, trained):
    """Without a break, and with the outputs and gradients of eager code."""
    torch.compiler.reset()
    counters.clear()
    graph = GRAPH.normalize("laplacian").to(torch.float64)
    graph.hop_pattern(2)
    widths = [1, 3, 3] if name in ("max-ga", "residual") else [1, 3]  # a second layer is compiled like the first
    options = {"hops": 2, "out_features": 2, "learn_gamma": True, "gamma": 0.7}
    options |= ADAPTIVE.get(name, {"activation": name})
    # compiled and eager code round differently, which float32 shows where gradients cancel
    model = nn.EdgeNet(1, 3, graph, order=2) if name == "edge net" else nn.GCNN(widths, order=2, **options)
    model = model.double()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    for size in range(3, 11):
        x = torch.randn(size, 12, 1, dtype=torch.float64)
        with torch.set_grad_enabled(trained):
            out, expected = compiled(x, graph), model(x, graph)
        torch.testing.assert_close(out, expected)
        if trained:
            found, right = (torch.autograd.grad(y.square().sum(), model.parameters()) for y in (out, expected))
            torch.testing.assert_close(found, right)
    assert counters["stats"]["unique_graphs"] <= 2  # the first size, then all others
