"""Parts of a graph on disk: one safetensors file for each process, and a manifest with their sizes and hashes."""

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from graphact.files import header_digest, write_atomically
from graphact.scaleout.partition import Array, LocalRows, Part
from graphact.scaleout.processes import PartitionError

FORMAT = "graphact partition"
VERSION = 1
MANIFEST = "manifest.json"


def _file_name(rank: int, parts: int) -> str:
    """The file of one process."""
    return f"part-{rank:05d}-of-{parts:05d}.safetensors"


def write_partition(parts: Iterable[Part], directory: str | os.PathLike[str], *, method: str) -> dict[str, Any]:
    """Write the parts of a graph; the manifest comes last, so an interrupted write leaves no usable folder.

    Args:
        parts: as :func:`~graphact.scaleout.divide` yields them; one at a time is in memory.
        directory: folder to write to; an earlier partition in it is replaced.
        method: how the nodes were assigned, for the record.

    Returns:
        The manifest.
    """
    from safetensors.numpy import save

    directory = Path(directory)
    (directory / MANIFEST).unlink(missing_ok=True)
    for old in directory.glob("part-*-of-*.safetensors"):
        old.unlink()
    manifest: dict[str, Any] = {"format": FORMAT, "version": VERSION, "method": method, "files": []}
    for part in parts:
        arrays = {
            "known": part.known,
            "owner": part.owner,
            "pointers": part.rows.rowptr,
            "members": part.rows.col,
            "weight": part.rows.weight,
            "send": part.send,
            "send_counts": part.send_counts,
        }
        if part.rows.diagonal is not None:
            arrays["diagonal"] = part.rows.diagonal
        content = save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
        name = _file_name(part.rank, part.parts)
        write_atomically(directory / name, content)
        manifest |= {"parts": part.parts, "nodes": part.total_nodes, "dtype": str(part.rows.weight.dtype)}
        manifest["files"].append(
            {
                "name": name,
                "bytes": len(content),
                "sha256": hashlib.sha256(content).hexdigest(),
                "nodes": len(part.rows.rowptr) - 1,
                "edges": len(part.rows.col),
                "halo": int(part.halo_counts.sum()),
                "sent": len(part.send),
            }
        )
    manifest["header_sha256"] = header_digest(manifest)
    write_atomically(directory / MANIFEST, json.dumps(manifest, indent=1).encode())
    return manifest


def read_manifest(directory: str | os.PathLike[str]) -> dict[str, Any]:
    """The manifest of a folder.

    Raises:
        PartitionError: it is missing, damaged or of another version.
    """
    path = Path(directory) / MANIFEST
    if not path.is_file():
        raise PartitionError(f"{path} is missing: graphact partition GRAPH --parts P --out {directory} writes it")
    try:
        manifest = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise PartitionError(f"{path} is not valid JSON, perhaps truncated: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise PartitionError(f"{path} is not the manifest of a partition")
    if manifest.get("version") != VERSION:
        raise PartitionError(f"{path}: version must be {VERSION}, got {manifest.get('version')!r}")
    if manifest.get("header_sha256") != header_digest(manifest):
        raise PartitionError(f"{path} has been altered: its SHA-256 differs from the one recorded")
    return manifest


def read_part(directory: str | os.PathLike[str], rank: int, parts: int) -> Part:
    """The share of one process, memory-mapped, after checking its file against the manifest.

    Raises:
        PartitionError: the file is missing, truncated or altered, or the partition is for another number of processes.
    """
    manifest = read_manifest(directory)
    if manifest["parts"] != parts:
        raise PartitionError(f"{directory} was written for {manifest['parts']} processes, this run has {parts}")
    path = Path(directory) / manifest["files"][rank]["name"]
    _check_file(path, manifest["files"][rank])
    arrays = _map_arrays(path)
    rows = LocalRows(arrays["pointers"], arrays["members"], arrays["weight"], arrays.get("diagonal"))
    sends = arrays["send"], arrays["send_counts"]
    part = Part(rank, parts, manifest["nodes"], arrays["known"], arrays["owner"], rows, *sends)
    _check_part(path, part)
    return part


def _check_file(path: Path, expected: dict[str, Any]) -> None:
    """Compare a file with its entry in the manifest."""
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


def _map_arrays(path: Path) -> dict[str, Array]:
    """The arrays of a file; their memory is that of the file."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name).numpy() for name in file.keys()}  # noqa: SIM118, the file is no dict
    except (SafetensorError, OSError) as error:
        raise PartitionError(f"{path} is not a readable safetensors file: {error}") from error


def _check_part(path: Path, part: Part) -> None:
    """Compiled code trusts these indices, so nothing may point outside, whoever wrote the file."""
    rows, nodes = part.rows, int((part.owner == part.rank).sum())
    fits = (
        part.known.shape == part.owner.shape
        and _ascending(part.known, below=part.total_nodes)
        and _within(part.owner, part.parts)
        and rows.rowptr.shape == (nodes + 1,)
        and rows.rowptr[0] == 0
        and rows.rowptr[-1] == len(rows.col) == len(rows.weight)
        and bool((np.diff(rows.rowptr) >= 0).all())
        and _within(rows.col, len(part.known))
        and bool(np.isfinite(rows.weight).all())
        and (rows.diagonal is None or (rows.diagonal.shape == (nodes,) and bool(np.isfinite(rows.diagonal).all())))
        and part.send_counts.shape == (part.parts,)
        and _within(part.send_counts, len(part.send) + 1)
        and part.send_counts.sum() == len(part.send)
        and _within(part.send, nodes)
    )
    if not fits:
        raise PartitionError(f"{path} does not hold a part of a graph: sizes or indices do not fit together")


def _within(values: Array, limit: int) -> bool:
    """Whether all values are indices below the limit."""
    return values.size == 0 or (int(values.min()) >= 0 and int(values.max()) < limit)


def _ascending(values: Array, below: int) -> bool:
    """Whether all values are different indices in ascending order."""
    return _within(values, below) and bool((np.diff(values) > 0).all())
