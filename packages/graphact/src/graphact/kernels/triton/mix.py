# mypy: disable-error-code=no-untyped-def
"""Triton kernels for the mixing step of an activation: every tensor is read once and written once."""

from collections.abc import Sequence
from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from graphact.kernels.reference import accumulation_dtype
from graphact.kernels.triton.functions import absent
from graphact.kernels.triton.launch import ceil_div, on_its_device, padded_size, wide_type
from graphact.kernels.triton.record import allocate, launch

TILE = 2048
FEW_TILES = 128  # whose sums one program adds up


@triton.jit
def mix_kernel(
    own, first, second, beta, weights, out, rows, features, per_feature: tl.constexpr, terms: tl.constexpr,
    block_rows: tl.constexpr, block_features: tl.constexpr, wide: tl.constexpr,
):  # fmt: skip
    """``out = beta ReLU(own) + w_1 first + w_2 second`` on a tile of rows of one replica."""
    replica = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0).to(tl.int64) * block_rows + tl.arange(0, block_rows)
    feature = tl.arange(0, block_features)
    inside = (row < rows)[:, None] & (feature < features)[None, :]
    offset = (replica * rows + row)[:, None] * features + feature[None, :]
    stride = features if per_feature else 1
    column = feature if per_feature else feature * 0
    x = tl.load(own + offset, mask=inside, other=0.0).to(wide)
    result = tl.load(beta + replica).to(wide) * tl.where(x <= 0, 0.0, x)
    w = tl.load(weights + replica * terms * stride + column, mask=feature < features, other=0.0).to(wide)
    result += w[None, :] * tl.load(first + offset, mask=inside, other=0.0).to(wide)
    if terms == 2:
        w = tl.load(weights + (replica * 2 + 1) * stride + column, mask=feature < features, other=0.0).to(wide)
        result += w[None, :] * tl.load(second + offset, mask=inside, other=0.0).to(wide)
    tl.store(out + offset, result.to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["tiles"])  # else one compiled for a single tile would know no other number
def mix_backward_kernel(
    grad, own, first, second, beta, weights, grad_own, grad_first, grad_second, partial, rows, features, tiles,
    per_feature: tl.constexpr, terms: tl.constexpr, block_rows: tl.constexpr, block_features: tl.constexpr,
    wide: tl.constexpr, needs_signals: tl.constexpr,
):  # fmt: skip
    """Gradients of the signals on one tile, if they are wanted, and its share of the gradients of the coefficients."""
    replica, tile = tl.program_id(1).to(tl.int64), tl.program_id(0).to(tl.int64)
    row = tile * block_rows + tl.arange(0, block_rows)
    feature = tl.arange(0, block_features)
    inside = (row < rows)[:, None] & (feature < features)[None, :]
    offset = (replica * rows + row)[:, None] * features + feature[None, :]
    stride = features if per_feature else 1
    column = feature if per_feature else feature * 0
    share = partial + (replica * tiles + tile) * (terms + 1) * features + feature
    g = tl.load(grad + offset, mask=inside, other=0.0).to(wide)
    x = tl.load(own + offset, mask=inside, other=0.0).to(wide)
    if needs_signals:
        own_part = tl.where(x <= 0, 0.0, g * tl.load(beta + replica).to(wide))
        tl.store(grad_own + offset, own_part.to(grad_own.dtype.element_ty), mask=inside)
    tl.store(share, tl.sum(g * tl.where(x <= 0, 0.0, x), axis=0), mask=feature < features)
    v = tl.load(first + offset, mask=inside, other=0.0).to(wide)
    if needs_signals:
        w = tl.load(weights + replica * terms * stride + column, mask=feature < features, other=0.0).to(wide)
        tl.store(grad_first + offset, (w[None, :] * g).to(grad_first.dtype.element_ty), mask=inside)
    tl.store(share + features, tl.sum(g * v, axis=0), mask=feature < features)
    if terms == 2:
        v = tl.load(second + offset, mask=inside, other=0.0).to(wide)
        if needs_signals:
            w = tl.load(weights + (replica * 2 + 1) * stride + column, mask=feature < features, other=0.0).to(wide)
            tl.store(grad_second + offset, (w[None, :] * g).to(grad_second.dtype.element_ty), mask=inside)
        tl.store(share + 2 * features, tl.sum(g * v, axis=0), mask=feature < features)


@triton.jit(do_not_specialize=["tiles"])
def sum_tiles_kernel(
    partial, grad_beta, grad_weights, features, tiles, per_feature: tl.constexpr, terms: tl.constexpr,
    block_features: tl.constexpr,
):  # fmt: skip
    """Add up what all tiles of a replica found for its coefficients."""
    replica = tl.program_id(0).to(tl.int64)
    feature = tl.arange(0, block_features)
    inside = feature < features
    for row in tl.static_range(terms + 1):
        total = tl.zeros((block_features,), dtype=partial.dtype.element_ty)
        for tile in range(0, tiles):
            at = ((replica * tiles + tile) * (terms + 1) + row) * features + feature
            total += tl.load(partial + at, mask=inside, other=0.0)
        if row == 0:
            tl.store(grad_beta + replica, tl.sum(total, 0).to(grad_beta.dtype.element_ty))
        elif per_feature:
            at = (replica * terms + row - 1) * features + feature
            tl.store(grad_weights + at, total.to(grad_weights.dtype.element_ty), mask=inside)
        else:
            tl.store(grad_weights + replica * terms + row - 1, tl.sum(total, 0).to(grad_weights.dtype.element_ty))


