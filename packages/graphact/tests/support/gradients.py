"""Modules as functions of their parameters, values with gradients, and their comparison."""

import torch


def as_function(module, graph):
    """A module as a function of its signal and its parameters, and the parameters."""
    parameters = {name: value.detach().requires_grad_() for name, value in module.named_parameters()}

    def run(x, *values):
        return torch.func.functional_call(module, dict(zip(parameters, values, strict=True)), (x, graph))

    return run, tuple(parameters.values())


def value_and_gradients(function, x, *arguments, parameters=(), **options):
    """The value for a signal, or for a pair of signals, and the gradients by them and by parameters."""
    given = x if isinstance(x, tuple) else (x,)
    given = tuple(None if part is None else part.detach().clone().requires_grad_() for part in given)
    value = function(given if isinstance(x, tuple) else given[0], *arguments, **options)
    cotangent = torch.linspace(-1, 1, value.numel(), dtype=value.dtype).view(value.shape)
    inputs = [*(part for part in given if part is not None), *parameters]
    return [value.detach(), *torch.autograd.grad(value, inputs, cotangent, allow_unused=True)]


def assert_near_each(found, expected, rtol, atol):
    """Compare lists of tensors, of which some may be None."""
    for one, other in zip(found, expected, strict=True):
        assert (one is None) == (other is None)
        if one is not None and one.numel():
            torch.testing.assert_close(one, other, rtol=rtol, atol=atol)
