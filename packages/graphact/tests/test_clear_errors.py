"""Common mistakes are answered in one line that names the argument, what came, and what to write instead."""

import networkx
import numpy as np
import pytest
import scipy.sparse
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GIN

import graphact
from graphact import Graph, functional, nn
from graphact.estimators import GraphClassifier, NodeClassifier, NodeRegressor
from graphact.pyg import PassGraph
from graphact.training import Fleet, TrainingSettings, fit
from graphact_lab import tasks
from support.graphs import random_graph

GRAPH = random_graph(dtype=torch.float32)
X = torch.randn(GRAPH.num_nodes, 3, generator=torch.Generator().manual_seed(0))
EDGES, WEIGHTS = GRAPH.to_edge_index()
DENSE = GRAPH.to_dense()
FORMATS = {
    "networkx": (networkx.path_graph(12), "from_networkx"),
    "dense": (DENSE, "from_dense"),
    "integer dense": ((DENSE != 0).long(), "from_dense"),
    "scipy": (scipy.sparse.csr_array(DENSE.numpy()), "from_scipy"),
    "numpy matrix": (DENSE.numpy(), "from_dense"),
    "numpy edges": (EDGES.numpy(), "from_edge_index"),
    "list": (EDGES.tolist(), "from_edge_index"),
    "list of pairs": (EDGES.T.tolist(), "from_edge_index"),
    "edges and weights": ((EDGES, WEIGHTS), "from_edge_index"),
    "pyg": (Data(edge_index=EDGES, num_nodes=12), "from_pyg"),
    "file": ("graph.npz", "load"),
}


def one_line(error, call, *words):
    """The message of an error, which must be one line with all these words in their order."""
    with pytest.raises(error) as raised:
        call()
    assert type(raised.value) is error
    (line,) = str(raised.value).splitlines()
    rest = line
    for word in words:
        assert word in rest, f"{word!r} is not in {rest!r} of {line!r}"
        rest = rest.split(word, 1)[1]
    return line


@pytest.mark.parametrize("name", FORMATS)
def test_other_forms_of_a_graph(name):
    """The constructor is named, and it does build the graph."""
    value, constructor = FORMATS[name]
    remedy = f"graphact.Graph.{constructor}("
    one_line(TypeError, lambda: Graph(value), "Graph", "is built by its constructors", remedy)
    one_line(TypeError, lambda: functional.shift(X, value), "graph must be a graphact.Graph, got", remedy)
    error = ValueError if name == "integer dense" else TypeError
    for module in (nn.GraphAdaptiveMax(), nn.GCNN([3, 2]), nn.GraphFilter(3, 2, order=1)):
        one_line(error, lambda module=module: module(X, value), "got", remedy)


@pytest.mark.parametrize("name", sorted(FORMATS.keys() - {"file"}))
def test_the_constructor_that_is_named_builds_the_graph(name):
    value, constructor = FORMATS[name]
    line = one_line(TypeError, lambda: Graph(value), "is built by its constructors")
    expression = line.rpartition("write ")[2]
    names = {"graphact": graphact, "torch": torch, "graph": value, "edges": value, "matrix": value, "data": value}
    names |= dict(zip(("edge_index", "edge_weight"), value if isinstance(value, tuple) else (value,), strict=False))
    built = eval(expression, names)
    assert isinstance(built, Graph)
    assert built.num_nodes == 12
    assert constructor in expression


@pytest.mark.parametrize("given", [(), (EDGES, WEIGHTS), (EDGES, WEIGHTS, 12)])
def test_too_few_parts_of_a_graph(given):
    one_line(TypeError, lambda: Graph(*given), "Graph is built by its constructors", "graphact.Graph.from_edge_index(")


SETTINGS = TrainingSettings(epochs=1)
LOCATE, AGREE = tasks.source_localization(), tasks.consensus()