@on_its_device
def mix(own: Tensor, values: Sequence[Tensor], beta: Tensor, weights: Tensor) -> Tensor:
    """See :func:`graphact.kernels.autograd.mix`."""
    own, first, second = own.contiguous(), values[0].contiguous(), second_of(values)
    out = allocate(own.shape, own.dtype, own.device)
    grid, rows, constants = _tiles(own, beta, weights)
    read = (own, first, second, beta.contiguous(), weights.contiguous())
    launch(mix_kernel, grid, *read, out, rows, own.size(-1), **constants)
    return out


def mix_backward(
    grad: Tensor, own: Tensor, values: Sequence[Tensor], beta: Tensor, weights: Tensor
) -> tuple[Tensor, list[Tensor], Tensor, Tensor]:
    """Gradients of :func:`mix` with respect to own, values, beta and weights."""
    grad_own, *grad_values = (allocate(own.shape, own.dtype, own.device) for _ in range(len(values) + 1))
    return grad_own, grad_values, *grad_coefficients(grad, own, values, beta, weights, (grad_own, *grad_values))


@on_its_device
def grad_coefficients(
    grad: Tensor, own: Tensor, values: Sequence[Tensor], beta: Tensor, weights: Tensor, out: Sequence[Tensor] = ()
) -> tuple[Tensor, Tensor]:
    """Those of beta and weights; into ``out``, if it is given, those of own and of the values are written."""
    grad, own, first, second = grad.contiguous(), own.contiguous(), values[0].contiguous(), second_of(values)
    grid, rows, constants = _tiles(own, beta, weights)
    features, terms = own.size(-1), len(values)
    shape, wide = (beta.numel(), grid[0], terms + 1, features), accumulation_dtype(own.dtype)
    partial = allocate(shape, wide, own.device, constants["block_rows"])
    read = (grad, own, first, second, beta.contiguous(), weights.contiguous())
    written = (*out, absent(grad))[:3] if out else (absent(grad),) * 3
    flags = {**constants, "needs_signals": bool(out)}
    launch(mix_backward_kernel, grid, *read, *written, partial, rows, features, grid[0], **flags)
    if grid[0] <= FEW_TILES:
        grad_beta, grad_weights = (allocate(tensor.shape, own.dtype, own.device) for tensor in (beta, weights))
        sizes = {name: constants[name] for name in ("per_feature", "terms", "block_features")}
        launch(sum_tiles_kernel, (beta.numel(),), partial, grad_beta, grad_weights, features, grid[0], **sizes)
        return grad_beta, grad_weights
    sums = partial.sum(1)
    grad_beta, grad_weights = sums[:, 0].sum(-1), sums[:, 1:] if constants["per_feature"] else sums[:, 1:].sum(-1)
    return grad_beta.view(beta.shape).to(own.dtype), grad_weights.reshape(weights.shape).to(own.dtype)


@on_its_device
def add_grad_own(out: Tensor, grad: Tensor, own: Tensor, beta: Tensor) -> None:
    """Add to ``out`` the gradient of :func:`mix` with respect to own, in the place of one replica."""
    grad, own, numbers = grad.contiguous(), own.contiguous(), own.numel()
    launch(own_kernel, (ceil_div(numbers, TILE),), out, grad, own, beta, numbers, block=TILE, wide=wide_type(own))


@triton.jit
def own_kernel(out, grad, own, beta, numbers, block: tl.constexpr, wide: tl.constexpr):
    """See :func:`add_grad_own`."""
    at = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    there = at < numbers
    x = tl.load(own + at, mask=there, other=0.0).to(wide)
    g = tl.load(grad + at, mask=there, other=0.0).to(wide)
    total = tl.load(out + at, mask=there, other=0.0).to(wide)
    total += tl.where(x <= 0, 0.0, g * tl.load(beta).to(wide))
    tl.store(out + at, total.to(out.dtype.element_ty), mask=there)


def second_of(values: Sequence[Tensor]) -> Tensor | None:
    """The second of at most two values."""
    return values[1].contiguous() if len(values) == 2 else absent(values[0])


def _tiles(own: Tensor, beta: Tensor, weights: Tensor) -> tuple[tuple[int, int], int, dict[str, Any]]:
    """The grid of programs, the rows of a replica, and the constants of a kernel."""
    replicas, features = beta.numel(), own.size(-1)
    rows = own.numel() // (replicas * features) if own.numel() else 0
    tiles, block_rows, padded = mix_tiles(rows, features)
    constants = {"per_feature": weights.dim() == beta.dim() + 2, "terms": weights.size(beta.dim())}
    return (
        (tiles, replicas),
        rows,
        constants | {"block_rows": block_rows, "block_features": padded, "wide": wide_type(own)},
    )


def mix_tiles(rows: int, features: int) -> tuple[int, int, int]:
    """The number of tiles, the rows of one, and its features."""
    padded = padded_size(int(features))
    block_rows = max(1, TILE // padded)
    return ceil_div(rows, block_rows), block_rows, padded
