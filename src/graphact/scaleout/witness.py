"""What became of each process, in a small file of its own, so that the next start can say what happened."""

import json
import os
import signal
import threading
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, NoReturn

import torch.distributed as dist

TRAINING, LOST, STOPPED, FAILED = "training", "lost contact", "stopped", "failed"
NETWORK_WORDS = ("gloo", "Connection", "NCCL", "Timed out", "timed out", "Broken pipe")


class Witness:
    """Notes how far this process has come, and how it ends; a process that is killed cannot note its end.

    Used as ``with Witness(...) as witness:`` around training. A SIGTERM, which torchrun sends to the processes that
    are left when one has died, ends training in an orderly way inside.
    """

    def __init__(self, checkpoint: Path | None, rank: int) -> None:
        self.path = None if checkpoint is None else checkpoint.with_name(f"{checkpoint.name}.process-{rank}.json")
        self.epoch = 0
        self._former_handler: Any = None

    def last_words(self) -> dict[str, Any] | None:
        """What the former run of this process has noted, if it did not come to an end."""
        try:
            noted = None if self.path is None else json.loads(self.path.read_bytes())
        except (OSError, ValueError):
            return None
        return noted if isinstance(noted, dict) and {"state", "epoch"} <= noted.keys() else None

    def begins(self, epoch: int) -> None:
        """Note that an epoch begins."""
        self.epoch = epoch
        self._note(TRAINING)

    def __enter__(self) -> "Witness":
        if threading.current_thread() is threading.main_thread():
            self._former_handler = signal.signal(signal.SIGTERM, end_in_order)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._former_handler is not None:
            signal.signal(signal.SIGTERM, self._former_handler)
        if error is None:
            if self.path is not None:
                self.path.unlink(missing_ok=True)
        elif isinstance(error, (SystemExit, KeyboardInterrupt)):
            self._note(STOPPED)
        elif concerns_network(error):
            self._note(LOST)
        else:
            self._note(FAILED, str(error))

    def _note(self, state: str, reason: str = "") -> None:
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        temporary.write_text(json.dumps({"state": state, "epoch": self.epoch, "reason": reason[:500]}))
        temporary.replace(self.path)


def end_in_order(number: int, _: FrameType | None) -> NoReturn:
    """Leave through the ordinary way out."""
    raise SystemExit(128 + number)


def concerns_network(error: BaseException) -> bool:
    """Whether an error tells of other processes rather than of this one."""
    return isinstance(error, dist.DistError) or (
        isinstance(error, RuntimeError) and any(word in str(error) for word in NETWORK_WORDS)
    )


def tell_what_happened(notes: list[dict[str, Any] | None], epochs: int) -> str | None:
    """The end of the former run in plain words, from the notes of all processes; None if it came to its end."""
    sentences: list[str] = []
    for state, said in (
        (TRAINING, "ended without a word in epoch {epoch} of {epochs}: it was killed, or its machine went down"),
        (FAILED, "failed in epoch {epoch} of {epochs}: {reason}"),
        (LOST, "lost contact with it in epoch {epoch}"),
        (STOPPED, "was told to stop in epoch {epoch}"),
    ):
        at: dict[tuple[int, str], list[int]] = {}
        for rank, note in enumerate(notes):
            if note is not None and note["state"] == state:
                at.setdefault((note["epoch"], note.get("reason", "")), []).append(rank)
        for (epoch, reason), ranks in at.items():
            who = ("process " if len(ranks) == 1 else "processes ") + ", ".join(map(str, ranks))
            words = said.replace("with it", "with it" if sentences else "with another process")
            if len(ranks) > 1:
                words = words.replace("it was killed, or its machine", "they were killed, or their machine")
                words = words.replace("was told", "were told")
            sentences.append(f"{who} {words.format(epoch=epoch, epochs=epochs, reason=reason)}")
    return "; ".join(sentences) or None
