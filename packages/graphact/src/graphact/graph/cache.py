"""Cache of the graphs built last for an edge_index, so that all layers of a model share one."""

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from graphact.graph.eager import is_plain

T = TypeVar("T")
MAX_CACHED_GRAPHS = 8


class Stamp(NamedTuple):
    """Identity, version, memory and, for floating-point tensors, a copy of the numbers of a tensor."""

    reference: "weakref.ref[Tensor]"
    version: int
    address: int
    shape: torch.Size
    numbers: Tensor | None

    @classmethod
    def of(cls, tensor: Tensor, when_gone: Callable[[Any], None]) -> "Stamp":
        numbers = tensor.detach().clone() if tensor.is_floating_point() else None
        return cls(weakref.ref(tensor, when_gone), tensor._version, tensor.data_ptr(), tensor.shape, numbers)

    def fits(self, tensor: Tensor) -> bool:
        """Return true if ``tensor`` is the same one, with unchanged numbers."""
        now = (tensor._version, tensor.data_ptr(), tensor.shape)
        is_same = self.reference() is tensor and now == (self.version, self.address, self.shape)
        return is_same and (self.numbers is None or torch.equal(self.numbers, tensor))


class CacheEntry(NamedTuple, Generic[T]):
    """A built object and the tensors it was built from."""

    stamps: tuple[Stamp, ...]
    built: T


class BuildCache(Generic[T]):
    """The objects built last from tensors; each entry is dropped when one of its tensors is collected.

    Tensors are held by weak references only. The version of an integer tensor shows changes in place, except those that
    torch does not count (through ``.data``, or through an array that shares memory): call :meth:`clear` after those.

    Floating-point tensors may be trained, and steps of fused optimizers do not count as changes: their numbers are
    compared with a copy in every call. That reads both once, and on a CUDA device it waits for the work queued before.
    It cannot be captured in a CUDA graph: there, and where a wait matters, build a :class:`~graphact.Graph` once.
    """

    def __init__(self, max_entries: int = MAX_CACHED_GRAPHS) -> None:
        self._max_entries = max_entries
        self._entries: OrderedDict[Hashable, CacheEntry[T]] = OrderedDict()
        self._lock = threading.RLock()  # a tensor may be collected, and its entry dropped, while the lock is held

    def __len__(self) -> int:
        return len(self._entries)

    def clear(self) -> None:
        """Drop all entries."""
        with self._lock:
            self._entries.clear()

    def get(self, tensors: tuple[Tensor | None, ...], settings: Hashable, build: Callable[[], T]) -> T:
        """Return the result of ``build()`` for these tensors and settings, cached if it was built before.

        Not cached: results for tensors that require gradients, for inference tensors, which have no version, and
        anything that torch traces or transforms.
        """
        given = [tensor for tensor in tensors if tensor is not None]
        if not is_plain(*given) or any(tensor.requires_grad or tensor.is_inference() for tensor in given):
            return build()
        # tensors made in inference mode cannot be trained with, and those of another stream may not be ready
        mode = torch.is_inference_mode_enabled(), *(stream_of(tensor) for tensor in given[:1])
        key = (tuple(None if tensor is None else id(tensor) for tensor in tensors), settings, mode)
        with self._lock:
            found = self._entries.get(key)
            if found is not None and all(stamp.fits(t) for stamp, t in zip(found.stamps, given, strict=True)):
                self._entries.move_to_end(key)
                return found.built

        def forget(_: Any) -> None:
            with self._lock:
                entry = self._entries.get(key)
                if entry is not None and any(stamp.reference() is None for stamp in entry.stamps):
                    del self._entries[key]

        stamps = tuple(Stamp.of(tensor, forget) for tensor in given)  # before building: later changes are noticed
        built = build()
        entry = CacheEntry(stamps, built)
        with self._lock:
            self._entries[key] = entry
            self._entries.move_to_end(key)
            while len(self._entries) > self._max_entries:
                self._entries.popitem(last=False)
        return built


def stream_of(tensor: Tensor) -> int:
    """Return the stream on which kernels for a tensor run now; 0 on the CPU."""
    return torch.cuda.current_stream(tensor.device).cuda_stream if tensor.is_cuda else 0
