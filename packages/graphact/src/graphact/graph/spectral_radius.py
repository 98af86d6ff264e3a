r"""The largest eigenvalue magnitude of a shift operator, and a check of what the solvers find.

LAPACK and ARPACK give the eigenvalues of a matrix that is off by a rounding error of its norm. Where weights differ
widely along directed cycles, that error moves eigenvalues by any factor, and it depends on the units in which the nodes
measure: with other units, :math:`D^{-1} S D`, weights are balanced and the error is none. The check chooses such units
and, for weights without a sign, brackets the radius by the theorem of Collatz and Wielandt: for every positive x,

.. math:: \min_i [Sx]_i / x_i \le \rho(S) \le \max_i [Sx]_i / x_i

on each strongly connected component, which needs no subtraction, so that rounding leaves it right.
"""

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from torch import Tensor

from graphact.graph.neighborhoods import Neighborhoods

if TYPE_CHECKING:
    import scipy.sparse

DENSE_UP_TO, DENSE_IF_BALANCED = 256, 2048
EIGENVALUE_TOLERANCE = 1e-8
KRYLOV_VECTORS = 64
MAX_RESTARTS = 2000
USUAL_EXPONENT = 100  # of the largest weight; others are scaled first
AGREEMENT = 1e-6  # relative, of a solver with the bracket, or with itself in other units
BRACKET = 1e-10  # relative width of a bracket whose middle replaces what a solver found
POWER_STEPS, POWER_ROUNDS, INVERSE_ROUNDS = 20, 5, 60
LSQR_STEPS, LSQR_EDGES = 300, 100_000_000  # steps, and edges that they visit at most
USUAL_UNITS = 20  # powers of two by which rounding errors may grow and stay below the tolerance
FACTORIZED_UP_TO = 4096
MAX_UNIT = 2.0**900


