"""PyG's convolutions without messages in memory: the kernels gather the values of the neighbours and reduce them."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch_geometric.nn import GINConv, GraphConv, MessagePassing, MultiAggregation, PNAConv, SAGEConv
from torch_geometric.nn import Linear as PyGLinear
from torch_geometric.nn.aggr import DegreeScalerAggregation

from graphact.nn.unchanged import check_untouched, has_hooks
from graphact.pyg import aggregations
from graphact.pyg.aggregations import function_of, has_few_numbers
from graphact.pyg.message_lists import can_aggregate, messages_of_edges
from graphact.spec import UnsupportedModelError

# A PNAConv multiplies once for each group of nodes of equal degree while groups * this stays below the nodes
ROWS_OF_A_GROUP = 32  # on a CPU
LAUNCHES_OF_A_GROUP = 50_000_000  # on a GPU, of nodes times the square of their features
OF_BOTH = ("max", "min", "median", "mean", "sum")  # functions of a + b that change with a
SCALERS = {  # factors of nodes of a degree, given the aggregation with the mean degrees
    "identity": lambda degree, _: torch.ones_like(degree),
    "amplification": lambda degree, means: torch.log(degree + 1) / means.avg_deg_log,
    "attenuation": lambda degree, means: means.avg_deg_log / torch.log(degree.clamp(min=1) + 1),
    "linear": lambda degree, means: degree / means.avg_deg_lin,
    "inverse_linear": lambda degree, means: means.avg_deg_lin / degree.clamp(min=1),
}
SEVERAL = (MultiAggregation, aggregations.MultiAggregation)  # not classes of a user, which may combine otherwise
COMPILED = "torch traces or transforms it, or x and edge_index are not floats and integers on one device"


@dataclass(frozen=True)
class ConvReport:
    """One convolution of a model, see :func:`report`.

    Attributes:
        name: its name in the model.
        kind: its class in PyG.
        is_fused: whether :func:`accelerate` replaced it.
        reason: why it was left, or why the last call of a replaced one took PyG's forward; else empty.
    """

    name: str
    kind: str
    is_fused: bool
    reason: str


class FusedConv(MessagePassing):
    """Mixin of fused kernels before a convolution of PyG, whose code runs where :meth:`reason_to_leave` finds one."""

    original: ClassVar[type[MessagePassing]]
    last_reason = ""

    @staticmethod
    def reason_to_leave(conv: Any) -> str:
        """Return why a convolution of the original class cannot be replaced; else an empty string."""
        raise NotImplementedError

    @staticmethod
    def aggregations_of(conv: Any) -> list[nn.Module]:
        """Return the aggregations that the convolution combines."""
        aggregation = conv.aggr_module
        return list(aggregation.aggrs) if isinstance(aggregation, MultiAggregation) else [aggregation]

    def functions(self) -> list[Any]:
        """Return the names of the functions of messages that the convolution computes, None for others."""
        return list(map(function_of, self.aggregations_of(self)))

    def reason_now(self, x: Any, edge_index: Any, others: dict[str, Any]) -> str:
        """Return why a call takes PyG's code; else an empty string."""
        if type(edge_index) is not Tensor or edge_index.layout is not torch.strided:
            return f"edge_index is a {type(edge_index).__name__}, or not dense"
        if not can_aggregate(x, edge_index):
            return COMPILED
        if edge_index.dim() != 2 or edge_index.size(0) != 2:
            return f"edge_index has the shape {tuple(edge_index.shape)}, not (2, E)"
        given = [name for name, value in others.items() if value is not None]
        if given:
            return f"messages that depend on {given[0]} have no fused form"
        if reason := reason_of_settings(self, type(self)):
            return reason
        if has_few_numbers(edge_index.size(1) * x.size(-1), self.functions(), x):
            return "there are few messages, and PyG is as fast"
        return "it carries hooks, or a method was replaced" if any(map(is_altered, self.replaced_parts(self))) else ""

    @staticmethod
    def replaced_parts(conv: Any) -> list[nn.Module]:
        """Return the convolution and the modules in it whose forward a fused call leaves out."""
        return [conv, *conv.aggr_module.modules()]

    def _set_jittable_templates(self, raise_on_error: bool = False) -> None:
        """Keep those of the original class, which PyG would make again for a copy."""


