"""Files of a training for the next start: a checkpoint, and for each process its last epoch and how it ended."""

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from graphact.distributed.partitioned import PartitionedGraph
from graphact.distributed.processes import PartitionError, broadcast, is_network_error, raise_on_all_ranks
from graphact.training.checkpoint import moments_of, read_tensors, restore_moments, write_tensors
from graphact.training.loop import ModelBatch, Selection, SingleModel

TRAINING, LOST, STOPPED, FAILED = "training", "lost contact", "stopped", "failed"


class SharedCheckpoint:
    """The checkpoint of a model that several processes train: the first one writes and reads the file.

    Args:
        path: the file.
        graph: the part of this process.
        work: what must be as it was, as JSON values.
        every: epochs between checkpoints.
        epochs: after the last of them, one is written too.
        losses: the loss of each epoch done; training appends to it.
        begin: called with the number of epochs done when these are known.
    """

    def __init__(
        self,
        path: Path | None,
        graph: PartitionedGraph,
        work: dict[str, Any],
        every: int,
        epochs: int,
        losses: list[float],
        begin: Callable[[int], None],
    ) -> None:
        self.path, self.graph, self.work = path if graph.rank == 0 else None, graph, work
        self.every, self.epochs, self.losses, self.begin = every, epochs, losses, begin

    def is_due(self, epoch: int) -> bool:
        return self.path is not None and (epoch % self.every == 0 or epoch == self.epochs)

    def write(self, batch: ModelBatch, optimizer: Optimizer, selection: Selection, epoch: int, seconds: float) -> None:
        del selection, epoch, seconds  # nothing is selected; the losses count epochs
        assert self.path is not None
        assert isinstance(batch, SingleModel)
        write_checkpoint(self.path, batch.model, optimizer, self.losses, self.work)

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
            self.losses += restore_checkpoint(path, header, tensors, batch.model, optimizer, self.work)
        self.begin(len(self.losses))
        return len(self.losses)


def write_checkpoint(
    path: Path, model: nn.Module, optimizer: Optimizer, losses: list[float], work: dict[str, Any]
) -> None:
    """Write everything that the next epoch depends on, and the work that it belongs to."""
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    moments = moments_of(optimizer, dict(model.named_parameters()))
    write_tensors(path, {**tensors, **moments, "losses": torch.tensor(losses, dtype=torch.float64)}, {"work": work})


def restore_checkpoint(
    path: str,
    header: dict[str, Any],
    tensors: dict[str, Tensor],
    model: nn.Module,
    optimizer: Optimizer,
    work: dict[str, Any],
) -> list[float]:
    """Restore header and tensors of :func:`write_checkpoint` from ``path``; return the loss of each epoch done."""
    expected = {f"model.{name}": value.shape for name, value in model.state_dict().items()}
    found = {name: tensor.shape for name, tensor in tensors.items() if name.startswith("model.")}
    if expected != found:
        raise PartitionError(f"{path} belongs to another model: its parameters have other names or shapes")
    recorded = header.get("work") or {}
    for name, value in work.items():
        if value != recorded.get(name):
            raise PartitionError(
                f"{path} is the checkpoint of other work: {name} {recorded.get(name)!r:.80} there, {value!r:.80} here; "
                "delete it or name another file"
            )
    model.load_state_dict({name.removeprefix("model."): tensors[name] for name in expected})
    restore_moments(optimizer, dict(model.named_parameters()), tensors)
    losses: list[float] = tensors["losses"].tolist()
    return losses


