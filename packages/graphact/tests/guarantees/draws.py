"""Random modules on random graphs, random pairs of signals, and the one check that all soundness tests use."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch

from graphact import Graph
from graphact.guarantees import (
    EdgeNoise,
    LostLinks,
    attack,
    certify,
    empirical_lipschitz,
    empirical_topology,
    lipschitz_bound,
    topology_bound,
)
from graphact.nn import (
    FIR,
    GCNN,
    GraphAdaptive,
    GraphAdaptiveKernel,
    GraphFilter,
    Localized,
    LocalizedMax,
    LocalizedMedian,
    ReLU,
)
from graphact.nn.module import GraphModule, describe
from graphact.spec import Filter, Linear, Pointwise
from graphact.spec.reductions import KERNEL, MIN
from support.graphs import random_matrix

PERTURBATIONS = (EdgeNoise(0.1), LostLinks(2))
GRAPHS = 8  # side by side in one union; nothing passes from one to another
ROUNDING = 1e-9
KINDS = ("chain", "gcnn", "fir", "activation", "filter", "mean")
ACTIVATIONS = ("relu", "max-l", "median-l", "max-ga", "median-ga", "kernel-ga", "min-ga")
MEANS = {"mean": {}, "log-mean-exp": {"temperature": 0.4}, "trimmed-mean": {"trim": 0.3}, "std": {}}


class LocalizedMin(Localized):
    operation = MIN


class LocalizedKernel(Localized):
    operation = KERNEL


class Chain(GraphModule):
    """Parts one after the other, in any order."""

    def __init__(self, *parts):
        super().__init__()
        self.parts = torch.nn.ModuleList(parts)

    def forward(self, x, graph, edge_weight=None):
        for part in self.parts:
            x = part(x, graph) if isinstance(part, GraphModule) else part(x)
        return x

    def describe(self):
        return tuple(layer for number, part in enumerate(self.parts) for layer in describe(part, f"parts.{number}"))


@dataclass(frozen=True)
class Draw:
    """A module, a union of random graphs, and the number of the graph that each node belongs to."""

    module: torch.nn.Module
    graph: Graph
    part: torch.Tensor
    features: int

    def signals(self, count, generator):
        """Pairs of signals: near and far, dense and sparse, along random signs; (count, N, F) each."""
        x = torch.randn(count, len(self.part), self.features, dtype=torch.float64, generator=generator)
        x = x * 10 ** uniform((count, 1, 1), -2, 1, generator)
        step = torch.randn(x.shape, dtype=torch.float64, generator=generator)
        step = torch.where(uniform((count, 1, 1), 0, 1, generator) < 0.5, step.sign(), step)
        step = step * (uniform(x.shape, 0, 1, generator) < uniform((count, 1, 1), 0, 1.5, generator))
        return x, x + step * 10 ** uniform((count, 1, 1), -4, 1, generator)

    def largest_in_part(self, values):
        """The largest of (B, N) over the graph that each node belongs to, (B, N)."""
        groups = torch.full((values.size(0), GRAPHS), -torch.inf, dtype=values.dtype)
        return groups.scatter_reduce(1, self.part.expand_as(values), values, "amax")[:, self.part]


def uniform(shape, low, high, generator):
    return low + (high - low) * torch.rand(shape, dtype=torch.float64, generator=generator)


def draw(seed, kind=None, max_nodes=6):
    """Draw number `seed`: every kind of module, every option, coefficients of any sign and size."""
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    matrices = [random_matrix(rng, int(rng.integers(1, max_nodes + 1))) for _ in range(GRAPHS)]
    graph = Graph.union([with_edges(matrix) for matrix in matrices])
    if rng.random() < 0.5 and graph.num_edges:
        graph = graph.normalize("random_walk")
    part = torch.repeat_interleave(torch.arange(GRAPHS), torch.tensor([len(matrix) for matrix in matrices]))
    module, features = random_module(rng, kind or rng.choice(["activation", "filter", "gcnn", "gcnn", "gcnn", "fir"]))
    return Draw(shake(module.double(), rng), graph, part, features)


def with_edges(matrix):
    """A graph whose edges are the entries that are not zero."""
    target, source = np.nonzero(matrix)
    return Graph.from_edge_index(np.stack([source, target]), matrix[target, source], num_nodes=len(matrix))


def random_module(rng, kind):
    hops, closed = int(rng.integers(1, 4)), bool(rng.random() < 0.3)
    if kind == "chain":
        return random_chain(rng)
    if kind == "mean":
        return random_mean(rng, hops, closed)
    if kind == "activation":
        features = int(rng.integers(1, 4))
        return random_activation(rng, hops, features if rng.random() < 0.5 else None, closed), features
    features = [int(width) for width in rng.integers(1, 4, size=rng.integers(2, 5))]
    orders = [int(order) for order in rng.integers(0, 4, size=len(features) - 1)]
    outputs = [None, 1, 3][rng.integers(3)]
    bias = bool(rng.random() < 0.5)
    if kind == "filter":
        return GraphFilter(features[0], features[1], order=orders[0], bias=bias), features[0]
    if kind == "fir":
        return FIR(features, order=orders, out_features=outputs, bias=bias), features[0]
    name = ["relu", "max-l", "median-l", "max-ga", "median-ga", "kernel-ga"][rng.integers(6)]
    options = dict(closed=closed, gamma=float(10 ** rng.uniform(-1, 1)), learn_gamma=bool(rng.random() < 0.5))
    per_feature = bool(rng.random() < 0.5)
    return GCNN(
        features,
        order=orders,
        activation=name,
        hops=hops,
        out_features=outputs,
        bias=bias,
        per_feature=per_feature,
        **options,
    ), features[0]


def random_chain(rng):
    """Up to five parts of any kind: filters after filters, activations after activations, linear maps anywhere."""
    width = features = int(rng.integers(1, 4))
    parts = []
    for _ in range(rng.integers(1, 6)):
        kind, wider = rng.integers(5), int(rng.integers(1, 4))
        if kind == 0:
            parts.append(GraphFilter(width, wider, order=int(rng.integers(0, 3)), bias=bool(rng.random() < 0.5)))
        elif kind == 1:
            parts.append(torch.nn.Linear(width, wider, bias=bool(rng.random() < 0.5)))
        elif kind == 2:
            parts.append(torch.nn.ReLU())
        elif kind == 3:
            parts.append(random_activation(rng, int(rng.integers(1, 3)), width if rng.random() < 0.5 else None, False))
        else:
            parts.append([LocalizedMin, LocalizedKernel][rng.integers(2)](hops=2, closed=bool(rng.random() < 0.5)))
        width = wider if kind < 2 else width
    return Chain(*parts), features


def random_mean(rng, hops, closed):
    """A mean or the standard deviation, alone or in a network; shares know what selects a value, and not these."""
    op, options = [*MEANS.items()][rng.integers(len(MEANS))]
    options = {**options, "hops": hops, "closed": closed, "unshifted": bool(rng.random() < 0.3)}
    features = int(rng.integers(1, 4))
    if rng.random() < 0.3:
        return GraphAdaptive(op, **options), features
    return GCNN([features, 3, 2], order=1, activation=lambda width: GraphAdaptive(op, width, **options)), features


def random_activation(rng, hops, features, closed):
    name = ACTIVATIONS[rng.integers(len(ACTIVATIONS))]
    if name == "relu":
        return ReLU()
    if name == "kernel-ga":
        return GraphAdaptiveKernel(
            hops=hops,
            features=features,
            closed=closed,
            gamma=float(10 ** rng.uniform(-1, 1)),
            learn_gamma=bool(rng.random() < 0.5),
        )
    if name.endswith("-l"):
        return {"max-l": LocalizedMax, "median-l": LocalizedMedian}[name](hops=hops, features=features, closed=closed)
    return GraphAdaptive(name.removesuffix("-ga"), hops=hops, features=features, closed=closed)


def shake(module, rng):
    """Coefficients of either sign, some of them zero."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if "log_" not in name:
                noise = torch.from_numpy(rng.normal(size=tuple(parameter.shape)))
                parameter.copy_(noise * float(10 ** rng.uniform(-1, 0.5)) * float(rng.random() < 0.95))
    return module


