"""Partitions of a graph: the process of each node, and the rows and halo that each process needs.

On disk a partition is one safetensors file for each process, and a manifest with their sizes and hashes.
"""

import hashlib
import importlib.util
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from torch import Tensor

from graphact._checks import check_choice, check_integer
from graphact.distributed.process_group import PartitionError
from graphact.graph import Graph
from graphact.storage import header_digest, one_line, write_atomically

Array = np.ndarray[Any, Any]
Method = Literal["auto", "metis", "blocks"]
METHODS = ("auto", "metis", "blocks")
FORMAT = "graphact partition"
VERSION = 1
MANIFEST = "manifest.json"
PART_FILES = "part-*-of-*.safetensors"
ARRAYS = ("known", "owner", "pointers", "members", "weight", "diagonal", "send", "send_counts")  # in a file


class LocalRows(NamedTuple):
    """The rows of S of the nodes held here, in CSR form."""

    rowptr: Array  # (n + 1,); the neighbours of the i-th node held here are col[rowptr[i]:rowptr[i + 1]]
    col: Array  # (E,); positions among the known nodes, ascending within each row
    weight: Array  # (E,)
    diagonal: Array | None  # (n,), or None where it is zero


@dataclass(frozen=True)
class Part:
    """The share of one process: its rows, its halo, and what it sends.

    Attributes:
        rank: the process.
        parts: how many there are.
        total_nodes: nodes of the whole graph.
        known: ``(m,)``, the nodes held here and their in-neighbours elsewhere (the halo), ascending.
        owner: ``(m,)``, the process that holds each of them.
        rows: neighbours of the nodes held here, as positions in ``known``.
        send: positions, among the nodes held here, of in-neighbours of others, receiver after receiver, ascending.
        send_counts: ``(parts,)``, how many go to each process.
        digest: of the graph and its cut, the same for all parts that belong together; empty if it is not known.
    """

    rank: int
    parts: int
    total_nodes: int
    known: Array
    owner: Array
    rows: LocalRows
    send: Array
    send_counts: Array
    digest: str = ""

    @property
    def nodes(self) -> Array:
        return self.known[self.owner == self.rank]

    @property
    def halo_counts(self) -> Array:
        counts = np.bincount(self.owner, minlength=self.parts)
        counts[self.rank] = 0
        return counts


def assign_nodes(graph: Graph, parts: int, method: Method = "auto") -> tuple[Array, str]:
    """Share the nodes of a graph among ``parts`` processes.

    Args:
        graph: the graph.
        parts: number of processes; there may be more than nodes.
        method: ``"metis"`` cuts as few edges as it can (needs the package pymetis); ``"blocks"`` gives each process
            consecutive nodes, with about equally many edges; ``"auto"`` takes METIS where it is installed.

    Returns:
        The process of each node, ``(N,)``, and the method that was used.

    Example:
        >>> import graphact
        >>> from graphact.distributed import assign_nodes
        >>> path = graphact.Graph.from_edge_index([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
        >>> assign_nodes(path, 2, "blocks")
        (array([0, 0, 1, 1], dtype=int32), 'blocks')
    """
    check_choice("method", method, METHODS)
    check_integer("parts", parts, minimum=1)
    installed = importlib.util.find_spec("pymetis") is not None
    if method == "metis" and not installed:
        raise ValueError('method "metis" needs the package pymetis: pip install "graphact[distributed]"')
    if method == "metis" or (method == "auto" and installed):
        return _metis(graph, parts), "metis"
    work = _numpy(graph.degree) + 1  # rows and edges together are shared equally
    total = np.cumsum(work)
    middle = total - work / 2  # of a node's own work decides where it goes
    return np.minimum(middle * parts / total[-1], parts - 1).astype(np.int32), "blocks"


def _metis(graph: Graph, parts: int) -> Array:
    """Few edges between the parts; an edge counts whichever way it points."""
    import pymetis
    import scipy.sparse

    if parts == 1:
        return np.zeros(graph.num_nodes, np.int32)
    rowptr, col = _numpy(graph.incoming.rowptr), _numpy(graph.incoming.col)
    if graph.is_directed:
        shape = (graph.num_nodes, graph.num_nodes)
        links = scipy.sparse.csr_array((np.ones(len(col), np.int8), col, rowptr), shape=shape)
        links = (links + links.T).tocsr()
        rowptr, col = links.indptr, links.indices
    adjacency = pymetis.CSRAdjacency(rowptr.astype(np.int32), col.astype(np.int32))
    return np.asarray(pymetis.part_graph(parts, adjacency=adjacency)[1], dtype=np.int32)


