"""Fleets of graph classifiers: many models on one set of graphs, which differ in split, seed, rate, decay and dropout.

All graphs, of whatever part of a split, are dealt into batches, the same for all models: a step is one stacked pass
over the graphs of a batch side by side, ``(R, N, F)``, and each model learns from those of them that it trains on.
Loss and statistics of batch norm count no others, so that a model moves as if the batch held its own training graphs
alone. The batches are drawn a few times before training and taken in turn, epoch by epoch: shapes are then known, and
on a GPU an epoch is one CUDA graph, as in :mod:`graphact_lab.fleets.nodes`.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphact.training.fleet import FleetResult
from graphact_lab.data.graph_sets import GraphBatch
from graphact_lab.fleets.active import ActiveModels
from graphact_lab.fleets.nodes import NodeFleet
from graphact_lab.splits import Split

TIE = 1e-6  # points of accuracy for a unit of cross entropy: less than one graph in any set, whatever the loss
MAX_LOSS = 1e3


class GraphFleet(NodeFleet):
    """R graph classifiers of one shape on one set of graphs, trained together, each as if it were alone.

    A model is called as ``model(x, batch, masks)`` and returns logits ``(B, C)``. In training, ``masks`` are the masks
    of dropout ``(B, width)``, one for each of ``model.dropout_widths``, and behind them ``(B,)``: 1 for graphs that the
    model trains on, else 0. In evaluation there are none.

    Args:
        models: modules with parameters of equal names and shapes; one may stand at several places.
        partitions: each holds every graph once, in batches; the first is that of the first epoch, and so on in turn.
        labels: ``(G,)``; the class of each graph.
        splits: of the graphs, one for each model.
        seeds, rates, decays, dropouts, device, dtype: as in :class:`~graphact_lab.fleets.nodes.NodeFleet`.

    Attributes:
        curves: ``(R, epochs)`` after training; test accuracy behind each epoch.
    """

    def __init__(
        self,
        models: Sequence[nn.Module],
        partitions: Sequence[Sequence[GraphBatch]],
        labels: Tensor,
        splits: Sequence[Split],
        *,
        seeds: Sequence[int],
        rates: Sequence[float],
        decays: Sequence[float],
        dropouts: Sequence[float],
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.partitions = [[batch.to(device, dtype) for batch in batches] for batches in partitions]
        first = self.partitions[0][0]
        settings = {"seeds": seeds, "rates": rates, "decays": decays, "dropouts": dropouts}
        super().__init__(models, first.x, first, labels, splits, **settings, device=device, dtype=dtype)  # type: ignore[arg-type]
        self.places = [torch.cat([batch.graphs for batch in batches]).argsort() for batches in self.partitions]
        train = self.running.nodes["train"]
        marked = torch.zeros(len(models), len(labels) + 1, device=device, dtype=dtype)
        self.trained = marked.scatter_(1, train.masked_fill(train < 0, len(labels)), 1.0)[:, :-1]  # (R, G)
        self.curves = torch.empty(len(models), 0, device=device)

    def train(
        self, epochs: int, patience: int | None = None, *, keep: bool = True, window: int | None = None
    ) -> FleetResult:
        """Train all models for all epochs.

        The test score is that at the epoch with the best validation accuracy; among equal ones, that with the lowest
        cross entropy, of which a validation score bears a millionth.
        """
        for name, value in (("patience", patience), ("window", window)):
            if value is not None:
                raise ValueError(f"{name} must be None for graph classifiers, whose curves are compared, got {value}")
        device = self.running.seeds.device
        self.curves = torch.full((len(self), epochs + 1), torch.nan, dtype=torch.float64, device=device)
        result = super().train(epochs, keep=keep)
        self.curves = self.curves[:, 1:]
        return result

    def make_step(
        self, running: ActiveModels, epoch: Callable[[ActiveModels], None] | None = None, warm_up: int = 1
    ) -> Callable[[], None]:
        """One epoch, as a function without arguments; partitions take turns, each recorded on its own."""
        make = super().make_step
        turns = cycle(
            make(running, epoch or partial(self.epoch, partition=number), warm_up)
            for number in range(len(self.partitions))
        )
        return lambda: next(turns)()

    def epoch(self, running: ActiveModels, partition: int = 0) -> None:
        """Score the models as they are, and move them by one step for each batch."""
        self.note(running, self.evaluate(running, partition))
        running.steps.add_(1)
        for batch in self.partitions[partition]:
            masks = {
                f"mask{site}": running.masks(site, (len(batch.graphs), width))
                for site, width in enumerate(self.template.dropout_widths)
            }
            masks["trained"] = trained = self.trained.index_select(1, batch.graphs)
            logits = self.call(running, masks, True, read=(batch.x, batch))
            targets = self.labels[batch.graphs].expand(len(trained), -1)
            each = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view(trained.shape)
            self.update(running, (each * trained).sum(1) / trained.sum(1).clamp(min=1))

    @torch.no_grad()
    def evaluate(self, running: ActiveModels, partition: int = 0) -> Tensor:
        """The logits ``(R, G, C)`` of all models without dropout, with the running statistics of batch norm."""
        parts = [self.call(running, {}, False, read=(batch.x, batch)) for batch in self.partitions[partition]]
        return torch.cat(parts, 1).index_select(1, self.places[partition])

    def note(self, running: ActiveModels, logits: Tensor) -> None:
        """Score the models as they are, keep those that are better than before, and go on with the curves."""
        scores = self.scores(running, logits)
        running.select(scores)
        self.curves.index_copy_(1, running.steps.view(1), scores[1].unsqueeze(1))

    def scores(self, running: ActiveModels, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Accuracy ``(R,)`` on validation and test graphs, the former less a millionth of the cross entropy."""
        validation, test = super().scores(running, logits)
        graphs = running.nodes["validation"]
        targets = self.labels.expand(len(logits), -1)
        each = F.cross_entropy(logits.flatten(0, 1).double(), targets.flatten(), reduction="none").view(targets.shape)
        own = each.gather(1, graphs.clamp(min=0)).masked_fill(graphs < 0, 0.0)
        loss = own.sum(1) / running.counts["validation"].double()
        return validation - TIE * loss.clamp(max=MAX_LOSS), test
