"""Networks for those who want no loop, with the conventions of scikit-learn: fit, predict, score, clone.

Needs the extra ``estimators``. The graph is an argument of every call: a fitted model predicts on any graph.
"""

import copy
import math
import numbers
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from graphact._checks import check_choice, check_integer, check_number, check_positive
from graphact._extras import require
from graphact.graph import Graph
from graphact.graph.normalize import Normalization
from graphact.nn import FIR, GCNN
from graphact.nn.base import resolve_graph
from graphact.nn.gcnn import LayeredNetwork
from graphact.nn.names import Activation
from graphact.storage import check_tensors, load_tensors, save_tensors

require("graphact.estimators needs", "sklearn")

from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone, is_classifier  # noqa: E402, named first if it is missing
from sklearn.utils import assert_all_finite, check_random_state, column_or_1d, get_tags  # noqa: E402
from sklearn.utils.metaestimators import available_if  # noqa: E402
from sklearn.utils.multiclass import check_classification_targets  # noqa: E402
from sklearn.utils.validation import check_is_fitted, validate_data  # noqa: E402

__all__ = ["GraphClassifier", "NodeClassifier", "NodeRegressor", "OnNodes", "load"]

Array = NDArray[Any]
Backbone = str | Callable[[int, int], nn.Module]
BACKBONES = ("gcnn", "fir")
MISSING = "graph is missing, and every node is on its own; give graph=..."
DIVERGED = "X and y must hold numbers that float32 can be trained with at this learning_rate, got {}: scale them"


