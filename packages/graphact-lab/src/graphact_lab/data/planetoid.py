"""Planetoid: the citation graphs Cora, CiteSeer and PubMed of Yang et al. (2016), a node a document."""

import io
import pickle
import pickletools
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphact._checks import check_choice
from graphact.graph import Graph
from graphact.storage import DAMAGES, one_line
from graphact_lab.data.download import DataError, PathLike
from graphact_lab.data.sources import CITATION_GRAPHS
from graphact_lab.splits import Split

VALIDATION = 500


@dataclass(frozen=True, eq=False)
class Citations:
    """Documents, who cites whom, and what they are about.

    Attributes:
        x: ``(N, F)``, float32; the words of each document, present or not (PubMed: tf-idf).
        y: ``(N,)``, int64; the subject of each document, 0 where it is unknown.
        has_label: ``(N,)``; whether the subject is known. In CiteSeer 15 documents have neither words nor a subject.
        edge_index: ``(2, E)``, citations in both directions, each once, without self-loops; sorted by target.
        split: the public split: 20 documents a class to train, 500 to validate, 1,000 to test.
    """

    x: Tensor
    y: Tensor
    has_label: Tensor
    edge_index: Tensor
    split: Split

    @property
    def num_classes(self) -> int:
        return int(self.y.max()) + 1

    @property
    def graph(self) -> Graph:
        """The graph with weights of one; a new one each time."""
        return Graph.from_edge_index(self.edge_index, num_nodes=self.x.size(0))


def read_planetoid(folder: PathLike, name: str) -> Citations:
    """Read one of the three graphs from its eight files ``ind.NAME.*``.

    The files are Python 2 pickles. Arrays, sparse matrices and dictionaries of lists are read from them; a file that
    names anything else is refused, so that none of it runs.

    Args:
        folder: where the files are, ``locate("planetoid")``.
        name: "cora", "citeseer" or "pubmed".

    Raises:
        DataError: the files do not hold what they should.
    """
    check_choice("name", name, CITATION_GRAPHS)
    try:
        x, y, edge_index, split = assemble(Path(folder), name)
    except (*DAMAGES, OSError, pickle.PickleError) as error:
        raise DataError(f"{folder} does not hold the Planetoid data of {name}: {one_line(error)}") from error
    return Citations(torch.from_numpy(x), torch.from_numpy(y.argmax(1)), torch.from_numpy(y.any(1)), edge_index, split)


def assemble(folder: Path, name: str) -> tuple[NDArray[np.float32], NDArray[np.int64], Tensor, Split]:
    """Features, labels as rows with a single one, edges and the public split."""
    read = {part: unpickle(folder / f"ind.{name}.{part}") for part in ("allx", "ally", "tx", "ty", "y", "graph")}
    test_index = np.loadtxt(folder / f"ind.{name}.test.index", dtype=np.int64, ndmin=1)
    listed = len(read["ally"]) + len(read["ty"])
    num_nodes = max(listed, int(test_index.max()) + 1)
    if test_index.min() < 0 or num_nodes > 2 * listed:
        raise ValueError(f"test documents among about {listed} were expected, got the index {test_index.max()}")
    x = np.zeros((num_nodes, read["allx"].shape[1]), dtype=np.float32)
    y = np.zeros((num_nodes, read["ally"].shape[1]), dtype=np.int64)
    # test documents stand in the order of their index; CiteSeer's index leaves some out, which stay zero
    for whole, others, test in ((x, read["allx"], read["tx"]), (y, read["ally"], read["ty"])):
        whole[: others.shape[0]] = dense(others)
        whole[test_index] = dense(test)
    training = len(read["y"])
    split = Split(
        torch.arange(training), torch.arange(training, training + VALIDATION), torch.from_numpy(np.sort(test_index))
    )
    return x, y, edges_of(read["graph"], num_nodes), split


def edges_of(neighbors: dict[int, list[int]], num_nodes: int) -> Tensor:
    """The edge list of a dictionary of neighbours, sorted by target, then by source; repetitions and loops left out."""
    source = np.repeat(np.fromiter(neighbors, np.int64), [len(listed) for listed in neighbors.values()])
    target = np.array([other for listed in neighbors.values() for other in listed], dtype=np.int64)
    if source.min() < 0 or target.min() < 0 or max(source.max(), target.max()) >= num_nodes:
        raise ValueError(f"neighbours from 0 to {num_nodes - 1} were expected")
    key = np.unique((target * num_nodes + source)[source != target])
    return torch.from_numpy(np.stack([key % num_nodes, key // num_nodes]))


class StoredMatrix:
    """The attributes of a SciPy matrix as a file holds them."""

    data: NDArray[np.float32]
    indices: NDArray[np.int32]
    indptr: NDArray[np.int32]
    _shape: tuple[int, int]

    @property
    def shape(self) -> tuple[int, int]:
        return self._shape


def dense(matrix: Any) -> NDArray[Any]:
    """An array, or a stored matrix as one."""
    if not isinstance(matrix, StoredMatrix):
        return np.asarray(matrix)
    import scipy.sparse

    stored = scipy.sparse.csr_array((matrix.data, matrix.indices, matrix.indptr), shape=matrix.shape)
    stored.check_format(full_check=True)  # compiled code trusts the indices
    return stored.toarray()


KNOWN = {
    ("__builtin__", "list"): list,
    ("collections", "defaultdict"): defaultdict,
    ("numpy", "dtype"): np.dtype,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
    ("scipy.sparse.csr", "csr_matrix"): StoredMatrix,
}


class KnownTypesOnly(pickle.Unpickler):
    """Unpickle arrays, sparse matrices and dictionaries of lists as Python 2 wrote them."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in KNOWN:
            raise pickle.UnpicklingError(
                f"the file names {module}.{name}, and only arrays, matrices and lists are read"
            )
        return KNOWN[module, name]


def unpickle(path: Path) -> Any:
    """The content of a file."""
    content = path.read_bytes()
    for opcode, argument, _ in pickletools.genops(content):
        is_put = opcode.name in ("PUT", "LONG_BINPUT")
        if is_put and int(argument or 0) > len(content):  # memory is taken for all places below
            raise pickle.UnpicklingError(f"the file remembers {argument} values, more than it can hold")
    return KnownTypesOnly(io.BytesIO(content), fix_imports=False, encoding="latin1").load()
