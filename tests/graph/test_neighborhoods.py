"""The grouped layout holds exactly the lists of the CSR layout."""

import pytest
import torch
from support.graphs import random_case


@pytest.mark.parametrize("seed", range(40))
def test_groups_cover_every_list_once(seed):
    lists = random_case(seed, max_nodes=12).graph.incoming
    rows = [part.tolist() for part in lists.col.tensor_split(lists.rowptr[1:-1])]
    grouped = {}
    for nodes, table in lists.tables():
        for node, members in zip(nodes.tolist(), table.tolist(), strict=True):
            assert node not in grouped
            grouped[node] = members
    assert [grouped[node] for node in range(lists.num_nodes)] == rows
    assert all(row == sorted(set(row)) for row in rows)
    assert torch.equal(lists.order[lists.rank], torch.arange(lists.num_nodes))
    assert lists.rows.tolist() == [node for node, row in enumerate(rows) for _ in row]


def test_names_of_version_0_1():
    graph = random_case(0).graph
    assert graph.incoming.pointers is graph.incoming.rowptr
    assert graph.incoming.members is graph.incoming.col
    assert graph.places is graph.incoming_slot
