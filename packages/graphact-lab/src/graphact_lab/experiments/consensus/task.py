"""Every node should answer the mean of all: the task, better inputs, what a linear filter achieves, and lost links."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from graphact import functional
from graphact._checks import check_integer
from graphact.graph import Graph
from graphact.training import Fleet, StackedGraphs, Task, metric_of
from graphact_lab.baselines import least_squares, score_on_test
from graphact_lab.data.communities import BlockModel
from graphact_lab.preparation import SIGNAL_PREPARATIONS
from graphact_lab.protocols import Condition, Protocol, TrainingJob, run_seed
from graphact_lab.splits import check_drawn, data_generator, eighty_ten_ten

NAME = "consensus"
BLOCKS = BlockModel(communities=5, community_size=20)
SIGNALS = 2500
CENTRALITY_STEPS = 10


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
        >>> from graphact_lab.tasks import consensus
        >>> task = consensus()
        >>> task.inputs.shape, task.targets.shape, task.test.numel()
        (torch.Size([2500, 100, 1]), torch.Size([2500, 100, 1]), 250)
    """
    return tasks_on_graph(BLOCKS, graph, [split], seed, dtype)[0]


def consensus_tasks(
    graphs: int = 10, splits: int = 10, seed: int = 0, *, dtype: torch.dtype = torch.float32, **blocks: Any
) -> list[Task]:
    """All tasks ``consensus(graph, split, seed)``, by graph, then split; splits share graph and signals.

    ``communities``, ``community_size``, ``p`` and ``q`` give another stochastic block model than the paper's.
    """
    numbers, shared = (range(check_drawn(*pair, minimum=1)) for pair in (("graphs", graphs), ("splits", splits)))
    model = replace(BLOCKS, **blocks)
    return [task for graph in numbers for task in tasks_on_graph(model, graph, shared, seed, dtype)]


def tasks_on_graph(blocks: BlockModel, graph: int, splits: Iterable[int], seed: int, dtype: torch.dtype) -> list[Task]:
    """The tasks of one graph; they share the graph, its random signals and their means."""
    drawn = blocks.draw(data_generator(f"{NAME} graph", seed, check_drawn("graph", graph)))
    generator = data_generator(f"{NAME} signals", seed, graph)
    signals = torch.randn(SIGNALS, drawn.num_nodes, 1, dtype=torch.float64, generator=generator)
    means = signals.mean(dim=1, keepdim=True).repeat(1, drawn.num_nodes, 1).to(dtype)
    drawn, signals = drawn.to(dtype=dtype), signals.to(dtype)
    return [
        Task(
            name=NAME,
            graph=drawn,
            inputs=signals,
            targets=means,
            **eighty_ten_ten(SIGNALS, data_generator(f"{NAME} split", seed, graph, split))._asdict(),
            node=None,
            out_features=1,
            loss="mse",
            metric="rmse",
            details={"graph": graph, "split": split, "seed": seed},
        )
        for split in splits
    ]


def by_centrality(inputs: Tensor, graph: Graph, steps: int = CENTRALITY_STEPS) -> Tensor:
    r"""A signal divided by how much each node counts in its shifts: :math:`y = x / S^k \mathbf{1}`.

    Shifts of a signal tend to the leading eigenvector of S, and their size to a sum in which each node has the weight
    of its entry in that eigenvector. Divided by it beforehand, all nodes count alike. The weights take ``steps``
    exchanges, once for a graph; with one step they are the nodes' degrees. A node without in-neighbours
    has no weight and gives 0.

    Example:
        >>> line = Graph.from_edge_index(torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), num_nodes=3)
        >>> by_centrality(torch.tensor([[[3.0], [4.0], [5.0]]]), line, steps=1).flatten()
        tensor([3., 2., 5.])
    """
    if bool((graph.weight < 0).any()):
        raise ValueError(f"graph must have nonnegative weights, got one of {graph.weight.min().item():g}")
    exact = graph.to(dtype=torch.float64)
    weight = torch.ones(graph.num_nodes, 1, dtype=torch.float64, device=inputs.device)
    for _ in range(check_integer("steps", steps, minimum=1)):
        weight = functional.shift(weight, exact)
    return torch.where(weight > 0, inputs.double() / weight, 0.0).to(inputs.dtype)