@pytest.mark.parametrize(
    "train",
    [
        lambda models, task: fit(models[0], task, SETTINGS),
        lambda models, task: Fleet(models, [task, task]).train(SETTINGS),
        lambda models, task: Fleet(models, [task, task], strategy="loop").train(SETTINGS),
    ],
)
@pytest.mark.parametrize(
    ("task", "outputs"), [(LOCATE, {}), (LOCATE, {"out_features": 3}), (LOCATE, {"out_features": 5}),
                          (AGREE, {"out_features": 2})],
)  # fmt: skip
def test_a_number_of_outputs_that_does_not_fit_the_task(train, task, outputs):
    models = [nn.GCNN([1, 2], **outputs) for _ in "ab"]
    got = outputs.get("out_features", 1)
    words = (f"model must give out_features = {task.out_features}", "numbers at each node", task.name, f"got {got}")
    one_line(ValueError, lambda: train(models, task), *words, f"out_features={task.out_features}")


DOUBLE = X.double()
CHAIN = torch.nn.Sequential(torch.nn.Linear(3, 3), nn.GraphAdaptiveMax())


def last_layer_of_gin():
    """It has another width than the others."""
    return PassGraph(GIN(3, 8, 2, out_channels=4, act=nn.GraphAdaptiveMax(features=8)))(X, EDGES)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        # a graph where a task takes a number
        (lambda: tasks.source_localization(graph=GRAPH), TypeError,
         "graph must be an integer|the number of a graph that the task draws|got a Graph|training.Task("),
        (lambda: tasks.consensus(GRAPH), TypeError, "graph must be an integer|got a Graph"),
        (lambda: tasks.consensus_tasks(graphs=[GRAPH]), TypeError, "graphs must be an integer|graphact.training.Task("),
        (lambda: tasks.denoising(GRAPH), TypeError, "must be an integer|got a Graph"),
        (lambda: tasks.source_localization_tasks(graphs=1, splits=1, nodes=200), ValueError,
         "nodes must be at most 4|communities|got 200|community_size=50"),
        # another precision
        (lambda: nn.GraphAdaptiveMax()(DOUBLE, GRAPH.to(torch.float64)), TypeError,
         "beta must have the dtype of x, torch.float64, got torch.float32|model.double()|x.float()"),
        (lambda: nn.GCNN([3, 2])(DOUBLE, EDGES), TypeError, "taps|model.double()|x.float()"),
        (lambda: nn.GraphFilter(3, 2, order=1).double()(X, EDGES), TypeError, "taps|model.float()|x.double()"),
        (lambda: nn.GraphAdaptiveMax()(DOUBLE, GRAPH), TypeError,
         "x must have the dtype of the graph, torch.float32|got torch.float64|x.float()|graph.to(torch."),
        # names that stand elsewhere, or are misspelt
        (lambda: graphact.GraphAdaptiveMax, AttributeError,
         "'graphact' has no attribute 'GraphAdaptiveMax'|did you mean graphact.nn.GraphAdaptiveMax?"),
        (lambda: graphact.graph_adaptive, AttributeError, "did you mean graphact.functional.graph_adaptive?"),
        (lambda: graphact.TrainingSettings, AttributeError, "did you mean graphact.training.TrainingSettings?"),
        (lambda: Graph.from_nx, AttributeError, "'Graph' has no attribute 'from_nx'|did you mean 'from_networkx'?"),
        (lambda: Graph.from_edges, AttributeError, "did you mean 'from_edge_index'?"),
        (lambda: TrainingSettings(lr=1), TypeError, "TrainingSettings has no argument 'lr'|mean 'learning_rate'?"),
        (lambda: TrainingSettings(epoch=1), TypeError, "'epoch'|did you mean 'epochs'?"),
        (lambda: NodeClassifier(lr=1), TypeError, "NodeClassifier has no argument 'lr'|mean 'learning_rate'?"),
        (lambda: NodeClassifier(hidden_size=8), TypeError, "'hidden_size'|did you mean 'hidden'?"),
        (lambda: NodeRegressor(hidden_channels=8), TypeError, "did you mean 'hidden'?"),
        (lambda: NodeClassifier(hidden=8).fit(X.numpy(), np.arange(12) % 2, graph=GRAPH), TypeError,
         "hidden must list the features of each layer|got 8|hidden=(8,)"),
        (lambda: GRAPH.normalize("sym"), ValueError, "kind must be one of|got 'sym'|did you mean 'symmetric'?"),
        (lambda: nn.GraphAdaptiveMax(normalize="sym"), ValueError, "normalize|did you mean 'symmetric'?"),
        # models that PassGraph does not take
        (lambda: PassGraph(CHAIN), TypeError,
         "model must be called as model(x, edge_index)|got Sequential|graphact.nn.Sequential("),
        (lambda: PassGraph(torch.nn.Linear(3, 3)), TypeError, "must be called as model(x, edge_index)|got Linear"),
        (last_layer_of_gin, ValueError,
         "x must have the shape (..., N, F) with F = 8|got (12, 4)|features=None|conv.nn.act = torch.nn.ReLU"),
    ],
)  # fmt: skip
def test_mistakes(call, error, words):
    one_line(error, call, *words.split("|"))


