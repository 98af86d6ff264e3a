"""The reader of the citation graphs, on files of our own and, where they are, on the real ones beside PyG's reader."""

import pickle
import pickletools
import shutil

import numpy as np
import pytest
import torch

from graphact_lab.data.download import DataError, locate
from graphact_lab.data.planetoid import VALIDATION, read_planetoid
from graphact_lab.data.sources import CITATION_GRAPHS
from graphact_lab.splits import class_split
from support.imitation import OTHERS, TRAIN, as_python_2_wrote, write_planetoid


def test_documents_stand_where_their_index_says(tmp_path):
    allx, ally = write_planetoid(tmp_path / "planetoid")
    read = read_planetoid(tmp_path / "planetoid", "cora")
    assert read.x.dtype == torch.float32
    assert torch.equal(read.x[:OTHERS], torch.from_numpy(allx))
    assert read.x[520:].tolist() == [[2] * 8, [0] * 8, [3] * 8, [1] * 8]
    assert read.y[:OTHERS].tolist() == ally.argmax(1).tolist()
    assert read.y[520:].tolist() == [1, 0, 2, 0]
    assert read.has_label.nonzero().squeeze(1).tolist() == [node for node in range(524) if node != 521]
    assert read.edge_index.tolist() == [[1, 0, 2, 1, 523, 519], [0, 1, 1, 2, 519, 523]]
    assert read.graph.num_edges == 6
    assert read.num_classes == 3
    train, validation, test = read.split
    assert train.tolist() == list(range(TRAIN))
    assert validation.tolist() == list(range(TRAIN, TRAIN + VALIDATION))
    assert test.tolist() == [520, 522, 523]


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match="nowhere does not hold the Planetoid data of cora"):
        read_planetoid(str(tmp_path / "nowhere"), "cora")


class Harmful:
    def __reduce__(self):
        return (print, ("this must not run",))


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("graph", pickle.dumps(Harmful(), protocol=2), "the file names __builtin__.print, and only arrays"),
        ("allx", pickle.dumps(np.array([Harmful()], dtype=object), protocol=2), "the file names numpy._core"),
        ("ty", b"cos\nsystem\n(S'true'\ntR.", "the file names os.system"),
        ("y", b"\x80\x02\x8c\x02os\x8c\x06system\x93.", "the file names os.system"),
        ("graph", b"not a pickle", ""),
        ("graph", b"", ""),
        ("graph", as_python_2_wrote({0: [600]}), "neighbours from 0 to 523 were expected"),
        ("graph", as_python_2_wrote({0: ["one"]}), ""),
        ("graph", as_python_2_wrote([1, 2]), ""),
        ("tx", as_python_2_wrote(np.ones((4, 8))), ""),
        ("tx", as_python_2_wrote(np.ones((3, 7))), ""),
        ("test.index", b"first\n", ""),
        ("test.index", b"520\n522\n", ""),
        ("test.index", None, "test.index not found"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_damaged_files_are_told_in_one_line(tmp_path, capsys, name, content, reason):
    folder = tmp_path / "planetoid"
    write_planetoid(folder)
    path = folder / f"ind.cora.{name}"
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(DataError, match=f"does not hold the Planetoid data of cora: .*{reason}") as caught:
        read_planetoid(folder, "cora")
    assert "\n" not in str(caught.value)
    assert capsys.readouterr().out == ""


def test_unknown_names(tmp_path):
    with pytest.raises(ValueError, match="name must be one of 'cora', 'citeseer', 'pubmed', got 'Cora'"):
        read_planetoid(tmp_path, "Cora")


def test_a_split_of_classes():
    labels = torch.tensor([0] * 30 + [1] * 40 + [-1] * 20 + [2] * 25)
    drawn = [
        class_split(labels, per_class=20, validation=15, test=10, generator=torch.Generator().manual_seed(seed))
        for seed in (0, 1, 0)
    ]
    for split in drawn:
        assert labels[split.train].bincount().tolist() == [20, 20, 20]
        assert [len(part) for part in split] == [60, 15, 10]
        together = torch.cat(split)
        assert len(together.unique()) == 85
        assert (labels[together] >= 0).all()
    assert all(torch.equal(one, other) for one, other in zip(drawn[0], drawn[2], strict=True))
    assert not torch.equal(drawn[0].train, drawn[1].train)
    for sizes in ({"per_class": 26, "validation": 1, "test": 1}, {"per_class": 20, "validation": 15, "test": 21}):
        with pytest.raises(ValueError, match=r"got classes of \[30, 40, 25\]"):
            class_split(labels, **sizes, generator=torch.Generator())


FACTS = {  # nodes, edges, features, classes, training, documents without a label, nodes without an edge
    "cora": (2708, 10556, 1433, 7, 140, 0, 0),
    "citeseer": (3327, 9104, 3703, 6, 120, 15, 48),
    "pubmed": (19717, 88648, 500, 3, 60, 0, 0),
}


@pytest.fixture
def folder(real_data):
    if not (real_data / "planetoid").is_dir():
        pytest.skip(f"there is no planetoid in {real_data}")
    return locate("planetoid", real_data)


@pytest.mark.parametrize("name", CITATION_GRAPHS)
def test_the_real_graphs(folder, name):
    nodes, edges, features, classes, training, unlabelled, alone = FACTS[name]
    read = read_planetoid(folder, name)
    assert read.x.shape == (nodes, features)
    assert read.edge_index.shape == (2, edges)
    assert read.num_classes == classes
    assert [len(part) for part in read.split] == [training, 500, 1000]
    assert int((~read.has_label).sum()) == unlabelled
    assert not read.x[~read.has_label].any()
    assert int((read.graph.degree == 0).sum()) == alone
    assert not read.graph.is_directed
    assert read.y[read.split.train].bincount().tolist() == [20] * classes


@pytest.mark.parametrize("name", CITATION_GRAPHS)
def test_as_pyg_reads_the_same_files(folder, name, tmp_path):
    from torch_geometric.io import read_planetoid_data

    shutil.copytree(folder, tmp_path / "raw")  # PyG may leave files of its own
    expected = read_planetoid_data(str(tmp_path / "raw"), name)
    read = read_planetoid(folder, name)
    for key in ("x", "y", "edge_index"):
        assert torch.equal(getattr(read, key), expected[key]), key
    masks = (expected.train_mask, expected.val_mask, expected.test_mask)
    assert all(torch.equal(part, mask.nonzero().squeeze(1)) for part, mask in zip(read.split, masks, strict=True))


def test_the_files_name_nothing_but_what_is_known(folder):
    """The list of known names is as short as it can be."""
    named = set()
    for path in sorted(folder.glob("ind.*")):
        if path.name.endswith(("index", ".x")):
            continue
        named |= {argument for code, argument, _ in pickletools.genops(path.read_bytes()) if code.name == "GLOBAL"}
    from graphact_lab.data.planetoid import KNOWN

    assert named == {f"{module} {name}" for module, name in KNOWN}
