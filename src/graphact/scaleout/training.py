"""Training on a graph that is shared among processes."""

import math
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from graphact._checks import check_choice, check_integer, check_positive
from graphact.scaleout.partitioned import PartitionedGraph
from graphact.scaleout.processes import all_gather, broadcast, raise_on_all_ranks, replicate
from graphact.scaleout.recovery import RankStatus, describe_restart, restore_checkpoint, write_checkpoint

Loss = Callable[[Tensor, Tensor], Tensor]


LOSSES: dict[str, Loss] = {
    "mse": lambda outputs, targets: F.mse_loss(outputs, targets, reduction="sum"),
    "smooth_l1": lambda outputs, targets: F.smooth_l1_loss(outputs, targets, reduction="sum"),
    "cross_entropy": lambda outputs, classes: F.cross_entropy(
        outputs.flatten(0, -2), classes.flatten(), reduction="sum"
    ),
}


@dataclass(frozen=True)
class ScaleoutSettings:
    """How to train.

    Attributes:
        epochs: steps of Adam, each over the whole graph.
        learning_rate: step size.
        betas: forgetting factors.
        checkpoint_every: epochs between checkpoints; a failure costs at most as many.
    """

    epochs: int = 100
    learning_rate: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    checkpoint_every: int = 10

    def __post_init__(self) -> None:
        check_integer("epochs", self.epochs, minimum=1)
        check_integer("checkpoint_every", self.checkpoint_every, minimum=1)
        check_positive("learning_rate", self.learning_rate)


def to_standard_error(message: str) -> None:
    """Print one line."""
    sys.stderr.write(f"graphact: {message}\n")
    sys.stderr.flush()


def train(
    model: nn.Module,
    graph: PartitionedGraph,
    inputs: Tensor,
    targets: Tensor,
    *,
    loss: str | Loss = "mse",
    train_nodes: Tensor | None = None,
    settings: ScaleoutSettings | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int, float], None] | None = None,
    say: Callable[[str], None] = to_standard_error,
) -> list[float]:
    """Train a model on the whole graph, every process with its own nodes; the gradient is that of a single process.

    Under ``torchrun --max-restarts`` a run of which a process dies starts again by itself, goes on from the last
    checkpoint, and says so. Run again after the end, it finds everything done.

    Args:
        model: any module called as ``model(x, graph)``; the same on every process.
        graph: the part of this process.
        inputs: signals of the nodes held here, ``(..., n, F)``.
        targets: what the model should say at the training nodes: ``(..., t, F_out)``, or classes ``(..., t)``.
        loss: ``"mse"``, ``"smooth_l1"``, ``"cross_entropy"``, or a function of (outputs, targets) that gives the *sum*
            over its nodes; it is divided by the number of targets of all processes.
        train_nodes: positions of the training nodes among the nodes held here; all of them when left out.
        settings: epochs, optimizer, checkpoints.
        checkpoint: file that the first process writes and reads; None keeps nothing.
        progress: called by the first process after every epoch with the epoch, the number of epochs and the loss.
        say: what to do with messages about interrupted runs; the first process prints them to standard error.

    Returns:
        The loss before each step.

    Raises:
        PartitionError: arguments or the checkpoint are wrong on some process.
        ValueError: the loss is not finite.

    Example:
        >>> import torch, graphact
        >>> from graphact.scaleout import PartitionedGraph, ScaleoutSettings, train
        >>> graph = graphact.Graph.stochastic_block_model([10, 10], 0.8, 0.1).normalize("spectral")
        >>> part, x = PartitionedGraph.from_graph(graph), torch.randn(20, 1)
        >>> model = graphact.nn.GCNN([1, 4], order=2, activation="max-ga")
        >>> losses = train(model, part, x[part.nodes], x[part.nodes].abs(), settings=ScaleoutSettings(epochs=5))
        >>> len(losses)
        5
    """
    settings = settings or ScaleoutSettings()

    def check() -> Loss:
        graph.check_signal(inputs)
        if not any(parameter.requires_grad for parameter in model.parameters()):
            raise ValueError(f"model must have parameters to train, got {type(model).__name__} with none")
        count = graph.num_nodes if train_nodes is None else train_nodes.numel()
        batch = inputs.dim() - 2
        if targets.dim() <= batch or targets.size(batch) != count:
            raise ValueError(f"targets must be given for {count} nodes, got the shape {tuple(targets.shape)}")
        return LOSSES[check_choice("loss", loss, tuple(LOSSES))] if isinstance(loss, str) else loss

    def sum_over_processes(value: Tensor) -> float:
        if graph.parts > 1:
            dist.all_reduce(value, group=graph.group)
        return value.item()

    def step() -> float:
        """One step over the whole graph; returns the loss before it."""
        optimizer.zero_grad()
        outputs = replicated(inputs, graph)
        if train_nodes is not None:
            outputs = outputs.index_select(-2, train_nodes)
        value = summed_loss(outputs, targets) / total
        value.backward()
        optimizer.step()
        return sum_over_processes(value.detach().double())

    summed_loss = raise_on_all_ranks(check, graph.group)
    optimizer = torch.optim.Adam(model.parameters(), lr=settings.learning_rate, betas=settings.betas)
    total = sum_over_processes(torch.tensor(float(targets.numel()), dtype=torch.float64, device=inputs.device))
    if total == 0:
        raise ValueError("targets must be given for at least one node of some process, got none")
    path = None if checkpoint is None else Path(checkpoint)
    status = RankStatus(path, graph.rank)
    statuses = all_gather(status.previous_status(), graph.group)
    mine = path.read_bytes() if path is not None and graph.rank == 0 and path.is_file() else None
    content = broadcast(mine, graph.group)
    losses = [] if content is None or path is None else restore_checkpoint(path, content, model, optimizer)
    replicated = replicate(model, graph.group)
    restart = describe_restart(statuses, len(losses), settings.epochs)
    if restart and graph.rank == 0:
        say(restart)
    with status.recorded():
        for epoch in range(len(losses) + 1, settings.epochs + 1):
            status.begin_epoch(epoch)
            losses.append(step())
            if not math.isfinite(losses[-1]):
                raise ValueError(f"the loss is {losses[-1]} in epoch {epoch}: try a smaller learning_rate")
            if graph.rank == 0:
                if path is not None and (epoch % settings.checkpoint_every == 0 or epoch == settings.epochs):
                    write_checkpoint(path, model, optimizer, losses)
                if progress is not None:
                    progress(epoch, settings.epochs, losses[-1])
    return losses
