"""Numbers that stand for graphs in compiled code.

An operator of torch takes tensors and numbers. Given the tensors of a graph, compiled code guards and copies each of
them, and must not ask for degrees; given the number of a graph, it hands over one integer, and the operator finds the
graph with all that was prepared for it.
"""

import itertools
from collections import deque
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor

NO_KEY = torch.empty(0, 0, 0, 0, device="cpu")
_numbers = itertools.count(2)  # compiled code specializes on 0 and 1
_objects: WeakValueDictionary[int, Any] = WeakValueDictionary()
_recent: deque[Any] = deque(maxlen=8)  # a backward pass may run when the caller's graph is gone
_captured: dict[int, Any] = {}  # a CUDA graph reads their memory whenever it is replayed


def new_key(owner: Any, max_degree: int, fits_one_launch: bool) -> Tensor:
    """Return an empty tensor of shape ``(handle, max_degree, 0, fits_one_launch)``.

    :func:`find_object` finds the owner by its handle.

    Compiled code specializes on an integer that it reads from an attribute, and is compiled again for the next one, but
    not on the size of a tensor, unless it is 0 or 1. In compiled code, where an object may never exist, the handle
    is 0.
    """
    if torch.compiler.is_compiling() or not isinstance(max_degree, int):  # torch.export wraps integers
        return NO_KEY
    handle = next(_numbers)
    _objects[handle] = owner
    return torch.empty(handle, max_degree, 0, int(fits_one_launch), device="cpu")


def find_object(handle: int) -> Any:
    """Return the object with this number, and keep those that were found last."""
    found = _objects.get(handle)
    if found is None:
        raise RuntimeError(
            "the graph of compiled code is gone: keep the Graph (or the edge_index that it was built from) until the "
            "backward pass"
        )
    if not _recent or _recent[-1] is not found:
        _recent.append(found)
    if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
        _captured[handle] = found
    return found
