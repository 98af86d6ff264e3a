"""How long a node waits, and how much it keeps and believes."""

from dataclasses import dataclass

from graphact._checks import check_integer, check_positive


@dataclass(frozen=True)
class Timing:
    """When a node asks again and when it goes on without an answer. All times in seconds.

    Round r of a run that starts at t ends at t + (r + 1) * slot at the latest, and earlier when all neighbours have
    answered. Deadlines count from the start of the run, so that a node that waited for a dead neighbour in one round
    does not miss the deadlines of its other neighbours in the next.

    Args:
        slot: time for one round.
        request_after: how long a value may be missing before the neighbour is asked to send it again.
        backoff: factor by which the time to the next request grows.
        jitter: every waiting time is stretched by a random factor between 1 and 1 + jitter, so that requests of many
            nodes do not fall together.
        patience: a neighbour that let this many deadlines of a run pass in a row is not waited for any longer, until it
            is heard again or the next run begins.
    """

    slot: float = 0.18
    request_after: float = 0.02
    backoff: float = 1.2
    jitter: float = 0.3
    patience: int = 2

    def __post_init__(self) -> None:
        for name in ("slot", "request_after", "jitter"):
            check_positive(name, getattr(self, name))
        if not self.backoff >= 1:
            raise ValueError(f"backoff must be at least 1, got {self.backoff}")
        check_integer("patience", self.patience, minimum=1)


@dataclass(frozen=True)
class Limits:
    """What a node keeps at most. More is dropped (and asked for again if it is needed after all).

    Args:
        runs_ahead: how many runs ahead of its own a neighbour may be for its values to be kept.
        pending_messages: values of later rounds kept for each neighbour.
        pending_bytes: the same in bytes, for each neighbour.
        archive_bytes: own values of this run and the one before, kept for neighbours that ask again.
        run_jump: how far ahead of its own run a neighbour may be to be believed. Without a clock a node goes on with
            the run that its neighbours are in, so a captured one could drive all numbers to their end at once. The
            default lets a node join that has been away for 136 years of one run a second (or 16 months of 100), and
            2^31 jumps of it lie between a network and the end of its numbers.
    """

    runs_ahead: int = 2
    pending_messages: int = 1024
    pending_bytes: int = 4 * 2**20
    archive_bytes: int = 16 * 2**20
    run_jump: int = 2**32

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            check_integer(name, value, minimum=1)
