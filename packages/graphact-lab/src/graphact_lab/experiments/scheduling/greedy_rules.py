"""Schedules from keys: the local greedy rule, the centralised greedy, ALOHA, the optimum, and what a schedule is worth.

Signals are ``(..., N)``: any number of utilities or schedules on the same conflict graphs.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise, repeat

import torch
from torch import Tensor

from graphact.functional import neighborhood_max
from graphact.graph import Graph
from graphact_lab.experiments.scheduling.conflicts import MIN_WEIGHT, Conflicts

RULES = ("w", "w / (1 + d)")  # keys that need no network
REPEATED = ", repeated"  # after the name of a rule that repeats messages


def rounds_of(iterations: int) -> int:
    """Return the rounds of messages that iterations of the local greedy rule take.

    The first iteration takes a round of keys; each one after it a round of winners and one of those they silence.

    Example:
        >>> [rounds_of(iterations) for iterations in (1, 2, 3)]
        [1, 3, 5]
    """
    return 2 * iterations - 1


def schedules_of(rounds: int) -> list[tuple[int, ...]]:
    """Return every division of at most so many rounds among the messages of the rule: how often each of them is sent.

    Example:
        >>> schedules_of(3)
        [(1,), (2,), (3,), (1, 1, 1)]
    """
    found = []
    for messages in range(1, rounds + 1, 2):
        for total in range(messages, rounds + 1):
            cuts = ((0, *inner, total) for inner in combinations(range(1, total), messages - 1))
            found += [tuple(end - start for start, end in pairwise(cut)) for cut in cuts]
    return found


def rule_key(rule: str, weight: Tensor, degree: Tensor) -> Tensor:
    """The logarithm of the key of a classical rule, from utilities and the number of conflicting links."""
    key = weight.clamp_min(MIN_WEIGHT).log()
    return key if rule == "w" else key - (1 + degree).log()


def local_greedy(
    key: Tensor,
    active: Tensor,
    conflicts: Conflicts,
    iterations: int,
    graphs: Iterator[Graph] | None = None,
    repeats: Sequence[int] | None = None,
) -> Tensor:
    """Return a mask of the links that send after some iterations of the local greedy rule (LGS; Joo and Shroff 2009).

    In each iteration a link sends if its key is above those of all active links that it disturbs; these are then
    silent. Of equal keys that of the link with the higher number counts as the larger one. Links that are undecided in
    the end are silent, too. With as many iterations as needed it is the centralised greedy.

    Args:
        key, active: ``(..., N)``; links that are not active neither send nor silence others.
        conflicts: the graphs.
        iterations: how many.
        graphs: those of the rounds in turn, without lost messages; a lost one is as if its sender were not there.
        repeats: how often each of the ``rounds_of(iterations)`` messages is sent, once each without it. Every repeat
            takes a round, and one of them that arrives is enough.
    """
    times = iter(repeats or repeat(1))
    graphs = graphs or repeat(conflicts.graph)

    def largest(value: Tensor) -> Tensor:
        """Return the largest value that a neighbour sends and that arrives in one of the rounds of a message."""
        heard_in = [neighborhood_max(value.unsqueeze(-1), next(graphs)).squeeze(-1) for _ in range(next(times))]
        return torch.stack(heard_in).amax(0)

    rank = key.argsort(stable=True, dim=-1).argsort(-1).to(conflicts.graph.dtype) + 1  # equal keys: by number
    sends = torch.zeros_like(active)
    for iteration in range(iterations):
        wins = active & (rank > largest(rank * active))
        sends = sends | wins
        if iteration + 1 < iterations:
            silenced = largest(wins.to(rank)) > 0
            active = active & ~wins & ~silenced
            if not active.any():
                break
    return sends


def heard(flag: Tensor, graph: Graph) -> Tensor:
    """Return whether a flag is up at a neighbour."""
    return neighborhood_max(flag.to(graph.dtype).unsqueeze(-1), graph).squeeze(-1) > 0


def greedy(key: Tensor, weight: Tensor, conflicts: Conflicts) -> Tensor:
    """The centralised greedy: links by descending key, each unless it disturbs one before."""
    return local_greedy(key, weight > 0, conflicts, len(conflicts.member))


def aloha(conflicts: Conflicts, shape: torch.Size, generator: torch.Generator) -> Tensor:
    """Every link sends with the probability 1 / (1 + d), without a message."""
    drawn = torch.rand(shape, generator=generator).to(conflicts.degree.device)
    return drawn * (1 + conflicts.degree) < 1


def load(sends: Tensor, weight: Tensor, conflicts: Conflicts) -> Tensor:
    """The utility that each graph carries, ``(..., G)``: a link that sends beside one that it disturbs carries none."""
    carries = sends & ~heard(sends, conflicts.graph)
    return conflicts.totals(torch.where(carries, weight, 0.0))


def optimum(weight: Tensor, conflicts: Conflicts, most: int) -> Tensor:
    """The largest utility of each of the first ``most`` graphs, by integer programming with a row a conflict."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import coo_array

    member, (target, source) = conflicts.member.cpu(), conflicts.graph.to_edge_index()[0].cpu()
    found = []
    for number in range(min(most, conflicts.num_graphs)):
        own = (member == number).nonzero().squeeze(1)
        value, first = weight.cpu()[own].double().numpy(), int(own[0])
        kept = (member[target] == number) & (target < source)
        ends = torch.stack([target[kept], source[kept]], 1) - first
        rows = torch.arange(len(ends)).repeat_interleave(2)
        matrix = coo_array(([1.0] * ends.numel(), (rows.numpy(), ends.flatten().numpy())), shape=(len(ends), len(own)))
        rows_of_conflicts = [LinearConstraint(matrix.tocsr(), ub=1.0)] if len(ends) else []
        solved = milp(-value, integrality=1, bounds=Bounds(0, 1), constraints=rows_of_conflicts)
        if not solved.success:
            raise RuntimeError(f"the optimum of graph {number} was not found: {solved.message}")
        found.append(-solved.fun)
    return torch.tensor(found, dtype=torch.float64)
