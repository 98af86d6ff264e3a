"""Limits of a device, and the work a function asks of it."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from graphact.benchmarking import copy_bandwidth, measure

__all__ = ["copy_bandwidth", "demands", "matrix_rate"]


def matrix_rate(device):
    """Operations a second of a large float32 matrix product."""
    size = 8192 if device == "cuda" else 2048
    left, right = torch.rand(2, size, size, device=device)
    return 2 * size**3 / measure(lambda: left @ right, device, repeats=4).fastest


class CountBytes(TorchDispatchMode):
    """Adds up what every operator reads and writes; views cost nothing."""

    def __init__(self):
        super().__init__()
        self.total = 0

    def __torch_dispatch__(self, operator, types, arguments=(), options=None):
        result = operator(*arguments, **(options or {}))
        if not any(part.alias_info is not None and not part.alias_info.is_write for part in operator._schema.returns):
            touched = [*tree_leaves((arguments, options)), *tree_leaves(result)]
            self.total += sum(tensor.nbytes for tensor in touched if isinstance(tensor, torch.Tensor))
        return result


def demands(function):
    """Operations in matrix products, and bytes that operators read and write, in one call."""
    with FlopCounterMode(display=False) as operations:
        function()
    with CountBytes() as moved:
        function()
    return operations.get_total_flops(), moved.total
