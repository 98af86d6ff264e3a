"""Entries of a shift operator in the formats of other libraries and in files: SciPy's .npz, or a list of edges."""

import io
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from graphact._checks import HALF_PRECISION
from graphact.graph.edges import check_finite, check_weights
from graphact.storage import DAMAGES, one_line, write_atomically

if TYPE_CHECKING:
    import networkx
    import scipy.sparse

SUFFIXES = (".npz", ".txt", ".csv", ".edges")
LINE = "a line should hold 'source target' or 'source target weight'"
MAX_ISOLATED_NODES = 10_000_000  # nodes of a file that names fewer edges: a damaged number must not take gigabytes


def check_square(shape: tuple[int, ...]) -> int:
    """Return the number of nodes of a square matrix; raise for other shapes."""
    if len(shape) != 2 or shape[0] != shape[1]:
        raise ValueError(f"matrix must be square, of shape (N, N), got {tuple(shape)}")
    if shape[0] == 0:
        raise ValueError(f"matrix must have at least one node, got the shape {tuple(shape)}")
    return shape[0]


def entries_of_dense(matrix: Any) -> tuple[Tensor, Tensor, Tensor, int]:
    """Target, source and weight of the entries that are not zero, and the number of nodes."""
    matrix = check_weights("matrix", matrix)
    num_nodes = check_square(tuple(matrix.shape))
    target, source = matrix.detach().nonzero(as_tuple=True)
    return target, source, matrix[target, source], num_nodes


def edges_of_sparse(matrix: Any) -> tuple[Tensor, Tensor, int]:
    """Edge list, weights and number of nodes of a sparse tensor; torch does not check its indices."""
    if hasattr(matrix, "sparse_sizes") and hasattr(matrix, "coo"):  # torch_sparse.SparseTensor, or PyG's of that name
        num_nodes = check_square(tuple(matrix.sparse_sizes()))
        target, source, weight = matrix.coo()
        weight = torch.ones(target.shape, device=target.device) if weight is None else weight
    elif isinstance(matrix, Tensor) and matrix.layout != torch.strided:
        num_nodes = check_square(tuple(matrix.shape))
        entries = matrix if matrix.layout == torch.sparse_coo else matrix.to_sparse_coo()
        entries = entries.coalesce()
        (target, source), weight = entries.indices(), entries.values()
    else:
        kind = f"a dense tensor of shape {tuple(matrix.shape)}" if isinstance(matrix, Tensor) else type(matrix).__name__
        raise TypeError(
            f"matrix must be a sparse torch.Tensor, got {kind}; Graph.from_dense and .from_edge_index exist"
        )
    if weight.dim() != 1:
        raise ValueError(f"matrix must have one number an entry, got entries of shape {tuple(weight.shape[1:])}")
    return torch.stack([source, target]), check_weights("matrix", weight), num_nodes


def entries_of_scipy(matrix: "scipy.sparse.sparray | scipy.sparse.spmatrix") -> tuple[Tensor, Tensor, Tensor, int]:
    """Target, source and weight of the stored entries, and the number of nodes."""
    if not hasattr(matrix, "tocoo"):
        raise TypeError(f"matrix must be a SciPy sparse matrix, got {type(matrix).__name__}")
    num_nodes = check_square(tuple(matrix.shape))
    check_pointers(matrix)
    entries = matrix.tocoo()
    target, source = (
        torch.from_numpy(np.asarray(index, dtype=np.int64).copy()) for index in (entries.row, entries.col)
    )
    return target, source, check_weights("matrix", np.asarray(entries.data).copy()), num_nodes


def check_pointers(matrix: Any) -> None:
    """Raise if rows of a compressed matrix do not follow each other.

    Compiled code of SciPy writes where the pointers say, and SciPy's own check trusts them where the last one is 0.
    """
    if not hasattr(matrix, "indptr"):
        return
    pointers, stored = np.asarray(matrix.indptr), len(matrix.indices)
    lines = matrix.shape[0] // getattr(matrix, "blocksize", (1, 1))[0]
    grow = pointers.size == lines + 1 and pointers[0] == 0 and not (np.diff(pointers) < 0).any()
    if not grow or pointers[-1] > stored:
        shown = np.array2string(pointers, threshold=8, edgeitems=3, separator=", ").replace("\n", "")
        raise ValueError(
            f"matrix must have an indptr of {lines + 1} numbers that grow from 0 to at most {stored}, got {shown}"
        )


def edges_of_networkx(graph: "networkx.Graph", weight: str) -> tuple[Tensor, Tensor, int]:
    """Edge list, weights and number of nodes; an undirected edge goes both ways."""
    if not hasattr(graph, "is_directed") or not hasattr(graph, "nodes"):
        raise TypeError(f"graph must be a NetworkX graph, got {type(graph).__name__}")
    number = {node: position for position, node in enumerate(graph.nodes)}
    if not number:
        raise ValueError("graph must have at least one node, got an empty NetworkX graph")
    edges = []
    for u, v, w in graph.edges(data=weight, default=1.0):
        try:
            edges.append((number[u], number[v], float(w)))
        except (TypeError, ValueError) as error:
            raise TypeError(f"graph must have numbers as weights, got {w!r} on the edge ({u!r}, {v!r})") from error
        if not graph.is_directed() and u != v:
            edges.append((number[v], number[u], float(w)))
    sources, targets, weights = zip(*edges, strict=True) if edges else ((), (), ())
    edge_index = torch.tensor([sources, targets], dtype=torch.int64)
    return edge_index, torch.tensor(weights, dtype=torch.get_default_dtype()), len(number)


