"""The mixing step of every backend against plain torch, forward and backward."""

import pytest
import torch

from graphact import backend
from graphact.kernels import autograd


def run(name, own, values, beta, weights, cotangent):
    with backend(name):
        out = autograd.mix(own, values, beta, weights)
        return [out, *torch.autograd.grad(out, [own, *values, beta, weights], cotangent)]


@pytest.mark.parametrize("terms", [1, 2, 3])
@pytest.mark.parametrize("per_feature", [False, True])
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (3, 5, 7, 3), (2, 40, 9, 8), (4, 1, 33, 300), (2, 70, 1000)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_numba_equals_torch(shape, per_feature, terms, dtype):
    own, *values = (torch.randn(shape, dtype=dtype, requires_grad=True) for _ in range(terms + 1))
    beta = torch.randn(shape[0], dtype=dtype, requires_grad=True)
    weights = torch.randn((shape[0], terms, shape[-1])[: 3 if per_feature else 2], dtype=dtype, requires_grad=True)
    arguments = own, values, beta, weights, torch.randn(shape, dtype=dtype)
    torch.testing.assert_close(run("numba", *arguments), run("reference", *arguments), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("special", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("at", ["own", "beta", "grad"])
def test_special_values_do_what_they_do_in_torch(at, special):
    own = torch.tensor([[[[-2.0, 1.0, 0.0, 3.0]]], [[[-2.0, 1.0, 0.0, 3.0]]]])
    beta, cotangent = torch.tensor([0.5, 2.0]), torch.ones_like(own)
    {"own": own[0, 0, 0], "beta": beta, "grad": cotangent[0, 0, 0]}[at][0] = special
    values = [torch.ones_like(own).requires_grad_()]
    arguments = own.requires_grad_(), values, beta.requires_grad_(), torch.ones(2, 1, requires_grad=True), cotangent
    torch.testing.assert_close(run("numba", *arguments), run("reference", *arguments), equal_nan=True)


def test_non_contiguous():
    own = torch.randn(2, 3, 4, 5).transpose(1, 2).requires_grad_()
    values = [torch.randn(2, 3, 4, 5).transpose(1, 2).requires_grad_()]
    arguments = own, values, torch.ones(2, requires_grad=True), torch.ones(2, 1, requires_grad=True)
    cotangent = torch.randn(2, 3, 4, 5).transpose(1, 2)
    torch.testing.assert_close(run("numba", *arguments, cotangent), run("reference", *arguments, cotangent))
