"""In which community did a diffusion start? The task, and better inputs that nodes make of their signals."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from graphact import functional
from graphact._checks import check_choice, check_integer
from graphact.graph import Graph
from graphact.training import Task
from graphact_lab.data.communities import BlockModel
from graphact_lab.splits import check_drawn, data_generator, eighty_ten_ten

NAME = "source-localization"
BLOCKS = BlockModel(communities=4, community_size=10)
STEPS = 30
SOURCES = (7, 1, 2)  # of a community, that train, validate and test where test sources are unseen


def source_localization(
    graph: int = 0, split: int = 0, node: int = 0, seed: int = 0, *, dtype: torch.dtype = torch.float32
) -> Task:
    r"""Tell the community of the source from a diffused signal, at one node (section 4.1 of the paper).

    The graph is a stochastic block model of 4 communities of 10 nodes (edge probabilities 0.8 within and 0.1 between
    them), redrawn until it is connected. The 1200 signals are :math:`S^t \delta_c` for every node c and
    t = 0, ..., 29, ordered by c, then t; the class is the community of c. Split 80/10/10 at random. The answer is
    read at the best connected node of one community: the one with the most edges, the lowest number among equals.

    Args:
        graph: number of the graph; a graph depends on it and on the seed.
        split: number of the split; a split depends on it, on the graph and on the seed.
        node: community, 0 to 3, at whose best connected node the answer is read.
        seed: seed of all randomness.
        dtype: floating-point type of graph and signals.

    Example:
        >>> from graphact_lab.tasks import source_localization
        >>> task = source_localization(graph=3, split=1, node=2)
        >>> task.inputs.shape, task.targets[[0, 299, 300]]
        (torch.Size([1200, 40, 1]), tensor([0, 0, 1]))
        >>> 20 <= task.node < 30
        True
    """
    return tasks_on_graph(BLOCKS, graph, [split], [node], seed, dtype)[0]


def source_localization_tasks(
    graphs: int = 10,
    splits: int = 10,
    nodes: int = 4,
    seed: int = 0,
    *,
    dtype: torch.dtype = torch.float32,
    sources: str = "random",
    **blocks: Any,
) -> list[Task]:
    """All tasks ``source_localization(graph, split, node, seed)``, by graph, split, node; they share graph and signals.

    ``communities``, ``community_size``, ``p`` and ``q`` give another stochastic block model than the paper's;
    ``sources="unseen"`` splits sources instead of samples, see :func:`with_unseen_sources`.

    Example:
        >>> from graphact_lab.tasks import source_localization_tasks
        >>> tasks = source_localization_tasks(graphs=2, splits=3)
        >>> len(tasks), tasks[0].inputs is tasks[11].inputs, tasks[0].inputs is tasks[12].inputs
        (24, True, False)
    """
    counts = {"graphs": graphs, "splits": splits, "nodes": nodes}
    drawn, dealt, read = (range(check_drawn(name, count, minimum=1)) for name, count in counts.items())
    model = replace(BLOCKS, **blocks)
    if nodes > model.communities:
        raise ValueError(
            f"nodes must be at most {model.communities}, the number of communities, in each of which one node answers, "
            f"got {nodes}; for graphs of {nodes} nodes give community_size={-(-nodes // model.communities)}"
        )
    tasks = [task for graph in drawn for task in tasks_on_graph(model, graph, dealt, read, seed, dtype)]
    if check_choice("sources", sources, ("random", "unseen")) == "random":
        return tasks
    if (model.communities, model.community_size) != (BLOCKS.communities, BLOCKS.community_size):
        raise ValueError("sources must be 'random' with other communities than the paper's, got 'unseen'")
    return [with_unseen_sources(task) for task in tasks]


def tasks_on_graph(
    blocks: BlockModel, graph: int, splits: Sequence[int], nodes: Sequence[int], seed: int, dtype: torch.dtype
) -> list[Task]:
    """The tasks of one graph, by split, then node; they share the graph, its diffused signals and their classes."""
    generator = data_generator(f"{NAME} graph", seed, check_drawn("graph", graph))
    drawn, size = blocks.draw(generator), blocks.community_size
    shift, states = drawn.to_dense(), [torch.eye(drawn.num_nodes, dtype=torch.float64)]
    while len(states) < STEPS:
        states.append(shift @ states[-1])
    signals = torch.stack(states).permute(2, 0, 1).reshape(-1, drawn.num_nodes, 1).to(dtype)
    classes = (torch.arange(drawn.num_nodes) // size).repeat_interleave(STEPS)
    degrees = drawn.degree.view(blocks.communities, size).tolist()
    best_connected = [start * size + degree.index(max(degree)) for start, degree in enumerate(degrees)]
    if max(check_integer("node", node, minimum=0) for node in nodes) >= blocks.communities:
        raise ValueError(f"node must number a community, from 0 to {blocks.communities - 1}, got {max(nodes)}")
    drawn = drawn.to(dtype=dtype)
    return [
        Task(
            name=NAME,
            graph=drawn,
            inputs=signals,
            targets=classes,
            **eighty_ten_ten(len(signals), data_generator(f"{NAME} split", seed, graph, split))._asdict(),
            node=best_connected[node],
            out_features=blocks.communities,
            loss="cross_entropy",
            metric="accuracy",
            details={"graph": graph, "split": split, "community": node, "seed": seed},
        )
        for split in splits
        for node in nodes
    ]


def with_unseen_sources(task: Task) -> Task:
    """Return the task with all signals of a source in one part.

    The random split of the paper deals the same source at neighbouring times to training and test.
    """
    place = [task.details[name] for name in ("seed", "graph", "split")]
    generator = data_generator("unseen sources of each community", *place)
    parts: list[list[torch.Tensor]] = [[], [], []]
    for community in range(BLOCKS.communities):
        order = community * BLOCKS.community_size + torch.randperm(BLOCKS.community_size, generator=generator)
        for part, chosen in zip(parts, order.split(SOURCES), strict=True):
            part.append(chosen)
    train, validation, test = ((torch.cat(part).unsqueeze(1) * STEPS + torch.arange(STEPS)).flatten() for part in parts)
    return replace(task, train=train, validation=validation, test=test)


def local_contrast(inputs: Tensor, graph: Graph) -> Tensor:
    r"""Return the difference of a signal from its shift, relative to the largest such difference nearby.

    .. math:: d = x - S x, \qquad y_i = d_i / \max_{j \in N_i \cup \{i\}} |d_j|

    A signal that has been shifted often is nearly an eigenvector of S with eigenvalue 1, and what tells its origin is
    tiny beside it. The difference removes the large part, the division brings what is left to the size of 1, wherever
    the signal stands. It takes two exchanges. Where all differences vanish, the result is 0.

    Example:
        >>> pair = Graph.from_edge_index(torch.tensor([[0, 1], [1, 0]]), num_nodes=2)
        >>> local_contrast(torch.tensor([[[3.0], [1.0]]]), pair)
        tensor([[[ 1.],
                 [-1.]]])
    """
    exact, signal = graph.to(dtype=torch.float64), inputs.double()
    difference = signal - functional.shift(signal, exact)
    size = functional.neighborhood_max(difference.abs(), exact, closed=True)
    return torch.where(size > 0, difference / size, 0.0).to(inputs.dtype)