class FusedSum(FusedConv):
    """Mixin before a convolution whose message is the value of the sender."""

    @staticmethod
    def reason_to_leave(conv: Any) -> str:
        kind = type(conv.aggr_module)
        if issubclass(kind, MultiAggregation) and kind not in SEVERAL:
            return f"its aggregation {kind.__name__} has no fused form"
        return "" if conv.node_dim == -2 else f"node_dim={conv.node_dim} has no fused form"

    def propagate(self, edge_index: Any, size: Any = None, **values: Any) -> Tensor:
        """Aggregate the values of the senders."""
        if torch.compiler.is_compiling():
            return super().propagate(edge_index, size=size, **values)
        x, x_target = values.pop("x")
        reason = self.reason_now(x, edge_index, values)
        num_senders = x.size(-2) if isinstance(x, Tensor) else 0
        num_targets = num_senders if x_target is None else x_target.size(-2)
        if size is not None:
            num_targets = size[1] if x_target is None and size[1] is not None else num_targets
            if size[0] not in (None, num_senders) or size[1] not in (None, num_targets):
                reason = f"size is {size}"  # which PyG refuses
        self.last_reason = reason
        if reason or 0 in (num_senders, num_targets):
            return super().propagate(edge_index, size=size, x=(x, x_target), **values)
        messages = messages_of_edges(edge_index, num_senders, num_targets, x.dtype)
        results = messages.aggregate(x, self.functions())
        aggregation: Any = self.aggr_module
        return aggregation.combine(results) if isinstance(aggregation, MultiAggregation) else results[0]

    def _jinja_propagate(self, edge_index: Any, size: Any = None, **values: Any) -> Tensor:
        """Aggregate the values of the senders; PyG sets this as ``propagate`` where an explanation ends."""
        return FusedSum.propagate(self, edge_index, size, **values)


class FusedSAGEConv(FusedSum, SAGEConv):
    """PyG's ``SAGEConv`` on the kernels."""

    original = SAGEConv


class FusedGINConv(FusedSum, GINConv):
    """PyG's ``GINConv`` on the kernels."""

    original = GINConv


class FusedGraphConv(FusedSum, GraphConv):
    """PyG's ``GraphConv`` without edge weights on the kernels."""

    original = GraphConv


