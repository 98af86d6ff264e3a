"""Passes over the neighbours as torch operators, with their shapes and batching rules.

`torch.compile`, `torch.export` and `vmap` treat each operator as one step; `gradients.py` makes them differentiable.
"""

from typing import Any

import torch
from torch import Tensor

from graphact.kernels import reference
from graphact.kernels.backends import implementation
from graphact.kernels.reference import Lists


@torch.library.custom_op("graphact::shift", mutates_args=())
def _shift(x: Tensor, weight: Tensor, turned_weight: Tensor, incoming: list[Tensor], outgoing: list[Tensor]) -> Tensor:
    return implementation(x).shift(x, weight, Lists(*incoming))


@torch.library.custom_op("graphact::shift_weight_grad", mutates_args=())
def _shift_weight_grad(grad: Tensor, x: Tensor, incoming: list[Tensor]) -> Tensor:
    return implementation(x).shift_weight_grad(grad, x, Lists(*incoming))


@torch.library.custom_op("graphact::select", mutates_args=())
def _select(x: Tensor, labels: Tensor | None, incoming: list[Tensor], op: str, closed: bool) -> tuple[Tensor, Tensor]:
    return implementation(x).select(x, labels, Lists(*incoming), op, closed)


@torch.library.custom_op("graphact::route", mutates_args=())
def _route(grad: Tensor, chosen: Tensor) -> Tensor:
    return implementation(grad).route(grad, chosen)


@torch.library.custom_op("graphact::spread", mutates_args=())
def _spread(x: Tensor, incoming: list[Tensor], outgoing: list[Tensor]) -> Tensor:
    return implementation(x).spread(x, Lists(*incoming))


@torch.library.custom_op("graphact::pull", mutates_args=())
def _pull(grad: Tensor, x: Tensor, incoming: list[Tensor], outgoing: list[Tensor]) -> Tensor:
    return implementation(x).pull(grad, x, Lists(*incoming), Lists(*outgoing))


@torch.library.custom_op("graphact::hop", mutates_args=())
def _hop(
    x: Tensor,
    weight: Tensor,
    turned_weight: Tensor,
    places: Tensor,
    incoming: list[Tensor],
    outgoing: list[Tensor],
    op: str,
    closed: bool,
    shifting: bool,
    longest: int,
) -> tuple[Tensor, Tensor, Tensor]:
    return implementation(x).hop(x, weight, Lists(*incoming), op, closed, shifting, longest)


@torch.library.custom_op("graphact::turn", mutates_args=())
def _turn(
    grad: Tensor,
    chosen: Tensor,
    grad_shifted: Tensor | None,
    weight: Tensor,
    turned_weight: Tensor,
    places: Tensor,
    incoming: list[Tensor],
    outgoing: list[Tensor],
    closed: bool,
) -> Tensor:
    lists = Lists(*incoming), Lists(*outgoing)
    return implementation(grad).turn(grad, chosen, grad_shifted, turned_weight, places, *lists, closed)


# Shapes, for compile and export


@_shift.register_fake
def _(x: Tensor, weight: Tensor, turned_weight: Tensor, incoming: list[Tensor], outgoing: list[Tensor]) -> Tensor:
    return x.new_empty(x.shape)


@_shift_weight_grad.register_fake
def _(grad: Tensor, x: Tensor, incoming: list[Tensor]) -> Tensor:
    return x.new_empty(Lists(*incoming).edge_order.shape, dtype=reference.accumulation_dtype(x.dtype))


@_select.register_fake
def _(x: Tensor, labels: Tensor | None, incoming: list[Tensor], op: str, closed: bool) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), x.new_empty(x.shape, dtype=torch.int32)


@_route.register_fake
def _(grad: Tensor, chosen: Tensor) -> Tensor:
    return grad.new_empty(grad.shape)


@_spread.register_fake
def _(x: Tensor, incoming: list[Tensor], outgoing: list[Tensor]) -> Tensor:
    return x.new_empty(x.shape, dtype=reference.accumulation_dtype(x.dtype))


@_pull.register_fake
def _(grad: Tensor, x: Tensor, incoming: list[Tensor], outgoing: list[Tensor]) -> Tensor:
    return x.new_empty(x.shape)


@_hop.register_fake
def _(
    x: Tensor,
    weight: Tensor,
    turned_weight: Tensor,
    places: Tensor,
    incoming: list[Tensor],
    outgoing: list[Tensor],
    op: str,
    closed: bool,
    shifting: bool,
    longest: int,
) -> tuple[Tensor, Tensor, Tensor]:
    shifted = x.new_empty(x.shape if shifting else 0)
    if op == "kernel":
        values = x.new_empty(x.shape, dtype=reference.accumulation_dtype(x.dtype))
        return values, x.new_empty(0, dtype=torch.uint8), shifted
    return x.new_empty(x.shape), x.new_empty(x.shape, dtype=reference.place_dtype(longest)), shifted


