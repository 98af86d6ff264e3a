"""Estimators keep the contract of scikit-learn, use the graph, and come back from files as they were."""

import numpy as np
import pytest
import scipy.sparse
import torch

import graphact

pytest.importorskip("sklearn")
from sklearn.base import clone
from sklearn.metrics import r2_score
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


without_a_graph = pytest.mark.filterwarnings("ignore:Node.*[.]fit. graph is missing:UserWarning")  # on purpose


@pytest.mark.slow
@without_a_graph
@pytest.mark.parametrize(("estimator", "check"), CONTRACT)
def test_contract(estimator, check):
    check(clone(estimator))


@without_a_graph
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


def test_clone_and_random_state():
    x, y, graph = communities()
    model = NodeClassifier(activation="median-ga", hidden=(4, 4), epochs=3, random_state=3)
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
    model = NodeRegressor(activation="identity", order=1, epochs=300, learning_rate=0.05, random_state=0)
    model.fit(x, shifted, graph=graph)
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


@pytest.mark.parametrize("kind", [NodeClassifier, NodeRegressor])
def test_files(kind, tmp_path):
    x, y, graph = communities()
    targets = y if kind is NodeClassifier else x[:, 0]
    model = kind(hidden=(4, 4), epochs=3, random_state=0).fit(x, targets, graph=graph)
    model.save(tmp_path / "model.safetensors")
    same = load(tmp_path / "model.safetensors")
    assert type(same) is kind
    np.testing.assert_array_equal(same.predict(x, graph=graph), model.predict(x, graph=graph))
    with pytest.raises(TypeError, match="activation must be a JSON value"):
        model.set_params(activation=torch.nn.ReLU()).save(tmp_path / "other")
    graphact.save(model.model_, tmp_path / "module")
    with pytest.raises(ValueError, match="must hold one of NodeClassifier"):
        load(tmp_path / "module")


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([0, 90], "nodes must be from 0 to 89, got 0 to 90"),
        (np.ones(3, bool), "mask of shape"),
        ([0.5], "list of nodes"),
        (np.zeros(90, bool), "nodes must name at least one node, got a mask of none"),
    ],
)
def test_nodes_that_are_none(nodes, message):
    x, y, graph = communities()
    for kind, targets in ((NodeClassifier, y), (NodeRegressor, x[:, 0])):
        with pytest.raises(ValueError, match=message):
            kind(epochs=1).fit(x, targets, graph=graph, nodes=nodes)
    with pytest.raises(ValueError, match="y must have a target for each of the 2 nodes, got 5"):
        NodeClassifier(epochs=1).fit(x, y[:5], graph=graph, nodes=[0, 1])


def test_targets_of_all_nodes_are_in_the_order_of_the_nodes():
    x, y, graph = communities()
    number = np.unique(y, return_inverse=True)[1].astype(float)
    random = np.random.default_rng(0)
    for nodes in (random.permutation(90), random.integers(0, 90, 90)):
        settings = {"epochs": 30, "random_state": 0}
        model = NodeClassifier(**settings).fit(x, y, graph=graph, nodes=nodes)
        expected = NodeClassifier(**settings).fit(x, y, graph=graph, nodes=np.unique(nodes))
        assert model.score(x, y, graph=graph) > 0.9
        assert abs(model.score(x, y, graph=graph) - expected.score(x, y, graph=graph)) < 0.1
        assert model.score(x, y, graph=graph, nodes=nodes) == np.mean(model.predict(x, graph=graph)[nodes] == y[nodes])
        regressor = NodeRegressor(**settings).fit(x, number, graph=graph, nodes=nodes)
        found = regressor.score(x, number, graph=graph, nodes=nodes)
        assert found == pytest.approx(r2_score(number[nodes], regressor.predict(x, graph=graph, nodes=nodes)))
        assert found > 0.3
    with pytest.raises(ValueError, match="y must have a target for each of the 2 nodes, got 5"):
        model.score(x, y[:5], graph=graph, nodes=[0, 1])


