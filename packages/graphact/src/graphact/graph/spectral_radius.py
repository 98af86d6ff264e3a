r"""The largest eigenvalue magnitude of a shift operator, and a check of what the solvers find.

LAPACK and ARPACK give the eigenvalues of a matrix that is off by a rounding error of its norm. On directed graphs whose
weights differ along paths and cycles, that error moves eigenvalues by any factor. It differs on the transpose, which
has the same eigenvalues: where the two disagree, neither is used. It also depends on the units in which the nodes
measure: :math:`D^{-1} S D` has the same eigenvalues, too, and units that balance the weights keep the error small.
"""

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from graphact.graph.neighborhoods import Neighborhoods

if TYPE_CHECKING:
    import scipy.sparse

DENSE_UP_TO, DENSE_IF_BALANCED = 256, 2048
EIGENVALUE_TOLERANCE = 1e-8
KRYLOV_VECTORS = 64
MAX_RESTARTS = 2000
AGREEMENT = 1e-6  # relative, of a solver with itself on the transpose
LSQR_STEPS = 2000


def spectral_radius(incoming: Neighborhoods, weight: Tensor, diagonal: Tensor | None) -> float:
    """Return the largest eigenvalue magnitude of S.

    Edges between strongly connected components change no eigenvalue of S. They are left out, so that the eigenvalues
    of acyclic parts are exactly zero instead of the roots of rounding errors.

    Raises:
        ValueError: no solver converges to the same value on S and on its transpose.
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
    matrix.eliminate_zeros()
    if matrix.nnz == 0:
        return 0.0
    if abs(matrix - matrix.T).max() == 0:  # the radius is the norm, of which nothing but a rounding error is lost
        found = solve(matrix, is_symmetric=True)
        if not math.isnan(found):
            return found
    else:
        for dense_up_to in (DENSE_UP_TO, DENSE_IF_BALANCED):
            found = solve(matrix, dense_up_to=dense_up_to)
            if found > 0 and math.isclose(solve(matrix.T.tocsr(), dense_up_to=dense_up_to), found, rel_tol=AGREEMENT):
                return found
            matrix = balanced(matrix, component)
        if found == 0 and matrix.data.min() < 0:  # a cycle of positive weights has a positive radius
            return 0.0
    raise ValueError(
        f'kind "spectral" found no largest eigenvalue of this graph of {n} nodes that can be trusted: its weights '
        'differ too much, or its solver did not converge; "symmetric" or "random_walk" need none'
    )


def balanced(matrix: "scipy.sparse.csr_array", component: Any) -> "scipy.sparse.csr_array":
    """Return ``D^-1 S D`` with the powers of two D that make the weights of a component as equal as they get.

    On a cycle they are then all the same. Least squares for the logarithms of the weights.
    """
    import scipy.sparse
    from scipy.sparse.linalg import lsqr

    n = matrix.shape[0]
    rows, col = np.repeat(np.arange(n), np.diff(matrix.indptr)), matrix.indices
    logarithm, edge = np.log2(np.abs(matrix.data)), np.arange(matrix.nnz)
    mean = np.bincount(component[rows], logarithm) / np.maximum(np.bincount(component[rows]), 1)
    ends = [scipy.sparse.csr_array((np.ones(matrix.nnz), (edge, end)), shape=(matrix.nnz, n)) for end in (col, rows)]
    wanted = mean[component[rows]] - logarithm
    unit = lsqr(ends[0] - ends[1], wanted, atol=1e-14, btol=1e-14, iter_lim=LSQR_STEPS)[0]
    exponent = np.rint(unit).astype(np.int64)
    result = matrix.copy()
    result.data = np.ldexp(matrix.data, exponent[col] - exponent[rows])
    return result


def solve(matrix: "scipy.sparse.csr_array", is_symmetric: bool = False, dense_up_to: int = DENSE_UP_TO) -> float:
    """Return the radius found by a solver: zero if rounding errors alone could give it, NaN if none converged.

    Weights are scaled first, by a power of two: solvers square them.
    """
    _, exponent = math.frexp(abs(matrix).max())
    scaled = matrix.copy()
    scaled.data = np.ldexp(matrix.data, -exponent)
    radius = largest_eigenvalue_magnitude(scaled, is_symmetric, dense_up_to)
    rounding = matrix.shape[0] * np.finfo(np.float64).eps * float(abs(scaled).sum(1).max())
    return 0.0 if radius <= rounding else float(np.ldexp(radius, exponent))


def largest_eigenvalue_magnitude(matrix: "scipy.sparse.csr_array", is_symmetric: bool, dense_up_to: int) -> float:
    """Dense LAPACK for small matrices, restarted Lanczos or Arnoldi iterations (ARPACK) for large ones.

    Without negative entries the largest eigenvalue is positive (Perron and Frobenius) and its eigenvector has no
    negative entry. Then the positive end of the spectrum is searched, from the constant vector, which avoids the pair
    of opposite eigenvalues of bipartite graphs and is exact for regular ones.
    """
    from scipy.sparse.linalg import ArpackError, eigs, eigsh

    n = matrix.shape[0]
    if n <= dense_up_to:
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
            maxiter=MAX_RESTARTS,
            return_eigenvectors=False,
        )
    except ArpackError:
        return math.nan
    return float(np.abs(found).max())