@_turn.register_fake
def _(
    grad: Tensor,
    chosen: Tensor,
    grad_shifted: Tensor | None,
    weight: Tensor,
    turned_weight: Tensor,
    places: Tensor,
    incoming: list[Tensor],
    outgoing: list[Tensor],
    closed: bool,
) -> Tensor:
    return grad.new_empty(grad.shape)


# Batching rules: a signal takes any leading dimensions, so a batch of signals is a signal


def _front(tensor: Tensor, dim: int | None, size: int) -> Tensor:
    """The batch dimension first; a tensor without one is repeated."""
    return tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)


def _require_one_graph(*in_dims: Any) -> None:
    """Lists and weights of the graph must not carry a batch dimension."""
    for dims in in_dims:
        if dims is not None and not (isinstance(dims, (list, tuple)) and all(dim is None for dim in dims)):
            raise NotImplementedError("vmap over graphs is not supported: join them with Graph.union instead")


@_shift.register_vmap
def _(info: Any, in_dims: Any, x: Tensor, weight: Tensor, turned_weight: Tensor, incoming: Any, outgoing: Any) -> Any:
    _require_one_graph(*in_dims[1:])
    x = _front(x, in_dims[0], info.batch_size)
    return torch.ops.graphact.shift(x, weight, turned_weight, incoming, outgoing), 0


@_shift_weight_grad.register_vmap
def _(info: Any, in_dims: Any, grad: Tensor, x: Tensor, incoming: Any) -> Any:
    _require_one_graph(in_dims[2])
    grad, x = _front(grad, in_dims[0], info.batch_size), _front(x, in_dims[1], info.batch_size)
    each = [torch.ops.graphact.shift_weight_grad(g, signal, incoming) for g, signal in zip(grad, x, strict=True)]
    return torch.stack(each), 0


@_select.register_vmap
def _(
    info: Any,
    in_dims: Any,
    x: Tensor,
    labels: Tensor | None,
    incoming: Any,
    op: str,
    closed: bool,
) -> Any:
    _require_one_graph(in_dims[2])
    x = _front(x, in_dims[0], info.batch_size)
    labels = None if labels is None else _front(labels, in_dims[1], info.batch_size)
    return torch.ops.graphact.select(x, labels, incoming, op, closed), (0, 0)


@_route.register_vmap
def _(info: Any, in_dims: Any, grad: Tensor, chosen: Tensor) -> Any:
    grad, chosen = _front(grad, in_dims[0], info.batch_size), _front(chosen, in_dims[1], info.batch_size)
    return torch.ops.graphact.route(grad, chosen), 0


@_spread.register_vmap
def _(info: Any, in_dims: Any, x: Tensor, incoming: Any, outgoing: Any) -> Any:
    _require_one_graph(*in_dims[1:])
    return torch.ops.graphact.spread(_front(x, in_dims[0], info.batch_size), incoming, outgoing), 0


@_pull.register_vmap
def _(info: Any, in_dims: Any, grad: Tensor, x: Tensor, incoming: Any, outgoing: Any) -> Any:
    _require_one_graph(*in_dims[2:])
    grad, x = _front(grad, in_dims[0], info.batch_size), _front(x, in_dims[1], info.batch_size)
    return torch.ops.graphact.pull(grad, x, incoming, outgoing), 0


@_hop.register_vmap
def _(
    info: Any,
    in_dims: Any,
    x: Tensor,
    weight: Tensor,
    turned_weight: Tensor,
    places: Tensor,
    incoming: Any,
    outgoing: Any,
    *options: Any,
) -> Any:
    _require_one_graph(*in_dims[1:6])
    x = _front(x, in_dims[0], info.batch_size)
    values, chosen, shifted = torch.ops.graphact.hop(x, weight, turned_weight, places, incoming, outgoing, *options)
    # what is empty has no batch dimension
    return (values, chosen, shifted), (0, 0 if chosen.dim() > 1 else None, 0 if shifted.dim() > 1 else None)


@_turn.register_vmap
def _(
    info: Any,
    in_dims: Any,
    grad: Tensor,
    chosen: Tensor,
    grad_shifted: Tensor | None,
    weight: Tensor,
    turned_weight: Tensor,
    places: Tensor,
    incoming: Any,
    outgoing: Any,
    closed: bool,
) -> Any:
    _require_one_graph(*in_dims[3:8])
    grad, chosen = _front(grad, in_dims[0], info.batch_size), _front(chosen, in_dims[1], info.batch_size)
    if grad_shifted is not None:
        grad_shifted = _front(grad_shifted, in_dims[2], info.batch_size)
    graph = (weight, turned_weight, places, incoming, outgoing)
    return torch.ops.graphact.turn(grad, chosen, grad_shifted, *graph, closed), 0
