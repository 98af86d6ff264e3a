"""The spectral radius of a dense matrix without rounding errors that grow: the oracle of spectral normalisation."""

import numpy as np
import scipy.sparse.csgraph

SQUARINGS = 45


def spectral_radius(matrix):
    """The largest eigenvalue magnitude, component by component, as edges between components change no eigenvalue.

    Exact for a component that is one cycle. Where nothing is negative, by Gelfand's limit in logarithms, in which
    nothing underflows and nothing cancels. LAPACK for the rest, and for components too large for that.
    """
    matrix = np.asarray(matrix, dtype=np.float64)
    _, component = scipy.sparse.csgraph.connected_components(scipy.sparse.csr_array(matrix != 0), connection="strong")
    blocks = (np.flatnonzero(component == label) for label in range(component.max() + 1))
    return max(radius_of_component(matrix[np.ix_(nodes, nodes)]) for nodes in blocks)


def radius_of_component(block):
    if not block.any():
        return 0.0
    if ((block != 0).sum(1) == 1).all():
        return float(np.exp2(np.log2(np.abs(block[block != 0]).astype(np.longdouble)).mean()))
    if (block == block.T).all() or (block < 0).any() or len(block) > 300:
        return np.abs(np.linalg.eigvals(block)).max()
    return gelfand_limit(block)


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
