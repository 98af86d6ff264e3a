"""Graph files: what is written is read, and damaged files are named."""

import io

import numpy as np
import pytest
import scipy.sparse
import torch

from graphact import Graph

WEIGHT = torch.tensor([0.1, -2.5, 1 / 3, 4.0, 0.0, 65000.0, 1e-7])
DIRECTED = Graph.from_edge_index([[0, 1, 2, 2, 0, 3, 1], [1, 2, 0, 2, 2, 0, 3]], WEIGHT, 5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("suffix", [".npz", ".txt", ".csv", ".edges"])
def test_what_is_written_is_read(tmp_path, suffix, dtype):
    """Half precision as the same numbers."""
    path, graph = tmp_path / f"graph{suffix}", DIRECTED.to(dtype)
    graph.save(path)
    loaded = Graph.load(path)
    assert loaded.dtype == torch.float32
    assert torch.equal(loaded.to_dense(), graph.to(torch.float32).to_dense())
    assert torch.equal(loaded.incoming.col, graph.incoming.col)
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def archive(**arrays):
    content = io.BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()


def test_edges_point_from_the_first_column_to_the_second(tmp_path):
    path = tmp_path / "edges.csv"
    path.write_text("# a comment\n0,1,2.5\n1,2,-1\n")
    assert torch.equal(Graph.load(path).to_dense(), torch.tensor([[0.0, 0, 0], [2.5, 0, 0], [0, -1, 0]]))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("g.txt", b"0 1\n1 x\n", "g.txt is not a graph file"),
        ("g.txt", b"0 1 1 1\n", "got 4 columns"),
        ("g.txt", b"0.5 1\n", "numbers from 0 on"),
        ("g.txt", b"-1 1\n", "numbers from 0 on"),
        ("g.txt", b"0 1 nan\n", "finite"),
        ("g.txt", b"0 1 1e200\n", "g.txt is not a graph file: weights in torch.float32 must be finite, got inf"),
        ("g.txt", b"# nodes two\n0 1\n", "a line '# nodes N' should hold one number, got 'two'"),
        ("g.txt", b"# nodes 2\n0 2\n", "from 0 to 1"),
        ("g.npz", b"PK not really", "g.npz is not a graph file: it is not an archive"),
        ("g.npz", archive(format=np.array([b"csr", {}], dtype=object), shape=[1, 1]), "not a graph file: .*pickle"),
        ("g.pickle", b"", "path must end in"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        Graph.load(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no graph file"):
        Graph.load(tmp_path / "none.npz")


def test_an_empty_list_with_a_number_of_nodes(tmp_path):
    path = tmp_path / "g.edges"
    path.write_text("# nodes 3\n")
    assert (Graph.load(path).num_nodes, Graph.load(path).num_edges) == (3, 0)


POINTERS = [[0, 2, 3, 4, 5, 6, 0], [0, 5, 3, 4, 5, 6, 7], [1, 2, 3, 4, 5, 6, 7], [0, -1, 3, 4, 5, 6, 7], [0] * 6 + [9]]


@pytest.mark.parametrize("pointers", POINTERS, ids=str)
@pytest.mark.parametrize("kind", ["csr", "csc", "bsr"])
def test_pointers_that_do_not_grow_are_refused(tmp_path, kind, pointers):
    """SciPy's code writes where they point, out of its memory: the first of them ended the process later."""
    dense = np.zeros((6, 6))
    dense[[0, 0, 1, 2, 3, 4, 5], [1, 4, 0, 3, 2, 2, 5]] = 1.0
    rows = scipy.sparse.csr_array(dense)
    matrix = rows.tobsr(blocksize=(1, 1)) if kind == "bsr" else rows.asformat(kind)
    matrix.indptr = np.array(pointers, dtype=matrix.indptr.dtype)
    with pytest.raises(ValueError, match="indptr of 7 numbers that grow from 0 to at most 7"):
        Graph.from_scipy(matrix)
    arrays = {"indices": matrix.indices, "indptr": matrix.indptr, "data": matrix.data, "shape": matrix.shape}
    np.savez(tmp_path / "graph.npz", format=kind.encode(), _is_array=True, **arrays)
    with pytest.raises(ValueError, match=r"graph\.npz is not a graph file"):
        Graph.load(tmp_path / "graph.npz")
