"""Progress of the cells of an experiment, in plain lines."""

import sys
import time

LINE_SECONDS = 15.0  # between lines on a cell that takes long


def in_words(seconds: float) -> str:
    """Format the time left, rounded to what is known of it.

    Example:
        >>> in_words(8), in_words(100), in_words(7400)
        ('10 s', '1 min 40 s', '2 h 3 min')
    """
    tens = max(10, 10 * round(seconds / 10))
    if tens < 3600:
        return f"{tens // 60} min {tens % 60} s" if tens >= 60 else f"{tens} s"
    return f"{tens // 3600} h {tens % 3600 // 60} min"


class JobWatcher:
    """Called while the cells of an experiment are trained; with ``shows``, it prints a line for each cell.

    A cell that takes long has a line now and then, with the time left for all. The time left counts from the end of the
    first epoch, in which kernels are compiled.
    """

    def __init__(self, *, shows: bool = False) -> None:
        self.shows = shows
        self.cells = self.done = self.epochs = 0
        self.title = ""
        self.first: tuple[float, float] | None = None  # when the first epoch ended, and how many cells were done then
        self.begun = self.last = time.monotonic()

    def plan(self, cells: int, finished: int, networks: int | None = None) -> None:
        """Before anything runs: how many cells there are, how many are finished, and the networks that each trains."""
        self.cells, self.done = cells, finished
        noun = ("cell" if networks is None else "training") + ("" if cells == 1 else "s")
        each = "" if networks is None else f" of {networks} networks{'' if cells == 1 else ' each'}"
        self.log(f"{cells} {noun}{each}" + (f", {finished} of them already finished" if finished else ""))

    def start(self, title: str, epochs: int) -> None:
        """A cell begins."""
        self.title, self.epochs = title, epochs

    def epoch(self, epoch: int) -> None:
        """An epoch of the cell is over."""
        now, share = time.monotonic(), self.done + epoch / self.epochs
        if self.first is None:
            self.first = now, share
        elif epoch < self.epochs and now - self.last >= LINE_SECONDS:
            begun, before = self.first
            left = (now - begun) / (share - before) * (self.cells - share)
            self.log(f"    {self.title}: {100 * epoch // self.epochs} %; about {in_words(left)} left in all")

    def finish(self, title: str, summary: str) -> None:
        """A cell is over, with this result."""
        self.done += 1
        self.log(f"[{self.done}/{self.cells}] {title}: {summary} ({time.monotonic() - self.begun:.0f} s so far)")

    def log(self, line: str) -> None:
        """Print immediately, also into a pipe."""
        self.last = time.monotonic()
        if self.shows:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
