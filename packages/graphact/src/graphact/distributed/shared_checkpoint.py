"""The checkpoint of a training that several processes share; ``torchrun --max-restarts`` starts them again."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from graphact.distributed.partitioned import PartitionedGraph
from graphact.distributed.process_group import PartitionError, broadcast, raise_on_all_ranks
from graphact.training.checkpoint import moments_of, read_tensors, restore_moments, write_tensors
from graphact.training.loop import ModelBatch, Selection, SingleModel


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
        recorded = header.get("work") or {}
        for name, value in self.work.items():
            if value != recorded.get(name):
                raise PartitionError(
                    f"{path} is the checkpoint of other work: {name} {recorded.get(name)!r:.80} there, {value!r:.80} "
                    "here; delete it or name another file"
                )
        model.load_state_dict({name.removeprefix("model."): tensors[name] for name in expected})
        restore_moments(optimizer, dict(model.named_parameters()), tensors)
        self.losses += tensors["losses"].tolist()
