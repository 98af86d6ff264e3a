"""A bank of graph-adaptive filters as a module."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from graphact._checks import check_choice, check_companion, check_integer
from graphact.functional.adaptive_filter import BankFunction, adaptive_filter, check_functions
from graphact.graph.normalize import Normalization, check_normalize
from graphact.graph.protocol import GraphLike
from graphact.nn.call import check_features, resolve_graph
from graphact.nn.module import STARTS, Start, UniformModule
from graphact.spec import AdaptiveFilter, Layer
from graphact.spec.reductions import OPERATIONS


class AdaptiveFilterBank(UniformModule):
    r"""A bank of graph-adaptive filters: shifts and functions of neighbourhoods, formed from the same exchanges.

    .. math:: z = \sum_{k=0}^{K} S^k x H_k + \sum_{m=1}^{M} \sum_{k=0}^{K-1} f_m(S^k x, \mathcal{N}) G_{mk} + b

    It takes K exchanges between neighbours, as many as a :class:`GraphFilter` of the same order, which it contains
    (G = 0). The functions are those of definition 2 of the paper, the shifted localized graph filter. Its relatives
    with K = 1 are SAGE with a maximum (Hamilton et al. 2017) and PNA (Corso et al. 2020), which have no weighted shift
    and no further hop. Any pointwise function may follow; one of a neighbourhood would add exchanges.

    Args:
        in_features: features of the input.
        out_features: features of the output.
        order: the order K, at least 1, which is the number of exchanges.
        ops: the functions f: names (``"max"``, ``"min"``, ``"median"``, ``"std"``, ``"mean"``, ``"kernel"``, or a
            registered one), :class:`~graphact.spec.reductions.Operation`, functions as :class:`GraphAdaptive` takes
            them, or pairs of one of these and its parameters, such as ``("kernel", {"gamma": 0.5})``.
        bias: add a trained constant to each output feature.
        closed: count a node among its neighbours.
        normalize: normalization of a graph built from an edge_index, see :meth:`graphact.Graph.normalize`.
        start: where G starts: ``"uniform"`` like H, within one over the square root of ``(K + 1) in_features``;
            ``"small"``, a tenth of it; or ``"zero"``, as the linear filter bank.

    Shapes:
        x: ``(..., N, in_features)``; result: ``(..., N, out_features)``; ``taps`` (H): ``(K + 1, in_features,
        out_features)``; ``function_taps`` (G): ``(M, K, in_features, out_features)``; ``bias``: ``(out_features,)``.

    Example:
        >>> import torch, graphact
        >>> graph = graphact.Graph.stochastic_block_model([5, 5], 0.9, 0.2).normalize("spectral")
        >>> bank = graphact.nn.AdaptiveFilterBank(3, 8, order=2, ops=["max", "min"])
        >>> torch.nn.functional.gelu(bank(torch.randn(4, 10, 3), graph)).shape
        torch.Size([4, 10, 8])
    """

    taps: Tensor
    function_taps: Tensor
    bias: Tensor | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        order: int = 1,
        *,
        ops: Sequence[BankFunction] = ("max",),
        bias: bool = True,
        closed: bool = False,
        normalize: Normalization | None = "symmetric",
        start: Start = "uniform",
    ) -> None:
        super().__init__()
        self.in_features = check_integer("in_features", in_features, minimum=1)
        self.out_features = check_integer("out_features", out_features, minimum=1)
        self.order = check_integer("order", order, minimum=1)
        self.functions = check_functions(ops)
        for op, _ in self.functions:
            if isinstance(op.function, nn.Module):
                raise TypeError(
                    f"ops must be functions without parameters to train, got the module {op.function!r:.60}: "
                    "graphact.nn.GraphAdaptive trains one"
                )
        self.closed, self.normalize = bool(closed), check_normalize(normalize)
        self.start = check_choice("start", start, tuple(STARTS))
        shape, terms = (self.in_features, self.out_features), self.in_features * (self.order + 1)
        self.add_uniform("taps", terms, self.order + 1, *shape)
        self.add_uniform("function_taps", terms, len(self.functions), self.order, *shape, start=self.start)
        self.add_bias(bias, terms, self.out_features)
        self.reset_parameters()

    @property
    def ops(self) -> list[Any]:
        """Return the functions as the constructor takes them, by name where they have one."""
        entries = [
            (op.name if OPERATIONS.get(op.name) is op else op.function, dict(parameters))
            for op, parameters in self.functions
        ]
        return [[op, parameters] if parameters else op for op, parameters in entries]

    def forward(self, x: Tensor, graph: GraphLike | Tensor, edge_weight: Tensor | None = None) -> Tensor:
        x = check_features(x, "in_features", self.in_features)
        graph = resolve_graph(x, graph, edge_weight, self.normalize)
        filtered = adaptive_filter(x, graph, self.taps, self.function_taps, self.functions, closed=self.closed)
        return filtered if self.bias is None else filtered + check_companion("bias", self.bias, filtered)

    def describe(self) -> tuple[Layer, ...]:
        return (AdaptiveFilter(self.functions, self.closed, self.taps, self.function_taps, self.bias),)

    def config(self) -> dict[str, Any]:
        return {**super().config(), "bias": self.bias is not None}