def divide(graph: Graph, owner: Array, parts: int) -> Iterator[Part]:
    """Yield the share of each process, made when it is asked for.

    Args:
        graph: the whole graph.
        owner: ``(N,)``, the process of each node.
        parts: number of processes.
    """
    halos = find_halos(graph, owner, parts)
    for rank in range(parts):
        yield take_part(graph, owner, rank, halos)


def find_halos(graph: Graph, owner: Array, parts: int) -> list[Array]:
    """Return for each process its in-neighbours on other processes, ascending."""
    halos = []
    for rank in range(parts):
        is_source = np.zeros(graph.num_nodes, bool)
        is_source[_numpy(graph.incoming.col)[np.repeat(owner == rank, _numpy(graph.degree))]] = True
        halos.append(np.flatnonzero(is_source & (owner != rank)))
    return halos


def graph_digest(graph: Graph) -> str:
    """SHA-256 of everything that a graph consists of."""
    summary = hashlib.sha256()
    for tensor in (graph.incoming.rowptr, graph.incoming.col, graph.weight, graph.diagonal):
        array = np.empty(0) if tensor is None else np.ascontiguousarray(_numpy(tensor))
        summary.update(f"{array.dtype} {array.shape} ".encode())
        summary.update(array.reshape(-1).view(np.uint8).data)
    return summary.hexdigest()


def take_part(graph: Graph, owner: Array, rank: int, halos: list[Array]) -> Part:
    """The share of one process, given the halo of each process."""
    held = owner == rank
    is_known = held.copy()
    is_known[halos[rank]] = True
    known = np.flatnonzero(is_known)
    position_known, position_held = np.cumsum(is_known) - 1, np.cumsum(held) - 1
    degree = _numpy(graph.degree)
    entry = np.repeat(held, degree)
    rows = LocalRows(
        rowptr=np.concatenate([[0], np.cumsum(degree[held])]),
        col=position_known[_numpy(graph.incoming.col)[entry]].astype(np.int32),
        weight=_numpy(graph.weight)[entry],
        diagonal=None if graph.diagonal is None else _numpy(graph.diagonal)[held],
    )
    wanted = [position_held[halo[owner[halo] == rank]] for halo in halos]
    send_counts = np.array([len(nodes) for nodes in wanted])
    return Part(rank, len(halos), graph.num_nodes, known, owner[known], rows, np.concatenate(wanted), send_counts)


def _numpy(tensor: Tensor) -> Array:
    """A tensor as an array; on the CPU the memory is shared."""
    return tensor.detach().cpu().numpy()


