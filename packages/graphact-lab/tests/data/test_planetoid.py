"""The citation graphs, as PyG reads them."""

import pytest

from graphact_lab.data.download import DataError
from graphact_lab.data.node_sets import read_nodes
from graphact_lab.data.planetoid import read_planetoid
from graphact_lab.data.sources import CITATION_GRAPHS

FACTS = {  # nodes, edges, features, classes, training, documents without a label, nodes without an edge
    "cora": (2708, 10556, 1433, 7, 140, 0, 0),
    "citeseer": (3327, 9104, 3703, 6, 120, 15, 48),
    "pubmed": (19717, 88648, 500, 3, 60, 0, 0),
}


def test_files_without_the_right_hash_are_not_unpickled(tmp_path):
    (tmp_path / "planetoid").mkdir()
    (tmp_path / "planetoid/ind.cora.allx").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(DataError, match=r"ind\.cora\.allx is damaged"):
        read_planetoid("cora", tmp_path)


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match=r"nowhere/planetoid/ind\.cora\.allx is missing"):
        read_planetoid("cora", tmp_path / "nowhere")


def test_unknown_names(tmp_path):
    with pytest.raises(ValueError, match="name must be one of 'cora', 'citeseer', 'pubmed', got 'Cora'"):
        read_planetoid("Cora", tmp_path)


@pytest.mark.parametrize("name", CITATION_GRAPHS)
def test_the_real_graphs(real_data, name):
    if not (real_data / "planetoid").is_dir():
        pytest.skip(f"there is no planetoid in {real_data}")
    nodes, edges, features, classes, training, unlabelled, alone = FACTS[name]
    read, graph = read_planetoid(name, real_data), read_nodes(name, real_data).graph
    assert read.x.shape == (nodes, features)
    assert read.edge_index.shape == (2, edges)
    assert read.num_classes == classes
    assert [len(part) for part in read.split] == [training, 500, 1000]
    assert int((~read.has_label).sum()) == unlabelled
    assert not read.x[~read.has_label].any()
    assert int((graph.degree == 0).sum()) == alone
    assert not graph.is_directed
    assert read.y[read.split.train].bincount().tolist() == [20] * classes