@without_a_graph
def test_graphs_of_every_form_are_the_same_graph():
    networkx, data = pytest.importorskip("networkx"), pytest.importorskip("torch_geometric.data")
    x, y, graph = communities()
    edge_index, matrix = graph.to_edge_index()[0], graph.to_dense().numpy()
    forms = {
        "float64": graph.to(torch.float64),
        "bfloat16 rounds, but is taken": graph.to(torch.bfloat16),
        "sparse tensor": torch.from_numpy(matrix).to_sparse(),
        "scipy array": scipy.sparse.csr_array(matrix.astype(np.float64)),
        "scipy matrix": scipy.sparse.coo_matrix(matrix),
        "dense": matrix,
        "dense float64": matrix.astype(np.float64),
        "dense tensor": torch.from_numpy(matrix),
        "dense list": matrix.tolist(),
        "edge_index": edge_index,
        "networkx": networkx.from_numpy_array((matrix != 0).astype(int)),
        "pyg": data.Data(edge_index=edge_index, num_nodes=90),
    }
    expected = NodeClassifier(epochs=3, random_state=0).fit(x, y, graph=graph).predict_proba(x, graph=graph)
    for name, form in forms.items():
        found = NodeClassifier(epochs=3, random_state=0).fit(x, y, graph=form).predict_proba(x, graph=form)
        np.testing.assert_allclose(found, expected, atol=0.01 if "bfloat16" in name else 1e-6, err_msg=name)
    with pytest.raises(TypeError, match="graph must be a Graph, an edge_index or a sparse matrix, got dict"):
        NodeClassifier(epochs=1).fit(x, y, graph={})
    alone = [NodeClassifier(normalize=kind, epochs=1, random_state=0).fit(x, y) for kind in ("gcn", None)]
    np.testing.assert_array_equal(*(model.predict_proba(x) for model in alone))  # without edges, loops are none
    two = np.array([[0, 1], [1, 0]])  # two edges, not a matrix
    model = NodeClassifier(epochs=1).fit(x[:2], y[[0, 30]], graph=two)
    assert model.predict(x[:2], graph=two).shape == (2,)


@without_a_graph
def test_numbers_too_large_for_float32_are_refused():
    x, y, graph = communities()
    one = x[:, 0]
    with pytest.raises(ValueError, match="y must hold numbers of float32, got .*e[+]"):
        NodeRegressor(epochs=2).fit(x, 1e300 * one)
    for scale in ((1e30, 1e30), (1, 3e37), (3e37, 1)):
        with pytest.raises(ValueError, match="X and y must hold numbers that float32 can be trained with"):
            NodeRegressor(epochs=50, learning_rate=0.1).fit(scale[0] * x, scale[1] * one)
    model = NodeClassifier(epochs=100, learning_rate=0.1, random_state=0).fit(x, y, graph=graph)
    with pytest.raises(ValueError, match="X must hold numbers for which the answers are finite in float32"):
        model.predict_proba(3e37 * x, graph=graph)
    with pytest.raises(ValueError, match=r"X\[1\] must hold numbers of float32, got .*e[+]"):
        GraphClassifier(epochs=2).fit([x, 1e300 * x], [0, 1])


@pytest.mark.parametrize("activation", ["grelu", "digraf", "max-ga"])
def test_an_answer_does_not_depend_on_the_other_graphs(activation):
    """GReLU and DiGRAF take means over a graph: a probability changed by up to 0.9998."""
    torch.manual_seed(0)
    graph = graphact.Graph.stochastic_block_model([5, 5], 0.8, 0.3).normalize("symmetric")
    signals = [torch.randn(10, 2) * (1 + i % 3) for i in range(30)]
    y = [int(signal.std() > 1.7) for signal in signals]
    settings = {"epochs": 20, "learning_rate": 0.05, "random_state": 0}
    model = GraphClassifier(activation=activation, **settings).fit(signals, y, graphs=graph)
    together = model.predict_proba(signals, graphs=graph)
    alone = np.concatenate([model.predict_proba([signal], graphs=graph) for signal in signals])
    np.testing.assert_allclose(together, alone, atol=1e-5)


