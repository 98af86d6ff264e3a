"""Training on a partitioned graph: checks that all processes agree, the loss and the checkpoint that they share.

``torchrun --max-restarts`` starts the processes again; they then go on from the checkpoint.
"""

import math
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from graphact._checks import check_choice, check_integer, check_positive, check_tensor
from graphact.distributed.partitioned import PartitionedGraph
from graphact.distributed.process_group import (
    PartitionError,
    all_gather,
    broadcast,
    check_mixes_no_nodes,
    raise_on_all_ranks,
    readable_network_errors,
    replicate,
)
from graphact.graph.edges import check_finite
from graphact.training import TrainingSettings
from graphact.training.checkpoint import moments_of, read_tensors, restore_moments, write_tensors
from graphact.training.loop import ModelBatch, Selection, SingleModel
from graphact.training.loop import train as run_epochs
from graphact.training.task import LOSSES, check_classes

Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class DistributedSettings:
    """Settings of training on a partitioned graph.

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


def log_to_stderr(message: str) -> None:
    """Print one line."""
    print(f"graphact: {message}", file=sys.stderr, flush=True)  # noqa: T201


def train(
    model: nn.Module,
    graph: PartitionedGraph,
    inputs: Tensor,
    targets: Tensor,
    *,
    loss: str | Loss = "mse",
    train_nodes: Tensor | None = None,
    settings: DistributedSettings | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int, float], None] | None = None,
    log: Callable[[str], None] = log_to_stderr,
) -> list[float]:
    """Train a model on the whole graph, every process with its own nodes; the gradient is that of a single process.

    Under ``torchrun --max-restarts`` a run of which a process dies starts again by itself and goes on from the last
    checkpoint. Run again after the end, it finds everything done; with more epochs, it goes on.

    Args:
        model: any module called as ``model(x, graph)``; the same on every process.
        graph: the part of this process.
        inputs: signals of the nodes held here, ``(..., n, F)``.
        targets: of the training nodes: ``(..., t, F_out)``, as the model answers, or for
            ``"cross_entropy"`` classes ``(..., t)``, integers from 0.
        loss: ``"mse"``, ``"smooth_l1"``, ``"cross_entropy"``, or a function of (outputs, targets) that gives the *sum*
            over its nodes; it is divided by the number of targets of all processes.
        train_nodes: positions of the training nodes among the nodes held here; all of them when left out.
        settings: epochs, optimizer, checkpoints.
        checkpoint: file that the first process writes and reads; None keeps nothing. One of other work is refused:
            of another graph or cut, number of targets, loss, learning rate or betas.
        progress: called by the first process alone after every epoch with the epoch, the number of epochs and the loss.
            It must not call the model on the graph: the other processes would take no part, and all would wait.
        log: called with a line where training goes on from a checkpoint; the first process prints it to standard error.

    Returns:
        The loss before each step.

    Raises:
        PartitionError: arguments or the checkpoint are wrong on some process, or differ between them: inputs or
            targets that are not finite, targets of another shape than the outputs, a part of the model that mixes nodes
            without the graph, as batch normalisation does, a parameter that the loss does not depend on (where there
            are several processes), a checkpoint of other work.
        ValueError: the loss is not finite.
        ConnectionError: another process has ended.

    Example:
        >>> import torch, graphact
        >>> from graphact.distributed import PartitionedGraph, DistributedSettings, train
        >>> graph = graphact.Graph.stochastic_block_model([10, 10], 0.8, 0.1).normalize("spectral")
        >>> part, x = PartitionedGraph.from_graph(graph), torch.randn(20, 1)
        >>> y = x.abs()  # (20, 1), as the outputs of the model
        >>> model = graphact.nn.GCNN([1, 4], order=2, activation="max-ga")
        >>> losses = train(model, part, x[part.nodes], y[part.nodes], settings=DistributedSettings(epochs=5))
        >>> len(losses)
        5
    """
    settings = settings or DistributedSettings()

    def check() -> Loss:
        graph.check_signal(inputs)
        if not any(parameter.requires_grad for parameter in model.parameters()):
            raise ValueError(f"model must have parameters to train, got {type(model).__name__} with none")
        count = graph.num_nodes if train_nodes is None else train_nodes.numel()
        batch = inputs.dim() - 2
        if check_tensor("targets", targets).dim() <= batch or targets.size(batch) != count:
            raise ValueError(f"targets must be given for {count} nodes, got the shape {tuple(targets.shape)}")
        check_finite("inputs", inputs)
        check_finite("targets", targets)
        check_mixes_no_nodes(model)
        if not isinstance(loss, str):
            return loss
        losses = LOSSES[check_choice("loss", loss, tuple(LOSSES))]
        return lambda outputs, targets: losses(outputs, targets).sum()

    summed_loss = raise_on_all_ranks(check, graph.group)
    named_loss = loss if isinstance(loss, str) else getattr(loss, "__qualname__", type(loss).__name__)
    parameters = {name: parameter.requires_grad for name, parameter in model.named_parameters()}
    given = {
        "settings": {**vars(settings), "loss": named_loss},
        "inputs": {"dtype": str(inputs.dtype), "shape without nodes": without_nodes(inputs, -2)},
        "targets": {"dtype": str(targets.dtype), "shape without nodes": without_nodes(targets, inputs.dim() - 2)},
        "model": {name: shape_of(value) for name, value in model.state_dict().items()},
        "trainable parameters": parameters,
        "graph": {"SHA-256": graph.digest, "dtype": str(graph.dtype)},
    }
    check_alike(given, graph)
    count = torch.tensor(float(targets.numel()), dtype=torch.float64, device=inputs.device)
    total = sum_over_processes(count, graph)
    if total == 0:
        raise ValueError("targets must be given for at least one node of some process, got none")
    work = {"loss": named_loss, "learning_rate": settings.learning_rate, "betas": list(settings.betas)}
    work |= {"nodes": graph.total_nodes, "targets": int(total), "graph": graph.digest}
    path = None if checkpoint is None else Path(checkpoint)
    replicated = replicate(model, graph.group)
    is_checked = False

    def shared_loss() -> Tensor:
        nonlocal is_checked
        outputs = replicated(inputs, graph)
        if train_nodes is not None:
            outputs = outputs.index_select(-2, train_nodes)
        if not is_checked and isinstance(loss, str):
            raise_on_all_ranks(lambda: check_targets(loss, outputs, targets), graph.group)
        value = summed_loss(outputs, targets) / total
        if not is_checked and graph.parts > 1:
            raise_on_all_ranks(lambda: check_all_used(model, value), graph.group)
        is_checked = True
        return value

    batch = PartitionedModel(model, graph, shared_loss)
    shared = SharedCheckpoint(path, graph, work, settings.checkpoint_every, settings.epochs, batch.losses, log)
    adam = TrainingSettings(epochs=settings.epochs, learning_rate=settings.learning_rate, betas=settings.betas)
    with readable_network_errors(graph.rank):
        run_epochs(batch, adam, progress=progress if graph.rank == 0 else None, checkpoint=shared)
    return batch.losses


class PartitionedModel(SingleModel):
    """A model on the part of this process; its loss and gradient are those of all processes together."""

    def __init__(self, model: nn.Module, graph: PartitionedGraph, loss: Callable[[], Tensor]) -> None:
        super().__init__(model, loss)
        self.graph, self.losses = graph, list[float]()

    def backward(self, positions: Tensor) -> Tensor:
        value = sum_over_processes(super().backward(positions).double(), self.graph)
        self.losses.append(value)
        if not math.isfinite(value):
            raise ValueError(f"the loss is {value} in epoch {len(self.losses)}: try a smaller learning_rate")
        return torch.tensor([value], dtype=torch.float64)


class SharedCheckpoint:
    """The checkpoint of a model that several processes train: the first one writes and reads the file.

    Args:
        path: the file.
        graph: the part of this process.
        work: what must be as it was, as JSON values.
        every: epochs between checkpoints.
        epochs: after the last of them, one is written too.
        losses: the loss of each epoch done; training appends to it.
        log: called by the first process where training goes on.
    """

    def __init__(
        self,
        path: Path | None,
        graph: PartitionedGraph,
        work: dict[str, Any],
        every: int,
        epochs: int,
        losses: list[float],
        log: Callable[[str], None],
    ) -> None:
        self.path, self.graph, self.work = path if graph.rank == 0 else None, graph, work
        self.every, self.epochs, self.losses, self.log = every, epochs, losses, log

    def is_due(self, epoch: int) -> bool:
        return self.path is not None and (epoch % self.every == 0 or epoch == self.epochs)

    def write(self, batch: ModelBatch, optimizer: Optimizer, selection: Selection, epoch: int, seconds: float) -> None:
        del selection, epoch, seconds  # nothing is selected; the losses count epochs
        assert self.path is not None
        assert isinstance(batch, SingleModel)
        tensors = {f"model.{name}": value for name, value in batch.model.state_dict().items()}
        tensors |= moments_of(optimizer, dict(batch.model.named_parameters()))
        tensors["losses"] = torch.tensor(self.losses, dtype=torch.float64)
        write_tensors(self.path, tensors, {"work": self.work})

    def read(self, batch: ModelBatch, optimizer: Optimizer, selection: Selection) -> int:
        del selection
        assert isinstance(batch, SingleModel)

        def read_file() -> tuple[str, dict[str, Any], dict[str, Tensor]] | None:
            if self.path is None or not self.path.is_file():
                return None
            return str(self.path), *read_tensors(self.path)

        stored = broadcast(raise_on_all_ranks(read_file, self.graph.group), self.graph.group)
        if stored is not None:
            path, header, tensors = stored
            self._restore(path, header, tensors, batch, optimizer)
        done, count = len(self.losses), os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        if self.graph.rank == 0 and (done or count != "0"):
            start = f"goes on after epoch {done} of {self.epochs}" if done else "starts from the beginning"
            most = os.environ.get("TORCHELASTIC_MAX_RESTARTS", count)
            restart = "" if count == "0" else f" (restart {count} of at most {most})"
            self.log(f"training {start}{restart}, checkpoint {self.path}")
        return done

    def _restore(
        self, path: str, header: dict[str, Any], tensors: dict[str, Tensor], batch: SingleModel, optimizer: Optimizer
    ) -> None:
        """Restore the file at ``path`` if it belongs to this work."""
        model = batch.model
        expected = {f"model.{name}": value.shape for name, value in model.state_dict().items()}
        found = {name: tensor.shape for name, tensor in tensors.items() if name.startswith("model.")}
        if expected != found:
            raise PartitionError(f"{path} belongs to another model: its parameters have other names or shapes")
        recorded = header.get("work")
        recorded = recorded if isinstance(recorded, dict) else {}
        for name, value in self.work.items():
            if value != recorded.get(name):
                raise PartitionError(
                    f"{path} is the checkpoint of other work: {name} {recorded.get(name)!r:.80} there, {value!r:.80} "
                    "here; delete it or name another file"
                )
        model.load_state_dict({name.removeprefix("model."): tensors[name] for name in expected})
        restore_moments(optimizer, dict(model.named_parameters()), tensors)
        self.losses += tensors["losses"].tolist()


def sum_over_processes(value: Tensor, graph: PartitionedGraph) -> float:
    """Return the sum of a number over all processes."""
    if graph.parts > 1:
        dist.all_reduce(value, group=graph.group)
    return value.item()


def check_targets(loss: str, outputs: Tensor, targets: Tensor) -> None:
    """Raise if the targets do not fit the outputs: torch would broadcast them, and something else would be learned."""
    if loss != "cross_entropy":
        if outputs.shape != targets.shape:
            shapes = f"{tuple(outputs.shape)} of the outputs, got {tuple(targets.shape)}"
            raise ValueError(f"targets must have the shape {shapes}")
        return
    check_classes(outputs, targets)
    wrong = targets[(targets < 0) | (targets >= outputs.size(-1))]
    if wrong.numel():
        raise ValueError(f"targets must hold classes from 0 to {outputs.size(-1) - 1}, got {wrong[0].item()}")


def shape_of(value: Any) -> str:
    """Type and shape of a parameter or buffer, as far as it has them already."""
    is_known = isinstance(value, Tensor) and not is_lazy(value)
    return f"{value.dtype} {tuple(value.shape)}" if is_known else type(value).__name__


def without_nodes(signal: Tensor, axis: int) -> tuple[int, ...]:
    """The shape of a signal, less the axis of the nodes."""
    sizes = list(signal.shape)
    del sizes[axis]
    return tuple(sizes)


def check_alike(given: dict[str, dict[str, Any]], graph: PartitionedGraph) -> None:
    """Raise if processes were given other ones: some would end, or send what others do not expect, while those wait."""
    everywhere = all_gather(given, graph.group)
    for rank, others in enumerate(everywhere):
        for what, ours in everywhere[0].items():
            for name in (*ours, *others[what]):
                value, other = (values.get(name, "none of that name") for values in (ours, others[what]))
                if other != value:
                    raise PartitionError(
                        f"{what} must be the same on every process, got {name}={value} on process 0 and "
                        f"{name}={other} on process {rank}"
                    )


def check_all_used(model: nn.Module, loss: Tensor) -> None:
    """Raise if the loss does not depend on a parameter that is to be trained: its gradient would be waited for."""
    reached, open_ = set[Any](), [loss.grad_fn]
    while open_:
        function = open_.pop()
        if function is not None and function not in reached:
            reached.add(function)
            open_ += [following for following, _ in function.next_functions]
    used = {id(function.variable) for function in reached if hasattr(function, "variable")}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and id(parameter) not in used:
            raise ValueError(
                f"every parameter must be used where several processes train, got {name}, on which the loss does not "
                "depend: freeze it (requires_grad_(False)) or remove it"
            )
