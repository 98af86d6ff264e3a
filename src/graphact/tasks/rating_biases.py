"""Biases of ratings: what is liked by all, and who likes everything."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from graphact.tasks.film_graph import Matrix

Vector = NDArray[np.float64]


class FilmBiases(NamedTuple):
    """What a film is given on average.

    Attributes:
        mean: mean of all ratings.
        film: ``(films,)``, how much more each film is given, shrunk towards 0.
    """

    mean: float
    film: Vector


class Residuals(NamedTuple):
    """Ratings taken apart: a rating is the mean + film bias + bias of its user + residual.

    Attributes:
        rated: ``(users, films)``, 1 where a user rated a film, 0 elsewhere.
        user: ``(users, 1)``, how much more each user gives, shrunk towards 0.
        residual: ``(users, films)``, what remains of each rating; 0 where there is none.
    """

    rated: Matrix
    user: Matrix
    residual: Matrix


def film_biases(ratings: Matrix, shrinkage: float) -> FilmBiases:
    r"""The mean of all ratings, and the film biases :math:`b_i = \sum_u (r_{ui} - \mu) / (n_i + \text{shrinkage})`.

    The sum runs over the :math:`n_i` users who rated film i; a film without ratings has no bias.

    Args:
        ratings: ``(users, films)``, 0 where a user did not rate a film.
        shrinkage: how many ratings equal to the mean every film is given in addition, above 0.

    Raises:
        ValueError: there is no rating.

    Example:
        >>> film_biases(np.array([[5.0, 2.0, 0.0], [5.0, 0.0, 0.0]]), shrinkage=2.0)
        FilmBiases(mean=4.0, film=array([ 0.5       , -0.66666667,  0.        ]))
    """
    rated = ratings > 0
    if not rated.any():
        raise ValueError("ratings must hold at least one rating, got none")
    mean = float(ratings.sum() / rated.sum())
    return FilmBiases(mean, np.where(rated, ratings - mean, 0.0).sum(axis=0) / (rated.sum(axis=0) + shrinkage))


def residuals(ratings: Matrix, biases: FilmBiases, shrinkage: float) -> Residuals:
    r"""What film and user do not explain: :math:`x_{ui} = r_{ui} - \mu - b_i - b_u`.

    The bias of a user, :math:`b_u = \sum_i (r_{ui} - \mu - b_i) / (n_u + \text{shrinkage})`, comes from the
    :math:`n_u` ratings in this user's own row.

    Args:
        ratings: ``(users, films)``, 0 where a user did not rate a film; these users need not be those of ``biases``.
        biases: mean and film biases.
        shrinkage: how many ratings without surprise every user is given in addition, above 0.

    Example:
        >>> residuals(np.array([[5.0, 0.0]]), FilmBiases(3.5, np.array([0.5, 0.0])), shrinkage=1.0)
        Residuals(rated=array([[1., 0.]]), user=array([[0.5]]), residual=array([[0.5, 0. ]]))
    """
    rated = ratings > 0
    above_film = np.where(rated, ratings - biases.mean - biases.film, 0.0)
    user = above_film.sum(axis=1, keepdims=True) / (rated.sum(axis=1, keepdims=True) + shrinkage)
    return Residuals(rated.astype(np.float64), user, np.where(rated, above_film - user, 0.0))
