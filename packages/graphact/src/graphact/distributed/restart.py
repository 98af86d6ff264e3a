"""What a training leaves for the next start: a checkpoint, and of each process how far it came and how it ended."""

import hashlib
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from graphact.distributed.processes import PartitionError, is_of_network
from graphact.storage import one_line, write_atomically

ADAM_STATE = ("step", "exp_avg", "exp_avg_sq")
DIGEST, WORK = "sha256", "work"
TRAINING, LOST, STOPPED, FAILED = "training", "lost contact", "stopped", "failed"


def write_checkpoint(
    path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, losses: list[float], work: dict[str, Any]
) -> None:
    """Write everything that the next epoch depends on; the file is complete or, if interrupted, the former one."""
    from safetensors.torch import save

    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    for name, parameter in model.named_parameters():
        for entry, value in optimizer.state.get(parameter, {}).items():  # none of a parameter that is not trained
            tensors[f"adam.{entry}.{name}"] = torch.as_tensor(value)
    tensors["losses"] = torch.tensor(losses, dtype=torch.float64)
    tensors[WORK] = torch.frombuffer(bytearray(json.dumps(work).encode()), dtype=torch.uint8)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_atomically(path, save({**tensors, DIGEST: _digest(tensors)}))


def restore_checkpoint(
    path: str, content: bytes, model: nn.Module, optimizer: torch.optim.Optimizer, work: dict[str, Any]
) -> list[float]:
    """Restore what :func:`write_checkpoint` wrote to ``path``; return the loss of each epoch done."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        tensors = load(content)
    except SafetensorError as error:
        raise PartitionError(f"{path} is not a readable checkpoint, perhaps truncated: {one_line(error)}") from error
    recorded = tensors.pop(DIGEST, None)
    if recorded is None or not torch.equal(recorded, _digest(tensors)):
        raise PartitionError(f"{path} is no checkpoint, or has been altered: its SHA-256 differs from the one recorded")
    expected = {f"model.{name}": value.shape for name, value in model.state_dict().items()}
    found = {name: tensor.shape for name, tensor in tensors.items() if name.startswith("model.")}
    if expected != found:
        raise PartitionError(f"{path} belongs to another model: its parameters have other names or shapes")
    told = json.loads(tensors[WORK].numpy().tobytes()) if WORK in tensors else {}
    for name, value in work.items():
        if value != told.get(name):
            raise PartitionError(
                f"{path} is the checkpoint of other work: {name} {told.get(name)!r:.80} there, {value!r:.80} here; "
                "delete it or name another file"
            )
    model.load_state_dict({name.removeprefix("model."): tensors[name] for name in expected})
    for name, parameter in model.named_parameters():
        state = {entry: tensors[key] for entry in ADAM_STATE if (key := f"adam.{entry}.{name}") in tensors}
        if state:
            optimizer.state[parameter] = {
                entry: value.to("cpu" if entry == "step" else parameter.device) for entry, value in state.items()
            }
    losses: list[float] = tensors["losses"].tolist()
    return losses


def _digest(tensors: dict[str, Tensor]) -> Tensor:
    """SHA-256 over names, types, shapes and bytes."""
    summary = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        summary.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        summary.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return torch.frombuffer(bytearray(summary.digest()), dtype=torch.uint8)


class RankStatus:
    """Records in a small file how far this process has come and how it ends; one that is killed records no end."""

    def __init__(self, checkpoint: Path | None, rank: int, parts: int, epochs: int) -> None:
        self.checkpoint, self.rank, self.parts, self.epochs = checkpoint, rank, parts, epochs
        self.path, self.epoch = self.path_of(rank), 0

    def path_of(self, rank: int) -> Path | None:
        return self.checkpoint and self.checkpoint.with_name(f"{self.checkpoint.name}.process-{rank}.json")

    def previous_status(self, rank: int | None = None) -> dict[str, Any] | None:
        """What this process, or another one, recorded last, if it did not come to its end."""
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
            if not is_of_network(error):
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
        """What it means that another process is gone, and what that one recorded of it, if it is known."""
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
    """How the previous run ended, and where this one begins; None if there was none, or it came to its end."""
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
        return f"{ended}. {restart}There is no checkpoint yet: training begins anew"
    reached = max(status["epoch"] for status in statuses if status is not None)
    again = f"epochs {done + 1} to {reached} are computed again" if reached > done else "nothing is computed again"
    return f"{ended}. {restart}Training goes on from the checkpoint after epoch {done} of {epochs}; {again}"
