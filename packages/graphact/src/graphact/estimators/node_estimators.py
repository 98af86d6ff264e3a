"""Classes and numbers at the nodes of one graph, some of which are known."""

import warnings
from collections.abc import Callable
from typing import Any, Self

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import assert_all_finite, column_or_1d
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from graphact.estimators.graph_estimator import GCNNEstimator
from graphact.estimators.inputs import (
    LEAVE_OUT,
    Array,
    as_array,
    as_float32,
    as_graph,
    check_finite,
    check_nodes,
    encode_classes,
    score_of,
)

MISSING = "graph is missing, and every node is on its own; give graph=..."


class NodeEstimator(GCNNEstimator):
    """Base of estimators whose samples are the nodes of one graph."""

    def _signal(self, X: Any, *, reset: bool = False) -> Tensor:  # noqa: N803, scikit-learn's name
        x = as_array(X) if isinstance(X, Tensor | np.ma.MaskedArray) else X
        values = validate_data(self, x, dtype=np.float32, reset=reset, ensure_all_finite=False)
        return torch.from_numpy(np.ascontiguousarray(check_finite("X", values))).to(self.device)

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

    def _learn(self, x: Tensor, graph: Any, chosen: Array, targets: Array, loss_of: Callable[..., Tensor]) -> Self:
        """Train with a loss of the outputs and the targets at the chosen nodes."""
        known = torch.from_numpy(targets).to(x.device)
        target = known.new_zeros(x.size(0), *known.shape[1:])
        target[torch.from_numpy(chosen)] = known

        def loss(model: nn.Module, samples: Array) -> Tensor:
            return loss_of(model(x, graph)[samples], target[samples])

        self._train(loss, chosen)
        return self

    def _graph_of_all(self, x: Tensor, graph: Any) -> Any:
        """The graph of a call, which must have a node for each row."""
        graph = as_graph(graph, self.normalize)
        way_out = "name them: nodes=..., or graphact.estimators.OnNodes"
        check_nodes(graph, x.size(0), "row", f"; to learn from some of them, as scikit-learn does in folds, {way_out}")
        return self._graph(x, graph)

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, graph: Any = None, nodes: Any = None) -> float:  # noqa: N803
        """The share of nodes whose class is right or, of numbers, R²; ``y`` as in :meth:`fit`."""
        found = self.predict(X, graph=graph, nodes=nodes)
        return score_of(self, self._targets(y, self._nodes(nodes, len(X)), len(X)), found, sample_weight)

    def _outputs(self, X: Any, graph: Any, nodes: Any) -> Array:  # noqa: N803
        check_is_fitted(self)
        x = self._signal(X)
        if graph is None and getattr(self, "has_graph_", False):
            warnings.warn(f"{type(self).__name__} was fitted with a graph: {MISSING}", stacklevel=3)
        outputs: Array = self._answers(x, self._graph_of_all(x, graph)).numpy()
        return outputs[self._nodes(nodes, x.size(0))]


class NodeClassifier(ClassifierMixin, NodeEstimator):
    """Classes of the nodes of a graph, some of which are known; each step of training uses all of these.

    Further settings are those of :class:`GraphEstimator`.

    Args:
        hidden: features of each layer.
        order: order of the filters.
        hops: hops of the activations.

    Attributes:
        classes_: the classes, in the order of the columns of ``predict_proba``.

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
        self.classes_, labels = encode_classes(targets)
        return self._learn(x, ready, chosen, labels, F.cross_entropy)

    def predict_proba(self, X: Any, *, graph: Any = None, nodes: Any = None) -> Array:  # noqa: N803
        """Probabilities of the classes, ``(nodes, classes)``."""
        return np.asarray(torch.from_numpy(self._outputs(X, graph, nodes)).double().softmax(-1))

    def predict(self, X: Any, *, graph: Any = None, nodes: Any = None) -> Array:  # noqa: N803
        """The most probable class of each node."""
        return self._decide(self._outputs(X, graph, nodes))

    score = NodeEstimator.score


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
        numbers_ = as_float32("y", targets, LEAVE_OUT)
        self.n_outputs_ = 0 if numbers_.ndim == 1 else numbers_.shape[1]
        return self._learn(x, ready, chosen, numbers_.reshape(len(numbers_), -1), F.mse_loss)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def predict(self, X: Any, *, graph: Any = None, nodes: Any = None) -> Array:  # noqa: N803
        """The number, or numbers, of each node."""
        found = self._outputs(X, graph, nodes).astype(np.float64)
        return found if self.n_outputs_ else found[:, 0]

    score = NodeEstimator.score
