"""Graphs of sensors: from their places, from how alike their readings are, and from lists of named pairs."""

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphact._checks import check_integer, check_positive, did_you_mean
from graphact.graph.edges import check_weights

EARTH_RADIUS = 6371.0  # kilometres
Edges = tuple[Tensor, Tensor, int]


def within_radius(coordinates: Any, radius: float, scale: float | None) -> Edges:
    """Edge list, Gaussian weights and number of nodes of the points at most a radius apart."""
    from scipy.spatial import KDTree

    points = check_weights("coordinates", coordinates)
    if points.dim() != 2 or 0 in points.shape:
        raise ValueError(f"coordinates must have the shape (N, D), got {tuple(points.shape)}")
    positions = points.detach().cpu().numpy().astype(np.float64)
    pairs = KDTree(positions).query_pairs(check_positive("radius", radius), output_type="ndarray").T
    distance = np.linalg.norm(positions[pairs[0]] - positions[pairs[1]], axis=1)
    width = radius / 2 if scale is None else check_positive("scale", scale)
    return both_ways(pairs, np.exp(-(distance**2) / (2 * width**2)), len(positions))


def correlated(readings: Any, k: int) -> Edges:
    """Edge list, weights and number of nodes of the sensors whose readings ``(T, N)`` go together most."""
    table = np.asarray(readings.detach().cpu() if isinstance(readings, Tensor) else readings, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] < 3 or table.shape[1] < 2:
        raise ValueError(f"readings must have the shape (T, N) with T at least 3 and N at least 2, got {table.shape}")
    count = table.shape[1]
    if check_integer("k", k, minimum=1) >= count:
        raise ValueError(f"k must be below the number of nodes, {count}, got {k}")
    if np.isinf(table).any():
        raise ValueError("readings must be finite, or NaN where one is missing, got infinity")
    known = np.isfinite(table)
    centred = np.where(known, table - np.nanmean(np.where(known.any(0), table, 0.0), axis=0), 0.0)
    squares, both = centred**2, known.astype(np.float64)
    norms = (squares.T @ both) * (both.T @ squares)  # over the times at which both are known
    with np.errstate(invalid="ignore", divide="ignore"):
        correlation = np.where(norms > 0, centred.T @ centred / np.sqrt(norms), 0.0)
    np.fill_diagonal(correlation, -np.inf)
    nearest = np.argsort(-correlation, axis=1, kind="stable")[:, :k]
    chosen = np.stack([np.repeat(np.arange(count), k), nearest.flatten()])
    pairs = np.unique(np.sort(chosen[:, correlation[chosen[0], chosen[1]] > 0], axis=0), axis=1)
    return both_ways(pairs, correlation[pairs[0], pairs[1]], count)


def both_ways(pairs: NDArray[Any], weight: NDArray[np.float64], count: int) -> Edges:
    """Return pairs ``(2, P)`` as edges in both directions."""
    half = torch.from_numpy(np.ascontiguousarray(pairs, dtype=np.int64))
    return torch.cat([half, half.flip(0)], 1), torch.from_numpy(weight).to(torch.get_default_dtype()).repeat(2), count


def read_named_edges(path: Path, nodes: Sequence[Any], directed: bool) -> Edges:
    """Edge list, weights and number of nodes of a CSV file whose rows are ``source,target[,weight]`` with names."""
    number = {str(name): place for place, name in enumerate(nodes)}
    if len(number) < len(nodes):
        raise ValueError(f"nodes must have different names, got {len(nodes)} nodes with {len(number)} names")
    if not path.is_file():
        raise FileNotFoundError(f"there is no edge list {path}")
    try:
        rows = csv.reader(path.read_text(encoding="utf-8-sig").splitlines())  # spreadsheets begin with a mark
    except UnicodeDecodeError:
        raise ValueError(f"{path}: must be text in UTF-8") from None
    found: dict[tuple[int, int], float] = {}
    for line, row in enumerate((list(map(str.strip, row)) for row in rows), start=1):
        if not row or (line == 1 and is_header(row, number)):
            continue
        if len(row) not in (2, 3):
            raise ValueError(f"{path}, line {line}: must hold source,target or source,target,weight, got {row}")
        for name in row[:2]:
            if name not in number:
                meant = did_you_mean(name, number)
                raise ValueError(f"{path}, line {line}: must name two of the {len(number)} nodes, got {name!r}{meant}")
        weight = as_number(row[2]) if len(row) == 3 else 1.0
        if weight is None:
            raise ValueError(f"{path}, line {line}: weight must be a finite number, got {row[2]!r}")
        source, target = (number[name] for name in row[:2])
        for edge in {(source, target)} if directed else {(source, target), (target, source)}:
            if found.setdefault(edge, weight) != weight:
                raise ValueError(f"{path}, line {line}: must give an edge one weight, got {weight} after {found[edge]}")
    if not found:
        raise ValueError(f"{path}: must hold at least one edge, got none")
    edges = torch.tensor([*found], dtype=torch.int64).reshape(-1, 2).T.contiguous()
    return edges, torch.tensor([*found.values()]), len(number)


def is_header(row: Sequence[str], number: Mapping[str, int]) -> bool:
    """Return whether the first row of an edge list holds the names of its columns."""
    return len(row) in (2, 3) and not {*row[:2]} & number.keys() and as_number(row[-1]) is None


def as_number(text: str) -> float | None:
    """Return a finite number; None for other text."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def points_on_earth(latitude: Any, longitude: Any) -> NDArray[np.float64]:
    """Return points ``(N, 3)`` in kilometres from degrees, so that distances are those through the Earth.

    Args:
        latitude: degrees, north positive.
        longitude: degrees, east positive.

    Example:
        >>> from graphact.graph import points_on_earth
        >>> brest, rennes = points_on_earth([48.39, 48.11], [-4.49, -1.68])
        >>> round(float(((brest - rennes) ** 2).sum() ** 0.5))
        210
    """
    north, east = (np.radians(np.asarray(angle, dtype=np.float64)) for angle in (latitude, longitude))
    if north.shape != east.shape or north.ndim != 1:
        raise ValueError(f"latitude and longitude must have one shape (N,), got {north.shape} and {east.shape}")
    if not (np.isfinite(north).all() and np.isfinite(east).all()) or (np.abs(north) > np.pi / 2).any():
        raise ValueError("latitude and longitude must be degrees, latitude from -90 to 90")
    across = np.cos(north)
    return EARTH_RADIUS * np.stack([across * np.cos(east), across * np.sin(east), np.sin(north)], axis=1)