class FusedPNAConv(FusedConv, PNAConv):
    r"""PyG's ``PNAConv`` without edge features on the kernels.

    The linear map of a message :math:`[x_i, x_j]` is :math:`a_i + b_j`, so that all messages of a sender are the same.
    A maximum, minimum, median or mean of :math:`a_i + b_j` is :math:`a_i` more than that of :math:`b_j`, a sum is
    :math:`d_i a_i` more, and a deviation is the same; a node without neighbours gets 0.
    """

    original = PNAConv

    @staticmethod
    def reason_to_leave(conv: Any) -> str:
        aggregation = conv.aggr_module
        if conv.edge_dim is not None:
            return "its messages depend on edge features (edge_dim)"
        for network in (*conv.pre_nns, *conv.post_nns):
            if type(network) is not nn.Sequential or type(network[0]) is not PyGLinear or network[0].bias is None:
                return "a network in it does not begin with PyG's Linear and its bias"
        if any(len(before) != 1 for before in conv.pre_nns):
            return "its messages are not linear in both ends (pre_layers is above 1)"
        if type(aggregation) is not DegreeScalerAggregation or type(aggregation.aggr) not in SEVERAL:
            return f"its aggregation {type(aggregation).__name__} has no fused form"
        if aggregation.aggr.mode != "cat":
            return f"its aggregations are combined by mode={aggregation.aggr.mode!r}, not 'cat'"
        if unknown := [scaler for scaler in aggregation.scaler if scaler not in SCALERS]:
            return f"its scaler {unknown[0]!r} is not known"
        return ""

    @staticmethod
    def replaced_parts(conv: Any) -> list[nn.Module]:
        networks = (*conv.pre_nns, *conv.post_nns)
        return [*FusedConv.replaced_parts(conv), *networks, *(network[0] for network in networks)]

    @staticmethod
    def aggregations_of(conv: Any) -> list[nn.Module]:
        return list(conv.aggr_module.aggr.aggrs)

    def forward(self, x: Any, edge_index: Any, edge_attr: Tensor | None = None) -> Tensor:
        if torch.compiler.is_compiling():
            return super().forward(x, edge_index, edge_attr)
        self.last_reason = self.reason_now(x, edge_index, {"edge_attr": edge_attr})
        if self.last_reason or x.size(0) == 0 or x.shape[1:] != (self.in_channels,):
            return super().forward(x, edge_index, edge_attr)
        messages = messages_of_edges(edge_index, len(x), len(x), x.dtype, by_degree=True)
        functions = self.functions()
        order, position = messages.order, messages.position
        towers, width = self.towers, self.F_in
        weight = torch.stack([before[0].weight for before in self.pre_nns])  # (towers, width, 2 * width)
        bias = torch.stack([before[0].bias for before in self.pre_nns])
        weight_target, weight_sender = weight.split(width, -1)
        x = x.view(-1, towers if self.divide_input else 1, width).expand(-1, towers, -1)
        sent = (
            torch.einsum("ntf,tof->nto", x, weight_sender)
            if self.divide_input
            else (x[:, 0] @ weight_sender.flatten(0, 1).T)
        )
        values = messages.aggregate(sent.reshape(-1, towers * width), functions)
        values = [value.view(-1, towers, width) for value in values]
        x = Permute.apply(x, order, position)
        groups = messages.graph.incoming.groups
        cost = LAUNCHES_OF_A_GROUP // width**2 if x.is_cuda else ROWS_OF_A_GROUP
        if len(groups) * cost <= len(x):
            out = self._mix_by_degree(x, values, functions, groups, weight_target, bias)
        else:
            out = self._mix(x, values, functions, messages.degree, weight_target, bias)
        out = torch.cat([after[1:](out[:, tower]) for tower, after in enumerate(self.post_nns)], dim=1)
        return self.lin(Permute.apply(out, position, order))

    def _mix_by_degree(
        self, x: Tensor, values: list[Tensor], functions: list[str], groups: Any, weight_target: Tensor, bias: Tensor
    ) -> Tensor:
        """Apply the first layer after the aggregation to nodes of equal degree, whose scalers are one linear map.

        This map takes the values that were sent, so that what the target adds to each goes into the map of x.
        """
        degree = torch.tensor([[degree] for degree, _ in groups], dtype=x.dtype, device=x.device)
        scale = self._scales(degree) * (degree > 0)
        weight, after = self._first_after(len(functions))
        weight_x, weight_values = weight
        mixed = torch.einsum("gs,tosaf->gtoaf", scale, weight_values)
        counts = torch.cat(
            [degree if name == "sum" else torch.full_like(degree, name in OF_BOTH) for name in functions], 1
        )
        shared = torch.einsum("ga,gtoaf->gtof", counts, mixed)
        weight_x = weight_x + shared @ weight_target
        constant = after + (shared @ bias.unsqueeze(-1)).squeeze(-1)
        maps = torch.cat([weight_x, mixed.flatten(-2)], -1).transpose(-2, -1)
        inputs = torch.cat([x, *values], -1).split([count for _, count in groups])
        mixed_rows = [
            torch.baddbmm(added.unsqueeze(1), rows.transpose(0, 1), each).transpose(0, 1)
            for rows, each, added in zip(inputs, maps.unbind(), constant.unbind(), strict=True)
        ]
        return torch.cat(mixed_rows)

    def _mix(
        self, x: Tensor, values: list[Tensor], functions: list[str], degree: Tensor, weight_target: Tensor, bias: Tensor
    ) -> Tensor:
        """Apply the first layer after the aggregation to each scaled value."""
        degree = degree.to(x.dtype).view(-1, 1, 1)
        own = torch.einsum("ntf,tof->nto", x, weight_target) + bias
        for at, name in enumerate(functions):
            if name in OF_BOTH:
                own_part = own * degree if name == "sum" else own
                values[at] = torch.where(degree > 0, values[at] + own_part, 0.0)
        scale = self._scales(degree[:, 0])
        (weight_x, weight_values), after = self._first_after(len(functions))
        mixed = torch.einsum("ntaf,tosaf->ntso", torch.stack(values, 2), weight_values)
        return torch.einsum("ntf,tof->nto", x, weight_x) + after + torch.einsum("ns,ntso->nto", scale, mixed)

    def _first_after(self, num_functions: int) -> tuple[tuple[Tensor, Tensor], Tensor]:
        """Return the weights of the first layer after the aggregation: for x, for each value, and the bias."""
        weight = torch.stack([after[0].weight for after in self.post_nns])
        weight_x, weight_values = weight.split([self.F_in, weight.size(-1) - self.F_in], -1)
        shape = (len(self.aggr_module.scaler), num_functions, self.F_in)
        return (weight_x, weight_values.unflatten(-1, shape)), torch.stack([after[0].bias for after in self.post_nns])

    def _scales(self, degree: Tensor) -> Tensor:
        """Return the factors ``(..., S)`` of nodes with these degrees ``(..., 1)``."""
        aggregation = self.aggr_module
        return torch.cat([SCALERS[scaler](degree, aggregation) for scaler in aggregation.scaler], -1).to(degree.dtype)


