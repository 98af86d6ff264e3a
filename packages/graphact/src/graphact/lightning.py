"""Networks in Lightning: steps, metrics and optimizer for batches of PyG or of plain tensors with their graph.

Needs the extra ``lightning``.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from graphact._checks import check_choice, check_positive
from graphact._extras import require
from graphact.graph import Graph
from graphact.nn.call import accepts_batch
from graphact.training import loss_of, metric_of

require("graphact.lightning needs", "lightning")

from lightning import LightningModule  # noqa: E402, named first if it is missing

__all__ = ["GraphLearner"]

LOSSES = ("cross_entropy", "mse", "smooth_l1")


class GraphLearner(LightningModule):
    """A network with its loss and optimizer, for ``lightning.Trainer``.

    A batch is PyG's ``Data`` or ``Batch``, or a tuple ``(x, y, graph)``; Lightning moves a ``Graph`` to the device as
    it does tensors. The network is called as ``model(x, graph)``, where the batch has a ``graph`` (``AttachGraph``),
    else as ``model(x, edge_index)`` with the ``edge_weight`` if there is one; a model that takes ``batch`` by name gets
    that of a ``Batch``. Override ``forward`` for another call. Of a ``Data`` with ``train_mask``, ``val_mask``,
    ``test_mask`` a step counts the nodes of its mask alone.

    It logs ``train_loss``, ``val_loss``, ``test_loss`` and, for classes, ``val_accuracy`` and ``test_accuracy`` in
    percent. Checkpoints hold the settings; ``GraphLearner.load_from_checkpoint(path, model=model)`` needs the
    model again, and the ``pool`` if there was one.

    Args:
        model: the network.
        loss: ``"cross_entropy"``, ``"mse"`` or ``"smooth_l1"``, as :func:`graphact.training.loss_of` defines them.
        pool: makes one answer for each graph of those of its nodes, ``pool(outputs, batch.batch)``, such as PyG's
            ``global_mean_pool``; None where nodes answer. Of a tuple, the graphs are those of a
            :meth:`graphact.Graph.union`, and its ``y`` has an answer for each.
        learning_rate: of Adam.
        weight_decay: decoupled, as AdamW has it.

    Raises:
        ValueError: an unknown loss, or a learning rate that is not positive.
        TypeError: a step is given a batch of another kind, or a pool has a tuple without a ``Graph``.

    Example:
        >>> import torch, graphact
        >>> from graphact.lightning import GraphLearner
        >>> graph = graphact.Graph.stochastic_block_model([10, 10], p=0.8, q=0.1).normalize("symmetric")
        >>> learner = GraphLearner(graphact.nn.GCNN([1, 4], order=1, activation="max-ga"), loss="mse")
        >>> x = torch.randn(5, 20, 1)
        >>> learner.training_step((x, x, graph), 0).dim()
        0
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        loss: str = "cross_entropy",
        pool: Callable[[Tensor, Tensor], Tensor] | None = None,
        learning_rate: float = 0.01,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__()
        self.save_hyperparameters(ignore=["model", "pool"])
        self.model, self.pool, self.weight_decay = model, pool, weight_decay
        self.loss = check_choice("loss", loss, LOSSES)
        self.learning_rate = check_positive("learning_rate", learning_rate)

    def forward(self, batch: Any) -> Tensor:
        """The answers of the network on a batch."""
        if isinstance(batch, tuple | list) and len(batch) == 3:
            x, _, graph = batch
            answers: Tensor = self.model(x, graph)
            return answers if self.pool is None else self.pool(answers, graphs_of_nodes(graph))
        if not hasattr(batch, "x"):
            raise TypeError(f"batch must be PyG's Data or a tuple (x, y, graph), got {type(batch).__name__}")
        graph = getattr(batch, "graph", None)
        edges = (batch.edge_index, getattr(batch, "edge_weight", None)) if graph is None else (graph, None)
        owner: Any = getattr(batch, "batch", None)
        options = {"batch": owner} if owner is not None and accepts_batch(self.model) else {}
        outputs: Tensor = self.model(batch.x, *(edge for edge in edges if edge is not None), **options)
        return outputs if self.pool is None else self.pool(outputs, owner)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:  # noqa: ARG002, Lightning's names
        """The loss of a batch."""
        return self._step(batch, "train")

    def validation_step(self, batch: Any, batch_idx: int) -> Tensor:  # noqa: ARG002
        """Loss and accuracy of a batch."""
        return self._step(batch, "val")

    def test_step(self, batch: Any, batch_idx: int) -> Tensor:  # noqa: ARG002
        """Loss and accuracy of a batch."""
        return self._step(batch, "test")

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam with the settings of the constructor."""
        return torch.optim.AdamW(self.parameters(), lr=self.learning_rate, weight_decay=self.weight_decay)

    def _step(self, batch: Any, stage: str) -> Tensor:
        outputs, targets = self(batch), batch[1] if isinstance(batch, tuple | list) else batch.y
        mask = getattr(batch, f"{stage}_mask", None)
        if mask is not None:
            outputs, targets = outputs[mask], targets[mask]
        found, count = loss_of(self.loss, outputs, targets), len(targets)
        if self._trainer is not None:  # a step may be called by hand
            self.log(f"{stage}_loss", found, batch_size=count)
            if self.loss == "cross_entropy" and stage != "train":  # weighted by their counts, batches add up exactly
                self.log(f"{stage}_accuracy", metric_of("accuracy", outputs, targets), batch_size=count)
        return found


def graphs_of_nodes(graph: Any) -> Tensor:
    """The graph of each node, for a pool."""
    if not isinstance(graph, Graph):
        raise TypeError(f"graph must be a graphact.Graph for answers to be pooled, got {type(graph).__name__}")
    return torch.zeros(graph.num_nodes, dtype=torch.int64, device=graph.device) if graph.batch is None else graph.batch