def test_weights_and_attached_graphs_of_pyg():
    data = pytest.importorskip("torch_geometric.data")
    signals, graphs, y = two_kinds_of_graphs()
    weights = [torch.arange(1.0, graph.size(1) + 1, dtype=torch.float64) for graph in graphs]
    samples = [
        data.Data(x=torch.tensor(x), edge_index=graph, edge_weight=weight)
        for x, graph, weight in zip(signals, graphs, weights, strict=True)
    ]

    def fitted(normalize="symmetric"):
        return GraphClassifier(normalize=normalize, epochs=3, random_state=0)

    built = [graphact.Graph.from_pyg(sample).normalize("symmetric") for sample in samples]
    expected = fitted().fit(signals, y, graphs=built).predict_proba(signals, graphs=built)
    np.testing.assert_array_equal(fitted().fit(samples, y).predict_proba(samples), expected)
    plain = fitted().fit(signals, y, graphs=graphs).predict_proba(signals, graphs=graphs)
    assert abs(plain - expected).max() > 1e-3
    unweighted = [data.Data(x=sample.x, edge_index=sample.edge_index) for sample in samples]
    np.testing.assert_array_equal(fitted().fit(unweighted, y).predict_proba(unweighted), plain)
    attached = [graphact.pyg.AttachGraph(normalize="gcn")(sample.clone()) for sample in samples]
    found = fitted().fit(attached, y).predict_proba(attached)
    loops = fitted("gcn").fit(samples, y).predict_proba(samples)
    np.testing.assert_allclose(found, loops, atol=1e-6)
    assert abs(loops - expected).max() > 1e-3
    transposed = [
        data.Data(x=sample.x, adj_t=graphact.Graph.from_pyg(sample).to_dense().to_sparse(), num_nodes=4)
        for sample in samples
    ]
    raw = fitted(None).fit(samples, y).predict_proba(samples)
    np.testing.assert_allclose(fitted().fit(transposed, y).predict_proba(transposed), raw, atol=1e-6)


def test_one_graph_for_all_samples_in_every_form():
    path = np.array([[0, 1, 1, 2], [1, 0, 2, 1]])
    signals, y = [np.full((3, 1), float(sign)) for sign in (1, -1)], [1, 0]
    matrix = graphact.Graph.from_edge_index(path).normalize("symmetric").to_dense()
    answers = []
    networkx = pytest.importorskip("networkx").path_graph(3)
    for form in (path, torch.from_numpy(path), [path, path], np.stack([path, path]), matrix.to_sparse(),
                 scipy.sparse.csr_array(matrix.numpy()), networkx, [networkx, networkx]):  # fmt: skip
        model = GraphClassifier(epochs=3, random_state=0).fit(signals, y, graphs=form)
        answers.append(model.predict_proba(signals, graphs=form))
        np.testing.assert_allclose(answers[-1], answers[0], atol=1e-6)
    wrong = [graphact.Graph.from_edge_index(path), graphact.Graph.from_edge_index([[0], [1]])]
    with pytest.raises(ValueError, match=r"X\[0\] must have a row for each of the 3 nodes of its graph, got 2"):
        model.predict([np.ones((2, 1)), np.ones((3, 1))], graphs=wrong)


def test_settings_come_back_as_they_were(tmp_path):
    x, y, graph = communities()
    settings = [
        {"hidden": (4, 4)},
        {"hidden": [4]},
        {"activation": {"name": "digraf", "radius": 3.0}},
        {"activation": {"name": "mixture-ga", "ops": ("max", "min")}, "device": torch.device("cpu")},
    ]
    for given in settings:
        model = NodeClassifier(epochs=2, random_state=0, **given).fit(x, y, graph=graph)
        model.save(tmp_path / "model.safetensors")
        same = load(tmp_path / "model.safetensors")
        assert same.get_params() == model.get_params()
        assert {name: type(value) for name, value in same.get_params().items()} == {
            name: type(value) for name, value in model.get_params().items()
        }
        np.testing.assert_array_equal(same.predict_proba(x, graph=graph), model.predict_proba(x, graph=graph))
    with pytest.raises(TypeError, match="activation must be a JSON value to be saved, got GraphAdaptiveMax"):
        model.set_params(activation=graphact.nn.GraphAdaptiveMax()).save(tmp_path / "other")


def test_tensors_that_numpy_does_not_read():
    x, y, graph = communities()
    number = np.unique(y, return_inverse=True)[1]
    expected = NodeClassifier(epochs=2, random_state=0).fit(x.astype(np.float32), number, graph=graph)
    given = torch.tensor(x, dtype=torch.float32, requires_grad=True)
    found = NodeClassifier(epochs=2, random_state=0).fit(given, torch.tensor(number), graph=graph)
    np.testing.assert_array_equal(found.predict_proba(given, graph=graph), expected.predict_proba(x, graph=graph))
    half = torch.tensor(x).bfloat16()
    assert found.predict(half, graph=graph, nodes=torch.arange(3)).shape == (3,)
    samples = [given[:45], given[45:].detach().bfloat16()]
    assert GraphClassifier(epochs=2).fit(samples, [0, 1]).predict(samples).shape == (2,)
