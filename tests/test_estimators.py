"""Estimators keep the contract of scikit-learn, use the graph, and come back from files as they were."""

import numpy as np
import pytest
import torch

import graphact

pytest.importorskip("sklearn")
from sklearn.base import clone
from sklearn.utils.estimator_checks import estimator_checks_generator

from graphact.estimators import GraphClassifier, NodeClassifier, NodeRegressor, load


def communities(seed=0):
    """Noisy features of three communities: the neighbours help."""
    generator = torch.Generator().manual_seed(seed)
    graph = graphact.Graph.stochastic_block_model([30] * 3, p=0.3, q=0.02, generator=generator)
    y = np.repeat(["red", "green", "blue"], 30)
    x = 1.0 * (y[:, None] == np.unique(y)) + np.random.default_rng(seed).normal(size=(90, 3))
    return x, y, graph.normalize("symmetric")


CONTRACT = [
    pytest.param(estimator, check, id=f"{type(estimator).__name__}-{check.func.__name__}")
    for estimator in (NodeClassifier(epochs=100, random_state=0), NodeRegressor(epochs=150, random_state=0))
    for _, check in estimator_checks_generator(estimator, mark=None)
    if check.func.__name__ != "check_array_api_input"  # of estimators that claim to take arrays of other libraries
]


@pytest.mark.slow
@pytest.mark.parametrize(("estimator", "check"), CONTRACT)
def test_contract(estimator, check):
    check(clone(estimator))


def test_the_graph_is_used():
    x, y, graph = communities()
    train, test = np.arange(0, 90, 3), np.arange(1, 90, 3)
    model = NodeClassifier(epochs=60, random_state=0).fit(x, y, graph=graph, nodes=train)
    alone = NodeClassifier(epochs=60, random_state=0).fit(x, y, nodes=train)
    with_graph, without = model.score(x, y, graph=graph, nodes=test), alone.score(x, y, nodes=test)
    assert with_graph > 0.85
    assert with_graph > without + 0.1
    assert model.score(x, y, graph=graph, nodes=test) == np.mean(model.predict(x, graph=graph)[test] == y[test])
    proba = model.predict_proba(x, graph=graph, nodes=test)
    assert proba.shape == (30, 3)
    np.testing.assert_allclose(proba.sum(1), 1)
    np.testing.assert_array_equal(model.classes_[proba.argmax(1)], model.predict(x, graph=graph, nodes=test))


def test_only_the_nodes_named_are_learned_from():
    x, y, graph = communities()
    train = np.arange(0, 90, 3)
    other = y.copy()
    other[np.setdiff1d(np.arange(90), train)] = "red"
    settings = {"epochs": 5, "random_state": 1}
    same = [
        NodeClassifier(**settings).fit(x, y, graph=graph, nodes=train),
        NodeClassifier(**settings).fit(x, other, graph=graph, nodes=train),
        NodeClassifier(**settings).fit(x, y[train], graph=graph, nodes=train),
        NodeClassifier(**settings).fit(x, y, graph=graph, nodes=np.isin(np.arange(90), train)),
    ]
    answers = [model.predict_proba(x, graph=graph) for model in same]
    for answer in answers[1:]:
        np.testing.assert_array_equal(answer, answers[0])


def test_an_edge_index_is_normalised_and_a_graph_is_not():
    x, y, graph = communities()
    raw = torch.stack(graph.to_edge_index()[0].unbind())
    model = NodeClassifier(epochs=3, random_state=0).fit(x, y, graph=raw)
    expected = NodeClassifier(epochs=3, random_state=0).fit(x, y, graph=graph)
    np.testing.assert_allclose(model.predict_proba(x, graph=raw), expected.predict_proba(x, graph=graph), atol=1e-6)


def test_clone_and_random_state():
    x, y, graph = communities()
    model = NodeClassifier("gcnn", activation="median-ga", hidden=(4, 4), epochs=3, random_state=3)
    state = torch.get_rng_state()
    first = model.fit(x, y, graph=graph).predict_proba(x, graph=graph)
    assert torch.equal(torch.get_rng_state(), state)
    copy = clone(model)
    assert not hasattr(copy, "model_")
    assert copy.get_params() == model.get_params()
    np.testing.assert_array_equal(copy.fit(x, y, graph=graph).predict_proba(x, graph=graph), first)
    changed = clone(model).set_params(random_state=4).fit(x, y, graph=graph)
    assert abs(changed.predict_proba(x, graph=graph) - first).max() > 1e-3


