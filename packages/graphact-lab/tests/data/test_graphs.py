"""Sets of graphs: the text format beside PyG's reader, nested splits, and batches."""

import torch
from torch_geometric.io import read_tu_data

from graphact_lab.data.graph_sets import GRAPH_SETS, read_graphs, read_tu

EDGES = "1, 2\n2, 1\n2, 3\n3, 2\n4, 5\n5, 4\n5, 5\n7, 8\n8, 7\n7, 8\n"  # a loop, an edge twice, a node alone
FILES = {"A": EDGES, "graph_indicator": "1\n1\n1\n2\n2\n3\n4\n4\n", "graph_labels": "-1\n1\n1\n-1\n"}
FILES["node_labels"] = "3\n0\n3\n5\n0\n0\n5\n3\n"


def write_set(folder, stem="MUTAG"):
    (folder / stem).mkdir(parents=True)
    for part, text in FILES.items():
        (folder / stem / f"{stem}_{part}.txt").write_text(text)
    return folder


def test_the_format(tmp_path):
    data = read_tu(write_set(tmp_path), "MUTAG", "MUTAG")
    assert data.y.tolist() == [0, 1, 1, 0]
    assert data.member.tolist() == [0, 0, 0, 1, 1, 2, 3, 3]
    assert data.x.argmax(1).tolist() == [1, 0, 1, 2, 0, 0, 2, 1]
    expected = torch.zeros(8, 8)
    for one, other in ((0, 1), (1, 2), (3, 4), (6, 7)):
        expected[one, other] = expected[other, one] = 1
    assert torch.equal(data.graph.to_dense(), expected)


def test_batches_hold_every_graph_once(tmp_path):
    data = read_tu(write_set(tmp_path), "MUTAG", "MUTAG")
    adjacency, seen = data.graph.to_dense(), []
    for batch in data.batches(3, 0):
        assert len(batch.graphs) == 2
        nodes = torch.isin(data.member, batch.graphs)
        own = adjacency[nodes][:, nodes]
        root = own.sum(1).clamp(min=1).rsqrt()
        assert torch.equal(batch.graph.to_dense(), own)
        torch.testing.assert_close(batch.shift.to_dense(), root[:, None] * own * root)
        assert torch.equal(batch.x, data.x[nodes])
        assert torch.equal(batch.graphs[batch.member], data.member[nodes])
        sums = torch.stack([batch.x[batch.member == place].sum(0) for place in range(2)])
        assert torch.equal(batch.sum(batch.x), sums)
        seen += batch.graphs.tolist()
    assert sorted(seen) == [0, 1, 2, 3]
    first, again, other = ([b.graphs.tolist() for b in data.batches(1, number)] for number in (0, 0, 5))
    assert first == again != other


def test_the_real_sets_are_those_of_pyg(real_data):
    sizes = {"MUTAG": (188, 3371, 7), "PTC_MR": (344, 4915, 18), "PROTEINS": (1113, 43471, 3)}
    sizes |= {"NCI1": (4110, 122747, 37), "NCI109": (4127, 122494, 38)}
    assert sizes.keys() == GRAPH_SETS.keys()
    for name, (graphs, nodes, labels) in sizes.items():
        data = read_graphs(name, real_data)
        assert (len(data.y), *data.x.shape, data.num_classes) == (graphs, nodes, labels, 2)
        assert not data.graph.is_directed
        ends = data.graph.to_edge_index()[0]
        assert torch.equal(data.member[ends[0]], data.member[ends[1]])
        if name in ("MUTAG", "PTC_MR"):
            stem = GRAPH_SETS[name]
            theirs, slices, _ = read_tu_data(str(real_data / "tu" / stem), stem)
            assert torch.equal(data.y, theirs.y)
            assert torch.equal(data.x, theirs.x[:, :labels])
            assert slices["x"].diff().tolist() == data.member.bincount().tolist()
            ordered = ends[:, (ends[0] * nodes + ends[1]).argsort()]
            assert torch.equal(theirs.edge_index + slices["x"][data.member[ordered[0]]], ordered)


def test_splits_are_stratified_folds(real_data):
    for name in GRAPH_SETS:
        data = read_graphs(name, real_data)
        folds = [data.split(fold) for fold in range(10)]
        assert torch.cat([fold.test for fold in folds]).sort().values.tolist() == list(range(len(data.y)))
        share = data.y.double().mean()
        for fold in folds:
            assert len(torch.cat(fold).unique()) == len(data.y) == sum(map(len, fold))
            assert abs(len(fold.validation) - 0.09 * len(data.y)) < 2
            for part in fold:  # evenly, to one graph of each class
                assert abs(data.y[part].double().sum() - share * len(part)) < 2
    assert data.given == ()
    assert not torch.equal(folds[0].validation, folds[1].validation)
