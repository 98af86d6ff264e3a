"""Finite-time consensus: every node should answer the mean of all."""

from typing import NamedTuple

import torch
from torch import Tensor

from graphact._checks import check_integer
from graphact.graph import Graph
from graphact.tasks.communities import community_graph
from graphact.tasks.randomness import generator_for
from graphact.tasks.splits import eighty_ten_ten
from graphact.tasks.task import Task

NAME = "consensus"
COMMUNITIES = 5
COMMUNITY_SIZE = 20
SIGNALS = 2500


class Opinions(NamedTuple):
    """Everything the splits of one graph share."""

    graph: Graph
    inputs: Tensor
    targets: Tensor


def consensus(graph: int = 0, split: int = 0, seed: int = 0, *, dtype: torch.dtype = torch.float32) -> Task:
    r"""Reach the mean of a signal at every node (section 4.2 of the paper).

    The graph is a stochastic block model of 5 communities of 20 nodes (edge probabilities 0.8 within and 0.1 between
    them), redrawn until it is connected. The 2500 signals come from :math:`\mathcal{N}(0, I)`; the target of every
    node is the mean of its signal over all nodes. Split 80/10/10 at random. For link loss, put
    ``task.graph.drop_edges(p)`` in the place of the graph.

    Args:
        graph: number of the graph; graph and signals depend on it and on the seed.
        split: number of the split; a split depends on it, on the graph and on the seed.
        seed: seed of all randomness.
        dtype: floating-point type of graph, signals and targets.

    Example:
        >>> from graphact.tasks import consensus
        >>> task = consensus()
        >>> task.inputs.shape, task.targets.shape, task.test.numel()
        (torch.Size([2500, 100, 1]), torch.Size([2500, 100, 1]), 250)
    """
    return on_split(opinions(graph, seed, dtype), graph, split, seed)


def consensus_tasks(
    graphs: int = 10, splits: int = 10, seed: int = 0, *, dtype: torch.dtype = torch.float32
) -> list[Task]:
    """All tasks ``consensus(graph, split, seed)``, by graph, then split; splits share graph and signals."""
    return [
        on_split(shared, graph, split, seed)
        for graph in range(check_integer("graphs", graphs, minimum=1))
        for shared in [opinions(graph, seed, dtype)]
        for split in range(check_integer("splits", splits, minimum=1))
    ]


def opinions(graph: int, seed: int, dtype: torch.dtype) -> Opinions:
    """The graph of one number, its random signals and their means."""
    drawn = community_graph(COMMUNITIES, COMMUNITY_SIZE, generator_for(f"{NAME} graph", seed, graph))
    generator = generator_for(f"{NAME} signals", seed, graph)
    signals = torch.randn(SIGNALS, drawn.num_nodes, 1, dtype=torch.float64, generator=generator)
    means = signals.mean(dim=1, keepdim=True).repeat(1, drawn.num_nodes, 1)
    return Opinions(drawn.to(dtype=dtype), signals.to(dtype), means.to(dtype))


def on_split(shared: Opinions, graph: int, split: int, seed: int) -> Task:
    """The task of one split."""
    parts = eighty_ten_ten(SIGNALS, generator_for(f"{NAME} split", seed, graph, split))
    return Task(
        name=NAME,
        graph=shared.graph,
        inputs=shared.inputs,
        targets=shared.targets,
        train=parts.train,
        validation=parts.validation,
        test=parts.test,
        node=None,
        out_features=1,
        loss="mse",
        metric="rmse",
        details={"graph": graph, "split": split, "seed": seed},
    )
