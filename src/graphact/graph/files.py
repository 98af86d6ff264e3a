"""Graph files: SciPy's .npz, or a plain list of edges."""

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from graphact.graph import convert

if TYPE_CHECKING:
    import scipy.sparse

SUFFIXES = (".npz", ".txt", ".csv", ".edges")


def check_suffix(path: Path) -> str:
    """The ending of the file's name, which says its format."""
    if path.suffix not in SUFFIXES:
        raise ValueError(f"path must end in {', '.join(SUFFIXES)}, got {str(path)!r}")
    return path.suffix


def read_entries(path: Path) -> tuple[Tensor, Tensor, Tensor, int]:
    """The entries ``S[target, source] = weight`` of a file, and the number of nodes."""
    suffix = check_suffix(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no graph file {path}")
    try:
        if suffix == ".npz":
            return convert.entries_of_scipy(read_matrix(path))
        return read_edges(path)
    except (ValueError, KeyError, TypeError, OSError, EOFError, OverflowError) as error:
        raise ValueError(f"{path} is not a graph file: {error}") from error


def read_matrix(path: Path) -> "scipy.sparse.sparray | scipy.sparse.spmatrix":
    """A stored sparse matrix; nothing in the file is executed."""
    import zipfile

    import scipy.sparse

    if not zipfile.is_zipfile(path):
        raise ValueError("it is not an archive as scipy.sparse.save_npz writes it, or is cut short")
    return scipy.sparse.load_npz(path)


def read_edges(path: Path) -> tuple[Tensor, Tensor, Tensor, int]:
    """Lines of ``source target [weight]``, apart by spaces or commas; # begins a comment, ``# nodes N`` counts them."""
    import numpy as np

    text = path.read_text(encoding="utf-8")
    stated = [line.split()[2] for line in text.splitlines() if line.split()[:2] == ["#", "nodes"]]
    edges = [line for line in text.replace(",", " ").splitlines() if line.split("#")[0].strip()]
    table = np.loadtxt(edges, comments="#", ndmin=2, dtype=np.float64) if edges else np.empty((0, 2))
    if table.shape[1] not in (2, 3):
        raise ValueError(f"a line should hold 'source target' or 'source target weight', got {table.shape[1]} columns")
    ends = table[:, :2].astype(np.int64)
    if (ends != table[:, :2]).any() or (ends < 0).any():
        raise ValueError("the nodes of an edge must be numbers from 0 on")
    if not np.isfinite(table).all():
        raise ValueError("weights must be finite")
    num_nodes = int(stated[0]) if stated else int(ends.max(initial=-1)) + 1
    if num_nodes < 1 or (ends >= num_nodes).any():
        raise ValueError(f"nodes must be numbered from 0 to {num_nodes - 1}")
    weight = table[:, 2] if table.shape[1] == 3 else np.ones(len(table))
    source, target = torch.from_numpy(ends.T.copy())
    return target, source, torch.from_numpy(weight.copy()).to(torch.get_default_dtype()), num_nodes


def write_entries(path: Path, target: Tensor, source: Tensor, weight: Tensor, num_nodes: int) -> None:
    """Write a graph; the file is complete or, if writing was interrupted, not there."""
    suffix, weight = check_suffix(path), weight.detach()
    partial = path.with_name(f".{path.stem}-{secrets.token_hex(4)}{suffix}")
    try:
        if suffix == ".npz":
            write_matrix(partial, target, source, weight, num_nodes)
        else:
            rows = zip(source.tolist(), target.tolist(), weight.tolist(), strict=True)
            lines = [f"# nodes {num_nodes}", *(f"{j} {i} {w!r}" for j, i, w in rows)]
            partial.write_text("\n".join(lines) + "\n", encoding="utf-8")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_matrix(path: Path, target: Tensor, source: Tensor, weight: Tensor, num_nodes: int) -> None:
    """Write the shift operator as a sparse matrix."""
    import scipy.sparse

    entries: Any = (weight.cpu().numpy(), (target.cpu().numpy(), source.cpu().numpy()))
    matrix = scipy.sparse.coo_array(entries, shape=(num_nodes, num_nodes))
    scipy.sparse.save_npz(path, matrix.tocsr())