def baselines(task: Task, order: int) -> dict[str, float]:
    """Zero, the expectation of the mean; the best filter of one order; and of two low orders with averaging weights."""
    figures = {
        "answer zero": score_on_test(task, torch.zeros_like(task.targets)),
        "least-squares FIR": score_on_test(task, least_squares_fir(task, order)),
    }
    for words, weights in AVERAGING.items():
        matrix = weights(task.graph)
        for low in AVERAGING_ORDERS:
            figures[averaging_name(low, words)] = score_on_test(task, least_squares_fir(task, low, matrix))
    return figures


def metropolis_weights(graph: Graph) -> Tensor:
    r"""The matrix :math:`W_{ij} = 1 / (1 + \max(d_i, d_j))` on edges whose rows and columns add up to 1.

    A node needs the degrees of its neighbours (Xiao, Boyd and Kim 2007). Edge weights play no part.

    Example:
        >>> metropolis_weights(Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]]).to(dtype=torch.float64))
        tensor([[0.6667, 0.3333, 0.0000],
                [0.3333, 0.3333, 0.3333],
                [0.0000, 0.3333, 0.6667]], dtype=torch.float64)
    """
    adjacency = pattern_of(graph)
    degree = adjacency.sum(1)
    weights = adjacency / (1 + torch.maximum(degree.unsqueeze(0), degree.unsqueeze(1)))
    return weights + torch.diag(1 - weights.sum(1))


def doubly_stochastic_weights(graph: Graph, steps: int = 200) -> Tensor:
    """The adjacency with self-loops, rows and columns scaled until all add up to 1 (Sinkhorn and Knopp 1967)."""
    matrix = pattern_of(graph) + torch.eye(graph.num_nodes, dtype=torch.float64)
    scale = torch.ones(graph.num_nodes, dtype=torch.float64)
    for _ in range(steps):  # of a symmetric matrix: the geometric mean of both scalings
        scale = (scale / (matrix @ scale)).sqrt()
    return scale.unsqueeze(1) * matrix * scale


def pattern_of(graph: Graph) -> Tensor:
    """The neighbourhoods as a matrix of ones, in float64."""
    return (graph.to_dense() != 0).double().fill_diagonal_(0)


AVERAGING = {"Metropolis": metropolis_weights, "doubly stochastic": doubly_stochastic_weights}
AVERAGING_ORDERS = (5, 10)


def averaging_name(order: int, words: str) -> str:
    """Return the name of such a filter in rows and reports."""
    return f"least-squares filter of order {order} with {words} weights"


def prepared_baselines(task: Task, preparation: str, order: int) -> dict[str, float]:
    """The best filter of signals that were divided by centrality."""
    if preparation != "by-centrality":
        return {}
    return {"least-squares FIR of the prepared signals": score_on_test(task, least_squares_fir(task, order))}


def least_squares_fir(task: Task, order: int, matrix: Tensor | None = None) -> Tensor:
    r"""The outputs of the filter :math:`\sum_{k=0}^{K} c_k T_k(S)` with the least squared error on training samples.

    S is the shift operator of the task, or another matrix.

    Chebyshev polynomials :math:`T_k`, which stay bounded on the spectrum of S in [-1, 1], keep the problem solvable in
    double precision at orders where powers of S no longer differ by more than rounding. The filter is one filter of
    S of order K all the same.
    """
    basis = chebyshev_terms(task.inputs, task.graph.to_dense() if matrix is None else matrix, order)
    return basis @ fitted_coefficients(task, basis[task.train])


def chebyshev_terms(inputs: Tensor, matrix: Tensor, order: int) -> Tensor:
    """The terms ``T_k(matrix) x`` of signals ``(B, N, 1)`` for k = 0..order, as ``(B, N, order + 1)``."""
    signals, transposed = inputs.squeeze(-1), matrix.T
    terms = [signals, signals @ transposed][: order + 1]
    while len(terms) <= order:
        terms.append(2 * terms[-1] @ transposed - terms[-2])
    return torch.stack(terms, dim=-1)


def fitted_coefficients(task: Task, basis: Tensor) -> Tensor:
    """The coefficients with the least squared error on training samples, of whose signals these are the terms."""
    return least_squares(basis.flatten(0, 1), task.targets[task.train].flatten(0, 1))


