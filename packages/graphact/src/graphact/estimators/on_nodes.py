"""Model selection on one graph: scikit-learn's folds and searches over its nodes."""

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from graphact.estimators.inputs import Array, as_array, score_of


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
        return np.asarray(self.estimator_.predict(self.features, graph=self.graph, nodes=self._numbers(X)))

    @available_if(lambda self: hasattr(self.estimator, "predict_proba"))
    def predict_proba(self, X: Any) -> Array:  # noqa: N803
        """Probabilities of the classes at the nodes ``X``."""
        check_is_fitted(self)
        return np.asarray(self.estimator_.predict_proba(self.features, graph=self.graph, nodes=self._numbers(X)))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:  # noqa: N803
        """The share of nodes whose class is right, or R²."""
        return score_of(self.estimator, as_array(y), self.predict(X), sample_weight)