def write_partition(parts: Iterable[Part], directory: str | os.PathLike[str], *, method: str) -> dict[str, Any]:
    """Write the parts of a graph; the manifest comes last, so an interrupted write leaves no usable folder.

    Args:
        parts: as :func:`~graphact.distributed.divide` yields them; one at a time is in memory.
        directory: folder to write to; an earlier partition in it is replaced.
        method: how the nodes were assigned, for the record.

    Returns:
        The manifest.
    """
    from safetensors.numpy import save

    directory = Path(directory)
    (directory / MANIFEST).unlink(missing_ok=True)
    for old in directory.glob(PART_FILES):
        old.unlink()
    manifest: dict[str, Any] = {"format": FORMAT, "version": VERSION, "method": method, "files": []}
    for part in parts:
        arrays = zip(ARRAYS, (part.known, part.owner, *part.rows, part.send, part.send_counts), strict=True)
        content = save({name: np.ascontiguousarray(array) for name, array in arrays if array is not None})
        name = f"part-{part.rank:05d}-of-{part.parts:05d}.safetensors"
        write_atomically(directory / name, content)
        manifest |= {"parts": part.parts, "nodes": part.total_nodes, "dtype": str(part.rows.weight.dtype)}
        file = {"name": name, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        file |= {"nodes": len(part.rows.rowptr) - 1, "edges": len(part.rows.col)}
        manifest["files"].append({**file, "halo": int(part.halo_counts.sum()), "sent": len(part.send)})
    manifest["header_sha256"] = header_digest(manifest)
    write_atomically(directory / MANIFEST, json.dumps(manifest, indent=1).encode())
    return manifest


def read_manifest(directory: str | os.PathLike[str]) -> dict[str, Any]:
    """The manifest of a folder; PartitionError if it is missing, damaged or of another version."""
    path = Path(directory) / MANIFEST
    if not path.is_file():
        raise PartitionError(f"{path} is missing: graphact partition GRAPH --parts P --out {directory} writes it")
    try:
        manifest = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise PartitionError(f"{path} is not valid JSON, perhaps truncated: {one_line(error)}") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise PartitionError(f"{path} is not the manifest of a partition")
    if manifest.get("version") != VERSION:
        raise PartitionError(f"{path}: version must be {VERSION}, got {manifest.get('version')!r:.60}")
    if manifest.get("header_sha256") != header_digest(manifest):
        raise PartitionError(f"{path} has been altered: its SHA-256 differs from the one recorded")
    parts, nodes, files = (manifest.get(name) for name in ("parts", "nodes", "files"))
    entries = files if isinstance(files, list) and all(isinstance(file, dict) for file in files) else []
    kinds = {"name": str, "bytes": int, "sha256": str}
    described = all(isinstance(file.get(name), kind) for file in entries for name, kind in kinds.items())
    if not isinstance(nodes, int) or not described or not entries or parts != len(entries):
        raise PartitionError(f"{path} does not describe the nodes and the files of a partition")
    return manifest


def read_part(directory: str | os.PathLike[str], rank: int, parts: int) -> Part:
    """The share of one process, memory-mapped, after checking its file against the manifest."""
    from safetensors import SafetensorError, safe_open

    manifest = read_manifest(directory)
    if manifest["parts"] != parts:
        raise PartitionError(f"{directory} was written for {manifest['parts']} processes, this run has {parts}")
    expected = manifest["files"][rank]
    path = Path(directory) / expected["name"]
    if not path.is_file():
        raise PartitionError(f"{path} is missing")
    size = path.stat().st_size
    if size != expected["bytes"]:
        found = "truncated" if size < expected["bytes"] else "altered"
        raise PartitionError(f"{path} is {found}: it has {size:,} bytes instead of {expected['bytes']:,}")
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != expected["sha256"]:
        raise PartitionError(f"{path} has been altered: its SHA-256 differs from the one in the manifest")
    try:
        with safe_open(path, framework="pt") as tensors:  # their memory is that of the file
            stored = {name: tensors.get_tensor(name).numpy() for name in tensors.keys()}  # noqa: SIM118, is no dict
    except (SafetensorError, OSError) as error:
        raise PartitionError(f"{path} is not a readable safetensors file: {one_line(error)}") from error
    try:
        known, owner, *rows, send, send_counts = ({"diagonal": None, **stored}[name] for name in ARRAYS)
        total, digest = manifest["nodes"], manifest["header_sha256"]
        part = Part(rank, parts, total, known, owner, LocalRows(*rows), send, send_counts, digest)
        if _fits_together(part):
            return part
    except (LookupError, TypeError, ValueError):  # an array is missing, or of another kind
        pass
    raise PartitionError(f"{path} does not hold a part of a graph: sizes or indices do not fit together")


def _fits_together(part: Part) -> bool:
    """Return whether all indices are within range: compiled code trusts them, whoever wrote the file."""
    rows, nodes = part.rows, int((part.owner == part.rank).sum())
    return bool(
        part.known.shape == part.owner.shape
        and _within(part.known, part.total_nodes)
        and (np.diff(part.known) > 0).all()
        and _within(part.owner, part.parts)
        and rows.rowptr.shape == (nodes + 1,)
        and rows.rowptr[0] == 0
        and rows.rowptr[-1] == len(rows.col) == len(rows.weight)
        and (np.diff(rows.rowptr) >= 0).all()
        and _within(rows.col, len(part.known))
        and np.isfinite(rows.weight).all()
        and (rows.diagonal is None or (rows.diagonal.shape == (nodes,) and np.isfinite(rows.diagonal).all()))
        and part.send_counts.shape == (part.parts,)
        and _within(part.send_counts, len(part.send) + 1)
        and part.send_counts.sum() == len(part.send)
        and _within(part.send, nodes)
    )


def _within(values: Array, limit: int) -> bool:
    """Return whether all values are indices below the limit."""
    return bool(((values >= 0) & (values < limit)).all())
