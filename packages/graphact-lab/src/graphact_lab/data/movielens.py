"""MovieLens 100K: who rated which film, and how."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from graphact.storage import DAMAGES, one_line
from graphact_lab.data.download import DataError, PathLike

USERS = 943
FILMS = 1682


@dataclass(frozen=True, eq=False)
class Ratings:
    """Ratings of films by users.

    Attributes:
        matrix: ``(users, films)``, ratings from 1 to 5 and 0 where a user did not rate a film; float64.
        titles: the titles of the films, in the order of the columns.
    """

    matrix: NDArray[np.float64]
    titles: tuple[str, ...]


def read_movielens(folder: PathLike, users: int = USERS, films: int = FILMS) -> Ratings:
    """Read ``u.data`` and ``u.item``; user and item k stand in row and column k - 1.

    Raises:
        DataError: the files do not hold what they should.
    """
    folder = Path(folder)
    try:
        entries = np.loadtxt(folder / "u.data", dtype=np.int64, ndmin=2)
        user, item, rating = entries[:, 0] - 1, entries[:, 1] - 1, entries[:, 2]
        if entries.min() < 1 or user.max() >= users or item.max() >= films or rating.max() > 5:
            raise ValueError(f"users up to {users}, items up to {films} and ratings from 1 to 5 were expected")
        titles = (folder / "u.item").read_text(encoding="latin-1").splitlines()
        if len(titles) != films:
            raise ValueError(f"{films} titles were expected, got {len(titles)}")
        matrix = np.zeros((users, films))
        matrix[user, item] = rating
        return Ratings(matrix, tuple(line.split("|")[1] for line in titles))
    except (*DAMAGES, OSError) as error:
        raise DataError(f"{folder} does not hold MovieLens 100K: {one_line(error)}") from error