def test_what_the_messages_advise_works():
    """The remedies in the errors above work."""
    assert nn.GraphAdaptiveMax().double()(X.double(), EDGES).dtype == torch.float64
    chain = nn.Sequential(torch.nn.Linear(3, 3), nn.GraphAdaptiveMax())
    assert chain(X, EDGES).shape == (12, 3)
    for act in (nn.GraphAdaptiveMax(), nn.GraphAdaptiveMax(features=8)):
        gin = GIN(3, 8, 2, out_channels=4, act=act)
        if act.features is not None:
            for conv in gin.convs:
                conv.nn.act = torch.nn.ReLU()
        assert PassGraph(gin)(X, EDGES).shape == (12, 4)
    (task,) = tasks.source_localization_tasks(graphs=1, splits=1, nodes=1, community_size=50)
    assert task.graph.num_nodes == 200


def test_other_files_than_models(tmp_path):
    path = tmp_path / "model.pt"
    for content in (nn.GCNN([1, 2]).state_dict(), nn.GCNN([1, 2])):
        torch.save(content, path)
        words = (str(path), "torch.save", "graphact.save", "model.load_state_dict(torch.load(")
        one_line(ValueError, lambda: graphact.load(path), *words)
    one_line(IsADirectoryError, lambda: graphact.load(tmp_path), str(tmp_path), "is a folder", "graphact.save")
    graphact.save(nn.GCNN([1, 2]), tmp_path / "model.safetensors")
    one_line(IsADirectoryError, lambda: graphact.load(tmp_path), "is a folder", f"'{tmp_path / 'model.safetensors'}'?")
    mistyped = tmp_path / "modell.safetensors"
    one_line(FileNotFoundError, lambda: graphact.load(mistyped), str(mistyped), "did you mean", "model.safetensors'?")


@pytest.mark.parametrize(("value", "word"), [(np.nan, "NaN"), (np.inf, "infinity")])
def test_numbers_that_are_not_finite(value, word):
    x, y = X.numpy().copy(), np.arange(12) % 2
    fitted = NodeClassifier(epochs=1).fit(x, y, graph=GRAPH)
    x[3, 1] = value
    words = ("X must hold finite numbers", f"got {word}", "row 3", "column 1", "sklearn.impute.SimpleImputer")
    for estimator in (NodeClassifier(epochs=1), NodeRegressor(epochs=1)):
        one_line(ValueError, lambda estimator=estimator: estimator.fit(x, y, graph=GRAPH), *words)
    one_line(ValueError, lambda: fitted.predict(x, graph=GRAPH), *words)
    graphs = GraphClassifier(epochs=1)
    one_line(ValueError, lambda: graphs.fit([X.numpy(), x], [0, 1], graphs=GRAPH), "X[1] must", word, "row 3")
    targets = np.where(np.arange(12) == 5, value, 1.0)
    words = ("y must hold finite numbers", f"got {word}", "row 5", "nodes=")
    one_line(ValueError, lambda: NodeRegressor(epochs=1).fit(X.numpy(), targets, graph=GRAPH), *words)
