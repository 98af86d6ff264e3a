import numpy as np
import pytest
import torch

from graphact_lab.experiments.recommendation.task import Options, audience, on_split
from graphact_lab.tasks import (
    FILMS,
    DataError,
    Ratings,
    centered_by_user,
    read_movielens,
    recommendation,
    recommendation_tasks,
)
from support.imitation import write_movielens


def make(ratings, film=3, split=0, seed=0, dtype=torch.float64, **changes):
    options = dict(
        similarity="pearson", neighbors=4, min_co_raters=5, test_fraction=0.1, validation_fraction=0.1, dtype=dtype
    )
    return on_split(ratings, audience(ratings, film, dtype), split, seed, Options(**{**options, **changes}))


def test_samples_are_the_users_who_rated_the_film(ratings):
    task = make(ratings)
    raters = np.flatnonzero(ratings.matrix[:, 2])
    expected = ratings.matrix[raters].copy()
    np.testing.assert_array_equal(task.targets.numpy(), expected[:, 2])
    expected[:, 2] = 0
    np.testing.assert_array_equal(task.inputs.squeeze(-1).numpy(), expected)
    assert (task.name, task.node, task.out_features, task.loss, task.metric) == (
        "recommendation",
        2,
        1,
        "smooth_l1",
        "rmse",
    )
    assert task.details["title"] == "Film 3"
    assert ratings.matrix[raters, 2].all(), "the ratings themselves must not be zeroed"


def test_sizes_of_the_split(ratings):
    task = make(ratings)
    count = len(task.targets)
    test = round(0.1 * count)
    validation = round(0.1 * (count - test))
    assert (task.test.numel(), task.validation.numel()) == (test, validation)
    assert torch.equal(torch.cat([task.train, task.validation, task.test]).sort().values, torch.arange(count))


def test_without_validation_the_test_users_are_the_same(ratings):
    paper = make(ratings, validation_fraction=0.0)
    assert paper.validation.numel() == 0
    assert torch.equal(paper.test, make(ratings).test)
    assert torch.equal(paper.graph.to_dense(), make(ratings).graph.to_dense())


def changed(ratings, users):
    """Other ratings by these users; whether a film was rated changes too, except for the film in question."""
    matrix = ratings.matrix.copy()
    for user in users:
        film = matrix[user, 2]
        matrix[user] = np.random.default_rng(user).integers(0, 6, matrix.shape[1])
        matrix[user, 2] = 6 - film
    return Ratings(matrix, ratings.titles)


@pytest.mark.parametrize("similarity", ["pearson", "co-rated-variance"])
def test_test_users_have_no_influence_on_the_graph(ratings, similarity):
    task = make(ratings, similarity=similarity)
    raters = np.flatnonzero(ratings.matrix[:, 2])
    other = make(changed(ratings, raters[task.test.numpy()]), similarity=similarity)
    assert torch.equal(other.test, task.test)
    assert torch.equal(other.graph.to_dense(), task.graph.to_dense())
    assert not torch.equal(other.inputs, task.inputs)


@pytest.mark.parametrize("similarity", ["pearson", "co-rated-variance"])
def test_all_other_users_have(ratings, similarity):
    task = make(ratings, similarity=similarity)
    raters = np.flatnonzero(ratings.matrix[:, 2])
    strangers = np.flatnonzero(ratings.matrix[:, 2] == 0)[:10]
    for users in (raters[task.train.numpy()], raters[task.validation.numpy()]):
        other = make(changed(ratings, users), similarity=similarity)
        assert not torch.equal(other.graph.to_dense(), task.graph.to_dense())
    matrix = ratings.matrix.copy()
    matrix[strangers, 3:] = 6 - np.maximum(matrix[strangers, 3:], 1)
    other = make(Ratings(matrix, ratings.titles), similarity=similarity)
    assert not torch.equal(other.graph.to_dense(), task.graph.to_dense())


def test_the_same_numbers_give_the_same_task_bit_for_bit(ratings):
    first, second = make(ratings, split=2, seed=1), make(ratings, split=2, seed=1)
    assert torch.equal(first.train, second.train)
    assert torch.equal(first.graph.to_dense(), second.graph.to_dense())


@pytest.mark.parametrize("changes", [{"split": 1}, {"seed": 1}])
def test_other_numbers_give_other_splits(ratings, changes):
    assert not torch.equal(make(ratings).train, make(ratings, **changes).train)


def test_centering_by_user(ratings):
    task = make(ratings)
    centred = centered_by_user(task)
    for sample in range(len(task.targets)):
        row = task.inputs[sample].flatten()
        mean = row[row > 0].mean()
        expected = torch.where(row > 0, row - mean, 0.0)
        torch.testing.assert_close(centred.inputs[sample].flatten(), expected)
        torch.testing.assert_close(centred.targets[sample], task.targets[sample] - mean)
    assert centred.graph is task.graph
    assert centred.details["centered_by_user"]
    with pytest.raises(ValueError, match="centred by user already"):
        centered_by_user(centred)


def test_a_user_who_rated_nothing_else_is_measured_from_the_mean(ratings):
    matrix = ratings.matrix.copy()
    user = np.flatnonzero(matrix[:, 2])[0]
    matrix[user] = np.where(np.arange(15) == 2, 4.0, 0.0)
    task = make(Ratings(matrix, ratings.titles))
    centred = centered_by_user(task)
    assert not centred.inputs[0].any()
    torch.testing.assert_close(centred.targets[0], 4 - task.targets[task.train].mean())


