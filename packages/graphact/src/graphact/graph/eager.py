"""Detection of tracing and transforms, and functions that must run eagerly on real numbers."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad

from graphact._triton import PLAIN_TENSORS

F = TypeVar("F", bound=Callable[..., Any])


def is_plain(*tensors: Tensor | None) -> bool:
    """Return true if torch only computes: no tensor is traced, transformed, faked, on meta or of a subclass."""
    if (
        torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
        or torch._C._len_torch_dispatch_stack() > 0
    ):
        return False
    return all(tensor is None or (type(tensor) in PLAIN_TENSORS and not tensor.is_meta) for tensor in tensors)


def may_have_derivative(weight: Tensor) -> bool:
    """Return true if ``weight`` is not constant: it requires a gradient, may carry a tangent, or is batched by a vmap.

    Inside `torch.func.grad`, ``requires_grad`` of a tensor tracked only by an outer transform, or by autograd outside,
    is false; therefore the tensors it wraps are checked, too.
    """
    if weight.requires_grad or torch.compiler.is_compiling():
        return weight.requires_grad
    return forward_ad._current_level >= 0 or any(layer.requires_grad or _is_batched(layer) for layer in _layers(weight))


def is_batched(tensor: Tensor) -> bool:
    """Return true inside a vmap over this tensor, where no decision can depend on its numbers."""
    return not torch.compiler.is_compiling() and any(map(_is_batched, _layers(tensor)))


def _is_batched(tensor: Tensor) -> bool:
    return torch._C._functorch.is_batchedtensor(tensor)


def _layers(tensor: Tensor) -> Iterator[Tensor]:
    """Yield a tensor, the tensor it wraps in a transform, and so on."""
    yield tensor
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
        yield tensor


@contextmanager
def outside_transforms(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Suspend `torch.func.grad` and `jvp`, which do not concern indices; yield the unwrapped tensors."""
    if not torch._C._are_functorch_transforms_active():
        yield tensors
        return
    from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

    with temporarily_clear_interpreter_stack():
        yield tuple(_unwrapped(tensor) for tensor in tensors)


def _unwrapped(tensor: Tensor) -> Tensor:
    while torch._C._functorch.is_gradtrackingtensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor


def outside_compiled_code(reason: str) -> Callable[[F], F]:
    """Do what torch.compiler.disable does, without the second that importing the compiler takes."""

    def decorate(function: F) -> F:
        frames: Any = torch._C._dynamo.eval_frame
        skip = frames._FrameAction.SKIP
        frames.set_code_exec_strategy(function.__code__, frames._FrameExecStrategy(skip, skip))  # and all it calls
        marked: Any = function
        marked._torchdynamo_disable, marked._torchdynamo_disable_msg = True, reason
        return function

    return decorate


BUILT_OUTSIDE = outside_compiled_code("edges are sorted in every call: build a graphact.Graph once and compile with it")
