"""Similar films: the film graph, and ratings that were never given, filled in from those of similar films."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from graphact._checks import check_choice, check_integer
from graphact.graph import Graph

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]

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


@dataclass(frozen=True)
class FillIn:
    """Settings of filling in films that a user did not rate, chosen on validation users."""

    film_shrinkage: float = 5.0  # draws film biases to 0, in ratings
    user_shrinkage: float = 40.0  # draws user biases to 0, in ratings
    similarity_shrinkage: float = 100.0  # draws similarities to 0, in common raters
    min_co_raters: int = 10  # films with fewer common raters are not similar
    neighbors: int = 50  # most similar films of each film that stay connected with it
    power: float = 3.0  # of similarities as weights; a large one listens to the most similar films only
    damping: float = 0.027  # in units of weight; draws to 0 what few or hardly similar films say


class FilledIn(NamedTuple):
    """Users' ratings with all gaps filled in."""

    graph: Graph  # the shift operator of the films, in float64
    signals: Matrix  # (users, films), bias of the user + residual, filled in where a film is not rated
    expected: Matrix  # (users, films), the rating that filling in alone expects of a film the user did not rate


def filled_in(known: Matrix, asked: Matrix, settings: FillIn) -> FilledIn:
    r"""Fill in the films that users did not rate, from their ratings of similar films.

    A rating is taken apart into mean, film bias, user bias and residual x (see :func:`take_apart`). The residual of a
    film i without rating is filled in by one exchange between neighbours,

    .. math:: a_{ui} = \frac{\sum_j s_{ij}^p x_{uj}}{\sum_j s_{ij}^p m_{uj} + c}

    with the similarities s of :func:`similar_films`, m = 1 for rated films and 0 for others, the power p and the
    damping c. The shift operator is s divided by its largest eigenvalue. Mean, film biases and similarities come from
    the ``known`` users alone, a user's bias from this user's row of ``asked`` alone.
    """
    import scipy.sparse

    mean, film = film_biases(known, settings.film_shrinkage)
    rated, _, residual = take_apart(known, mean, film, settings.user_shrinkage)
    similarity = similar_films(rated, residual, settings)
    rated, user, residual = take_apart(asked, mean, film, settings.user_shrinkage)
    weight = scipy.sparse.csr_array(similarity**settings.power)
    # The weights are symmetric, so each user's row times the weights is the weights times the user's signal.
    guess = (residual @ weight) / (rated @ weight + settings.damping)
    return FilledIn(
        graph=Graph.from_scipy(scipy.sparse.csr_array(similarity)).normalize("spectral"),
        signals=user + np.where(rated > 0, residual, guess),
        expected=mean + film + user + guess,
    )


def film_biases(ratings: Matrix, shrinkage: float) -> tuple[float, Vector]:
    r"""The mean of all ratings, and the film biases :math:`b_i = \sum_u (r_{ui} - \mu) / (n_i + \text{shrinkage})`.

    The sum runs over the :math:`n_i` users who rated film i; a film without ratings has no bias.

    Example:
        >>> film_biases(np.array([[5.0, 2.0, 0.0], [5.0, 0.0, 0.0]]), shrinkage=2.0)
        (4.0, array([ 0.5       , -0.66666667,  0.        ]))
    """
    rated = ratings > 0
    if not rated.any():
        raise ValueError("ratings must hold at least one rating, got none")
    mean = float(ratings.sum() / rated.sum())
    return mean, np.where(rated, ratings - mean, 0.0).sum(axis=0) / (rated.sum(axis=0) + shrinkage)


def take_apart(ratings: Matrix, mean: float, film: Vector, shrinkage: float) -> tuple[Matrix, Matrix, Matrix]:
    r"""Return a mask of the ratings, the bias of each user, and the residuals of ratings (0 where there is none).

    The residual is :math:`x_{ui} = r_{ui} - \mu - b_i - b_u`. The bias of a user,
    :math:`b_u = \sum_i (r_{ui} - \mu - b_i) / (n_u + \text{shrinkage})`, comes from the :math:`n_u` ratings in this
    user's own row.

    Example:
        >>> take_apart(np.array([[5.0, 0.0]]), 3.5, np.array([0.5, 0.0]), shrinkage=1.0)
        (array([[1., 0.]]), array([[0.5]]), array([[0.5, 0. ]]))
    """
    rated = ratings > 0
    above_film = np.where(rated, ratings - mean - film, 0.0)
    user = above_film.sum(axis=1, keepdims=True) / (rated.sum(axis=1, keepdims=True) + shrinkage)
    return rated.astype(np.float64), user, np.where(rated, above_film - user, 0.0)


def similar_films(rated: Matrix, residual: Matrix, settings: FillIn) -> Matrix:
    r"""Return the similarity of films, from the residuals of users who rated both.

    .. math:: s_{ij} = \frac{n_{ij}}{n_{ij} + \text{shrinkage}}
        \frac{\sum_u x_{ui} x_{uj}}{\sqrt{\sum_u x_{ui}^2 \sum_u x_{uj}^2}}

    where u runs over the :math:`n_{ij}` common raters of i and j. It is 0 for too few common raters. Of each row the
    largest entries stay; two films are neighbours if either keeps the other.
    """
    count = rated.T @ rated
    energy = (residual**2).T @ rated
    scale = np.sqrt(energy * energy.T)
    usable = (count >= settings.min_co_raters) & (scale > 0)
    correlation = np.divide(residual.T @ residual, scale, out=np.zeros_like(scale), where=usable)
    shrunk = correlation * count / (count + settings.similarity_shrinkage)
    np.fill_diagonal(shrunk, 0.0)
    kept = most_similar(shrunk, settings.neighbors)
    return np.maximum(kept, kept.T)
