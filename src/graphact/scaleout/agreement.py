"""What one process finds wrong, all processes report."""

from collections.abc import Callable
from typing import TypeVar

import torch.distributed as dist

Result = TypeVar("Result")


class PartitionError(ValueError):
    """The parts of a graph cannot be used: a file is missing, damaged, or does not fit this run."""


def size_and_rank(group: dist.ProcessGroup | None) -> tuple[int, int]:
    """How many processes there are, and which one this is; without ``torch.distributed`` it is the only one."""
    if not (dist.is_available() and dist.is_initialized()):
        return 1, 0
    return dist.get_world_size(group), dist.get_rank(group)


def together(work: Callable[[], Result], group: dist.ProcessGroup | None = None) -> Result:
    """Do the work on every process; if it fails on any of them, raise the same error on all.

    Without this, the processes that are fine would wait for the one that is not.

    Raises:
        PartitionError: the work failed on some process with a ValueError, TypeError or OSError; names it.
    """
    result, complaint = None, None
    try:
        result = work()
    except (ValueError, TypeError, OSError) as error:
        complaint = str(error)
    processes = size_and_rank(group)[0]
    complaints: list[str | None] = [complaint]
    if processes > 1:
        complaints = [None] * processes
        dist.all_gather_object(complaints, complaint, group=group)
    problems: dict[str, list[int]] = {}
    for number, text in enumerate(complaints):
        if text is not None:
            problems.setdefault(text, []).append(number)
    if problems:
        raise PartitionError("; ".join(f"{text}{seen_by(ranks, processes)}" for text, ranks in problems.items()))
    return result  # type: ignore[return-value]


def seen_by(ranks: list[int], processes: int) -> str:
    """Who found it, unless everybody did."""
    if len(ranks) == processes:
        return ""
    return f" (found by process{'es' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))})"
