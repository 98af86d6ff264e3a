"""The grouped layout holds exactly the lists of the CSR layout."""

from contextlib import nullcontext

import pytest
import torch

import graphact
from graphact import Graph
from support.graphs import random_case


@pytest.mark.parametrize("seed", range(40))
def test_groups_cover_every_list_once(seed):
    lists = random_case(seed, max_nodes=12).graph.incoming
    rows = [part.tolist() for part in lists.col.tensor_split(lists.rowptr[1:-1])]
    grouped = {}
    for nodes, table in lists.tables():
        for node, members in zip(nodes.tolist(), table.tolist(), strict=True):
            assert node not in grouped
            grouped[node] = members
    assert [grouped[node] for node in range(lists.num_nodes)] == rows
    assert all(row == sorted(set(row)) for row in rows)
    assert torch.equal(lists.order[lists.rank], torch.arange(lists.num_nodes))
    assert lists.rows.tolist() == [node for node, row in enumerate(rows) for _ in row]


@pytest.mark.parametrize("backend", [None, "reference"])
@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("op", ["median", "kernel", "mean", lambda neighbors: neighbors.square().sum(-2)])
def test_lists_found_in_inference_mode_serve_training(op, closed, backend):
    """They are kept, and a validation may come before the first epoch."""
    torch.manual_seed(0)
    graph = Graph.from_edge_index(torch.randint(9, (2, 25)), num_nodes=9)
    x, weights = torch.randn(2, 9, 3), torch.rand(2, 3)
    with graphact.backend(backend) if backend else nullcontext():
        with torch.inference_mode():
            expected = graphact.functional.localized(x, graph, 1.0, weights, op, closed=closed)
        x.requires_grad_()
        out = graphact.functional.localized(x, graph, 1.0, weights, op, closed=closed)
        torch.testing.assert_close(out.detach(), expected.clone())
        (grad,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
        grad.square().sum().backward()
    assert not any(part.is_inference() for part in (graph.hop_pattern(2).col, graph.hop_pattern(2).order))
