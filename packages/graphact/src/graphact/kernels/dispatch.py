"""Dispatch: the backend that runs a pass over the neighbours, and in which form torch takes it."""

import importlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from graphact._checks import check_choice
from graphact._extras import install_command, is_installed
from graphact._triton import PLAIN_TENSORS
from graphact.graph import Graph, Neighborhoods

# name of the backend: its module, the package it needs, the device it runs on (None: any)
MODULES = {
    "reference": ("graphact.kernels.reference", None, None),
    "numba": ("graphact.kernels.numba", "numba", "cpu"),
    "triton": ("graphact.kernels.triton", "triton", "cuda"),
}
FASTEST = {"cpu": "numba", "cuda": "triton"}
_requested: ContextVar[str] = ContextVar("graphact_backend", default="auto")
_num_requests = 0  # in any thread; compiled code guards on it, as it cannot read a ContextVar
HAS_TRITON = is_installed("triton")
LARGE_SIGNAL = 2**23  # numbers, from which on memory matters more than the overhead of launches


@contextmanager
def backend(name: str) -> Iterator[None]:
    """Run everything inside with one backend: ``"auto"``, ``"reference"``, ``"numba"`` (CPU) or ``"triton"`` (CUDA).

    ``"auto"``, the default, takes the fastest installed one for the device of the signal. A backend asked for by name
    is used or the call fails; it never falls back to another.

    Example:
        >>> import torch, graphact
        >>> path = graphact.Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> with graphact.backend("reference"):
        ...     graphact.functional.shift(torch.tensor([[1.0], [2.0], [4.0]]), path).squeeze()
        tensor([2., 5., 2.])
    """
    global _num_requests
    check_choice("name", name, ("auto", *MODULES))
    token = _requested.set(name)
    _num_requests += 1
    try:
        yield
    finally:
        _requested.reset(token)
        _num_requests -= 1


def requested() -> str:
    """Return the name of the requested backend."""
    return _requested.get()


def implementation(x: Tensor) -> Any:
    """Return the backend module for ``x``."""
    name = _requested.get()
    if name == "auto":
        name = FASTEST.get(x.device.type, "reference")
        package = MODULES[name][1]
        if package is not None and not _installed(package):
            _warn_of_fallback(package, x.device.type)
            name = "reference"
        elif package is not None and x.dtype not in _module(name).DTYPES:
            name = "reference"
        return _module(name)
    _, package, device = MODULES[name]
    if package is not None and not _installed(package):
        raise RuntimeError(
            f'the backend "{name}" needs the package {package}, which is not installed: {install_command(package)}'
        )
    if device not in (None, x.device.type):
        raise ValueError(f'the backend "{name}" needs x on a {device} device, got {x.device}')
    if package is not None and x.dtype not in _module(name).DTYPES:
        raise TypeError(f'the backend "{name}" does not support {x.dtype}')
    return _module(name)


@cache
def _module(name: str) -> Any:
    return importlib.import_module(MODULES[name][0])


def _installed(package: str) -> bool:
    if package not in _found:
        _found[package] = is_installed(package)
    return _found[package]


_found: dict[str, bool] = {}


@cache
def _warn_of_fallback(package: str, device: str) -> None:
    """Warn once a process that results are right but slow."""
    warnings.warn(
        f"{package} is not installed, so graphact runs its plain torch reference on the {device} device, which is many "
        f'times slower: {install_command(package)} (graphact.backend("reference") asks for it without this warning)',
        RuntimeWarning,
        stacklevel=2,
    )


def is_traced(x: Tensor) -> bool:
    """Return true if torch traces, transforms or fakes ``x``: the negation of ``is_plain``, for one tensor."""
    return (
        torch.compiler.is_compiling()
        or type(x) not in PLAIN_TENSORS
        or torch._C._are_functorch_transforms_active()
        or torch._C._len_torch_dispatch_stack() > 0
        or x.is_meta
    )


def takes_handles(owner: Graph | Neighborhoods) -> bool:
    """Return true where :func:`is_for_dynamo` holds and a graph is known by its handle."""
    return is_for_dynamo() and owner.key.size(0) != 0


def is_for_dynamo() -> bool:
    """Return true in code that is compiled, not exported or transformed."""
    return (
        torch.compiler.is_dynamo_compiling()
        and not torch.compiler._is_exporting_flag  # torch 2.11 traces is_exporting() as true in any compiled code
        and not torch._C._are_functorch_transforms_active()
        and not is_forward_mode()  # registered operators have none
    )


def is_inlined(x: Tensor, graph: Graph | None = None) -> bool:
    """Return true where Inductor inlines kernels (`triton/inlined.py`); without a graph, those that read none."""
    return (
        x.device.type == "cuda"
        and is_for_dynamo()
        and (graph is None or (takes_handles(graph) and graph.key.size(3) == 1))
        and 0 < x.numel() < LARGE_SIGNAL
        and x.dtype.is_floating_point
        and HAS_TRITON
        and _num_requests == 0
    )


def is_differentiated(*inputs: Any) -> bool:
    """Return true if autograd must track an operation on these inputs; in forward mode it always must."""
    wanted = torch.is_grad_enabled() and any(isinstance(x, Tensor) and x.requires_grad for x in inputs)
    return wanted or is_forward_mode()


def is_forward_mode() -> bool:
    """Return true in forward-mode differentiation."""
    return forward_ad._current_level >= 0


def materialized(x: Any) -> Any:
    """Return a tensor with memory; forward mode may pass zeros that have none."""
    return x.clone() if isinstance(x, Tensor) and x._is_zerotensor() else x
