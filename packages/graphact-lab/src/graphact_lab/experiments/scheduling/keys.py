"""Learned keys: networks that make a key of utilities and degrees in a few rounds, and how a fleet of them learns.

A network has L layers, each one round of messages; the keys then take part in the local greedy rule. The loss is minus
the expected load of a soft version of that rule, so that no schedule has to be known.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphact.functional import neighborhood_max
from graphact.functional.adaptive_filter import check_functions
from graphact.functional.neighborhood import functions_pass
from graphact.graph import Graph
from graphact.nn import AdaptiveFilterBank, GraphFilter
from graphact_lab.attention import GATv2
from graphact_lab.experiments.scheduling.conflicts import Conflicts, draw_random
from graphact_lab.experiments.scheduling.greedy_rules import greedy, rule_key

AGGREGATORS = check_functions(["mean", "max", "min", "std"])
TEMPERATURES = (1.0, 0.3)  # of the soft rule, at the beginning and at the end
POOL, POOL_SLOTS = 64, 60  # graphs with the queues that the centralised greedy leaves, and slots until they are taken


class SAGEMax(nn.Module):
    """``x V + max_j relu(x_j P + p) W + b``, the pooling of GraphSAGE (Hamilton et al. 2017)."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.pool, self.own = nn.Linear(in_features, in_features), nn.Linear(in_features, out_features, bias=False)
        self.last = nn.Linear(in_features, out_features)

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        return self.own(x) + self.last(neighborhood_max(torch.relu(self.pool(x)), graph))


class PNA(nn.Module):
    """Principal neighbourhood aggregation (Corso et al. 2020): four aggregators, three scalers, one tower."""

    scale = 2.3  # the mean of log(1 + d) over the graphs that networks train on

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.own, self.sent = nn.Linear(in_features, in_features), nn.Linear(in_features, in_features, bias=False)
        self.last = nn.Linear(13 * in_features, out_features)

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        *values, _ = graph.one_hop(self.sent(x), functions_pass, AGGREGATORS, False, False)
        own, degree = self.own(x), graph.degree.to(x.dtype).unsqueeze(-1)
        parts = torch.cat([own + values[0], own + values[1], own + values[2], values[3]], -1) * (degree > 0)
        grown = (1 + degree).log() / self.scale
        scaled = [parts, parts * grown, parts / grown.clamp_min(0.1)]
        return self.last(torch.cat([x, *scaled], -1))


CONVOLUTIONS: dict[str, Callable[[int, int], nn.Module]] = {
    "pointwise": lambda inputs, outputs: GraphFilter(inputs, outputs, order=1, bias=True),
    "bank-max": lambda inputs, outputs: AdaptiveFilterBank(inputs, outputs, order=1, ops=["max"]),
    "bank": lambda inputs, outputs: AdaptiveFilterBank(inputs, outputs, order=1, ops=["max", "min"]),
    "sage-max": SAGEMax,
    "gatv2": GATv2,
    "pna": PNA,
    "topology": lambda inputs, outputs: GraphFilter(inputs, outputs, order=1, bias=True),
}


class KeyNetwork(nn.Module):
    """The logarithm of the key of each link: that of the rule w / (1 + d), plus what a network adds.

    Every layer is a convolution of one round and a GELU, added to its input from the second layer on; one linear map
    reads the result. The method "topology" does not see utilities: its network runs once for a graph and takes no round
    of a slot, as the GCN of Zhao et al. (IEEE TWC 2023) does.

    Args:
        method: a name of ``CONVOLUTIONS``.
        layers, width: how many layers, and their features.
    """

    def __init__(self, method: str, layers: int, width: int) -> None:
        super().__init__()
        self.sees_weight = method != "topology"
        widths = [2 + self.sees_weight, *[width] * layers]
        pairs = pairwise(widths)
        self.convolutions = nn.ModuleList(CONVOLUTIONS[method](*pair) for pair in pairs)
        self.readout = nn.Linear(width, 1)

    def forward(self, weight: Tensor, degree: Tensor, graphs: Sequence[Graph]) -> Tensor:
        """Keys ``(..., N)`` from utilities ``(..., N)``, with the graph of each layer's round."""
        static = torch.stack([1 / (1 + degree), (1 + degree).log() / 3], -1).expand(*weight.shape, 2)
        x = torch.cat([weight.unsqueeze(-1), static], -1) if self.sees_weight else static
        for number, (convolution, graph) in enumerate(zip(self.convolutions, graphs, strict=True)):
            made = F.gelu(convolution(x, graph))
            x = x + made if number else made
        return self.readout(x).squeeze(-1) + rule_key("w / (1 + d)", weight, degree)