def baselines_under_link_loss(
    protocol: Protocol, plain: list[Task], seed: int
) -> list[tuple[Condition, list[dict[str, float]]]]:
    """The filters with averaging weights where links are lost: see :attr:`Experiment.evaluate_baselines`.

    Coefficients stay those of the whole graph. Weights are those of the links that are left: a node knows its degree
    and receives those of its neighbours, and keeps for itself what a lost neighbour had.
    """
    if not protocol.loss_probabilities:
        return []
    exact = [task.to("cpu", torch.float64) for task in plain]
    fitted = [averaging_filters(task) for task in exact]
    found: list[tuple[Condition, list[dict[str, float]]]] = []
    for probability in protocol.loss_probabilities:
        names = [averaging_name(low, words) for words in AVERAGING for low in AVERAGING_ORDERS]
        totals = [dict.fromkeys(names, 0.0) for _ in exact]
        for thinned in lossy_graphs(plain, probability, protocol.loss_realizations, seed):
            matrices = {key: {w: weights(graph) for w, weights in AVERAGING.items()} for key, graph in thinned.items()}
            for task, given, own, total in zip(exact, plain, fitted, totals, strict=True):
                for words, matrix in matrices[id(given.graph)].items():
                    terms = chebyshev_terms(task.inputs[task.test], matrix, max(AVERAGING_ORDERS))
                    for low in AVERAGING_ORDERS:
                        answers = terms[..., : low + 1] @ own[words, low]
                        error = metric_of(task.metric, answers, task.targets[task.test]).item()
                        total[averaging_name(low, words)] += error / protocol.loss_realizations
        found.append(({"loss_probability": probability}, totals))
    return found


def averaging_filters(task: Task) -> dict[tuple[str, int], Tensor]:
    """The coefficients of the best filter with each kind of averaging weights and of each order, by both."""
    found = dict[tuple[str, int], Tensor]()
    for words, weights in AVERAGING.items():
        terms = chebyshev_terms(task.inputs[task.train], weights(task.graph), max(AVERAGING_ORDERS))
        found |= {(words, low): fitted_coefficients(task, terms[..., : low + 1]) for low in AVERAGING_ORDERS}
    return found


def lossy_graphs(plain: list[Task], probability: float, realizations: int, seed: int) -> Iterator[dict[int, Graph]]:
    """The graphs of tasks after they lost links, by the identity of the whole one: a dictionary for each realization.

    They depend on seed, probability, realization and the number of the graph, so that all methods lose the same links.
    """
    graphs = {id(task.graph): task.graph for task in plain}
    for realization in range(realizations):
        seeds = [run_seed("loss", seed, number, realization, probability) for number in range(len(graphs))]
        yield {
            key: graph.drop_edges(probability, generator=torch.Generator().manual_seed(own))
            for (key, graph), own in zip(graphs.items(), seeds, strict=True)
        }


def under_link_loss(job: TrainingJob, fleet: Fleet, plain: list[Task]) -> list[tuple[Condition, list[float]]]:
    """The test metric of trained networks at every loss probability; see :attr:`Experiment.evaluate_conditions`."""
    probabilities = job.protocol.loss_probabilities
    return [({"loss_probability": p}, lossy_metric(fleet, plain, p, job)) for p in probabilities]


def lossy_metric(fleet: Fleet, plain: list[Task], probability: float, job: TrainingJob) -> list[float]:
    """The test metric of each model, averaged over graphs that lost links; models on one graph lose the same ones.

    What nodes make of their signals, they then make with the links that are left.
    """
    total, realizations = torch.zeros(len(fleet), dtype=torch.float64), job.protocol.loss_realizations
    prepare = SIGNAL_PREPARATIONS.get(job.protocol.preparation)
    for graphs in lossy_graphs(plain, probability, realizations, job.seed):
        thinned = {key: graph.to(fleet.seeds.device, fleet.inputs.dtype) for key, graph in graphs.items()}
        stacked = StackedGraphs([thinned[id(task.graph)] for task in plain])
        inputs = None
        if prepare is not None:
            owners = [plain[number] for number in fleet.first_owners()]
            inputs = torch.stack([prepare(task.inputs.to(fleet.inputs), thinned[id(task.graph)]) for task in owners])
        total += fleet.metric("test", stacked, inputs).double().cpu()
    return (total / realizations).tolist()