class GraphEstimator(BaseEstimator):
    """What all estimators have in common: settings, training with early stopping, files."""

    def __init__(
        self,
        backbone: Backbone = "gcnn",
        *,
        activation: Activation = "max-ga",
        hidden: Sequence[int] = (16,),
        order: int = 2,
        hops: int = 1,
        normalize: Normalization | None = "symmetric",
        dropout: float = 0.0,
        epochs: int = 200,
        learning_rate: float = 0.01,
        weight_decay: float = 0.0,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        patience: int = 20,
        device: str | torch.device = "cpu",
        verbose: bool = False,
        random_state: Any = None,
    ) -> None:
        self.backbone = backbone
        self.activation = activation
        self.hidden = hidden
        self.order = order
        self.hops = hops
        self.normalize = normalize
        self.dropout = dropout
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    def _build(self, in_features: int, out_features: int) -> nn.Module:
        """The network, on its device, in float32."""
        if callable(self.backbone):
            return self.backbone(in_features, out_features).to(self.device)
        features = [in_features, *self.hidden]
        options: dict[str, Any] = {"order": self.order, "out_features": out_features, "normalize": self.normalize}
        if check_choice("backbone", self.backbone, BACKBONES) == "fir":
            return FIR(features, bias=True, **options).to(self.device)
        return GCNN(features, activation=self.activation, hops=self.hops, bias=True, **options).to(self.device)

    def _graph(self, x: Tensor, graph: Any, edge_weight: Tensor | None = None) -> Any:
        """The graph of a call, ready for the network; None is one without edges, on which every row is on its own."""
        if graph is None:
            graph = Graph.from_edge_index(torch.empty(2, 0, dtype=torch.int64), num_nodes=x.size(0))
        weight = None if edge_weight is None else edge_weight.to(x.device)
        ready: Any = resolve_graph(x, as_graph(graph, self.normalize).to(x.device), weight, self.normalize)
        return ready if ready.dtype == x.dtype else ready.to(x.dtype)

    def _train(
        self, in_features: int, out_features: int, loss: Callable[[nn.Module, Array], Tensor], samples: Array
    ) -> None:
        """Train a new network; ``loss(model, samples)`` is the mean over samples, of which some are held out to stop.

        The parameters with the least loss on these are kept; without early stopping those after the last epoch.
        """
        check_integer("epochs", self.epochs, minimum=1)
        check_integer("patience", self.patience, minimum=1)
        check_positive("learning_rate", self.learning_rate)
        random = check_random_state(self.random_state)
        held_out = np.array([], dtype=np.int64)
        if self.early_stopping:
            count = round(self.validation_fraction * len(samples))
            if not 0 < count < len(samples):
                raise ValueError(
                    f"validation_fraction must leave samples on both sides, got {self.validation_fraction} of "
                    f"{len(samples)} samples"
                )
            samples = random.permutation(samples)
            held_out, samples = samples[:count], samples[count:]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(random.randint(2**31)))
            self.model_ = self._build(in_features, out_features)
            undo = add_dropout(self.model_, self.dropout)
            optimizer = torch.optim.AdamW(self.model_.parameters(), self.learning_rate, weight_decay=self.weight_decay)
            self.loss_curve_: list[float] = []
            best, best_state, self.n_iter_ = float("inf"), None, 0
            self.best_epoch_ = self.epochs
            try:
                for epoch in range(1, self.epochs + 1):
                    self.model_.train()
                    optimizer.zero_grad()
                    value = loss(self.model_, samples)
                    value.backward()
                    optimizer.step()
                    self.loss_curve_.append(value.item())
                    if not math.isfinite(self.loss_curve_[-1]):
                        raise ValueError(DIVERGED.format(f"a loss of {self.loss_curve_[-1]} in epoch {epoch}"))
                    self.n_iter_ = epoch
                    line = f"epoch {epoch}/{self.epochs}: loss {self.loss_curve_[-1]:.4g}"
                    if self.early_stopping:
                        self.model_.eval()
                        with torch.no_grad():
                            found = loss(self.model_, held_out).item()
                        line += f", held out {found:.4g}"
                        if found < best:
                            best, self.best_epoch_ = found, epoch
                            best_state = copy.deepcopy(self.model_.state_dict())
                    if self.verbose:
                        print(line)  # noqa: T201, asked for
                    if self.early_stopping and epoch - self.best_epoch_ >= self.patience and best_state is not None:
                        break
            finally:
                undo()
            if best_state is not None:
                self.model_.load_state_dict(best_state)
        if not all(parameter.isfinite().all() for parameter in self.model_.parameters()):
            raise ValueError(DIVERGED.format(f"parameters that are not finite after epoch {self.n_iter_}"))
        self.model_.eval()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write settings and parameters to a file (safetensors and JSON, nothing executed); :func:`load` reads it.

        Raises:
            TypeError: a setting is no JSON value, such as a backbone of your own.
        """
        check_is_fitted(self)
        settings = {name: _plain(name, value) for name, value in self.get_params(deep=False).items()}
        fitted = {name: _plain(name, getattr(self, name)) for name in FITTED if hasattr(self, name)}
        header = {"estimator": type(self).__name__, "settings": settings, "fitted": fitted}
        tensors = {name: tensor.cpu().contiguous() for name, tensor in self.model_.state_dict().items()}
        save_tensors(Path(path), tensors, header)

    @torch.no_grad()
    def _answers(self, *arguments: Any) -> Tensor:
        """What the network answers, on the CPU."""
        outputs: Tensor = self.model_(*arguments).cpu()
        if not outputs.isfinite().all():
            raise ValueError("X must hold numbers for which the answers are finite in float32, got larger ones")
        return outputs

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")


FITTED = ("classes_", "n_features_in_", "n_outputs_", "loss_curve_", "n_iter_", "best_epoch_", "has_graph_")


def add_dropout(model: nn.Module, share: float) -> Callable[[], None]:
    """Drop inputs of layers and readout in training, without a trace in the model once the result was called."""
    if not 0 <= check_number("dropout", share) < 1:
        raise ValueError(f"dropout must be at least 0 and below 1, got {share}")
    networks = [part for part in model.modules() if isinstance(part, LayeredNetwork)]
    if share > 0 and not networks:
        raise ValueError(f"dropout must be 0 for a backbone of your own, which has its own, got {share}")
    handles = [
        part.register_forward_pre_hook(lambda module, given: (F.dropout(given[0], share, module.training), *given[1:]))
        for network in networks
        for part in (*getattr(network, network.layered[0]), network.readout)
        if share > 0
    ]

    def undo() -> None:
        for handle in handles:
            handle.remove()

    return undo


TUPLE, DEVICE = "__tuple__", "__device__"  # what JSON has no word for


def _plain(name: str, value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, tuple):
        return {TUPLE: _plain(name, list(value))}
    if isinstance(value, list):
        return [_plain(name, one) for one in value]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _plain(name, one) for key, one in value.items()}
    if isinstance(value, torch.device):
        return {DEVICE: str(value)}
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | str | numbers.Number):
        return value
    raise TypeError(f"{name} must be a JSON value to be saved, got {type(value).__name__}")


def _from_plain(value: Any) -> Any:
    """The inverse of :func:`_plain`."""
    if isinstance(value, list):
        return [_from_plain(one) for one in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {TUPLE}:
        return tuple(_from_plain(value[TUPLE]))
    return torch.device(value[DEVICE]) if value.keys() == {DEVICE} else {k: _from_plain(v) for k, v in value.items()}


def as_array(value: Any) -> Array:
    """An array of what may be a tensor on any device."""
    if not isinstance(value, Tensor):
        return np.asarray(value)
    value = value.detach().cpu()
    array: Array = (value.float() if value.dtype == torch.bfloat16 else value).numpy()  # NumPy has no such numbers
    return array


def as_float32(name: str, value: Any) -> Array:
    """Finite numbers in the precision of the networks."""
    array = as_array(value).astype(np.float64)
    assert_all_finite(array, input_name=name)
    with np.errstate(over="ignore"):
        narrow = array.astype(np.float32)
    if not np.isfinite(narrow).all():
        raise ValueError(f"{name} must hold numbers of float32, got {array[~np.isfinite(narrow)][0]}")
    return narrow


def as_graph(graph: Any, normalize: Normalization | None = None) -> Any:
    """A graph or a tensor, of what may be a list, a matrix of SciPy or NumPy, or a graph of NetworkX or PyG."""
    if hasattr(graph, "one_hop") or hasattr(graph, "sparse_sizes"):
        return graph
    if hasattr(graph, "tocoo"):
        return Graph.from_scipy(graph)
    if is_networkx(graph) or hasattr(graph, "edge_index"):
        built = Graph.from_networkx(graph) if is_networkx(graph) else Graph.from_pyg(graph)
        return built if normalize is None else built.normalize(normalize)
    array = graph if isinstance(graph, Tensor) else np.asarray(graph)
    if not isinstance(array, Tensor) and array.dtype.kind not in "biuf":
        raise TypeError(f"graph must be a Graph, an edge_index or a sparse matrix, got {type(graph).__name__}")
    tensor = torch.as_tensor(array)
    is_matrix = tensor.layout == torch.strided and tensor.dim() == 2 and tensor.size(0) == tensor.size(1)
    is_matrix = is_matrix and (tensor.size(0) != 2 or tensor.is_floating_point())  # two edges, where these are numbers
    return Graph.from_dense(tensor) if is_matrix else tensor


def is_networkx(graph: Any) -> bool:
    """Whether this is a graph of NetworkX, which is not imported for it."""
    return hasattr(graph, "is_directed") and hasattr(graph, "adjacency") and hasattr(graph, "number_of_nodes")


def nodes_at_least(graph: Any) -> int:
    """How many nodes a graph has, or an edge_index names."""
    if isinstance(graph, Tensor):
        is_list = graph.layout == torch.strided
        return (int(graph.max()) + 1 if graph.numel() else 0) if is_list else graph.size(0)
    return int(graph.sparse_size(0) if hasattr(graph, "sparse_sizes") else graph.num_nodes)


def load(path: str | os.PathLike[str]) -> "NodeClassifier | NodeRegressor | GraphClassifier":
    """Read an estimator that :meth:`save` wrote.

    Raises:
        ValueError: the file is damaged, or holds something else.
    """
    path = Path(path)
    header, tensors = load_tensors(path, "pt")
    check_tensors(path, header, tensors)
    kinds = {kind.__name__: kind for kind in (NodeClassifier, NodeRegressor, GraphClassifier)}
    if header.get("estimator") not in kinds:
        raise ValueError(f"{path}: must hold one of {', '.join(kinds)}, got {header.get('estimator')!r:.60}")
    estimator = kinds[header["estimator"]](**_from_plain(header["settings"]))
    for name, value in header["fitted"].items():
        setattr(estimator, name, np.array(value) if name == "classes_" else value)
    estimator.model_ = estimator._build(*estimator._sizes())
    estimator.model_.load_state_dict(tensors)
    estimator.model_.eval()
    return estimator


class NodeEstimator(GraphEstimator):
    """What answers at the nodes of one graph."""

    def _signal(self, X: Any, *, reset: bool = False) -> Tensor:  # noqa: N803, scikit-learn's name
        x = as_array(X) if isinstance(X, Tensor) else X
        return torch.from_numpy(np.ascontiguousarray(validate_data(self, x, dtype=np.float32, reset=reset))).to(
            self.device
        )

    def _nodes(self, nodes: Any, count: int) -> Array:
        """The numbers of the nodes in question: all, those of a mask, or as given."""
        if nodes is None:
            return np.arange(count)
        chosen = as_array(nodes)
        if chosen.dtype == bool:
            if chosen.shape != (count,):
                raise ValueError(f"nodes must be a mask of shape ({count},), got {chosen.shape}")
            return np.flatnonzero(chosen)
        if chosen.ndim != 1 or chosen.dtype.kind not in "iu" or chosen.size == 0:
            raise ValueError(f"nodes must be a mask or a list of nodes, got {chosen.dtype} of shape {chosen.shape}")
        if chosen.min() < 0 or chosen.max() >= count:
            raise ValueError(f"nodes must be from 0 to {count - 1}, got {chosen.min()} to {chosen.max()}")
        return chosen

    def _targets(self, y: Any, nodes: Array, count: int) -> Array:
        """The targets of the nodes in question: of all nodes in their own order, or of these alone."""
        targets = as_array(y)
        if len(nodes) == 0:
            raise ValueError("nodes must name at least one node, got a mask of none")
        if len(targets) == count:
            return targets[nodes]
        if len(targets) != len(nodes):
            raise ValueError(f"y must have a target for each of the {len(nodes)} nodes, got {len(targets)}")
        return targets

    def _prepare(self, X: Any, y: Any, graph: Any, nodes: Any) -> tuple[Tensor, Any, Array, Array]:  # noqa: N803
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        x = self._signal(X, reset=True)
        chosen = self._nodes(nodes, x.size(0))
        self.has_graph_ = graph is not None
        if graph is None:
            warnings.warn(f"{type(self).__name__}.fit: {MISSING}", stacklevel=3)
        return x, self._graph_of_all(x, graph), chosen, self._targets(y, chosen, x.size(0))

    def _graph_of_all(self, x: Tensor, graph: Any) -> Any:
        """The graph of a call, which must have a node for each row."""
        graph = None if graph is None else as_graph(graph, self.normalize)
        rows, is_list = x.size(0), isinstance(graph, Tensor) and graph.layout == torch.strided
        if graph is not None and (rows < nodes_at_least(graph) if is_list else rows != nodes_at_least(graph)):
            raise ValueError(
                f"X must have a row for each of the {nodes_at_least(graph)} nodes of graph, got {rows}; to learn from "
                "some of them, as scikit-learn does in folds, name them: nodes=..., or graphact.estimators.OnNodes"
            )
        return self._graph(x, graph)

    def _outputs(self, X: Any, graph: Any, nodes: Any) -> Array:  # noqa: N803
        check_is_fitted(self)
        x = self._signal(X)
        if graph is None and getattr(self, "has_graph_", False):
            warnings.warn(f"{type(self).__name__} was fitted with a graph: {MISSING}", stacklevel=3)
        outputs: Array = self._answers(x, self._graph_of_all(x, graph)).numpy()
        return outputs[self._nodes(nodes, x.size(0))]


class NodeClassifier(ClassifierMixin, NodeEstimator):
    """Classes of the nodes of a graph, some of which are known.

    Args:
        backbone: ``"gcnn"``, ``"fir"`` (no activation), or a function of the numbers of input and output features that
            returns a module called as ``model(x, graph)``.
        activation: of the GCNN; see :func:`graphact.nn.make_activation`.
        hidden: features of each layer.
        order: order of the filters.
        hops: hops of the activations.
        normalize: how a graph given as an edge_index or by NetworkX is normalised; a ``Graph`` or a matrix is a shift
            operator and taken as it is.
        dropout: the share of values that is dropped at random in training, in front of each layer and the readout.
        epochs: steps of Adam, each over all nodes.
        learning_rate: step size.
        weight_decay: decoupled decay of the parameters.
        early_stopping: hold out a part of the nodes, keep the parameters with the least loss on them, and stop after
            ``patience`` epochs without a smaller one.
        validation_fraction: the part that is held out.
        patience: epochs to wait.
        device: where to train and predict.
        verbose: print a line each epoch.
        random_state: decides initial parameters and what is held out.

    Attributes:
        classes_: the classes, in the order of the columns of ``predict_proba``.
        model_: the trained module.
        loss_curve_: the training loss of each epoch.
        n_iter_: epochs that were run.
        best_epoch_: the epoch whose parameters were kept.

    Example:
        >>> import graphact
        >>> from graphact.estimators import NodeClassifier
        >>> graph = graphact.Graph.from_edge_index([[0, 1, 1, 2, 3, 4], [1, 0, 2, 1, 4, 3]]).normalize("symmetric")
        >>> x, y = [[1.0], [1.2], [0.9], [-1.0], [-1.1]], ["a", "a", "?", "b", "?"]
        >>> model = NodeClassifier(epochs=50, random_state=0).fit(x, y, graph=graph, nodes=[0, 1, 3])
        >>> model.predict(x, graph=graph, nodes=[2, 4]).tolist()
        ['a', 'b']
    """

    def fit(self, X: Any, y: Any, *, graph: Any = None, nodes: Any = None) -> Self:  # noqa: N803
        """Train on a graph.

        Args:
            X: ``(N, F)``, the features of all nodes.
            y: the classes of all nodes, of which those of ``nodes`` are used, or of ``nodes`` alone, in their order.
                N classes are those of the nodes 0 to N - 1, in whatever order ``nodes`` names them.
            graph: a ``Graph``, an ``edge_index``, or a sparse matrix of torch or SciPy, which is a shift operator (see
                :meth:`graphact.Graph.from_sparse`), a dense one of NumPy, PyG's ``Data``, or a graph of NetworkX, whose
                nodes are in its own order; None is a graph without edges, with a warning.
            nodes: the nodes to learn from, as numbers or as a mask; all when left out.

        Raises:
            ValueError: arguments that do not fit together, or numbers so large that training diverges.
        """
        x, ready, chosen, targets = self._prepare(X, y, graph, nodes)
        targets = column_or_1d(targets, warn=True)  # a column is taken for a list, with scikit-learn's warning
        assert_all_finite(targets, input_name="y")
        check_classification_targets(targets)
        self.classes_, labels = np.unique(targets, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y must hold at least two classes, got one class: {self.classes_}")
        target = torch.zeros(x.size(0), dtype=torch.int64, device=x.device)
        target[torch.from_numpy(chosen)] = torch.from_numpy(labels).to(x.device)

        def loss(model: nn.Module, samples: Array) -> Tensor:
            return F.cross_entropy(model(x, ready)[samples], target[samples])

        self._train(*self._sizes(), loss, chosen)
        return self

    def _sizes(self) -> tuple[int, int]:
        return self.n_features_in_, len(self.classes_)

    def predict_proba(self, X: Any, *, graph: Any = None, nodes: Any = None) -> Array:  # noqa: N803
        """Probabilities of the classes, ``(nodes, classes)``."""
        scores = torch.from_numpy(self._outputs(X, graph, nodes)).double()
        found: Array = scores.softmax(-1).numpy()
        return found

    def predict(self, X: Any, *, graph: Any = None, nodes: Any = None) -> Array:  # noqa: N803
        """The most probable class of each node."""
        best = self._outputs(X, graph, nodes).argmax(1)  # refuses one that was not fitted, which has no classes
        found: Array = self.classes_[best]
        return found

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, graph: Any = None, nodes: Any = None) -> float:  # noqa: N803
        """The share of nodes whose class is right; ``y`` as in :meth:`fit`."""
        found = self.predict(X, graph=graph, nodes=nodes)
        targets = self._targets(y, self._nodes(nodes, len(X)), len(X))
        return float(np.average(found == targets, weights=sample_weight))


class NodeRegressor(RegressorMixin, NodeEstimator):
    """Numbers at the nodes of a graph, some of which are known. Settings are those of :class:`NodeClassifier`.

    Example:
        >>> import numpy as np, graphact
        >>> from graphact.estimators import NodeRegressor
        >>> graph = graphact.Graph.stochastic_block_model([20, 20], 0.5, 0.1).normalize("spectral")
        >>> x = np.random.default_rng(0).normal(size=(40, 1))
        >>> model = NodeRegressor(random_state=0).fit(x, graph.to_dense().numpy() @ x, graph=graph)
        >>> model.score(x, graph.to_dense().numpy() @ x, graph=graph) > 0.9
        True
    """

    def fit(self, X: Any, y: Any, *, graph: Any = None, nodes: Any = None) -> Self:  # noqa: N803
        """Train on a graph, with the mean squared error; arguments as in :meth:`NodeClassifier.fit`."""
        x, ready, chosen, targets = self._prepare(X, y, graph, nodes)
        numbers_ = as_float32("y", targets)
        self.n_outputs_ = 0 if numbers_.ndim == 1 else numbers_.shape[1]
        columns = numbers_.reshape(len(numbers_), -1)
        target = torch.zeros(x.size(0), columns.shape[1], device=x.device)
        target[torch.from_numpy(chosen)] = torch.from_numpy(columns).to(x.device)

        def loss(model: nn.Module, samples: Array) -> Tensor:
            return F.mse_loss(model(x, ready)[samples], target[samples])

        self._train(*self._sizes(), loss, chosen)
        return self

    def _sizes(self) -> tuple[int, int]:
        return self.n_features_in_, max(self.n_outputs_, 1)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def predict(self, X: Any, *, graph: Any = None, nodes: Any = None) -> Array:  # noqa: N803
        """The number, or numbers, of each node."""
        found = self._outputs(X, graph, nodes).astype(np.float64)
        return found if self.n_outputs_ else found[:, 0]

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, graph: Any = None, nodes: Any = None) -> float:  # noqa: N803
        """The coefficient of determination, R²; ``y`` as in :meth:`fit`."""
        from sklearn.metrics import r2_score

        found = self.predict(X, graph=graph, nodes=nodes)
        targets = self._targets(y, self._nodes(nodes, len(X)), len(X))
        return float(r2_score(targets, found, sample_weight=sample_weight))


class OnNodes(BaseEstimator):
    """An estimator on one graph whose samples are nodes, as scikit-learn's folds and searches need it.

    A fold takes some of the rows of X, and a graph on some of its nodes is another graph. Here X are the numbers of
    nodes: the features of all nodes and the graph stay whole, and only targets are left out.

    Args:
        estimator: a :class:`NodeClassifier` or :class:`NodeRegressor`; its settings are ``estimator__NAME``.
        features: ``(N, F)``, the features of all nodes.
        graph: as :meth:`NodeClassifier.fit` takes it.

    Attributes:
        estimator_: the fitted estimator.
        classes_: of a classifier, its classes.

    Example:
        >>> import graphact, numpy as np
        >>> from sklearn.model_selection import GridSearchCV
        >>> from graphact.estimators import NodeClassifier, OnNodes
        >>> graph = graphact.Graph.stochastic_block_model([20, 20], 0.5, 0.1).normalize("symmetric")
        >>> y = np.repeat([0, 1], 20)
        >>> x = y[:, None] + np.random.default_rng(0).normal(size=(40, 1))
        >>> model = OnNodes(NodeClassifier(epochs=20, random_state=0), x, graph)
        >>> search = GridSearchCV(model, {"estimator__activation": ["relu", "max-ga"]}, cv=3).fit(np.arange(40), y)
        >>> search.best_params_["estimator__activation"] in ("relu", "max-ga")
        True
    """

    def __init__(self, estimator: Any, features: Any, graph: Any) -> None:
        self.estimator = estimator
        self.features = features
        self.graph = graph

    def __sklearn_clone__(self) -> Self:
        return type(self)(clone(self.estimator), self.features, self.graph)  # data are shared, not copied for each fold

    def __sklearn_tags__(self) -> Any:
        tags, inner = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.estimator_type, tags.target_tags = inner.estimator_type, inner.target_tags
        tags.classifier_tags, tags.regressor_tags = inner.classifier_tags, inner.regressor_tags
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "estimator_")

    def _numbers(self, X: Any) -> Array:  # noqa: N803
        numbers_ = as_array(X)
        return numbers_[:, 0] if numbers_.ndim == 2 and numbers_.shape[1] == 1 else numbers_

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        """Learn from the nodes ``X`` with the targets ``y``, in their order."""
        count, targets = len(self.features), as_array(y)
        nodes = clone(self.estimator)._nodes(self._numbers(X), count)
        if len(targets) != len(nodes):
            raise ValueError(f"y must have a target for each of the {len(nodes)} nodes, got {len(targets)}")
        every = np.zeros((count, *targets.shape[1:]), dtype=targets.dtype)
        every[nodes] = targets
        self.estimator_ = clone(self.estimator).fit(self.features, every, graph=self.graph, nodes=nodes)
        if hasattr(self.estimator_, "classes_"):
            self.classes_ = self.estimator_.classes_
        return self

    def predict(self, X: Any) -> Array:  # noqa: N803
        """The answers at the nodes ``X``."""
        check_is_fitted(self)
        found: Array = self.estimator_.predict(self.features, graph=self.graph, nodes=self._numbers(X))
        return found

    @available_if(lambda self: hasattr(self.estimator, "predict_proba"))
    def predict_proba(self, X: Any) -> Array:  # noqa: N803
        """Probabilities of the classes at the nodes ``X``."""
        check_is_fitted(self)
        found: Array = self.estimator_.predict_proba(self.features, graph=self.graph, nodes=self._numbers(X))
        return found

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:  # noqa: N803
        """The share of nodes whose class is right, or R²."""
        from sklearn.metrics import accuracy_score, r2_score

        figure = accuracy_score if is_classifier(self.estimator) else r2_score
        return float(figure(as_array(y), self.predict(X), sample_weight=sample_weight))


class Pooled(nn.Module):
    """A network on joined graphs, mean and maximum over the nodes of each, and a linear map."""

    def __init__(self, body: nn.Module, features: int, out_features: int) -> None:
        super().__init__()
        self.body, self.readout = body, nn.Linear(2 * features, out_features)

    def forward(self, x: Tensor, graph: Any, owner: Tensor, count: int) -> Tensor:
        x = F.relu(self.body(x, graph))
        each = owner[:, None].expand_as(x)
        zeros = x.new_zeros(count, x.size(1))
        pooled = [zeros.scatter_reduce(0, each, x, kind, include_self=False) for kind in ("mean", "amax")]
        return self.readout(torch.cat(pooled, 1))


class GraphClassifier(ClassifierMixin, GraphEstimator):
    """Classes of whole graphs. Settings are those of :class:`NodeClassifier`; a step takes all graphs at once.

    A network on the nodes, mean and maximum over the nodes of each graph, a linear map. Samples are signals
    ``(n, F)`` with a graph each, or PyG's ``Data``.

    Example:
        >>> import torch, graphact
        >>> from graphact.estimators import GraphClassifier
        >>> path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> signals = [torch.full((3, 1), float(sign)) for sign in (1, -1, 1, -1)]
        >>> model = GraphClassifier(epochs=50, random_state=0).fit(signals, [1, 0, 1, 0], graphs=path)
        >>> model.predict(signals[:2], graphs=path).tolist()
        [1, 0]
    """

    def _build(self, in_features: int, out_features: int) -> nn.Module:
        width = list(self.hidden)[-1]
        return Pooled(super()._build(in_features, width), width, out_features).to(self.device)

    def _sizes(self) -> tuple[int, int]:
        return self.n_features_in_, len(self.classes_)

    def _join(self, X: Any, graphs: Any) -> tuple[Tensor, Graph, Tensor]:  # noqa: N803
        """All samples as one signal on one graph, and the sample of each node."""
        samples = list(X)
        if not samples:
            raise ValueError("X must hold at least one graph, got none")
        if graphs is None:
            edges = [edges_of(sample) for sample in samples]
        else:
            each = [as_graph(graphs, self.normalize)] * len(samples) if is_one(graphs) else list(graphs)
            if len(each) != len(samples):
                raise ValueError(f"graphs must be one for each of the {len(samples)} samples, got {len(each)}")
            edges = [(graph, None) for graph in each]
        signals = [
            torch.from_numpy(as_float32(f"X[{place}]", getattr(sample, "x", sample)))
            for place, sample in enumerate(samples)
        ]
        built = []
        for place, (signal, (graph, edge_weight)) in enumerate(zip(signals, edges, strict=True)):
            if signal.dim() != 2 or signal.size(0) == 0:
                raise ValueError(f"X[{place}] must have the shape (n, F), got {tuple(signal.shape)}")
            built.append(self._graph(signal, graph, edge_weight))
            if built[-1].num_nodes != len(signal):
                raise ValueError(
                    f"X[{place}] must have a row for each of the {built[-1].num_nodes} nodes of its graph, "
                    f"got {len(signal)}"
                )
        owner = torch.repeat_interleave(torch.arange(len(signals)), torch.tensor([len(x) for x in signals]))
        return torch.cat(signals).to(self.device), Graph.union(built).to(self.device), owner.to(self.device)

    def fit(self, X: Any, y: Any, *, graphs: Any = None) -> Self:  # noqa: N803
        """Train on graphs.

        Args:
            X: a signal ``(n, F)`` for each graph, or PyG's ``Data``.
            y: the class of each graph.
            graphs: a ``Graph``, an ``edge_index`` or a sparse matrix for each sample, or one for all; None takes those
                of the ``Data``: its ``graph`` (``AttachGraph``) as it is, else its ``edge_index`` with the
                ``edge_weight`` if there is one, else its ``adj_t``.
        """
        x, graph, owner = self._join(X, graphs)
        targets = as_array(y)
        if targets.shape != (int(owner[-1]) + 1,):
            raise ValueError(f"y must have a class for each of the {int(owner[-1]) + 1} graphs, got {targets.shape}")
        check_classification_targets(targets)
        self.classes_, labels = np.unique(targets, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y must hold at least two classes, got one class: {self.classes_}")
        self.n_features_in_, target = x.size(1), torch.from_numpy(labels).to(x.device)

        def loss(model: nn.Module, samples: Array) -> Tensor:
            return F.cross_entropy(model(x, graph, owner, len(target))[samples], target[samples])

        self._train(*self._sizes(), loss, np.arange(len(target)))
        return self

    def predict_proba(self, X: Any, *, graphs: Any = None) -> Array:  # noqa: N803
        """Probabilities of the classes, ``(graphs, classes)``."""
        check_is_fitted(self)
        x, graph, owner = self._join(X, graphs)
        if x.size(1) != self.n_features_in_:
            raise ValueError(f"X must have {self.n_features_in_} features, got {x.size(1)}")
        found: Array = self._answers(x, graph, owner, int(owner[-1]) + 1).double().softmax(-1).numpy()
        return found

    def predict(self, X: Any, *, graphs: Any = None) -> Array:  # noqa: N803
        """The most probable class of each graph."""
        best: Array = self.classes_[self.predict_proba(X, graphs=graphs).argmax(1)]
        return best

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, graphs: Any = None) -> float:  # noqa: N803
        """The share of graphs whose class is right."""
        return float(np.average(self.predict(X, graphs=graphs) == as_array(y), weights=sample_weight))


def edges_of(data: Any) -> tuple[Any, Tensor | None]:
    """The graph of PyG's ``Data``, or its edges with their weights; a plain signal has none."""
    if getattr(data, "graph", None) is not None:
        return data.graph, None
    if getattr(data, "edge_index", None) is not None:
        return data.edge_index, getattr(data, "edge_weight", None)
    return getattr(data, "adj_t", None), None


def is_one(graphs: Any) -> bool:
    """Whether this is one graph for all samples rather than one for each."""
    is_matrix = hasattr(graphs, "sparse_sizes") or getattr(graphs, "ndim", None) == 2
    return hasattr(graphs, "one_hop") or is_networkx(graphs) or is_matrix
