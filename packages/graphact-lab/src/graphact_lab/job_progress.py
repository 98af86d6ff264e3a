"""Progress of downloads and of the cells of an experiment: live bars in a terminal (by rich), plain lines elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

from graphact.progress import live_bars

DownloadProgress = Callable[[str, int, int | None], None]  # called with address, bytes so far, bytes in all if known
LINE_SECONDS = 15.0  # between lines on a cell that takes long


@contextmanager
def download_bar() -> Iterator[DownloadProgress | None]:
    """Show downloads while the context lasts, on standard error and only in a terminal; yields what they call."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import DownloadColumn

    with live_bars(DownloadColumn(), console=Console(stderr=True)) as bars:
        tasks: dict[str, Any] = {}

        def watch(url: str, done: int, total: int | None) -> None:
            if url not in tasks:
                tasks[url] = bars.add_task(f"downloading {url.rsplit('/', 1)[-1]}", note="")
            bars.update(tasks[url], completed=done, total=total)

        yield watch


def show_progress(url: str, done: int, total: int | None) -> None:
    """Draw the state of a download on one line of standard error, without rich."""
    name = url.rsplit("/", 1)[-1]
    share = f"{100 * done / total:3.0f} % of {total / 1e6:.1f} MB" if total else f"{done / 1e6:.1f} MB"
    sys.stderr.write(f"\rdownloading {name}: {share}" + ("\n" if done == total else ""))
    sys.stderr.flush()


def in_words(seconds: float) -> str:
    """A time that is left, not more exact than it is known.

    Example:
        >>> in_words(8), in_words(100), in_words(7400)
        ('10 s', '1 min 40 s', '2 h 3 min')
    """
    tens = max(10, 10 * round(seconds / 10))
    if tens < 3600:
        return f"{tens // 60} min {tens % 60} s" if tens >= 60 else f"{tens} s"
    return f"{tens // 3600} h {tens % 3600 // 60} min"


class JobWatcher:
    """Called while the cells of an experiment are trained. This one shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to clean up."""

    def plan(self, cells: int, finished: int) -> None:
        """Before anything runs: how many cells there are, and how many are finished already."""

    def start(self, title: str, epochs: int) -> None:
        """A cell begins."""

    def epoch(self, epoch: int) -> None:
        """An epoch of the cell is over."""

    def finish(self, title: str, summary: str) -> None:
        """A cell is over, with this result."""


class JobLines(JobWatcher):
    """A line a cell."""

    def __init__(self) -> None:
        self.cells = self.done = 0
        self.begun = time.monotonic()

    def plan(self, cells: int, finished: int) -> None:
        self.cells, self.done = cells, finished
        noun = "cell" if cells == 1 else "cells"
        self.log(f"{cells} {noun}, {finished} of them finished already" if finished else f"{cells} {noun}")

    def finish(self, title: str, summary: str) -> None:
        self.done += 1
        self.log(f"[{self.done}/{self.cells}] {title}: {summary} ({time.monotonic() - self.begun:.0f} s so far)")

    def log(self, line: str) -> None:
        """Print at once, also into a pipe."""
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


class JobProgress(JobLines):
    """The same, and bars in a terminal: all cells with the time left, and the epochs of the running one.

    Elsewhere a cell that takes long has a line now and then, with the time left.
    """

    def __init__(self) -> None:
        super().__init__()
        self.bars = live_bars(transient=True, disable=not sys.stdout.isatty())
        self.all, self.current = (self.bars.add_task(name, total=None, note="") for name in ("cells", "epochs"))
        self.before = self.epochs = 0
        self.title, self.last = "", self.begun

    def __enter__(self) -> Self:
        self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bars.stop()

    def plan(self, cells: int, finished: int) -> None:
        super().plan(cells, finished)
        self.before = finished
        self.bars.reset(self.all, total=cells, completed=finished)

    def start(self, title: str, epochs: int) -> None:
        self.title, self.epochs = title, epochs
        self.bars.reset(self.current, description=title, total=epochs)

    def epoch(self, epoch: int) -> None:
        self.bars.update(self.current, completed=epoch)
        share = self.done + epoch / self.epochs
        self.bars.update(self.all, completed=share)
        now = time.monotonic()
        if self.bars.disable and epoch < self.epochs and now - self.last >= LINE_SECONDS:
            left = (now - self.begun) / (share - self.before) * (self.cells - share)
            self.log(f"    {self.title}: epoch {epoch} of {self.epochs}, about {in_words(left)} left for all cells")

    def log(self, line: str) -> None:
        """Print above the bars, at once, also into a pipe."""
        self.last = time.monotonic()
        self.bars.console.print(line, markup=False, highlight=False, soft_wrap=True)
