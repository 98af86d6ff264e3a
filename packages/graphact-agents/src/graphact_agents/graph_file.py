"""Graph files: the shift operator S as ``graphact.Graph.save`` and SciPy write it (``.npz``), read with NumPy alone."""

import os
import zipfile
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from graphact_agents.disk import one_line
from graphact_agents.messages import Array

CONVERT = "graphact.Graph.load(...).save('graph.npz') converts other files"
MAX_ISOLATED_NODES = 10_000_000
"""A damaged number of nodes must not take gigabytes: more than this, and a thousand for each entry, is refused."""


@dataclass(frozen=True, eq=False)
class ShiftOperator:
    """The rows of S, without its diagonal.

    Attributes:
        num_nodes: N.
        rowptr: ``(N + 1,)``: row i holds the entries from ``rowptr[i]`` to ``rowptr[i + 1]``.
        col: ``(E,)``, the node that is heard, ascending within a row.
        weight: ``(E,)``.
        diagonal: ``(N,)``.
    """

    num_nodes: int
    rowptr: Array
    col: Array
    weight: Array
    diagonal: Array

    @property
    def num_edges(self) -> int:
        """The number of directed edges between different nodes."""
        return len(self.col)

    def hears(self, node: int) -> tuple[int, ...]:
        """Return the nodes that a node hears, ascending."""
        return tuple(self.col[self.rowptr[node] : self.rowptr[node + 1]].tolist())

    def heard_by(self) -> list[tuple[int, ...]]:
        """Return, for each node, those that hear it, ascending."""
        listeners: list[list[int]] = [[] for _ in range(self.num_nodes)]
        for i in range(self.num_nodes):
            for j in self.hears(i):
                listeners[j].append(i)
        return [tuple(each) for each in listeners]

    def among(self, nodes: Collection[int]) -> "ShiftOperator":
        """Return the operator without the edges from and to all other nodes; their rows stay, and are empty."""
        is_there = np.isin(np.arange(self.num_nodes), list(nodes))
        row = np.repeat(np.arange(self.num_nodes), np.diff(self.rowptr))
        kept = is_there[row] & is_there[self.col]
        counts = np.bincount(row[kept], minlength=self.num_nodes)
        rowptr = np.concatenate([[0], np.cumsum(counts)])
        return replace(self, rowptr=rowptr, col=self.col[kept], weight=self.weight[kept])


def build_operator(row: Array, col: Array, weight: Array, num_nodes: int) -> ShiftOperator:
    """Return the operator of entries ``S[row, col] = weight``; equal entries are added, zeros are kept.

    ValueError if an index or a weight is impossible.
    """
    if num_nodes < 1 or num_nodes > MAX_ISOLATED_NODES + 1000 * len(weight):
        raise ValueError(f"{num_nodes} nodes and {len(weight)} edges are hardly meant")
    for indices in (row, col):
        if len(indices) and not 0 <= indices.min() <= indices.max() < num_nodes:
            raise ValueError(f"nodes must be numbered from 0 to {num_nodes - 1}")
    if weight.dtype.kind not in "fiu" or not np.isfinite(weight).all():
        raise ValueError(f"weights must be finite real numbers, got {weight.dtype}")
    weight = weight if weight.dtype in (np.float32, np.float64) else weight.astype(np.float64)
    keys, places = np.unique(row.astype(np.int64) * num_nodes + col, return_inverse=True)
    total = np.zeros(len(keys), weight.dtype)
    np.add.at(total, places, weight)
    row, col = keys // num_nodes, keys % num_nodes
    diagonal, own = np.zeros(num_nodes, weight.dtype), row == col
    diagonal[row[own]] = total[own]
    counts = np.bincount(row[~own], minlength=num_nodes)
    return ShiftOperator(num_nodes, np.concatenate([[0], np.cumsum(counts)]), col[~own], total[~own], diagonal)


def load_graph(path: str | os.PathLike[str]) -> ShiftOperator:
    """Read a graph file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file does not hold a graph.
    """
    path = Path(path)
    if path.suffix != ".npz":
        raise ValueError(f"graph must be an .npz file, got {str(path)!r}; {CONVERT}")
    if not path.is_file():
        raise FileNotFoundError(f"there is no graph file {path}")
    try:
        return build_operator(*read_npz(path))
    except Exception as error:  # of many classes, for a damaged file
        raise ValueError(f"{path} is not a graph file: {one_line(error)}") from error


def read_npz(path: Path) -> tuple[Array, Array, Array, int]:
    """Return row, column and weight of the entries, and the number of nodes, of an archive of SciPy's (CSR)."""
    if not zipfile.is_zipfile(path):
        raise ValueError("it is not an archive as scipy.sparse.save_npz writes it, or is cut short")
    with path.open("rb") as stream, np.load(stream, allow_pickle=False) as content:
        kind, shape = bytes(content["format"].item()).decode(), tuple(int(n) for n in content["shape"])
        if len(shape) != 2 or shape[0] != shape[1]:
            raise ValueError(f"the matrix must be square, got the shape {shape}")
        if kind != "csr":
            raise ValueError(f"the matrix must be stored as csr, got {kind!r:.20}; {CONVERT}")
        weight, pointers, col = content["data"], content["indptr"], content["indices"]
    is_whole = len(pointers) == shape[0] + 1 and pointers[0] == 0 and pointers[-1] == len(col)
    if pointers.dtype.kind not in "iu" or not is_whole or (np.diff(pointers) < 0).any():
        raise ValueError(f"indptr must be {shape[0] + 1} numbers that grow from 0 to {len(col)}")
    row = np.repeat(np.arange(shape[0]), np.diff(pointers))
    if not (row.ndim == col.ndim == weight.ndim == 1 and len(row) == len(col) == len(weight)):
        raise ValueError("indices and weights must be as many")
    if col.dtype.kind not in "iu":
        raise ValueError("indices must be integers")
    return row, col, weight, shape[0]
