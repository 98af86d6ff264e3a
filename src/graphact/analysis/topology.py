"""Stability to the topology: what a perturbed graph can do to the outputs."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from graphact._checks import check_generator, check_integer, check_positive
from graphact.analysis.causes import Causes
from graphact.analysis.neighbors import MOST_ENTRIES
from graphact.analysis.parts import Network, Stage, fit_together, take_apart
from graphact.analysis.perturbations import EdgeNoise, LostLinks, Perturbation
from graphact.analysis.topology_error import through_activation, through_filter
from graphact.analysis.zonotope import Zonotope, through_stage
from graphact.graph import Graph
from graphact.graph.graph import check_graph, check_signal


@dataclass(frozen=True, eq=False)
class TopologyBound:
    r"""A bound on :math:`\|f(x; S') - f(x; S)\|_\infty`.

    Attributes:
        value: the largest change of any output.
        per_node: ``(N,)``, the largest change at each node.
        perturbation: what can happen to the graph.
    """

    value: float
    per_node: Tensor
    perturbation: Perturbation

    def __repr__(self) -> str:
        return f"TopologyBound(value={self.value:.6g}, perturbation={self.perturbation})"


@torch.no_grad()
def topology_bound(
    module: nn.Module,
    graph: Graph,
    perturbation: Perturbation,
    x: Tensor | None = None,
    *,
    magnitude: float = 1.0,
) -> TopologyBound:
    r"""Certify how far the outputs can move when the graph is perturbed after training.

    A filter multiplies values by the change of S, so a bound needs bounded values: it holds for the given signals or,
    without any, for all signals with :math:`\|x\|_\infty \le` magnitude. Weights that are not perturbed stay as they
    are; the graph is not normalised anew.

    Args:
        module: a GCNN, an FIR, a filter bank or an activation of :mod:`graphact.nn`.
        graph: the graph that the module was made for.
        perturbation: :class:`EdgeNoise` (S + E with a norm-bounded E) or :class:`LostLinks` (any that many links).
        x: signals; None for all signals up to ``magnitude``.
        magnitude: the largest value of an input, where no signals are given.

    Shapes:
        x: ``(..., N, F)``.

    Example:
        >>> import torch, graphact
        >>> from graphact.analysis import LostLinks, topology_bound
        >>> path = graphact.Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> one_hop = graphact.nn.GraphFilter(1, 1, order=1)
        >>> _ = torch.nn.init.constant_(one_hop.taps, 1.0)
        >>> topology_bound(one_hop, path, LostLinks(1))
        TopologyBound(value=1, perturbation=LostLinks(count=1))
    """
    if not isinstance(perturbation, EdgeNoise | LostLinks):
        raise TypeError(f"perturbation must be EdgeNoise or LostLinks, got {type(perturbation).__name__}")
    graph = check_graph("graph", graph)
    network = take_apart(module)
    if x is None:
        forms = Zonotope.box(
            torch.zeros(1, graph.num_nodes, network.in_features, dtype=torch.float64),
            check_positive("magnitude", magnitude),
        )
    else:
        network, x = fit_together(network, check_signal(x, graph))
        forms = Zonotope.point(x)
    graph = graph.to("cpu", torch.float64)
    causes = perturbation.causes(graph)
    width = max(network.in_features, *(stage.taps.size(2) for stage in network.stages if stage.taps is not None), 1)
    step = max(1, MOST_ENTRIES // max(1, causes.count * graph.num_nodes * width))
    parts = zip(*(tensor.split(step) for tensor in (forms.centre, forms.generators, forms.slack)), strict=True)
    per_node = torch.stack([_largest_errors(network, graph, causes, Zonotope(*part)) for part in parts]).amax(0)
    return TopologyBound(per_node.max().item(), per_node, perturbation)


def _largest_errors(network: Network, graph: Graph, causes: Causes, forms: Zonotope) -> Tensor:
    """The largest change at each node over a batch of signals."""
    errors = forms.centre.new_zeros(causes.count, *forms.centre.shape)
    for stage in network.stages:
        forms = forms.settle() if forms.slack.any() else forms
        if stage.taps is not None:
            errors = through_filter(forms, errors, stage.taps, graph, causes)
            forms = through_stage(forms, replace(stage, nonlinearity=None), graph)
        if stage.nonlinearity is not None:
            errors = through_activation(forms, errors, stage.nonlinearity, graph, causes)
            forms = through_stage(forms, Stage(None, None, stage.nonlinearity), graph)
    if network.readout is not None:
        errors = errors @ network.readout.abs().T
    return causes.total(errors).amax((0, -1))


def empirical_topology(
    module: Callable[[Tensor, Graph], Any],
    graph: Graph,
    x: Tensor,
    perturbation: Perturbation,
    *,
    draws: int = 20,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""The largest change of each node's outputs that was found, ``(N,)``: a lower bound beside :func:`topology_bound`.

    Random perturbations, and one for each of the most sensitive outputs that follows the gradient with respect to the
    weights of the edges.

    Args:
        module: anything called as ``module(x, graph)`` that can be differentiated.
        graph: the graph.
        x: signals, ``(..., N, F)``.
        perturbation: what can happen to the graph.
        draws: random perturbations, and as many along gradients.
        generator: source of randomness, on the CPU.
    """
    graph = check_graph("graph", graph)
    x = check_signal(x, graph).detach()
    check_generator(generator)
    with torch.no_grad():
        before = module(x, graph)
    largest = torch.zeros(graph.num_nodes, dtype=before.dtype, device=before.device)

    def measure(perturbed: Graph) -> Tensor:
        with torch.no_grad():
            return (module(x, perturbed) - before).abs().amax(-1).reshape(-1, graph.num_nodes).amax(0)

    for _ in range(check_integer("draws", draws, minimum=1)):
        largest = largest.maximum(measure(perturbation.draw(graph, generator)))
    edge_index, weight = graph.to_edge_index()
    for node in largest.topk(min(draws, graph.num_nodes)).indices:
        weight = weight.detach().requires_grad_()
        watched = module(x, Graph.from_edge_index(edge_index, weight, graph.num_nodes))[..., node, :]
        (gradient,) = torch.autograd.grad(watched.flatten()[watched.abs().argmax()], weight, allow_unused=True)
        if gradient is not None:
            for sign in (1.0, -1.0):
                largest = largest.maximum(measure(perturbation.attack(graph, sign * gradient)))
    return largest
