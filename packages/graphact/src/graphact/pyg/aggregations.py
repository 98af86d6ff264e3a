"""PyG's aggregations by one pass over the messages.

Targets are sorted once for each ``index`` or ``edge_index``, and the lists serve all layers and epochs; nothing is
sorted by value. The gradient of a largest, smallest or median value goes to one message, where PyG shares that of a
largest or smallest one among equal messages. Integers, compiled code and tensors that torch traces or transforms take
PyG's implementation.
"""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from torch import Tensor
from torch_geometric import nn

from graphact.nn.unchanged import has_hooks
from graphact.pyg.message_lists import can_aggregate, messages_of_index


class _OneFunction(nn.Aggregation):
    """Mixin before an aggregation of PyG."""

    function: ClassVar[str]

    def forward(
        self,
        x: Tensor,
        index: Tensor | None = None,
        ptr: Tensor | None = None,
        dim_size: int | None = None,
        dim: int = -2,
    ) -> Tensor:
        values = aggregate(x, (function_of(self),), index, ptr, dim_size, dim)
        return super().forward(x, index, ptr, dim_size, dim) if values is None else values[0]


class MaxAggregation(_OneFunction, nn.MaxAggregation):
    r"""The largest message, :math:`\max_j x_j`: PyG's ``MaxAggregation``.

    Example:
        >>> import torch, graphact
        >>> messages, index = torch.tensor([[1.0], [5.0], [3.0]]), torch.tensor([0, 2, 2])
        >>> graphact.pyg.MaxAggregation()(messages, index).squeeze()
        tensor([1., 0., 5.])
    """

    function = "max"


class MinAggregation(_OneFunction, nn.MinAggregation):
    r"""The smallest message, :math:`\min_j x_j`: PyG's ``MinAggregation``."""

    function = "min"


class MeanAggregation(_OneFunction, nn.MeanAggregation):
    r"""The mean of the messages: PyG's ``MeanAggregation``.

    Alone it takes PyG's implementation. Together with others (:class:`MultiAggregation`), and in convolutions that
    :func:`accelerate` replaced, it comes from the same pass.
    """

    function = "mean"


class MedianAggregation(_OneFunction, nn.MedianAggregation):
    """The lower median of the messages: PyG's ``MedianAggregation``.

    PyG sorts all messages for each feature, and above 2 ** 24 messages takes wrong ones, as it counts in float32. A NaN
    among the messages gives NaN here and counts as the largest number there.

    Args:
        fill_value: the value at targets without messages; one that is not 0 takes PyG's implementation.

    Example:
        >>> import torch, graphact
        >>> from torch_geometric.nn import SAGEConv
        >>> conv = SAGEConv(3, 2, aggr=graphact.pyg.MedianAggregation())
        >>> conv(torch.randn(3, 3), torch.tensor([[0, 1, 2], [2, 2, 1]])).shape
        torch.Size([3, 2])
    """

    function = "median"


class StdAggregation(_OneFunction, nn.StdAggregation):
    r"""The standard deviation of the messages, :math:`\sqrt{\mathrm{mean}(x^2) - \mathrm{mean}(x)^2}`, PyG's.

    Deviations up to :math:`\sqrt{10^{-5}}` are 0, as they are in PyG.

    Args:
        semi_grad: leave out a part of the gradient; takes PyG's implementation.
    """

    function = "std"


# numbers in all messages, below which PyG's code is as fast, but for the median: for one function, for several together
FEW_NUMBERS = {"cpu": (2**15, 2**15), "cuda": (2**24, 2**22)}
FAST_IN_PYG = {"mean", "sum"}  # of messages that stand in memory, where nothing else is computed of them
KINDS: dict[type[nn.Aggregation], str] = {
    **{kind: kind.function for kind in _OneFunction.__subclasses__()},
    **{kind.__bases__[1]: kind.function for kind in _OneFunction.__subclasses__()},
    nn.SumAggregation: "sum",
    nn.VarAggregation: "var",
}


def has_few_numbers(numbers: int, functions: Sequence[str | None], x: Tensor) -> bool:
    """Return whether there are so few numbers in messages of the kind of ``x`` that PyG's code is as fast."""
    one, several = FEW_NUMBERS["cuda" if x.is_cuda else "cpu"]
    return "median" not in functions and numbers < (one if len(functions) == 1 else several)


def function_of(aggregation: Any) -> str | None:
    """Return the name of the function of the messages that an aggregation computes, None if it is another."""
    name = KINDS.get(type(aggregation))
    moments = aggregation.var_aggr if name == "std" else aggregation
    has_other = getattr(moments, "semi_grad", False) or getattr(aggregation, "fill_value", 0.0) != 0.0
    return None if has_other else name


class MultiAggregation(nn.MultiAggregation):
    """Several aggregations, combined: PyG's ``MultiAggregation``, with the same arguments and parameters.

    One pass over the messages gives all of sum, mean, max, min, median, var and std; others are computed by their own
    modules.

    Args:
        aggrs: names or modules of aggregations.
        aggrs_kwargs: arguments for each name.
        mode: how the results are combined, ``"cat"`` by default, as PyG describes.
        mode_kwargs: arguments of the combination.

    Example:
        >>> import torch, graphact
        >>> aggregation = graphact.pyg.MultiAggregation(["max", "min", "std"])
        >>> aggregation(torch.tensor([[1.0], [5.0]]), torch.tensor([0, 0]))
        tensor([[5., 1., 2.]])
    """

    def forward(
        self,
        x: Tensor,
        index: Tensor | None = None,
        ptr: Tensor | None = None,
        dim_size: int | None = None,
        dim: int = -2,
    ) -> Tensor:
        names = [None if has_hooks(aggregation) else function_of(aggregation) for aggregation in self.aggrs]
        known = tuple(dict.fromkeys(name for name in names if name is not None))
        values = aggregate(x, known, index, ptr, dim_size, dim)
        if values is None:
            return super().forward(x, index, ptr, dim_size, dim)
        found = dict(zip(known, values, strict=True))
        return self.combine(
            [
                aggregation(x, index, ptr, dim_size, dim) if name is None else found[name]
                for name, aggregation in zip(names, self.aggrs, strict=True)
            ]
        )


def aggregate(
    x: Tensor,
    functions: tuple[str | None, ...],
    index: Tensor | None,
    ptr: Tensor | None,
    dim_size: int | None,
    dim: int,
) -> list[Tensor] | None:
    """Evaluate functions of messages along a dimension; None where PyG has to."""
    given = ptr if index is None else index
    names = [name for name in functions if name is not None]
    if len(names) < len(functions) or set(names) <= FAST_IN_PYG or not can_aggregate(x, given) or given is None:
        return None
    if len(names) == 1 and has_few_numbers(x.numel(), names, x):
        return None
    if dim_size is None:
        dim_size = given.numel() - 1 if index is None else int(given.max()) + 1 if given.numel() else 0
    first = x.movedim(dim, 0)
    if index is not None and index.shape != first.shape[:1]:
        return None  # PyG raises
    if dim_size == 0:
        return [first[:0].movedim(0, dim)] * len(names)
    messages = messages_of_index(index, ptr, first.size(0), dim_size, x.dtype)
    values = messages.aggregate(first.reshape(first.size(0), math.prod(first.shape[1:])), names)
    return [value.reshape(dim_size, *first.shape[1:]).movedim(0, dim) for value in values]