@pytest.mark.parametrize(
    ("film", "error", "message"),
    [
        ("titanic", ValueError, "film must be one of 'toy-story', 'contact', 'return-of-the-jedi', got 'titanic'"),
        (16, ValueError, "film must be an item from 1 to 15, got 16"),
        (0, ValueError, "film must be at least 1, got 0"),
        (1.5, TypeError, "film must be an integer"),
    ],
)
def test_unknown_films_are_named(ratings, film, error, message):
    with pytest.raises(error, match=message):
        make(ratings, film=film)


def test_fractions_are_checked(ratings):
    with pytest.raises(ValueError, match="test_fraction must lie between 0 and 1, got 2"):
        make(ratings, test_fraction=2)
    with pytest.raises(ValueError, match="must remain for training"):
        make(ratings, test_fraction=1.0)


def test_reading_the_files(tmp_path, ratings):
    titles = ("Film 1", "Amélie", *ratings.titles[2:])
    read = read_movielens(str(write_movielens(tmp_path, ratings.matrix, titles)), users=60, films=15)
    np.testing.assert_array_equal(read.matrix, ratings.matrix)
    assert read.titles == titles


def test_files_that_hold_something_else(tmp_path, ratings):
    with pytest.raises(DataError, match="does not hold MovieLens 100K"):
        read_movielens(tmp_path)
    write_movielens(tmp_path, ratings.matrix, ratings.titles)
    with pytest.raises(DataError, match="1682 titles were expected, got 15"):
        read_movielens(tmp_path)
    with pytest.raises(DataError, match="users up to 59"):
        read_movielens(tmp_path, users=59, films=15)


def test_a_named_directory_without_data_is_an_error(tmp_path):
    with pytest.raises(DataError, match="u.data is missing; .*GRAPHACT_DATA or --data"):
        recommendation(directory=tmp_path)


@pytest.mark.parametrize(
    ("film", "title", "raters"),
    [
        ("toy-story", "Toy Story (1995)", 452),
        ("contact", "Contact (1997)", 509),
        ("return-of-the-jedi", "Return of the Jedi (1983)", 507),
    ],
)
def test_the_real_films(real_data, film, title, raters):
    task = recommendation(film, directory=real_data)
    assert task.inputs.shape == (raters, 1682, 1)
    assert task.details["title"] == title
    assert task.node == FILMS[film] - 1
    assert not task.inputs[:, task.node].any()
    assert set(task.targets.tolist()) == {1.0, 2.0, 3.0, 4.0, 5.0}
    assert task.test.numel() == round(0.1 * raters)
    assert task.inputs.dtype == task.graph.dtype == torch.float32


@pytest.mark.parametrize(
    ("similarity", "edges", "isolated"),
    [("pearson", (7000, 8000), (530, 600)), ("co-rated-variance", (11000, 12500), (160, 220))],
)
def test_the_real_film_graph(real_data, similarity, edges, isolated):
    graph = recommendation("contact", similarity=similarity, directory=real_data, dtype=torch.float64).graph
    dense = graph.to_dense()
    assert torch.equal(dense, dense.T)
    assert (dense >= 0).all()
    assert torch.linalg.eigvalsh(dense).abs().max().item() == pytest.approx(1)
    assert edges[0] < graph.num_edges / 2 < edges[1]
    assert isolated[0] < (graph.degree == 0).sum() < isolated[1]


@pytest.mark.slow
def test_many_real_tasks_are_the_single_ones(real_data):
    tasks = recommendation_tasks(["contact", 2], splits=2, seed=3, directory=real_data)
    assert [(task.details["film"], task.details["split"]) for task in tasks] == [
        ("contact", 0),
        ("contact", 1),
        ("2", 0),
        ("2", 1),
    ]
    single = recommendation("contact", split=1, seed=3, directory=real_data)
    assert torch.equal(tasks[1].inputs, single.inputs)
    assert torch.equal(tasks[1].test, single.test)
    assert torch.equal(tasks[1].graph.to_dense(), single.graph.to_dense())
    assert tasks[0].inputs is tasks[1].inputs


def test_validation_users_have_no_influence_on_a_graph_of_training_users(ratings):
    task = make(ratings, graph_from="training users")
    raters = np.flatnonzero(ratings.matrix[:, 2])
    reserved = raters[torch.cat([task.validation, task.test]).numpy()]
    changed = ratings.matrix.copy()
    changed[reserved] = np.roll(changed[reserved], 1, axis=1)
    changed[reserved, 2] = 3.0  # they stay raters
    other = make(Ratings(changed, ratings.titles), graph_from="training users")
    assert torch.equal(other.graph.to_dense(), task.graph.to_dense())
    assert not torch.equal(make(Ratings(changed, ratings.titles)).graph.to_dense(), make(ratings).graph.to_dense())
    none = {"validation_fraction": 0.0}
    assert torch.equal(
        make(ratings, **none).graph.to_dense(), make(ratings, graph_from="training users", **none).graph.to_dense()
    )
    with pytest.raises(ValueError, match="graph_from must be one of .* got 'friends'"):
        make(ratings, graph_from="friends")
