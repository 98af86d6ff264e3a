"""Film graphs: which films are rated alike."""

import numpy as np
from numpy.typing import NDArray

from graphact._checks import check_choice, check_integer
from graphact.graph import Graph

Matrix = NDArray[np.float64]

SIMILARITIES = ("pearson", "co-rated-variance")
DIGITS = 12


def film_graph(ratings: Matrix, *, similarity: str = "pearson", neighbors: int = 10, min_co_raters: int = 10) -> Graph:
    """Connect each film with those most similar to it.

    The similarity matrix is symmetrised; of each row the ``neighbors`` largest entries stay (all entries equal to the
    last of them stay too), as long as they are positive; the result is averaged with its transpose and divided by
    its largest eigenvalue. Films without a similar one stay, isolated.

    Args:
        ratings: ``(users, films)``, 0 where a user did not rate a film.
        similarity: "pearson" or "co-rated-variance"; see :func:`pearson` and :func:`co_rated_variance`.
        neighbors: how many of the largest entries of a row stay.
        min_co_raters: films with fewer common raters are not similar ("pearson" only).

    Returns:
        The shift operator, in float64.
    """
    import scipy.sparse

    check_choice("similarity", similarity, SIMILARITIES)
    check_integer("min_co_raters", min_co_raters, minimum=2)
    check_integer("neighbors", neighbors, minimum=1)
    matrix = pearson(ratings, min_co_raters) if similarity == "pearson" else co_rated_variance(ratings)
    kept = most_similar(matrix, neighbors)
    return Graph.from_scipy(scipy.sparse.csr_array((kept + kept.T) / 2)).normalize("spectral")


def pearson(ratings: Matrix, min_co_raters: int) -> Matrix:
    r"""Pearson's correlation of two films over the users who rated both.

    .. math:: \rho_{ij} = \frac{\sum_u (r_{ui} - \mu_{ij}) (r_{uj} - \mu_{ji})}
        {\sqrt{\sum_u (r_{ui} - \mu_{ij})^2 \sum_u (r_{uj} - \mu_{ji})^2}}

    where u runs over the common raters of i and j, and :math:`\mu_{ij}` is the mean rating of i by them. It is 0 for
    films with fewer than ``min_co_raters`` common raters, and where either has the same rating from all of them. With
    two or three common raters most correlations are exactly 1 or -1 and mean nothing.
    """
    rated = (ratings > 0).astype(np.float64)
    count = rated.T @ rated
    total = ratings.T @ rated
    # All four are sums of integers, so they are exact, and so is the test for zero below.
    covariance = count * (ratings.T @ ratings) - total * total.T
    variance = count * ((ratings**2).T @ rated) - total**2
    scale = np.sqrt(variance * variance.T)
    usable = (count >= min_co_raters) & (scale > 0)
    correlation = np.divide(covariance, scale, out=np.zeros_like(scale), where=usable)
    np.fill_diagonal(correlation, 0.0)
    return correlation


def co_rated_variance(ratings: Matrix) -> Matrix:
    r"""The similarity that the authors' group calls correlation: :math:`D^{-1/2} C D^{-1/2} - I`.

    :math:`C_{ij}` is the variance of the ratings of film i among the users who rated both i and j (0 where there are
    none), and D the diagonal of C. It does not look at the ratings of j and is not symmetric. Films whose own
    variance is 0 are similar to none.
    """
    rated = (ratings > 0).astype(np.float64)
    count = rated.T @ rated
    # Sums of integers until the division, so a variance of zero is exactly zero.
    variance = (count * ((ratings**2).T @ rated) - (ratings.T @ rated) ** 2) / np.maximum(count, 1) ** 2
    own = np.diag(variance)
    scale = np.sqrt(np.divide(1, own, out=np.zeros_like(own), where=own > 0))
    similarity = scale[:, None] * variance * scale
    np.fill_diagonal(similarity, 0.0)
    return similarity


def most_similar(similarity: Matrix, keep: int) -> Matrix:
    """Of a similarity, made symmetric, the ``keep`` largest entries of each row."""
    if keep > len(similarity):
        raise ValueError(f"neighbors must be at most the number of films, {len(similarity)}, got {keep}")
    # Equal similarities that differ in the last bits must be ties.
    return largest_of_each_row(np.round((similarity + similarity.T) / 2, DIGITS), keep)


def largest_of_each_row(matrix: Matrix, keep: int) -> Matrix:
    """The ``keep`` largest entries of each row, ties with the last of them included, as far as they are positive.

    Example:
        >>> largest_of_each_row(np.array([[3.0, 1.0, 2.0, 2.0], [-1.0, 0.0, 0.0, 5.0]]), keep=2)
        array([[3., 0., 2., 2.],
               [0., 0., 0., 5.]])
    """
    threshold = np.partition(matrix, -keep, axis=1)[:, -keep, None]
    return np.where((matrix >= threshold) & (matrix > 0), matrix, 0.0)
