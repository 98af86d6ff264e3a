"""Pointwise activations: what torch computes, trained arrays, files and refusals."""

import pytest
import torch

from graphact import nn
from graphact.registry import POINTWISE
from support.graphs import random_graph

TORCH = {
    "identity": torch.nn.Identity(),
    "leaky-relu": torch.nn.LeakyReLU(0.01),
    "prelu": torch.nn.PReLU(dtype=torch.float64),
    "elu": torch.nn.ELU(),
    "gelu": torch.nn.GELU(),
    "silu": torch.nn.SiLU(),
    "tanh": torch.nn.Tanh(),
    "abs": torch.abs,
    "maxout": torch.relu,  # as it starts
}


@pytest.mark.parametrize("name", POINTWISE)
@pytest.mark.parametrize("features", [None, 3])
def test_values_are_those_of_torch_and_no_graph_is_needed(name, features):
    x = 3 * torch.randn(2, 5, 3, dtype=torch.float64)
    module = nn.make_activation(name, features=features, hops=2, closed=True).double()
    with torch.no_grad():
        torch.testing.assert_close(module(x), TORCH[name](x))
        assert torch.equal(module(x, random_graph()), module(x))


def test_trained_arrays_of_each_feature():
    x = torch.tensor([[-2.0, -2.0], [3.0, 3.0]])
    prelu, maxout = nn.PReLU(features=2), nn.Maxout(features=2, pieces=3)
    assert maxout.slope.tolist() == [[1.0, 1.0], [0.5, 0.5], [0.0, 0.0]]
    with torch.no_grad():
        prelu.slope.copy_(torch.tensor([0.5, -1.0]))
        maxout.slope.copy_(torch.tensor([[1.0, -1.0], [0.0, 0.5], [-2.0, 0.0]]))
        maxout.offset.copy_(torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 4.0]]))
    assert prelu(x).tolist() == [[-1.0, 2.0], [3.0, 3.0]]
    assert maxout(x).tolist() == [[4.0, 4.0], [3.0, 4.0]]
    maxout(x).sum().backward()
    assert maxout.slope.grad.tolist() == [[3.0, 0.0], [0.0, 0.0], [-2.0, 1.0]]
    assert maxout.offset.grad.tolist() == [[1.0, 0.0], [0.0, 0.0], [1.0, 2.0]]
    maxout.reset_parameters()
    assert maxout.slope[:, 0].tolist() == [1.0, 0.5, 0.0]
    assert maxout.offset.abs().max() == 0