class KeyFleet:
    """Networks of one shape with seeds of their own; one call computes the keys of all.

    Attributes:
        parameters: by name, with a leading dimension of R, the networks.
    """

    def __init__(self, method: str, layers: int, width: int, seeds: Sequence[int], device: str = "cpu") -> None:
        networks = list[nn.Module]()
        with torch.random.fork_rng(devices=[]):
            for seed in seeds:
                torch.manual_seed(seed)
                networks.append(KeyNetwork(method, layers, width).to(device))
        self.template, self.layers, self.sees_weight = networks[0], layers, method != "topology"
        self.parameters, _ = torch.func.stack_module_state(networks)

    def __call__(self, weight: Tensor, conflicts: Conflicts, graphs: Iterator[Graph] | None = None) -> Tensor:
        """Keys ``(R, ..., N)`` of utilities ``(R, ..., N)``; ``graphs`` as in :func:`local_greedy`."""
        used = [conflicts.graph if graphs is None or not self.sees_weight else next(graphs) for _ in range(self.layers)]

        def run(state: dict[str, Tensor], own: Tensor) -> Any:
            return torch.func.functional_call(self.template, state, (own, conflicts.degree, used))

        keys: Tensor = torch.vmap(run)(self.parameters, weight)
        return keys

    @property
    def num_parameters(self) -> int:
        return sum(parameter[0].numel() for parameter in self.parameters.values())


def soft_load(key: Tensor, weight: Tensor, conflicts: Conflicts, iterations: int, temperature: float) -> Tensor:
    r"""The expected share of all utility that soft iterations of the local greedy rule carry, ``(...,)``.

    In an iteration an active link sends with the probability
    :math:`\prod_{j \in N_i} (1 - a_j \sigma((k_j - k_i) / \tau))`, where :math:`a_j` is the probability that link j is
    still active: it neither sends nor hears a neighbour that does.
    """
    target, source = conflicts.graph.to_edge_index()[0]
    beaten = torch.sigmoid((key.index_select(-1, source) - key.index_select(-1, target)) / temperature)

    def over_neighbors(logarithms: Tensor) -> Tensor:
        return torch.zeros_like(key).index_add(-1, target, logarithms).exp()

    active, sends = torch.ones_like(key), torch.zeros_like(key)
    for _ in range(iterations):
        risk = (active.index_select(-1, source) * beaten).clamp_max(1 - 1e-6)
        wins = active * over_neighbors(torch.log1p(-risk))
        sends = sends + wins
        free = over_neighbors(torch.log1p(-wins.index_select(-1, source).clamp_max(1 - 1e-6)))
        active = (active - wins).clamp_min(0) * free
    return (weight * sends).sum(-1) / weight.sum(-1)


def queue_states(seed: int, nodes: int, device: str) -> tuple[Conflicts, Tensor, float]:
    """Conflict graphs, queues that the centralised greedy leaves on them ``(N,)``, and the mean queue."""
    generator = torch.Generator().manual_seed(seed)
    conflicts = draw_random(POOL, nodes, generator, device)
    queue = torch.zeros(len(conflicts.member), device=device)
    rate = torch.rand(POOL, generator=generator).to(device)[conflicts.member] * 2 / (1 + conflicts.degree)
    for _ in range(POOL_SLOTS):
        queue = queue + torch.poisson(5 * rate.cpu(), generator=generator).to(device)
        sends = greedy(rule_key("w / (1 + d)", queue, conflicts.degree), queue, conflicts)
        queue = torch.where(sends, (queue - 5).clamp_min(0), queue)
    return conflicts, queue, queue.mean().item()


def train(
    fleet: KeyFleet,
    *,
    iterations: int,
    steps: int,
    rate: float,
    graphs: int,
    nodes: int,
    seed: int,
    device: str,
    with_queues: bool = False,
    progress: Callable[[int], None] | None = None,
) -> None:
    """Train a fleet on fresh graphs at every step, which all its networks see, each with utilities of its own.

    Args:
        fleet: the networks, which are changed.
        iterations: of the local greedy rule that the keys are for.
        steps, rate, graphs, nodes: steps of Adam with a rate that falls along a cosine, graphs of a step, their size.
        seed: of graphs and utilities.
        device: where the fleet is.
        with_queues: half of the steps take queues that the centralised greedy leaves, divided by their mean.
        progress: called after each step with its number.
    """
    generator, number = torch.Generator().manual_seed(seed), len(next(iter(fleet.parameters.values())))
    parameters = [parameter.requires_grad_() for parameter in fleet.parameters.values()]
    optimizer = torch.optim.Adam(parameters, lr=rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    queued, queues, mean = queue_states(seed, nodes, device) if with_queues else (None, None, 1.0)
    for step in range(steps):
        if queued is not None and queues is not None and step % 2:
            conflicts = queued
            weight = (queues / mean * torch.rand(number, len(queues), generator=generator).to(device).mul(2)).detach()
        else:
            conflicts = draw_random(graphs, nodes, generator, device)
            weight = torch.rand(number, len(conflicts.member), generator=generator).to(device)
        temperature = TEMPERATURES[0] * (TEMPERATURES[1] / TEMPERATURES[0]) ** (step / max(1, steps - 1))
        loss = -soft_load(fleet(weight, conflicts), weight, conflicts, iterations, temperature).sum()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 5.0 * number**0.5)
        optimizer.step()
        schedule.step()
        if progress is not None:
            progress(step + 1)
    for parameter in parameters:
        parameter.requires_grad_(False)
