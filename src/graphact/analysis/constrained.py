"""Training with the Lipschitz constant held below a limit."""

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from graphact._checks import check_positive
from graphact.analysis.lipschitz import certified_norms
from graphact.analysis.parts import take_apart
from graphact.graph import Graph
from graphact.graph.graph import check_graph
from graphact.nn import FIR, GCNN, GraphFilter, GraphModule
from graphact.nn.activation import MixedActivation

ROUNDING = 1e-6  # what float32 may lose when a tensor is rescaled


def lipschitz_constrained(module: GraphModule, graph: Graph, limit: float) -> GraphModule:
    r"""Hold the certified Lipschitz constant of a module on a graph below a limit, in training and after.

    The last linear coefficients of the module (the readout of a network, beta and h of an activation, the taps of a
    filter) are parametrized: wherever they are used, they are first multiplied by
    :math:`\min(1, \mathrm{limit} / L)` with the certified constant L that they would give, which depends on all
    parameters and is proportional to these. Gradients flow through the factor. The module is changed in place.

    The constant is certified for this graph. :func:`release` makes the rescaled coefficients ordinary ones again, as
    saving to a file needs them.

    Args:
        module: a GCNN, an FIR, a filter bank, or an activation with coefficients.
        graph: the graph.
        limit: the constant that is never exceeded, above 0.

    Returns:
        The module.

    Raises:
        TypeError: the module has no coefficients, or nothing is known about it.
        ValueError: limit is not positive, or the module has a limit already.

    Example:
        >>> import torch, graphact
        >>> from graphact.analysis import lipschitz_bound, lipschitz_constrained
        >>> graph = graphact.Graph.stochastic_block_model([5, 5], 0.8, 0.2).normalize("spectral")
        >>> model = lipschitz_constrained(graphact.nn.GCNN([1, 4, 4], activation="max-ga"), graph, limit=0.5)
        >>> lipschitz_bound(model, graph).value <= 0.5
        True
    """
    graph = check_graph("graph", graph).to("cpu", torch.float64)
    limit = check_positive("limit", limit)
    take_apart(module)
    shared = Limit(module, graph, limit)
    for part, name in last_coefficients(module):
        if parametrize.is_parametrized(part, name):
            raise ValueError(
                f"module must have no limit yet; release it first: {name} of {type(part).__name__} has one"
            )
        parametrize.register_parametrization(part, name, Rescaled(shared))
    return module


def release(module: GraphModule) -> GraphModule:
    """Make the coefficients of a constrained module ordinary ones again, with the values that the limit gave them."""
    places = last_coefficients(module)
    values = [getattr(part, name).detach().clone() for part, name in places]
    for (part, name), value in zip(places, values, strict=True):
        if parametrize.is_parametrized(part, name):
            parametrize.remove_parametrizations(part, name, leave_parametrized=False)
            getattr(part, name).data.copy_(value)
    return module


def last_coefficients(module: nn.Module) -> list[tuple[nn.Module, str]]:
    """The parameters that the whole module is proportional to, constants aside."""
    if isinstance(module, GCNN | FIR):
        if isinstance(module.readout, nn.Linear):
            return [(module.readout, "weight")]
        activation = module.activations[-1] if isinstance(module, GCNN) else None
        return last_coefficients(activation if isinstance(activation, MixedActivation) else module.filters[-1])
    if isinstance(module, MixedActivation):
        return [(module, "beta"), (module, "weights")]
    if isinstance(module, GraphFilter):
        return [(module, "taps")]
    raise TypeError(f"module must have coefficients to rescale, got {type(module).__name__}")


class Limit:
    """What the rescaled tensors of one module share; no module itself, so that it is no part of what it limits."""

    def __init__(self, module: nn.Module, graph: Graph, limit: float) -> None:
        self.module, self.graph, self.limit = module, graph, limit
        self.measuring = False

    def factor(self) -> Tensor:
        """What brings the module within its limit."""
        self.measuring = True  # in the meantime the tensors are what they are without a limit
        try:
            constant = certified_norms(take_apart(self.module), self.graph, thorough=False).max()
        finally:
            self.measuring = False
        limit = self.limit * (1 - ROUNDING)
        return torch.where(constant > limit, limit / constant, 1.0)


class Rescaled(nn.Module):
    """A tensor multiplied by the factor of its module."""

    def __init__(self, shared: Limit) -> None:
        super().__init__()
        self.shared = shared

    def forward(self, original: Tensor) -> Tensor:
        """The tensor as the module sees it."""
        return original if self.shared.measuring else original * self.shared.factor().to(original)