def test_early_stopping_keeps_the_best_parameters():
    x, y, graph = communities()
    noise = np.random.default_rng(1).permutation(y)  # nothing to be learned: the held-out loss soon rises
    model = NodeClassifier(epochs=400, learning_rate=0.05, early_stopping=True, validation_fraction=0.3, patience=5)
    model.set_params(random_state=0).fit(x, noise, graph=graph)
    assert model.n_iter_ == model.best_epoch_ + 5 < 400
    assert len(model.loss_curve_) == model.n_iter_
    shorter = clone(model).set_params(epochs=model.best_epoch_).fit(x, noise, graph=graph)
    np.testing.assert_array_equal(model.predict_proba(x, graph=graph), shorter.predict_proba(x, graph=graph))


def test_regression_on_a_graph_and_several_outputs():
    x, _, graph = communities()
    shifted = graph.to_dense().numpy() @ x
    model = NodeRegressor("fir", order=1, epochs=300, learning_rate=0.05, random_state=0).fit(x, shifted, graph=graph)
    assert model.predict(x, graph=graph).shape == (90, 3)
    assert model.score(x, shifted, graph=graph) > 0.98
    single = NodeRegressor(epochs=5, random_state=0).fit(x, shifted[:, 0], graph=graph)
    assert single.predict(x, graph=graph, nodes=[3, 1]).shape == (2,)


def two_kinds_of_graphs():
    ring = torch.tensor([[0, 1, 2, 3, 1, 2, 3, 0], [1, 2, 3, 0, 0, 1, 2, 3]])
    star = torch.tensor([[0, 0, 0, 1, 2, 3], [1, 2, 3, 0, 0, 0]])
    signals = [np.full((4, 1), 1 + 0.01 * place) for place in range(20)]
    return signals, [ring, star] * 10, np.array(["ring", "star"] * 10)


def test_graphs_are_told_apart_by_their_edges(tmp_path):
    signals, graphs, y = two_kinds_of_graphs()
    model = GraphClassifier(epochs=150, learning_rate=0.03, random_state=0).fit(
        signals[:12], y[:12], graphs=graphs[:12]
    )
    assert model.score(signals[12:], y[12:], graphs=graphs[12:]) == 1
    one_by_one = [model.predict_proba([x], graphs=[graph])[0] for x, graph in zip(signals, graphs, strict=True)]
    np.testing.assert_allclose(model.predict_proba(signals, graphs=graphs), one_by_one, atol=1e-6)
    model.save(tmp_path / "model.safetensors")
    same = load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(
        same.predict_proba(signals, graphs=graphs), model.predict_proba(signals, graphs=graphs)
    )


def test_data_of_pyg():
    data = pytest.importorskip("torch_geometric.data")
    signals, graphs, y = two_kinds_of_graphs()
    samples = [data.Data(x=torch.tensor(x), edge_index=graph) for x, graph in zip(signals, graphs, strict=True)]
    settings = {"epochs": 2, "random_state": 0}
    found = GraphClassifier(**settings).fit(samples, y).predict_proba(samples)
    expected = GraphClassifier(**settings).fit(signals, y, graphs=graphs).predict_proba(signals, graphs=graphs)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kind", [NodeClassifier, NodeRegressor])
def test_files(kind, tmp_path):
    x, y, graph = communities()
    targets = y if kind is NodeClassifier else x[:, 0]
    model = kind(hidden=(4, 4), epochs=3, random_state=0).fit(x, targets, graph=graph)
    model.save(tmp_path / "model.safetensors")
    same = load(tmp_path / "model.safetensors")
    assert type(same) is kind
    np.testing.assert_array_equal(same.predict(x, graph=graph), model.predict(x, graph=graph))
    with pytest.raises(TypeError, match="backbone must be a JSON value"):
        model.set_params(backbone=lambda i, o: torch.nn.Linear(i, o)).save(tmp_path / "other")
    graphact.save(model.model_, tmp_path / "module")
    with pytest.raises(ValueError, match="must hold one of NodeClassifier"):
        load(tmp_path / "module")


class Plain(torch.nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = torch.nn.Linear(in_features, out_features)

    def forward(self, x, graph):
        return self.linear(x)


def test_a_backbone_of_your_own():
    x, y, graph = communities()
    model = NodeClassifier(Plain, epochs=5).fit(x, y, graph=graph)
    assert isinstance(clone(model).fit(x, y).model_, Plain)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([0, 90], "nodes must be from 0 to 89, got 0 to 90"),
        (np.ones(3, bool), "mask of shape"),
        ([0.5], "list of nodes"),
    ],
)
def test_nodes_that_are_none(nodes, message):
    x, y, graph = communities()
    with pytest.raises(ValueError, match=message):
        NodeClassifier(epochs=1).fit(x, y, graph=graph, nodes=nodes)
    with pytest.raises(ValueError, match="y must have a target for each of the 2 nodes, got 5"):
        NodeClassifier(epochs=1).fit(x, y[:5], graph=graph, nodes=[0, 1])
