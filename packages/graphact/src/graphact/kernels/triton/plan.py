"""Activations on a GPU: small signals replay recorded launches (see `record.py`), large ones take little memory."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from graphact.graph import Graph
from graphact.kernels.activation_plan import ActivationPlan, Gamma
from graphact.kernels.dispatch import LARGE_SIGNAL
from graphact.kernels.graph_tensors import CSRLists
from graphact.kernels.reference import slot_dtype
from graphact.kernels.triton.backward import neighborhood_functions_backward
from graphact.kernels.triton.launch import launches, limits
from graphact.kernels.triton.mix import FEW_TILES, add_grad_own, grad_coefficients, mix_tiles
from graphact.kernels.triton.record import ALIGNMENT, Recording, allocate, call, recording


def choose_plan(x: Tensor, *_: Any) -> "type[ActivationPlan]":
    """The plan for signals of this size."""
    return RecordedPlan if x.numel() < LARGE_SIGNAL else LargePlan


class LargePlan(ActivationPlan):
    """The same steps with few materialized gradients: kernels scale that of the result as they read it."""

    def backward(
        self, grad: Tensor, x: Tensor, beta: Tensor, weights: Tensor, gamma: Gamma, saved: Any, needs_x: bool
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        hops = weights.size(0)
        if self.op == "kernel" or not needs_x:
            return super().backward(grad, x, beta, weights, gamma, saved, needs_x)
        grad_beta, grad_weights = grad_coefficients(grad, x, saved[:hops], beta, weights)
        grad_signal: Tensor | None = None
        for hop in reversed(range(hops)):
            grad_following, slots = grad_signal, {f"{self.op} slot": saved[hops + hop]}
            grads = {self.op: grad} if grad_following is None else {self.op: grad, "shift": grad_following}
            options = (self.tensors, self.closed, weights[hop])
            grad_signal = neighborhood_functions_backward(grads, slots, *options)
            grad_signal = grad_signal if grad_following is None else self._add_diagonal(grad_signal, grad_following)
            del grad_following, grads
        assert grad_signal is not None
        grad_x = self._shift_back(grad_signal) if self.shifted else grad_signal
        add_grad_own(grad_x, grad, x, beta)
        return grad_x, grad_beta, grad_weights, None


MIN_NODES = 256  # nodes, from which on the tiles of launches do not depend on their number
MAX_RECORDINGS = 64  # of graphs that share them, or of one graph; each new kernel width adds one
MAX_SHARED_KINDS = 256  # kinds of graphs and signals
_shared: dict[Any, tuple[set[Any], dict[Any, Recording | None]]] = {}


class RecordedPlan(ActivationPlan):
    """The same steps as :class:`ActivationPlan`, recorded when they are taken again.

    Graphs without hubs, of any number of nodes, need the same launches; they share what was recorded of one of them.
    """

    def __init__(self, graph: Graph, x: Tensor, op: str, closed: bool, shifted: bool) -> None:
        super().__init__(graph, x, op, closed, shifted)
        lists = (*CSRLists.from_lists(graph.incoming), *CSRLists.from_lists(graph.outgoing))
        self.constant = [self.tensors.weight, self.tensors.weight_t, self.tensors.incoming_slot, *lists]
        self.constant += [] if self.column is None else [self.column]
        self.nodes: int | None = None
        self.known: set[Any] = set()
        self.recordings: dict[Any, Recording | None] = {}
        if op != "median" and x.dim() == 2 and graph.num_nodes >= MIN_NODES and is_single_launch(graph):
            self.nodes = graph.num_nodes
            kind = (x.device, x.dtype, x.size(-1), op, closed, shifted, slot_dtype(self.max_degree))
            same = (graph.outgoing is graph.incoming, graph.outgoing_weight is graph.weight, self.column is None)
            sizes = (self.nodes % ALIGNMENT == 0, mix_tiles(self.nodes, x.size(-1))[0] <= FEW_TILES)
            aligned = (tensor.data_ptr() % ALIGNMENT == 0 for tensor in self.constant)
            if len(_shared) >= MAX_SHARED_KINDS:
                _shared.clear()
            self.known, self.recordings = _shared.setdefault((kind, same, sizes, *aligned), (set(), {}))

    def forward(self, x: Tensor, beta: Tensor, weights: Tensor, gamma: Gamma) -> tuple[Tensor, Sequence[Tensor]]:
        def evaluate() -> list[Tensor]:
            out, saved = super(RecordedPlan, self).forward(x, beta, weights, gamma)
            return [out, *saved]

        trained = (gamma,) if isinstance(gamma, Tensor) else ()
        out, *saved = self._run(
            ("forward", weights.shape, None if trained else gamma), (x, beta, weights, *trained), evaluate
        )
        return out, saved

    def backward(
        self, grad: Tensor, x: Tensor, beta: Tensor, weights: Tensor, gamma: Gamma, saved: Any, needs_x: bool
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        if isinstance(gamma, Tensor):
            return super().backward(grad, x, beta, weights, gamma, saved, needs_x)

        def evaluate() -> list[Tensor]:
            grad_x, grad_beta, grad_weights, _ = super(RecordedPlan, self).backward(
                grad, x, beta, weights, gamma, saved, needs_x
            )
            return [grad_x, grad_beta, grad_weights]

        key, given = ("backward", weights.shape, gamma, needs_x), (grad, x, beta, weights, *saved)
        grad_x, grad_beta, grad_weights = self._run(key, given, evaluate)
        return grad_x, grad_beta, grad_weights, None

    def _run(self, key: Any, given: Sequence[Tensor], evaluate: Callable[[], list[Tensor]]) -> list[Tensor]:
        """Evaluate, record the second time, and replay from then on, unless a tensor is not contiguous and aligned."""
        if not all(tensor.is_contiguous() and tensor.data_ptr() % ALIGNMENT == 0 for tensor in given):
            return evaluate()
        if self.nodes is not None:
            given = (*given, *self.constant)
        if key not in self.recordings:
            if key not in self.known:  # most graphs appear once
                if len(self.known) >= MAX_RECORDINGS:
                    self.known.clear()
                    self.recordings.clear()
                self.known.add(key)
                return evaluate()
            with recording(given, () if self.nodes else self.constant, self.nodes) as made:
                results = evaluate()
            self.recordings[key] = made if made.finish(results) else None
            return results
        found = self.recordings[key]
        if found is None:
            return evaluate()
        if found.device.type != "cuda" or found.device.index == torch.cuda.current_device():
            return found.replay(given, self.nodes or 0)
        with torch.cuda.device(found.device):
            return found.replay(given, self.nodes or 0)

    def _gaussian(self, sums: Tensor, gamma: Gamma) -> Tensor:
        values = allocate(sums.shape, sums.dtype, sums.device)
        call(write_gaussian, values, sums, gamma)
        return values

    def _in_place(self, function: Callable[..., Any], *tensors: Tensor) -> None:
        call(function, *tensors)


def write_gaussian(values: Tensor, sums: Tensor, gamma: Gamma) -> None:
    """``values = exp(-sums / (2 gamma^2))``."""
    torch.mul(sums, -0.5 / gamma**2, out=values).exp_()


def is_single_launch(graph: Graph) -> bool:
    """Return true if each pass is one launch, in which one lane walks each list, in both directions."""
    found = [launches(lists, *limits(lists)) for lists in (graph.incoming, graph.outgoing)]
    return all(len(split) == 1 and not split[0].ordered and not split[0].shared for split in found)