def edges_of_pyg(data: Any) -> tuple[Tensor, Tensor | None, int]:
    """Edge list, weights (edge_weight, or an edge_attr of one real number an edge) and number of nodes."""
    edge_index = getattr(data, "edge_index", None)
    if edge_index is None and getattr(data, "adj_t", None) is not None:
        return edges_of_sparse(data.adj_t)
    if edge_index is None:
        raise TypeError(f"data must be a PyG Data object with an edge_index, got {type(data).__name__}")
    weight = getattr(data, "edge_weight", None)
    if weight is None:
        attribute = getattr(data, "edge_attr", None)
        if attribute is not None and attribute.is_floating_point() and attribute.numel() == edge_index.size(1):
            weight = attribute.flatten()
    return edge_index, weight, data.num_nodes


def check_suffix(path: Path) -> str:
    """Return the suffix of a file, which gives its format; raise if it is unknown."""
    if path.suffix not in SUFFIXES:
        raise ValueError(f"path must end in {', '.join(SUFFIXES)}, got {str(path)!r}")
    return path.suffix


def read_entries(path: Path) -> tuple[Tensor, Tensor, Tensor, int]:
    """Read the entries ``S[target, source] = weight`` and the number of nodes from a file."""
    suffix = check_suffix(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no graph file {path}")
    try:
        if suffix == ".npz":
            import scipy.sparse

            if not zipfile.is_zipfile(path):
                raise ValueError("it is not an archive as scipy.sparse.save_npz writes it, or is cut short")
            with path.open("rb") as stream:  # which NumPy leaves open where an archive is damaged
                matrix = scipy.sparse.load_npz(stream)  # nothing in the file is executed
            if hasattr(matrix, "check_format"):
                matrix.check_format(full_check=True)  # compiled code trusts the indices
            entries = entries_of_scipy(matrix)
        else:
            entries = read_edges(path)
    except (*DAMAGES, OSError) as error:
        raise ValueError(f"{path} is not a graph file: {one_line(error)}") from error
    *_, weight, num_nodes = entries
    if num_nodes > MAX_ISOLATED_NODES + 1000 * weight.numel():
        raise ValueError(f"{path} is not a graph file: {num_nodes} nodes and {weight.numel()} edges are hardly meant")
    return entries


def read_edges(path: Path) -> tuple[Tensor, Tensor, Tensor, int]:
    """Lines of ``source target [weight]``, by spaces or commas; # begins a comment, ``# nodes N`` counts them."""
    text = path.read_text(encoding="utf-8")
    stated = [" ".join(line.split()[2:]) for line in text.splitlines() if line.split()[:2] == ["#", "nodes"]]
    edges = [line for line in text.replace(",", " ").splitlines() if line.split("#")[0].strip()]
    try:
        table = np.loadtxt(edges, comments="#", ndmin=2, dtype=np.float64) if edges else np.empty((0, 2))
    except ValueError as error:
        raise ValueError(f"{LINE}; put # before a header: {one_line(error)}") from error
    if table.shape[1] not in (2, 3):
        raise ValueError(f"{LINE}, got {table.shape[1]} columns")
    with np.errstate(invalid="ignore"):  # what is no integer of 64 bits differs afterwards
        ends = table[:, :2].astype(np.int64)
    if (ends != table[:, :2]).any() or (ends < 0).any():
        raise ValueError("the nodes of an edge must be numbers from 0 on")
    if stated and not stated[0].isdecimal():
        raise ValueError(f"a line '# nodes N' should hold one number, got {stated[0]!r:.60}")
    num_nodes = int(stated[0]) if stated else int(ends.max(initial=-1)) + 1
    if num_nodes < 1:
        raise ValueError("it has no edges; a line '# nodes N' tells how many nodes there are")
    if (ends >= num_nodes).any():
        raise ValueError(f"nodes must be numbered from 0 to {num_nodes - 1}")
    weight = table[:, 2] if table.shape[1] == 3 else np.ones(len(table))
    source, target = torch.from_numpy(ends.T.copy())
    default = torch.get_default_dtype()
    return target, source, check_finite(f"weights in {default}", torch.from_numpy(weight.copy()).to(default)), num_nodes


def write_entries(path: Path, target: Tensor, source: Tensor, weight: Tensor, num_nodes: int) -> None:
    """Write a graph; the file is complete or, if writing was interrupted, not there."""
    suffix, weight = check_suffix(path), weight.detach()
    weight = weight.float() if weight.dtype in HALF_PRECISION else weight  # the same numbers, in a type that SciPy has
    if suffix == ".npz":
        import scipy.sparse

        entries: Any = (weight.cpu().numpy(), (target.cpu().numpy(), source.cpu().numpy()))
        file = io.BytesIO()
        scipy.sparse.save_npz(file, scipy.sparse.coo_array(entries, shape=(num_nodes, num_nodes)).tocsr())
        content = file.getvalue()
    else:
        rows = zip(source.tolist(), target.tolist(), weight.tolist(), strict=True)
        lines = [f"# nodes {num_nodes}", *(f"{j} {i} {w!r}" for j, i, w in rows)]
        content = ("\n".join(lines) + "\n").encode()
    write_atomically(path, content)
