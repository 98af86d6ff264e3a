"""Any lists of edges, the graphs that they make by plain Python, and checks that a graph is that."""

import numpy as np
import torch
from hypothesis import strategies as st

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


@st.composite
def edge_lists(draw, max_nodes=9, max_edges=40):
    """Any edges: repeated, loops, isolated nodes, in one or both directions, in any order or sorted."""
    num_nodes = draw(st.integers(1, max_nodes))
    node = st.integers(0, num_nodes - 1)
    pairs = draw(st.lists(st.tuples(node, node), max_size=max_edges))
    if draw(st.booleans()):
        pairs += [(target, source) for source, target in pairs]
    order = draw(st.sampled_from(["any", "source", "target", "coalesced"]))
    if order == "coalesced":
        pairs = sorted(set(pairs))
    elif order != "any":
        pairs.sort(key=lambda pair: pair if order == "source" else pair[::-1])
    exact = st.integers(-8, 8).map(lambda number: number / 4)
    # symmetric weights half of the time
    table = {pair: draw(exact) for pair in sorted({tuple(sorted(pair)) for pair in pairs})}
    symmetric = draw(st.booleans())
    weights = [table[tuple(sorted(pair))] if symmetric else draw(exact) for pair in pairs]
    return num_nodes, pairs, weights


def by_hand(num_nodes, pairs, weights):
    """Every attribute of a graph, by dictionaries and sorting."""
    entries, diagonal = {}, {}
    for (source, target), weight in zip(pairs, weights, strict=True):
        kind, key = (diagonal, source) if source == target else (entries, (target, source))
        kind[key] = kind.get(key, 0.0) + weight
    edges, edges_t = sorted(entries), sorted((source, target) for target, source in entries)
    lists = {i: [j for target, j in edges if target == i] for i in range(num_nodes)}
    lists_t = {j: [i for source, i in edges_t if source == j] for j in range(num_nodes)}
    return {
        "incoming": tables(lists),
        "outgoing": tables(lists_t),
        "weight": [entries[edge] for edge in edges],
        "outgoing_weight": [entries[target, source] for source, target in edges_t],
        "diagonal": [diagonal.get(node, 0.0) for node in range(num_nodes)] if diagonal else None,
        "is_directed": any(entries.get((s, t)) != weight for (t, s), weight in entries.items()),
        "incoming_slot": [lists[target].index(source) for source, target in edges_t],
        "shares": edges == edges_t,
    }


def tables(lists):
    degrees = [len(members) for members in lists.values()]
    return {
        "rowptr": [0, *np.cumsum(degrees).tolist()],
        "col": [member for members in lists.values() for member in members],
        "order": sorted(lists, key=lambda node: (degrees[node], node)),
        "groups": tuple((degree, degrees.count(degree)) for degree in sorted(set(degrees))),
    }


def as_python(graph):
    def lists(part):
        assert part.rowptr.dtype == part.col.dtype == part.order.dtype == torch.int64
        assert part.groups == tuple(map(tuple, part.sizes.tolist()))
        assert part.order[part.rank].tolist() == list(range(part.num_nodes))
        return {name: getattr(part, name).tolist() for name in ("rowptr", "col", "order")} | {"groups": part.groups}

    assert graph.incoming_slot.dtype == torch.int32
    return {
        "incoming": lists(graph.incoming),
        "outgoing": lists(graph.outgoing),
        "weight": graph.weight.tolist(),
        "outgoing_weight": graph.outgoing_weight.tolist(),
        "diagonal": None if graph.diagonal is None else graph.diagonal.tolist(),
        "is_directed": graph.is_directed,
        "incoming_slot": graph.incoming_slot.tolist(),
        "shares": graph.outgoing is graph.incoming,
    }


def edge_index_of(pairs, dtype=torch.int64):
    return torch.tensor(pairs, dtype=dtype).reshape(-1, 2).T
