"""Rescaled shift operators. Every function maps (neighbour lists, weights, diagonal) to (weights, diagonal)."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from graphact._checks import check_choice
from graphact.graph.eager import outside_compiled_code
from graphact.graph.edges import sum_by
from graphact.graph.neighborhoods import Neighborhoods

if TYPE_CHECKING:
    import scipy.sparse

Normalization = Literal["spectral", "symmetric", "gcn", "random_walk", "laplacian"]
Weights = tuple[Tensor, Tensor | None]
DENSE_UP_TO = 256
EIGENVALUE_TOLERANCE = 1e-8
KRYLOV_VECTORS = 64
MOST_RESTARTS = 2000


@outside_compiled_code("eigenvalues are found in every call: normalise the graphact.Graph once and compile with it")
def spectral(incoming: Neighborhoods, weight: Tensor, diagonal: Tensor | None) -> Weights:
    """S divided by its largest eigenvalue magnitude; the zero operator stays as it is."""
    if not weight.any() and (diagonal is None or not diagonal.any()):
        return weight, diagonal
    radius = spectral_radius(incoming, weight, diagonal)
    if radius == 0:
        raise ValueError(
            'kind "spectral" needs an eigenvalue that is not zero, and this operator has none (graphs without cycles '
            "are such)"
        )
    return weight / radius, None if diagonal is None else diagonal / radius


def symmetric(incoming: Neighborhoods, weight: Tensor, diagonal: Tensor | None, is_undirected: bool = False) -> Weights:
    """S divided by the square roots of its row and column sums of magnitudes, which are equal if it is undirected."""
    rows = incoming.rows
    across = inverse_sums(rows, weight, diagonal, incoming.num_nodes).sqrt()
    down = across if is_undirected else inverse_sums(incoming.col, weight, diagonal, incoming.num_nodes).sqrt()
    scaled = weight * (across[rows] * down[incoming.col])
    return scaled.to(weight.dtype), None if diagonal is None else (diagonal * (across * down)).to(weight.dtype)


def gcn(incoming: Neighborhoods, weight: Tensor, diagonal: Tensor | None) -> Weights:
    """S with self-loops of weight 1 where a node has none, divided by the square roots of its row sums at both ends."""
    rows, dtype = incoming.rows, torch.promote_types(weight.dtype, torch.float32)
    loops = weight.new_ones(incoming.num_nodes) if diagonal is None else torch.where(diagonal == 0, 1.0, diagonal)
    sums = sum_by(rows, weight.to(dtype), incoming.num_nodes) + loops
    across = torch.where(sums > 0, torch.where(sums > 0, sums, 1.0).rsqrt(), 0.0)
    scaled = weight * (across[rows] * across[incoming.col])
    return scaled.to(weight.dtype), (loops * across.square()).to(weight.dtype)


def random_walk(incoming: Neighborhoods, weight: Tensor, diagonal: Tensor | None) -> Weights:
    """S with each row divided by its sum of magnitudes."""
    rows = incoming.rows
    across = inverse_sums(rows, weight, diagonal, incoming.num_nodes)
    scaled = weight * across[rows]
    return scaled.to(weight.dtype), None if diagonal is None else (diagonal * across).to(weight.dtype)


def laplacian(incoming: Neighborhoods, weight: Tensor, diagonal: Tensor | None) -> Weights:
    """The row sums on the diagonal minus S; self-loops cancel."""
    del diagonal
    return -weight, sum_by(incoming.rows, weight, incoming.num_nodes)


KINDS: dict[str, Callable[[Neighborhoods, Tensor, Tensor | None], Weights]] = {
    "spectral": spectral,
    "symmetric": symmetric,
    "gcn": gcn,
    "random_walk": random_walk,
    "laplacian": laplacian,
}


def check_normalize(normalize: Any) -> Normalization | None:
    """The kind by which a graph made from an edge_index is normalised, or None to take its weights as they are."""
    return None if normalize is None else check_choice("normalize", normalize, tuple(KINDS))  # type: ignore[return-value]


def inverse_sums(index: Tensor, weight: Tensor, diagonal: Tensor | None, num_nodes: int) -> Tensor:
    """1 over the sum of |S| over the entries that share an index, and 0 where a node has no weight at all."""
    sums = sum_by(index, weight.abs().to(torch.promote_types(weight.dtype, torch.float32)), num_nodes)
    sums = sums if diagonal is None else sums + diagonal.abs()
    empty = sums == 0
    return torch.where(empty, 0.0, 1.0 / torch.where(empty, 1.0, sums))


def spectral_radius(incoming: Neighborhoods, weight: Tensor, diagonal: Tensor | None) -> float:
    """The largest eigenvalue magnitude of S.

    Edges between strongly connected components change no eigenvalue of S. They are left out, so that the eigenvalues
    of acyclic parts are exactly zero instead of the roots of rounding errors.
    """
    import scipy.sparse

    n = incoming.num_nodes
    rows, col = incoming.rows.cpu().numpy(), incoming.col.cpu().numpy()
    values = weight.detach().cpu().double().numpy()
    counts = values != 0  # an edge of weight zero closes no cycle
    rows, col, values = rows[counts], col[counts], values[counts]
    matrix = scipy.sparse.csr_array((values, (rows, col)), shape=(n, n))
    _, component = scipy.sparse.csgraph.connected_components(matrix, connection="strong")
    inside = component[rows] == component[col]
    matrix = scipy.sparse.csr_array((values[inside], (rows[inside], col[inside])), shape=(n, n))
    if diagonal is not None:
        matrix = matrix + scipy.sparse.diags_array(diagonal.detach().cpu().double().numpy(), format="csr")
    if matrix.nnz == 0:
        return 0.0
    radius = largest_eigenvalue_magnitude(matrix)
    rounding = n * np.finfo(np.float64).eps * float(abs(matrix).sum(1).max())
    return radius if radius > rounding else 0.0


def largest_eigenvalue_magnitude(matrix: "scipy.sparse.csr_array") -> float:
    """Dense LAPACK for small matrices, restarted Lanczos or Arnoldi iterations (ARPACK) for large ones.

    Without negative entries the largest eigenvalue is positive (Perron and Frobenius) and its eigenvector has no
    negative entry. Then the positive end of the spectrum is searched, from the constant vector, which avoids the pair
    of opposite eigenvalues of bipartite graphs and is exact for regular ones.
    """
    from scipy.sparse.linalg import ArpackError, eigs, eigsh

    n = matrix.shape[0]
    is_symmetric = abs(matrix - matrix.T).max() == 0
    if n <= DENSE_UP_TO:
        eigenvalues = np.linalg.eigvalsh if is_symmetric else np.linalg.eigvals
        return float(np.abs(eigenvalues(matrix.toarray())).max())
    is_nonnegative = matrix.data.min() >= 0
    solver, end = (eigsh, "LA") if is_symmetric else (eigs, "LR")
    start = np.ones(n) if is_nonnegative else np.random.default_rng(0).standard_normal(n)
    try:
        found = solver(
            matrix,
            k=1,
            which=end if is_nonnegative else "LM",
            v0=start,
            tol=EIGENVALUE_TOLERANCE,
            ncv=min(n, KRYLOV_VECTORS),
            maxiter=MOST_RESTARTS,
            return_eigenvectors=False,
        )
    except ArpackError as error:
        raise ValueError(
            f'kind "spectral" found no largest eigenvalue of this graph of {n} nodes ({error}); "symmetric" or '
            '"random_walk" need none'
        ) from error
    return float(np.abs(found).max())
