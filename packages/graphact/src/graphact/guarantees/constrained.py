"""Train with the certified Lipschitz constant held below a limit."""

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from graphact._checks import HALF_PRECISION, check_positive
from graphact.graph import Graph
from graphact.graph.graph import check_graph
from graphact.guarantees.layers import Layers, part_names, propagate_magnitude, read_layers, read_own
from graphact.guarantees.lipschitz import certified_norms, unless_nan, valid_norms
from graphact.guarantees.rules import find_rule
from graphact.nn import GraphModule
from graphact.spec import Filter, HopMixture, Layer, Linear, Pointwise, UnsupportedModelError

ROUNDING = 1e-6  # of the factor in float32, and of the constant in float64
PROPORTIONAL_TO: dict[type[Layer], tuple[str, ...]] = {
    Filter: ("taps",),
    Linear: ("weight",),
    HopMixture: ("beta", "weights"),
    Pointwise: (),  # its slopes multiply the constant of the layers before it
}


def lipschitz_constrained(module: GraphModule, graph: Graph, limit: float) -> GraphModule:
    r"""Hold the certified Lipschitz constant of a module on a graph below a limit, in training and after.

    The last linear coefficients of the module (the readout of a network, beta and h of an activation, the taps of a
    filter) are parametrized: wherever they are used, they are first multiplied by
    :math:`\min(1, \mathrm{limit} / L)` with the certified constant L that they would give, which depends on all
    parameters and is proportional to these. Gradients flow through the factor. The module is changed in place.

    The constant is certified for this graph. A bias after these coefficients is unchanged; where a trained
    classifier is to begin with the decisions it had, multiply its bias by the same factor first. :func:`release` makes
    the rescaled coefficients ordinary ones again, as saving to a file needs them.

    Args:
        module: a GCNN, an FIR, a filter bank, an activation with coefficients, or another module that describes itself.
        graph: the graph.
        limit: the constant that is never exceeded, above 0.

    Returns:
        The module.

    Raises:
        UnsupportedModelError: the module has no coefficients, or they are shared or computed, or nothing is known
            about a part of it.
        ValueError: limit is not positive, or the module has a limit already.
        TypeError: the module is in half precision.

    Example:
        >>> import torch, graphact
        >>> from graphact.guarantees import lipschitz_bound, lipschitz_constrained
        >>> graph = graphact.Graph.stochastic_block_model([5, 5], 0.8, 0.2).normalize("spectral")
        >>> model = lipschitz_constrained(graphact.nn.GCNN([1, 4, 4], activation="max-ga"), graph, limit=0.5)
        >>> lipschitz_bound(model, graph).value <= 0.5
        True
    """
    graph = check_graph("graph", graph).to("cpu", torch.float64)
    limit = check_positive("limit", limit)
    if limited_tensors(module):
        raise ValueError(f"module must have no limit yet; release it first: this {type(module).__name__} has one")
    read_own(module, graph)
    shared = Limit(module, graph, limit)
    for part, name in last_coefficients(module):
        parametrize.register_parametrization(part, name, Rescaled(shared))
    shared.is_off = False
    return module


def release(module: GraphModule) -> GraphModule:
    """Make the coefficients of a constrained module ordinary parameters again, with the values under the limit."""
    places = limited_tensors(module)
    values = [getattr(part, name).detach().clone() for part, name in places]
    for (part, name), value in zip(places, values, strict=True):
        parametrize.remove_parametrizations(part, name, leave_parametrized=False)
        getattr(part, name).data.copy_(value)
    return module


def limited_tensors(module: nn.Module) -> list[tuple[nn.Module, str]]:
    """Return the tensors of a module that a limit rescales: parts and attributes."""
    return [
        (part, name)
        for part in module.modules()
        if parametrize.is_parametrized(part)
        for name, steps in part.parametrizations.items()  # type: ignore[union-attr, operator]
        if any(isinstance(step, Rescaled) for step in steps)
    ]


def last_coefficients(module: GraphModule) -> list[tuple[nn.Module, str]]:
    """Return the parameters that the constant of the whole module is proportional to: parts and attributes."""
    layers = module.layers()
    for layer, part in zip(reversed(layers), reversed(part_names(module, layers)), strict=True):
        if names := PROPORTIONAL_TO[type(layer)]:
            return [_place(module, layers, layer.arrays()[name], part, name) for name in names]
    raise UnsupportedModelError("", f"module must have coefficients to rescale, got {type(module).__name__}")


def _place(module: nn.Module, layers: tuple[Layer, ...], array: Tensor, part: str, name: str) -> tuple[nn.Module, str]:
    """Return the owner and the attribute of the parameter that an array of the description is."""
    owned = [(owner, *item) for owner in module.modules() for item in owner.named_parameters(recurse=False)]
    places = [(owner, attribute) for owner, attribute, parameter in owned if parameter is array]
    uses = sum(other is array for layer in layers for other in layer.arrays().values())
    if not places:
        raise UnsupportedModelError(part, f"its {name} cannot be rescaled: computed from other parameters")
    if uses > 1 or len(places) > 1:
        raise UnsupportedModelError(part, f"its {name} cannot be rescaled: shared with another part")
    return places[0]


class Limit:
    """State shared by the rescaled tensors of one module; not a module itself, which would become its child."""

    def __init__(self, module: GraphModule, graph: Graph, limit: float) -> None:
        self.module, self.graph, self.limit = module, graph, limit
        self.is_off = True  # while the constant is measured, and before all parts are parametrized

    def rescale(self, original: Tensor) -> Tensor:
        """Return the tensor times the factor that brings the module within its limit."""
        if original.dtype in HALF_PRECISION:  # where rounding each coefficient may change the constant by percents
            raise TypeError(
                f"module must have a limit in float32 or float64, got {original.dtype}; autocast keeps them"
            )
        if self.is_off:
            return original * 1.0
        room = 0.0 if original.dtype == torch.float64 else torch.finfo(torch.float32).eps
        constant, limit = self.constant(room), self.limit * (1 - ROUNDING)
        factor = torch.where(constant > limit, limit / constant, 1.0)
        return original * factor.to(original)

    def constant(self, room: float) -> Tensor:
        """Return the certified constant of the module before it is rescaled.

        With room for each coefficient to be off by that part of itself, as rounding makes them.
        """
        self.is_off = True
        try:
            layers, features = read_layers(self.module)
            norms = certified_norms(layers, features, self.graph)
            norms = norms + room * without_signs(layers, features, self.graph) if room else norms
            return unless_nan(norms, torch.inf).max()
        finally:
            self.is_off = False


@torch.no_grad()
def without_signs(layers: Layers, features: int, graph: Graph) -> Tensor:
    """Bound the change of outputs ``(N, O)`` when the last coefficients do not cancel; norms are convex in these."""
    place = max(number for number, layer in enumerate(layers) if PROPORTIONAL_TO[type(layer)])
    front = valid_norms(layers[:place], features, graph)
    unit = torch.ones(graph.num_nodes, 1, dtype=torch.float64)
    moved = (
        propagate_magnitude(layers[place], unit, graph, 3.0)[0] * torch.stack([norms.max() for norms in front]).max()
    )
    for layer in layers[place + 1 :]:
        assert isinstance(layer, Pointwise)
        moved = moved * find_rule(layer).steepest
    return moved


class Rescaled(nn.Module):
    """A parametrization that multiplies a tensor by the factor of its limit."""

    def __init__(self, shared: Limit) -> None:
        super().__init__()
        self.shared = shared

    def forward(self, original: Tensor) -> Tensor:
        return self.shared.rescale(original)
