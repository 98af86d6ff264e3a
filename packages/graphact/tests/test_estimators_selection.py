"""Estimators in scikit-learn's folds and searches over nodes, and what is said where the graph is missing."""

import pickle

import numpy as np
import pytest
import torch

import graphact

pytest.importorskip("sklearn")
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_predict, cross_val_score

from graphact.estimators import GraphClassifier, NodeClassifier, NodeRegressor, OnNodes, load


def communities(seed=0):
    generator = torch.Generator().manual_seed(seed)
    graph = graphact.Graph.stochastic_block_model([20] * 3, p=0.4, q=0.02, generator=generator)
    y = np.repeat(["red", "green", "blue"], 20)
    x = 1.0 * (y[:, None] == np.unique(y)) + np.random.default_rng(seed).normal(size=(60, 3))
    return x, y, graph.normalize("symmetric")


def classifier(**settings):
    return NodeClassifier(**{"epochs": 30, "learning_rate": 0.03, "random_state": 0, **settings})


def test_folds_over_nodes_keep_the_graph_whole():
    x, y, graph = communities()
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    found = cross_val_score(OnNodes(classifier(), x, graph), np.arange(60), y, cv=folds, error_score="raise")
    expected = []
    for train, test in folds.split(x, y):
        model = classifier().fit(x, y, graph=graph, nodes=train)
        expected.append(model.score(x, y, graph=graph, nodes=test))
    np.testing.assert_allclose(found, expected)
    assert found.mean() > 0.8
    proba = cross_val_predict(
        OnNodes(classifier(), x, graph), np.arange(60)[:, None], y, cv=folds, method="predict_proba"
    )
    assert proba.shape == (60, 3)


def test_a_grid_search_over_nodes():
    x, y, graph = communities()
    grid = {"estimator__activation": ["relu", "max-ga"], "estimator__epochs": [1, 30]}
    search = GridSearchCV(OnNodes(classifier(), x, graph), grid, cv=3, error_score="raise").fit(np.arange(60), y)
    assert search.best_params_["estimator__epochs"] == 30
    assert search.predict([3, 1]).shape == (2,)
    assert search.best_estimator_.graph is graph  # shared, not copied for each fold
    assert list(search.classes_) == ["blue", "green", "red"]


def test_targets_belong_to_the_nodes_in_their_order():
    x, y, graph = communities()
    nodes = np.random.default_rng(1).permutation(60)
    model = OnNodes(classifier(), x, graph).fit(nodes, y[nodes])
    same = classifier().fit(x, y, graph=graph, nodes=nodes)
    np.testing.assert_array_equal(model.predict(nodes), same.predict(x, graph=graph, nodes=nodes))
    assert model.score(nodes, y[nodes]) == same.score(x, y, graph=graph)
    with pytest.raises(ValueError, match="y must have a target for each of the 2 nodes, got 3"):
        OnNodes(classifier(), x, graph).fit([0, 1], y[:3])
    with pytest.raises(ValueError, match="nodes must be from 0 to 59, got 60 to 60"):
        model.predict([60])


def test_regressors_clones_and_copies():
    x, _, graph = communities()
    model = OnNodes(NodeRegressor(epochs=60, learning_rate=0.05, random_state=0), x, graph)
    assert is_regressor(model)
    assert is_classifier(OnNodes(classifier(), x, graph))
    assert not hasattr(model, "predict_proba")
    shifted = (graph.to_dense().numpy() @ x)[:, 0]
    assert cross_val_score(model, np.arange(60), shifted, cv=2, error_score="raise").mean() > 0
    fitted = model.fit(np.arange(0, 60, 2), shifted[::2])
    assert not hasattr(clone(fitted), "estimator_")
    same = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(same.predict([1, 3]), fitted.predict([1, 3]))


def test_rows_of_some_nodes_are_refused_with_the_way_out():
    x, y, graph = communities()
    for form in (graph, graph.to_edge_index()[0], graph.to_dense().numpy()):
        with pytest.raises(ValueError, match=r"a row for each of the 60 nodes of graph, got 40; .*estimators.OnNodes"):
            classifier().fit(x[:40], y[:40], graph=form)
    model = classifier(epochs=1).fit(x, y, graph=graph)
    with pytest.raises(ValueError, match="a row for each of the 60 nodes of graph, got 20"):
        model.predict(x[:20], graph=graph)


def test_a_missing_graph_is_said(tmp_path):
    x, y, graph = communities()
    with pytest.warns(UserWarning, match=r"NodeClassifier.fit: graph is missing, .* give graph="):
        alone = classifier(epochs=1).fit(x, y)
    alone.predict(x)  # as it was fitted
    model = classifier(epochs=1).fit(x, y, graph=graph)
    model.save(tmp_path / "model.safetensors")
    for fitted in (model, load(tmp_path / "model.safetensors")):
        for call in (fitted.predict, fitted.predict_proba, lambda x, fitted=fitted: fitted.score(x, y)):
            with pytest.warns(UserWarning, match="NodeClassifier was fitted with a graph: graph is missing"):
                call(x)


def test_dropout_acts_in_training_only():
    x, y, graph = communities()
    plain, dropped = (classifier(dropout=share).fit(x, y, graph=graph) for share in (0.0, 0.5))
    assert abs(plain.predict_proba(x, graph=graph) - dropped.predict_proba(x, graph=graph)).max() > 1e-3
    np.testing.assert_array_equal(dropped.predict_proba(x, graph=graph), dropped.predict_proba(x, graph=graph))
    again = classifier(dropout=0.5).fit(x, y, graph=graph)
    np.testing.assert_array_equal(again.predict_proba(x, graph=graph), dropped.predict_proba(x, graph=graph))
    assert dropped.model_.layers()  # no hook is left, which would be refused
    for share in (1.0, -0.1):
        with pytest.raises(ValueError, match="dropout must be at least 0 and below 1"):
            classifier(dropout=share).fit(x, y, graph=graph)
    signals = [x[:20], x[20:40]]
    GraphClassifier(epochs=2, dropout=0.5).fit(signals, [0, 1], graphs=[[[0], [1]], [[1], [0]]])
