import numpy as np
import pytest
import torch

from graphact_lab.experiments.recommendation.films import co_rated_variance, largest_of_each_row, pearson
from graphact_lab.tasks import film_graph


def common(matrix, i, j):
    """The ratings of two films by the users who rated both."""
    both = (matrix[:, i] > 0) & (matrix[:, j] > 0)
    return matrix[both, i], matrix[both, j]


def test_pearson_against_one_pair_at_a_time(ratings):
    found = pearson(ratings.matrix, min_co_raters=15)
    skipped = 0
    for i in range(15):
        for j in range(15):
            a, b = common(ratings.matrix, i, j)
            if i == j or len(a) < 15:
                skipped += 1
                assert found[i, j] == 0
            else:
                assert found[i, j] == pytest.approx(np.corrcoef(a, b)[0, 1])
    assert 15 < skipped < 225


def test_constant_ratings_correlate_with_nothing():
    matrix = np.array([[3.0, 1.0], [3.0, 5.0], [3.0, 2.0]])
    assert not pearson(matrix, min_co_raters=2).any()


def test_co_rated_variance_against_one_pair_at_a_time(ratings):
    matrix = ratings.matrix.copy()
    matrix[:, 4] = np.where(matrix[:, 4] > 0, 2.0, 0.0)
    matrix[:, 5] = 0
    found = co_rated_variance(matrix)
    for i in range(15):
        for j in range(15):
            own = [common(matrix, film, film)[0].var() if matrix[:, film].any() else 0 for film in (i, j)]
            a, _ = common(matrix, i, j)
            expected = a.var() / np.sqrt(own[0] * own[1]) if i != j and own[0] * own[1] > 0 and len(a) else 0
            assert found[i, j] == pytest.approx(expected)
    assert not found[4].any()
    assert not found[:, 5].any()


def test_ties_with_the_last_kept_entry_are_kept():
    rows = np.array([[5.0, 4.0, 4.0, 4.0, 1.0], [0.0, -1.0, -2.0, -3.0, 0.0], [1.0, 2.0, 3.0, 4.0, 5.0]])
    expected = [[5, 4, 4, 4, 0], [0, 0, 0, 0, 0], [0, 0, 0, 4, 5]]
    assert largest_of_each_row(rows, keep=2).tolist() == expected


@pytest.mark.parametrize("similarity", ["pearson", "co-rated-variance"])
def test_the_common_steps(ratings, similarity):
    graph = film_graph(ratings.matrix, similarity=similarity, neighbors=3, min_co_raters=5)
    raw = pearson(ratings.matrix, 5) if similarity == "pearson" else co_rated_variance(ratings.matrix)
    raw = (raw + raw.T) / 2
    kept = np.zeros_like(raw)
    for film, row in enumerate(raw):
        for other in np.argsort(row)[-3:]:
            kept[film, other] = max(row[other], 0)
    expected = (kept + kept.T) / 2
    expected /= np.abs(np.linalg.eigvalsh(expected)).max()
    assert graph.dtype == torch.float64
    assert not graph.is_directed
    np.testing.assert_allclose(graph.to_dense().numpy(), expected, atol=1e-10)


def test_films_without_ratings_stay_as_isolated_nodes(ratings):
    matrix = ratings.matrix.copy()
    matrix[:, [2, 9]] = 0
    graph = film_graph(matrix, min_co_raters=5, neighbors=3)
    assert graph.num_nodes == 15
    assert (graph.degree == 0).nonzero().flatten().tolist() == [2, 9]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"similarity": "cosine"}, "similarity must be one of 'pearson', 'co-rated-variance', got 'cosine'"),
        ({"neighbors": 0}, "neighbors must be at least 1"),
        ({"neighbors": 16}, "neighbors must be at most the number of films, 15, got 16"),
        ({"min_co_raters": 1}, "min_co_raters must be at least 2, got 1"),
    ],
)
def test_mistakes_are_named(ratings, options, message):
    with pytest.raises(ValueError, match=message):
        film_graph(ratings.matrix, **options)
