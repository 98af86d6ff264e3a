"""What a person sees while an experiment runs."""

import math
import statistics
import sys
import time
from types import TracebackType
from typing import Any

from graphact.experiments.store import Row


def mean_of(rows: list[Row]) -> str:
    """The figure of a cell in one line, without evaluations under other conditions than it was trained in."""
    own = [row for row in rows if "loss_probability" not in row["condition"]]
    values = [row["value"] for row in own if math.isfinite(row["value"])]
    diverged = f", {len(own) - len(values)} diverged" if len(values) < len(own) else ""
    if not values:
        return f"all {len(own)} runs diverged"
    spread = f" ± {statistics.stdev(values):.3g}" if len(values) > 1 else ""
    unit = "%" if own[0]["metric"] == "accuracy" else "RMSE"
    return f"{statistics.fmean(values):.3g}{spread} {unit} over {len(values)} runs{diverged}"


class Lines:
    """A line a cell, for logs and pipes."""

    def __init__(self) -> None:
        self.cells = self.done = 0
        self.begun = time.monotonic()

    def __enter__(self) -> "Lines":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to clean up."""

    def plan(self, cells: int, finished: int) -> None:
        """See :class:`~graphact.experiments.running.Watcher`."""
        self.cells, self.done = cells, finished
        self.say(f"{cells} cells, {finished} of them finished already" if finished else f"{cells} cells")

    def start(self, title: str, epochs: int) -> None:
        """See :class:`~graphact.experiments.running.Watcher`."""

    def epoch(self, epoch: int) -> None:
        """See :class:`~graphact.experiments.running.Watcher`."""

    def finish(self, title: str, rows: list[Row]) -> None:
        """See :class:`~graphact.experiments.running.Watcher`."""
        self.done += 1
        self.say(f"[{self.done}/{self.cells}] {title}: {mean_of(rows)} ({time.monotonic() - self.begun:.0f} s so far)")

    def say(self, line: str) -> None:
        """Print at once, also into a pipe."""
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


class Bars(Lines):
    """Live bars in a terminal: all cells with the time left, and the epochs of the running one."""

    def __init__(self) -> None:
        super().__init__()
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            transient=True,
        )
        self.all: Any = None
        self.current: Any = None
        self.epochs = 0

    def __enter__(self) -> "Bars":
        self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.progress.stop()

    def plan(self, cells: int, finished: int) -> None:
        """See :class:`~graphact.experiments.running.Watcher`."""
        super().plan(cells, finished)
        self.all = self.progress.add_task("cells", total=cells, completed=finished)
        self.current = self.progress.add_task("epochs", total=None)

    def start(self, title: str, epochs: int) -> None:
        """See :class:`~graphact.experiments.running.Watcher`."""
        self.epochs = epochs
        self.progress.reset(self.current, description=title, total=epochs)

    def epoch(self, epoch: int) -> None:
        """See :class:`~graphact.experiments.running.Watcher`."""
        self.progress.update(self.current, completed=epoch)
        self.progress.update(self.all, completed=self.done + epoch / self.epochs)

    def say(self, line: str) -> None:
        """Print above the bars."""
        self.progress.console.print(line, markup=False, highlight=False)


def watcher() -> Lines:
    """Bars in a terminal, lines elsewhere."""
    return Bars() if sys.stdout.isatty() else Lines()