def violations(drawn, per_node, x, other):
    """Count the (graph, signal, perturbation) that break |f(x) - f(x')| <= L |x - x'| at a node, and all of them.

    The norm of the perturbation is taken over the graph that a node belongs to, so every graph is a case of its own.
    """
    with torch.no_grad():
        one, two = drawn.module(x, drawn.graph), drawn.module(other, drawn.graph)
    moved = (one - two).abs().amax(-1)
    allowed = per_node * drawn.largest_in_part((x - other).abs().amax(-1))
    lost = 1e-13 * (one.abs().amax(-1) + two.abs().amax(-1) + 1)
    broken = drawn.largest_in_part(moved - allowed * (1 + ROUNDING) - lost) > 0
    first = torch.tensor([0, *(drawn.part.diff().nonzero().flatten() + 1).tolist()])
    return int(broken[:, first].sum()), x.size(0) * GRAPHS


def check_sound(module, graph, x, generator, radius=0.1, perturbations=PERTURBATIONS):
    """Nothing that searches and random perturbations find is beyond what is certified."""
    bound, certificate = lipschitz_bound(module, graph), certify(module, graph, x, radius)
    found = empirical_lipschitz(module, graph, x, starts=1, steps=10, generator=generator)
    assert (found.per_node <= bound.per_node * (1 + 1e-9) + 1e-8).all()
    check_certificate(certificate, attack(module, graph, x, radius, steps=4, generator=generator))
    for perturbation in perturbations:
        allowed = topology_bound(module, graph, perturbation, x).per_node
        moved = empirical_topology(module, graph, x, perturbation, draws=4, generator=generator)
        assert (moved <= allowed * (1 + 1e-9) + 1e-9).all()


def check_certificate(certificate, reached, room=0.0):
    """No attack leaves an interval, up to ``room``, or changes a decision."""
    assert (reached.lower >= certificate.lower - room).all()
    assert (reached.upper <= certificate.upper + room).all()
    if certificate.decisions is not None:
        assert not (reached.changed & certificate.certified).any()


rational = np.vectorize(Fraction, otypes=[object])


def exactly(layers, x, matrix):
    """Evaluate layers on values ``(N, F)``, arrays of rational numbers as the matrix is."""
    for layer in layers:
        match layer:
            case Filter():
                taps, near = rational(layer.taps.detach()), x
                x = near @ taps[0]
                for tap in taps[1:]:
                    near = matrix @ near
                    x = x + near @ tap
            case Linear():
                x = x @ rational(layer.weight.detach().T)
            case Pointwise():
                x = np.maximum(x, Fraction(0))
            case _:  # the graph-adaptive maximum over one hop
                near, others = matrix @ x, (matrix != 0) & ~np.eye(len(matrix), dtype=bool)
                best = np.stack([near[row].max(0) if row.any() else 0 * near[0] for row in others])
                beta, weight = (rational(part.detach()) for part in (layer.beta, layer.weights[0]))
                x = beta * np.maximum(x, Fraction(0)) + weight * best
        if isinstance(layer, Filter | Linear) and layer.bias is not None:
            x = x + rational(layer.bias.detach())
    return x
