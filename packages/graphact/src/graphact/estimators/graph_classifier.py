"""Classes of whole graphs."""

from typing import Any, Self

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from graphact.estimators.graph_estimator import GCNNEstimator
from graphact.estimators.inputs import Array, as_array, as_float32, as_graph, edges_of, encode_classes, is_one, score_of
from graphact.graph import Graph


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


class GraphClassifier(ClassifierMixin, GCNNEstimator):
    """Classes of whole graphs. Settings are those of :class:`NodeClassifier`; each step uses all graphs.

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
        width = self._hidden()[-1]
        return Pooled(super()._build(in_features, width), width, out_features).to(self.device)

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
        signals, built = list[Tensor](), list[Graph]()
        for place, (sample, (graph, edge_weight)) in enumerate(zip(samples, edges, strict=True)):
            signal = torch.from_numpy(as_float32(f"X[{place}]", getattr(sample, "x", sample)))
            if signal.dim() != 2 or signal.size(0) == 0:
                raise ValueError(f"X[{place}] must have the shape (n, F), got {tuple(signal.shape)}")
            ready = self._graph(signal, graph, edge_weight)
            if (nodes := ready.num_nodes) != len(signal):
                raise ValueError(
                    f"X[{place}] must have a row for each of the {nodes} nodes of its graph, got {len(signal)}"
                )
            signals.append(signal)
            built.append(ready)
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
        self.classes_, labels = encode_classes(targets)
        self.n_features_in_, target = x.size(1), torch.from_numpy(labels).to(x.device)

        def loss(model: nn.Module, samples: Array) -> Tensor:
            return F.cross_entropy(model(x, graph, owner, len(target))[samples], target[samples])

        self._train(loss, np.arange(len(target)))
        return self

    def predict_proba(self, X: Any, *, graphs: Any = None) -> Array:  # noqa: N803
        """Probabilities of the classes, ``(graphs, classes)``."""
        check_is_fitted(self)
        x, graph, owner = self._join(X, graphs)
        if x.size(1) != self.n_features_in_:
            raise ValueError(f"X must have {self.n_features_in_} features, got {x.size(1)}")
        return np.asarray(self._answers(x, graph, owner, int(owner[-1]) + 1).double().softmax(-1))

    def predict(self, X: Any, *, graphs: Any = None) -> Array:  # noqa: N803
        """The most probable class of each graph."""
        return self._decide(self.predict_proba(X, graphs=graphs))

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, graphs: Any = None) -> float:  # noqa: N803
        """The share of graphs whose class is right."""
        return score_of(self, as_array(y), self.predict(X, graphs=graphs), sample_weight)