class RankStatus:
    """Records in a small file how far this process has come and how it ends; one that is killed records no end."""

    def __init__(self, checkpoint: Path | None, rank: int, parts: int, epochs: int) -> None:
        self.checkpoint, self.rank, self.parts, self.epochs = checkpoint, rank, parts, epochs
        self.path, self.epoch = self.path_of(rank), 0

    def path_of(self, rank: int) -> Path | None:
        return self.checkpoint and self.checkpoint.with_name(f"{self.checkpoint.name}.process-{rank}.json")

    def previous_status(self, rank: int | None = None) -> dict[str, Any] | None:
        """Return the last record of this process, or of another one, if it did not come to its end."""
        path = self.path if rank is None else self.path_of(rank)
        try:
            status = None if path is None else json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(status, dict):
            return None
        given = (status.get("state"), status.get("epoch"), status.get("reason", ""))
        return status if [type(value) for value in given] == [str, int, str] else None

    def begin_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        self._record(TRAINING)

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Record how training ends.

        A SIGTERM, which torchrun sends to the processes that are left when one has died, ends it in an orderly way.
        """
        previous = None
        if threading.current_thread() is threading.main_thread():
            previous = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
        try:
            yield
        except (SystemExit, KeyboardInterrupt):
            self._record(STOPPED)
            raise
        except BaseException as error:
            if not is_network_error(error):
                self._record(FAILED, str(error))
                raise
            self._record(LOST)
            raise ConnectionError(self.describe_loss()) from error
        finally:
            if previous is not None:
                signal.signal(signal.SIGTERM, previous)
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    def describe_loss(self) -> str:
        """Explain that another process is gone, with the reason that it recorded, if there is one."""
        lost = f"process {self.rank} lost contact with another process in epoch {self.epoch} of {self.epochs}"
        failed = [
            f"process {rank} failed in epoch {status['epoch']} of {self.epochs}: {status.get('reason', '')}"
            for rank in range(self.parts)
            if (status := self.previous_status(rank)) is not None and status["state"] == FAILED
        ]
        unknown = "it failed, was stopped or killed, and its own output tells why"
        return f"{lost}: {'; '.join(failed) or unknown}"

    def _record(self, state: str, reason: str = "") -> None:
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_name(f".{self.path.name}.{os.getpid()}")  # not flushed: an epoch may be short
        temporary.write_text(json.dumps({"state": state, "epoch": self.epoch, "reason": reason[:500]}))
        temporary.replace(self.path)


def describe_restart(statuses: list[dict[str, Any] | None], done: int, epochs: int) -> str | None:
    """Explain how the previous run ended and where this one begins; None if there was none, or it came to its end."""
    ends: list[str] = []
    for state, description in (
        (TRAINING, "ended without a word in epoch {epoch} of {epochs}: it was killed, or its machine went down"),
        (FAILED, "failed in epoch {epoch} of {epochs}: {reason}"),
        (LOST, "lost contact with it in epoch {epoch}"),
        (STOPPED, "was told to stop in epoch {epoch}"),
    ):
        ranks_at: dict[tuple[int, str], list[str]] = {}
        for rank, status in enumerate(statuses):
            if status is not None and status["state"] == state:
                ranks_at.setdefault((status["epoch"], status.get("reason", "")), []).append(str(rank))
        for (epoch, reason), ranks in ranks_at.items():
            words = description if ends else description.replace("with it", "with another process")
            if len(ranks) > 1:
                words = words.replace("it was killed, or its machine", "they were killed, or their machine")
                words = words.replace("was told", "were told")
            who = f"process{'es' if len(ranks) > 1 else ''} {', '.join(ranks)}"
            ends.append(f"{who} {words.format(epoch=epoch, epochs=epochs, reason=reason)}")
    if not ends:
        return None
    ended = "; ".join(ends)
    count, most = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"), os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0")
    restart = f"All processes were started again (restart {count} of at most {most}). " if count != "0" else ""
    if done == 0:
        return f"{ended}. {restart}There is no checkpoint yet: training starts from the beginning"
    reached = max(status["epoch"] for status in statuses if status is not None)
    again = f"epochs {done + 1} to {reached} are computed again" if reached > done else "nothing is computed again"
    return f"{ended}. {restart}Training goes on from the checkpoint after epoch {done} of {epochs}; {again}"