def spectral_radius(incoming: Neighborhoods, weight: Tensor, diagonal: Tensor | None) -> tuple[float, int]:
    """Return the largest eigenvalue magnitude of S as a number and the exponent of a power of two to multiply it by.

    Edges between strongly connected components change no eigenvalue of S. They are left out, so that the eigenvalues
    of acyclic parts are exactly zero instead of the roots of rounding errors.

    Raises:
        ValueError: no solver converges, or what it finds fails the check and nothing better is found.
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
        return 0.0, 0
    _, exponent = math.frexp(abs(matrix).max())
    exponent = exponent if abs(exponent) > USUAL_EXPONENT else 0
    scaled = matrix.copy()
    scaled.data = np.ldexp(matrix.data, -exponent)
    is_symmetric = abs(scaled - scaled.T).max() == 0
    if is_symmetric:  # the radius is the norm, of which nothing but a rounding error is lost
        return solve(scaled, is_symmetric), exponent
    if matrix.data.min() > 0:
        return bracketed_radius(scaled, exponent, Units.given(matrix, component))
    return balanced_radius(scaled, exponent, Units.given(matrix, component))


def solve(matrix: "scipy.sparse.csr_array", is_symmetric: bool = False, dense_up_to: int = DENSE_UP_TO) -> float:
    """Return the radius found by a solver; zero if rounding errors alone could give it."""
    radius = largest_eigenvalue_magnitude(matrix, is_symmetric, dense_up_to)
    rounding = matrix.shape[0] * np.finfo(np.float64).eps * float(abs(matrix).sum(1).max())
    return radius if radius > rounding else 0.0


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
    except ArpackError as error:
        raise ValueError(
            f'kind "spectral" found no largest eigenvalue of this graph of {n} nodes ({error}); "symmetric" or '
            '"random_walk" need none'
        ) from error
    return float(np.abs(found).max())


class Units(NamedTuple):
    """The cyclic part of S in other units of its nodes: ``2^(unit_j - unit_i) S_ij``, which has the same eigenvalues.

    Attributes:
        matrix: S without the edges between components.
        rows: of its entries.
        component: the strongly connected component of each node.
        unit: a power of two for each node.
    """

    matrix: "scipy.sparse.csr_array"
    rows: Any
    component: Any
    unit: Any

    @classmethod
    def given(cls, matrix: "scipy.sparse.csr_array", component: Any) -> "Units":
        rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
        return cls(matrix, rows, component, np.zeros(matrix.shape[0], dtype=np.int64))

    def balanced(self) -> "tuple[Units, Any]":
        """Units in which the weights of a component are as equal as they get, on a cycle all the same, and what is left
        of them beside powers of two. Least squares for the logarithms of the weights.
        """
        import scipy.sparse
        from scipy.sparse.linalg import lsqr

        between = np.flatnonzero(self.rows != self.matrix.indices)
        rows, col = self.rows[between], self.matrix.indices[between]
        mantissa, exponent = np.frexp(np.abs(self.matrix.data[between]))
        logarithm, where = np.log2(mantissa) + exponent, self.component[rows]
        edge, signs = np.tile(np.arange(len(between)), 2), np.repeat([1.0, -1.0], len(between))
        shape = len(between), len(self.unit)
        incidence = scipy.sparse.csr_array((signs, (edge, np.concatenate([col, rows]))), shape=shape)
        mean = np.bincount(where, logarithm) / np.maximum(np.bincount(where), 1)
        steps = max(LSQR_STEPS, LSQR_EDGES // len(between)) if len(between) else 0
        unit = lsqr(incidence, mean[where] - logarithm, atol=1e-14, btol=1e-14, iter_lim=steps)[0]
        whole = np.rint(unit)
        return self._replace(unit=whole.astype(np.int64)), np.exp2(unit - whole)

    def times(self, factor: Any) -> "tuple[Units, Any]":
        """Units multiplied by the powers of two in positive numbers, and what is left of those, between 1/2 and 1."""
        rest, exponent = np.frexp(factor)
        return self._replace(unit=self.unit + exponent), rest

    def scaled(self) -> tuple["scipy.sparse.csr_array", int]:
        """The matrix, its largest entry about 1, and the power of two that it is still to be multiplied with.

        What underflows is nothing beside the largest row sum.
        """
        mantissa, exponent = np.frexp(self.matrix.data)
        exponent = exponent + self.unit[self.matrix.indices] - self.unit[self.rows]
        largest = int(exponent.max())
        scaled = self.matrix.copy()
        scaled.data = np.ldexp(mantissa, np.maximum(exponent - largest, -2000).astype(np.int32))
        return scaled, largest


def bracketed_radius(scaled: "scipy.sparse.csr_array", exponent: int, units: Units) -> tuple[float, int]:
    """Return the radius of positive weights: a solver's result if it lies in a bracket, else the middle of it.

    The vector x of the bracket comes from power iterations, in the given units and in balanced ones, and from inverse
    iterations. Those with the upper bound as their shift (Noda, 1971) stay positive and converge quadratically near
    the radius; to get there, shifts are bisected: a solution is positive for shifts above the radius alone. The powers
    of two in x become units, so that x itself is between 1/2 and 1.
    """
    refusal: ValueError | None = None
    try:
        found = solve(scaled)
    except ValueError as error:
        found, refusal = 0.0, error
    x, agrees, floor = np.ones(len(units.unit)), False, -math.inf
    can_factorize = len(x) <= FACTORIZED_UP_TO or scaled.nnz <= 2 * len(x)
    for attempt in range(2 * POWER_ROUNDS + INVERSE_ROUNDS):
        if attempt == POWER_ROUNDS:
            units, x = units.balanced()
        matrix, power = units.scaled()
        ratio = matrix @ x / x
        upper, lower = float(ratio.max()), largest_minimum(ratio, units.component)
        known = times_power(found, exponent - power)
        agrees = (1 - AGREEMENT) * lower <= known <= (1 + AGREEMENT) * upper
        if upper - lower <= (AGREEMENT if agrees else BRACKET) * lower:
            return (found, exponent) if agrees else ((lower + upper) / 2, power)
        if attempt < 2 * POWER_ROUNDS:
            for _ in range(POWER_STEPS):
                x = matrix @ x / upper + x / 4
        elif can_factorize:
            floor = max(floor, math.log2(lower) + power if lower > 0 else power - 1000)
            octaves = math.log2(upper) + power - floor
            shift = upper * (2.0 ** (-octaves / 2) if octaves > 1 else 1 + 1e-13)
            solution = inverse_iteration(matrix, shift, x)
            if (solution > 0).all():
                x = np.minimum(solution, MAX_UNIT)
            else:
                floor = math.log2(shift) + power
        else:
            break
        units, x = units.times(x)
    if agrees:
        return found, exponent
    raise refusal or untrusted(len(x))


def largest_minimum(values: Any, component: Any) -> float:
    """Return the largest of the minima over components."""
    lowest = np.full(int(component.max()) + 1, np.inf)
    np.minimum.at(lowest, component, values)
    return float(lowest.max())


def inverse_iteration(matrix: "scipy.sparse.csr_array", shift: float, x: Any) -> Any:
    """``(shift - matrix)^-1 x``; factors without pivots have signs that let nothing cancel."""
    import scipy.sparse
    from scipy.sparse.linalg import splu

    shifted = scipy.sparse.diags_array(np.full(len(x), shift)) - matrix
    try:
        factors = splu(shifted.tocsc(), "MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
        return factors.solve(x)
    except RuntimeError:  # exactly singular
        return np.zeros_like(x)


def balanced_radius(scaled: "scipy.sparse.csr_array", exponent: int, units: Units) -> tuple[float, int]:
    """Return the radius of signed weights, for which there is no bracket: in balanced units if those change it.

    LAPACK rounds otherwise on the transpose, which has the same eigenvalues; where rounding moves them, it shows.
    """
    balanced, _ = units.balanced()
    try:
        found = solve(scaled)
    except ValueError:
        found = math.nan
    if np.ptp(balanced.unit) <= USUAL_UNITS and not math.isnan(found):
        is_small = scaled.shape[0] <= DENSE_UP_TO
        if not is_small or math.isclose(solve(scaled.T.tocsr()), found, rel_tol=AGREEMENT):
            return found, exponent
    matrix, power = balanced.scaled()
    radius = solve(matrix, dense_up_to=DENSE_IF_BALANCED)
    if math.isclose(times_power(found, exponent - power), radius, rel_tol=AGREEMENT):
        return found, exponent
    if math.isclose(solve(matrix.T.tocsr(), dense_up_to=DENSE_IF_BALANCED), radius, rel_tol=AGREEMENT):
        return radius, power
    raise untrusted(len(balanced.unit))


def times_power(value: float, exponent: int) -> float:
    """``value * 2^exponent``, infinite or zero beyond the range."""
    try:
        return math.ldexp(value, exponent)
    except OverflowError:
        return math.inf


def untrusted(n: int) -> ValueError:
    """Return the error for a graph on which solvers and checks disagree."""
    return ValueError(
        f'kind "spectral" found no largest eigenvalue of this graph of {n} nodes that can be trusted: its weights '
        'differ too much; "symmetric" or "random_walk" need none'
    )
