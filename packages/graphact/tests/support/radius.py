"""The spectral radius of a dense matrix without rounding errors that grow: the oracle of spectral normalisation."""

import functools
import math

import mpmath
import numpy as np
import scipy.sparse.csgraph

SQUARINGS = 45
PRECISE_UP_TO = 64  # nodes: ten seconds


def spectral_radius(matrix):
    """The largest eigenvalue magnitude, component by component, as edges between components change no eigenvalue.

    Exact for a component that is one cycle. Where nothing is negative, by Gelfand's limit in logarithms, in which
    nothing underflows and nothing cancels. LAPACK for the rest, and for components too large for that; where it does
    not agree with itself about the transpose, with fifty digits, or NaN if that would take minutes.
    """
    matrix = np.asarray(matrix, dtype=np.float64)
    _, component = scipy.sparse.csgraph.connected_components(scipy.sparse.csr_array(matrix != 0), connection="strong")
    blocks = (np.flatnonzero(component == label) for label in range(component.max() + 1))
    return float(np.max([radius_of_component(matrix[np.ix_(nodes, nodes)]) for nodes in blocks]))


def radius_of_component(block):
    if not block.any():
        return 0.0
    if ((block != 0).sum(1) == 1).all():
        return float(np.exp2(np.log2(np.abs(block[block != 0]).astype(np.longdouble)).mean()))
    if (block == block.T).all() or (block < 0).any() or len(block) > 300:
        found, turned = (np.abs(np.linalg.eigvals(side)).max() for side in (block, block.T))
        if math.isclose(found, turned, rel_tol=1e-9):
            return found
        return radius_in_fifty_digits(tuple(map(tuple, block.tolist()))) if len(block) <= PRECISE_UP_TO else math.nan
    return gelfand_limit(block)


@functools.lru_cache(maxsize=8)
def radius_in_fifty_digits(rows):
    with mpmath.workdps(50):
        return float(max(abs(value) for value in mpmath.eig(mpmath.matrix(rows), left=False, right=False)))


def gelfand_limit(block):
    r"""The limit of :math:`\max_{ij} [A^m]_{ij}^{1/m}`, which is off by a factor of at most c^(1/m), for m = 2^45."""
    with np.errstate(divide="ignore"):
        logarithms = np.log(block)
    total = 0.0
    for power in range(SQUARINGS):
        largest = logarithms.max()
        total += largest / 2.0**power
        logarithms = squared(logarithms - largest)
    return float(np.exp(total + logarithms.max() / 2.0**SQUARINGS))


def squared(logarithms):
    """The logarithms of the square of a matrix with these logarithms."""
    result = np.empty_like(logarithms)
    for i, row in enumerate(logarithms):
        terms = row[:, None] + logarithms
        largest = terms.max(0)
        offset = np.where(np.isneginf(largest), 0.0, largest)
        with np.errstate(divide="ignore"):
            result[i] = np.log(np.exp(terms - offset).sum(0)) + offset
    return result