class Permute(torch.autograd.Function):
    """Rows in another order; the backward pass gathers, too, where that of an index adds."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, order: Tensor, position: Tensor) -> Tensor:
        ctx.save_for_backward(order, position)
        ctx.save_for_forward(order, position)
        return x.index_select(0, order)

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> Tensor:
        order, position = ctx.saved_tensors
        return Permute.apply(tangent, order, position)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        order, position = ctx.saved_tensors
        return Permute.apply(grad, position, order), None, None


FUSED: dict[type, type[FusedConv]] = {
    kind.original: kind for kind in (FusedSAGEConv, FusedGINConv, FusedGraphConv, FusedPNAConv)
}


def reason_to_leave(conv: MessagePassing) -> str:
    """Return why a convolution of PyG is not replaced; an empty string if it can be."""
    fused = FUSED.get(type(conv))
    if fused is None:
        return f"{type(conv).__name__} has no fused form"
    if reason := reason_of_settings(conv, fused):
        return reason
    try:
        for part in fused.replaced_parts(conv):
            check_untouched(part)
    except UnsupportedModelError as error:
        return error.reason
    return ""


def reason_of_settings(conv: MessagePassing, fused: type[FusedConv]) -> str:
    """Return why a convolution with these settings and parts has no fused form; else an empty string.

    Each call asks again, because attributes of a module may be set at any time.
    """
    if conv.flow != "source_to_target":
        return f"flow={conv.flow!r} has no fused form"
    if conv.explain or conv.decomposed_layers != 1:
        return "explain or decomposed_layers was set"
    if reason := fused.reason_to_leave(conv):
        return reason
    unknown = [part for part in fused.aggregations_of(conv) if function_of(part) is None]
    return f"its aggregation {unknown[0]} has no fused form" if unknown else ""


def is_altered(part: nn.Module) -> bool:
    """Return whether hooks, or methods of its own, change what a module computes."""
    is_hooked = has_hooks(part) or torch.nn.modules.module._has_any_global_hook()
    return is_hooked or not vars(part).keys().isdisjoint(("forward", "message", "aggregate", "update"))


def change_class(conv: MessagePassing, kind: type[MessagePassing]) -> None:
    """Switch the class of a convolution, and drop the ``propagate`` that PyG sets where an explanation ends."""
    own = vars(conv).get("propagate")
    if own is not None and own == getattr(conv, "_jinja_propagate", None):
        del conv.propagate
    conv.__class__ = kind


def accelerate(model: nn.Module) -> nn.Module:
    """Replace convolutions of PyG, in place, by equivalents that gather and reduce in one pass over the neighbours.

    Replaced are, wherever they stand in the model (``GraphSAGE``, ``GIN``, ``PNA``, ``HeteroConv``, your own):

    - ``SAGEConv``, ``GINConv`` and ``GraphConv`` without edge weights, with any of the aggregations max, min, median,
      mean, sum, std and var, or several of them;
    - ``PNAConv`` without edge features and with one layer before the aggregation.

    They keep parameters, buffers and ``state_dict``, pickle, and give PyG's values up to rounding; the gradient of a
    largest or smallest value goes to one of equal neighbours, where PyG shares it. Neighbour lists are sorted once for
    an ``edge_index``; a new one, as of each batch, is sorted in the first layer that takes it. Other convolutions are
    left, and calls that the kernels do not take (sparse tensors, edge weights, hooks, explanations, replaced parts,
    ``torch.compile``) run PyG's code: :func:`report` names the reasons. Call :func:`restore` before
    ``torch.jit.script``.

    Args:
        model: any module.

    Returns:
        The model.

    Example:
        >>> import torch, graphact
        >>> from torch_geometric.nn import GraphSAGE
        >>> model = graphact.pyg.accelerate(GraphSAGE(3, 8, num_layers=2, aggr="max"))
        >>> graphact.pyg.report(model)[0]
        ConvReport(name='convs.0', kind='SAGEConv', is_fused=True, reason='')
        >>> model(torch.randn(3, 3), torch.tensor([[0, 1, 2], [1, 2, 0]])).shape
        torch.Size([3, 8])
    """
    check_module(model)
    for module in model.modules():
        if isinstance(module, MessagePassing) and not isinstance(module, FusedConv) and not reason_to_leave(module):
            change_class(module, FUSED[type(module)])
    return model


def restore(model: nn.Module) -> nn.Module:
    """Make the convolutions that :func:`accelerate` replaced PyG's own again, in place; return the model."""
    for module in check_module(model).modules():
        if isinstance(module, FusedConv):
            change_class(module, module.original)
            module.__dict__.pop("last_reason", None)
    return model


def report(model: nn.Module) -> list[ConvReport]:
    """Return for each of PyG's convolutions in a model whether it is replaced, and why not.

    Example:
        >>> import graphact
        >>> from torch_geometric.nn import GAT
        >>> graphact.pyg.report(graphact.pyg.accelerate(GAT(3, 8, num_layers=1)))[0].reason
        'GATConv has no fused form'
    """
    found = []
    for name, module in check_module(model).named_modules():
        if isinstance(module, FusedConv):
            found.append(ConvReport(name, module.original.__name__, True, module.last_reason))
        elif isinstance(module, MessagePassing):
            reason = reason_to_leave(module) or "it can be replaced: call accelerate"
            found.append(ConvReport(name, type(module).__name__, False, reason))
    return found


def check_module(model: nn.Module) -> nn.Module:
    """Return the model; raise if it is not a module."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    return model
