"""The verdict on equivariance, for what is and what is not."""

import pytest
import torch

from graphact.guarantees import check_equivariance
from graphact.nn import ACTIVATIONS, GCNN
from support.graphs import random_graph

GRAPH = random_graph(9, 0.4, dtype=torch.float32)


OPTIONS = {
    **{name: {"activation": name, "hops": 2} for name in ACTIVATIONS},
    "adaptive banks": {"bank": "adaptive", "ops": ["max", "median", "std", "kernel"], "residual": True},
    "unshifted": {"activation": {"name": "median-ga", "unshifted": True}, "hops": 2},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_networks_are_equivariant(name):
    verdict = check_equivariance(GCNN([2, 3, 3], **OPTIONS[name]), GRAPH, torch.randn(4, 9, 2))
    assert verdict.holds
    assert str(verdict).startswith("equivariant: largest deviation")


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("size", [0.0, 1e-6])
def test_rounding_is_explained_for_outputs_of_any_size(size, dtype):
    model, graph = GCNN([2, 3], order=2, activation="max-ga").to(dtype), GRAPH.to(dtype)
    verdict = check_equivariance(lambda x, graph: size * model(x, graph), graph, torch.randn(4, 9, 2, dtype=dtype))
    assert verdict.holds


@pytest.mark.parametrize(
    "model",
    [
        lambda x, graph: x + 1e-2 * torch.arange(9).unsqueeze(-1),
        lambda x, graph: x.cumsum(-2),
        lambda x, graph: 1e-6 * x.cumsum(-2),
        lambda x, graph: x.cumsum(-2).bfloat16(),
        lambda x, graph: x.cumsum(-2).half(),
        lambda x, graph: torch.full_like(x, torch.nan),
    ],
    ids=["position", "order", "small", "bfloat16", "float16", "not a number"],
)
def test_others_are_found_out(model):
    verdict = check_equivariance(model, GRAPH, torch.randn(4, 9, 2), permutations=3)
    assert not verdict.holds
    assert verdict.permutations == 3
    assert str(verdict).startswith("NOT equivariant")
