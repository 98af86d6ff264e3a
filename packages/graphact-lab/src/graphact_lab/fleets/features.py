"""Sparse features of nodes, such as the words of documents, and their product with dense maps."""

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from graphact._sparse import quietly


class SparseFeatures:
    """A constant matrix ``(N, F)`` in CSR form, with its transpose for gradients.

    ``features @ weight`` is an SpMM; under `torch.vmap` over many weights it is one SpMM with all of them side by side,
    ``(F, M * out)``, on a GPU, and one after another on a CPU.

    Example:
        >>> import torch
        >>> words = SparseFeatures.from_dense(torch.tensor([[0.0, 2.0], [0.0, 0.0], [1.0, 3.0]]))
        >>> words @ torch.tensor([[1.0], [10.0]])
        tensor([[20.],
                [ 0.],
                [31.]])
    """

    def __init__(self, matrix: Tensor, transposed: Tensor) -> None:
        self.matrix, self.transposed = matrix, transposed

    @classmethod
    def from_dense(cls, x: Tensor) -> "SparseFeatures":
        rows, cols = x.nonzero(as_tuple=True)
        return cls.from_entries(rows, cols, x[rows, cols], (x.size(0), x.size(1)))

    @classmethod
    def from_entries(cls, rows: Tensor, cols: Tensor, values: Tensor, shape: tuple[int, int]) -> "SparseFeatures":
        """From the entries that are not zero, each once, in any order."""
        return cls(to_csr(rows, cols, values, shape), to_csr(cols, rows, values, shape[::-1]))

    @property
    def shape(self) -> torch.Size:
        return self.matrix.shape

    def size(self, dim: int) -> int:
        return self.matrix.size(dim)

    def to(self, device: torch.device | str, dtype: torch.dtype) -> "SparseFeatures":
        return SparseFeatures(self.matrix.to(device, dtype), self.transposed.to(device, dtype))

    @cached_property
    def transposition(self) -> Tensor:
        """Position of each value of the transpose among those of the matrix."""
        return self.matrix.col_indices().argsort(stable=True)

    @property
    def count(self) -> int:
        """Number of nonzero values."""
        return self.matrix.values().numel()

    def to_dense(self) -> Tensor:
        return self.matrix.to_dense()

    def normalized(self) -> "SparseFeatures":
        """Each row divided by the sum of its magnitudes; rows of zeros stay."""
        counts = self.matrix.crow_indices().diff()
        rows = torch.arange(self.size(0)).repeat_interleave(counts)
        cols, values = self.matrix.col_indices(), self.matrix.values()
        sums = torch.zeros(self.size(0), dtype=values.dtype).index_add(0, rows, values.abs())
        return SparseFeatures.from_entries(rows, cols.long(), values / sums[rows], (self.size(0), self.size(1)))

    def __matmul__(self, weight: Tensor) -> Tensor:
        product: Tensor = _SparseProduct.apply(weight, self.matrix, self.transposed)
        return product


class DroppedFeatures:
    """Sparse features of which some are dropped: ``features @ weight`` with the values of ``features`` times a mask.

    The mask has an entry for each value; under `torch.vmap`, each model has its own.
    """

    def __init__(self, features: SparseFeatures, mask: Tensor) -> None:
        self.features, self.mask = features, mask

    def __matmul__(self, weight: Tensor) -> Tensor:
        if not weight.is_cuda:
            product: Tensor = _DroppedProduct.apply(weight, self.mask, self.features)
            return product
        matrix = self.features.matrix
        counts, cols = matrix.crow_indices().diff(), matrix.col_indices()
        rows = torch.arange(matrix.size(0), device=cols.device).repeat_interleave(counts, output_size=cols.numel())
        terms = (matrix.values() * self.mask).unsqueeze(-1) * weight.index_select(0, cols)
        return terms.new_zeros(matrix.size(0), weight.size(-1)).index_add(0, rows, terms)


def to_csr(rows: Tensor, cols: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    """A CSR tensor with 32-bit indices, columns ascending in each row."""
    order = (rows * shape[1] + cols).argsort()
    rowptr = torch.zeros(shape[0] + 1, dtype=torch.int32)
    rowptr[1:] = rows.bincount(minlength=shape[0]).cumsum(0)
    col = cols[order].to(torch.int32)
    with quietly():
        return torch.sparse_csr_tensor(rowptr, col, values[order], size=shape, check_invariants=False)


class _SparseProduct(torch.autograd.Function):
    """A constant sparse matrix times a dense one, or each of ``(M, F, out)``."""

    @staticmethod
    def forward(weight: Tensor, matrix: Tensor, transposed: Tensor) -> Tensor:  # noqa: ARG004
        if weight.dim() == 2:
            return torch.sparse.mm(matrix, weight)
        return torch.stack([torch.sparse.mm(matrix, each) for each in weight])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], _: Tensor) -> None:
        ctx.matrix, ctx.transposed = inputs[1:]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return _SparseProduct.apply(grad.contiguous(), ctx.transposed, ctx.matrix), None, None

    @staticmethod
    def vmap(_: Any, in_dims: tuple[int | None, ...], weight: Tensor, matrix: Tensor, transposed: Tensor) -> Any:
        if not weight.is_cuda:  # one after another is faster where few columns fit into the cache
            return _SparseProduct.apply(weight.movedim(in_dims[0] or 0, 0), matrix, transposed), 0
        side_by_side = weight.movedim(in_dims[0] or 0, 1)  # (F, M, out)
        product = _SparseProduct.apply(side_by_side.flatten(1), matrix, transposed)
        return product.unflatten(1, side_by_side.shape[1:]), 1


class _DroppedProduct(torch.autograd.Function):
    """Sparse features times a mask, times a dense matrix; under vmap a product for each model, fastest on a CPU."""

    @staticmethod
    def forward(weight: Tensor, mask: Tensor, features: SparseFeatures) -> Tensor:
        return _each_product(features.matrix, features.matrix.values() * mask, weight)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, SparseFeatures], _: Tensor) -> None:
        ctx.mask, ctx.features = inputs[1:]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        values = (ctx.features.matrix.values() * ctx.mask).index_select(-1, ctx.features.transposition)
        return _each_product(ctx.features.transposed, values, grad.contiguous()), None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], weight: Tensor, mask: Tensor, features: SparseFeatures) -> Any:
        stacked = (
            one.expand(info.batch_size, *one.shape) if dim is None else one.movedim(dim, 0)
            for one, dim in ((weight, in_dims[0]), (mask, in_dims[1]))
        )
        return _DroppedProduct.apply(*stacked, features), 0


def _each_product(pattern: Tensor, values: Tensor, dense: Tensor) -> Tensor:
    """CSR matrices of one pattern times dense ones: ``(..., nnz)`` and ``(..., F, out)``, all with their own."""
    if values.dim() == 1:
        with quietly():
            matrix = torch.sparse_csr_tensor(
                pattern.crow_indices(), pattern.col_indices(), values, size=pattern.shape, check_invariants=False
            )
        return torch.sparse.mm(matrix, dense)
    return torch.stack([_each_product(pattern, *pair) for pair in zip(values, dense, strict=True)])
