"""What a run leaves on disk so that the next start can go on: a checkpoint, and the status of each process."""

import hashlib
import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor, nn

from graphact.scaleout.processes import PartitionError
from graphact.storage import write_atomically

ADAM_STATE = ("step", "exp_avg", "exp_avg_sq")
DIGEST = "sha256"
TRAINING, LOST, STOPPED, FAILED = "training", "lost contact", "stopped", "failed"
NETWORK_WORDS = ("gloo", "Connection", "NCCL", "Timed out", "timed out", "Broken pipe")


def write_checkpoint(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, losses: list[float]) -> None:
    """Write everything that the next epoch depends on; the file is complete or, if interrupted, the former one."""
    from safetensors.torch import save

    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    for name, parameter in model.named_parameters():
        for entry in ADAM_STATE:
            tensors[f"adam.{entry}.{name}"] = torch.as_tensor(optimizer.state[parameter][entry])
    tensors["losses"] = torch.tensor(losses, dtype=torch.float64)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_atomically(path, save({**tensors, DIGEST: _digest(tensors)}))


def restore_checkpoint(path: Path, content: bytes, model: nn.Module, optimizer: torch.optim.Optimizer) -> list[float]:
    """Restore what :func:`write_checkpoint` wrote to ``path``; return the loss of each epoch done."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        tensors = load(content)
    except SafetensorError as error:
        raise PartitionError(f"{path} is not a readable checkpoint, perhaps truncated: {error}") from error
    recorded = tensors.pop(DIGEST, None)
    if recorded is None or not torch.equal(recorded, _digest(tensors)):
        raise PartitionError(f"{path} is no checkpoint, or has been altered: its SHA-256 differs from the one recorded")
    expected = {f"model.{name}": value.shape for name, value in model.state_dict().items()}
    found = {name: tensor.shape for name, tensor in tensors.items() if name.startswith("model.")}
    if expected != found:
        raise PartitionError(f"{path} belongs to another model: its parameters have other names or shapes")
    model.load_state_dict({name.removeprefix("model."): tensors[name] for name in expected})
    for name, parameter in model.named_parameters():
        optimizer.state[parameter] = {
            entry: tensors[f"adam.{entry}.{name}"].to("cpu" if entry == "step" else parameter.device)
            for entry in ADAM_STATE
        }
    return tensors["losses"].tolist()


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

    def __init__(self, checkpoint: Path | None, rank: int) -> None:
        self.path = None if checkpoint is None else checkpoint.with_name(f"{checkpoint.name}.process-{rank}.json")
        self.epoch = 0

    def previous_status(self) -> dict[str, Any] | None:
        """What the previous run of this process recorded last, if it did not come to its end."""
        try:
            status = None if self.path is None else json.loads(self.path.read_bytes())
        except (OSError, ValueError):
            return None
        return status if isinstance(status, dict) and {"state", "epoch"} <= status.keys() else None

    def begin_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        self._record(TRAINING)

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Record how training ends.

        A SIGTERM, which torchrun sends to the processes that are left when one has died, ends it in an orderly way.
        """
        in_main_thread = threading.current_thread() is threading.main_thread()
        previous = signal.signal(signal.SIGTERM, _exit_in_order) if in_main_thread else None
        try:
            yield
        except (SystemExit, KeyboardInterrupt):
            self._record(STOPPED)
            raise
        except BaseException as error:
            # an error may tell of other processes rather than of this one
            is_network_error = isinstance(error, dist.DistError) or (
                isinstance(error, RuntimeError) and any(word in str(error) for word in NETWORK_WORDS)
            )
            self._record(*((LOST,) if is_network_error else (FAILED, str(error))))
            raise
        finally:
            if in_main_thread:
                signal.signal(signal.SIGTERM, previous)
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    def _record(self, state: str, reason: str = "") -> None:
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_name(f".{self.path.name}.{os.getpid()}")  # not flushed: an epoch may be short
        temporary.write_text(json.dumps({"state": state, "epoch": self.epoch, "reason": reason[:500]}))
        temporary.replace(self.path)


def _exit_in_order(number: int, _: FrameType | None) -> NoReturn:
    """Handle a signal by leaving through the ordinary way out."""
    raise SystemExit(128 + number)


def describe_restart(statuses: list[dict[str, Any] | None], done: int, epochs: int) -> str | None:
    """How the previous run ended, and where this one begins; None if there was none, or it came to its end."""
    ended = _describe_end(statuses, epochs)
    if not ended:
        return None
    count, most = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"), os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0")
    restart = f"All processes were started again (restart {count} of at most {most}). " if count != "0" else ""
    if done == 0:
        return f"{ended}. {restart}There is no checkpoint yet: training begins anew"
    reached = max(status["epoch"] for status in statuses if status is not None)
    again = f"epochs {done + 1} to {reached} are computed again" if reached > done else "nothing is computed again"
    return f"{ended}. {restart}Training goes on from the checkpoint after epoch {done} of {epochs}; {again}"


def _describe_end(statuses: list[dict[str, Any] | None], epochs: int) -> str:
    """The end of the previous run, from what all processes recorded last."""
    sentences: list[str] = []
    for state, description in (
        (TRAINING, "ended without a word in epoch {epoch} of {epochs}: it was killed, or its machine went down"),
        (FAILED, "failed in epoch {epoch} of {epochs}: {reason}"),
        (LOST, "lost contact with it in epoch {epoch}"),
        (STOPPED, "was told to stop in epoch {epoch}"),
    ):
        ranks_at: dict[tuple[int, str], list[int]] = {}
        for rank, status in enumerate(statuses):
            if status is not None and status["state"] == state:
                ranks_at.setdefault((status["epoch"], status.get("reason", "")), []).append(rank)
        for (epoch, reason), ranks in ranks_at.items():
            who = ("process " if len(ranks) == 1 else "processes ") + ", ".join(map(str, ranks))
            words = description if sentences else description.replace("with it", "with another process")
            if len(ranks) > 1:
                words = words.replace("it was killed, or its machine", "they were killed, or their machine")
                words = words.replace("was told", "were told")
            sentences.append(f"{who} {words.format(epoch=epoch, epochs=epochs, reason=reason)}")
    return "; ".join(sentences)
