"""How much a guarantee may compute, in seconds or operations, and what its user sees while it does."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from graphact.progress import live_bars

Progress = Callable[[float], None]  # called with the share that is done
MOST_WORK = 1.5e11  # products and differences that are computed where no time is given; some minutes
MOST_NEEDED = 1.5e11  # the same for one layer of all coefficients, without which nothing can be merged
MOST_NORM_WORK = 3e10  # the same for the norms of single layers
SECOND = 7e8  # of these, one core does in a second, in about
BLOCK_SECONDS = 1.5e-3  # for each block beside its operations, in about
UNITS = ((86400, "days"), (3600, "hours"), (60, "minutes"), (1, "seconds"))
LONG = 20.0  # seconds after which somebody wonders what happens


def in_words(seconds: float) -> str:
    """About how long, in a unit that fits."""
    size, unit = next((size, unit) for size, unit in UNITS if seconds >= 2 * size or size == 1)
    return f"about {max(1, round(seconds / size)):,} {unit}"


class OutOfTimeError(Exception):
    """The budget does not suffice for what cannot be left out."""


class Budget:
    """How much may be computed: seconds, or a fixed number of operations, so that the result depends on no clock.

    ``asker`` is the function that writes a line to standard error before it takes long; None where that is known.
    """

    def __init__(self, seconds: float | None, asker: str | None = None) -> None:
        self.asker = asker
        self.deadline = None if seconds is None else time.monotonic() + seconds
        self.half = None if seconds is None else time.monotonic() + seconds / 2  # of it is for norms of single layers
        self.norm_work = 0.0
        self.work = 0.0  # operations that were not needed for a valid bound
        self.seconds = {True: 0.0, False: 0.0}  # spent on what is needed, and on what is not
        self.operations = {True: 1.0, False: 1.0}
        self.columns = 0  # that what is needed was computed for
        self.blocks = 0.0  # of columns, in about

    def allows(self, work: float, columns_left: int) -> bool:
        """Whether a block may be followed further, with enough left for one layer of all other columns."""
        if self.deadline is None:
            if self.work + work > MOST_WORK:
                return False
        else:
            needed = 1.1 * columns_left * self.seconds[True] / max(1, self.columns)
            kind = self.operations[False] < 2  # nothing known yet about the rate of what is not needed
            expected = work * self.seconds[kind] / self.operations[kind]
            if time.monotonic() + needed + expected > self.deadline:
                return False
        self.work += work
        return True

    def spend(self, needed: bool, work: float, since: float) -> None:
        self.seconds[needed] += time.monotonic() - since
        self.operations[needed] += work
        late = self.operations[True] > 2 * MOST_NEEDED if self.deadline is None else time.monotonic() > self.deadline
        if needed and late:
            raise OutOfTimeError

    def spend_on_norms(self, work: float) -> None:
        """Raise OutOfTimeError where the norms of single layers have taken their part."""
        self.norm_work += work
        late = self.norm_work > MOST_NORM_WORK if self.half is None else time.monotonic() > self.half
        if late:
            raise OutOfTimeError

    def reserve(self, needed: float, every: float) -> None:
        """Raise OutOfTimeError at once where what is needed takes too many operations, by an estimate."""
        if self.deadline is not None:
            return
        if needed > MOST_NEEDED:
            self._announce(
                f"would take {in_words(every / SECOND)} of one core to follow all coefficients, so the constant is "
                "only the smaller of the product of the layers and of the sum of all magnitudes; budget= allows more"
            )
            raise OutOfTimeError
        seconds = (needed + min(every - needed, MOST_WORK)) / SECOND + self.blocks * BLOCK_SECONDS
        if seconds > LONG:
            self._announce(f"takes {in_words(seconds)} of one core; budget= limits the seconds, for a larger constant")

    def _announce(self, text: str) -> None:
        if self.asker is not None:
            sys.stderr.write(f"graphact: {self.asker} {text}; certified_radius certifies single nodes without it\n")
            sys.stderr.flush()


@contextmanager
def watch(progress: Progress | bool | None) -> Iterator[Progress]:
    """What is called with the share that is done: a bar on standard error, a function of the caller's, or nothing."""
    if progress is not True:
        yield progress or (lambda _: None)
        return
    from rich.console import Console

    with live_bars(console=Console(stderr=True)) as bars:
        task = bars.add_task("coefficients", total=100, note="")
        yield lambda share: bars.update(task, completed=round(100 * share))
