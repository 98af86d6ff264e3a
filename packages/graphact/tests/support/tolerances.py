"""Errors allowed beside the float64 oracle, relative to the size of the numbers involved."""

import torch

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 3e-2, torch.float16: 4e-3}


def assert_near(actual, expected):
    """Compare a tensor with a float64 oracle at the tolerance of the tensor's dtype."""
    tolerance = TOLERANCE[actual.dtype]
    expected = torch.as_tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(actual.detach().double().cpu(), expected, rtol=tolerance, atol=tolerance)
