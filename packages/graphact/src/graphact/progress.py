"""Live bars with the time left, by rich."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from graphact._extras import require

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

EpochProgress = Callable[..., None]  # called after an epoch with its number, the number of epochs and the mean loss


def live_bars(count: "ProgressColumn | None" = None, **options: Any) -> "Progress":
    """Bars with description, count, time left and a note; every task has a field ``note``."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    title, note = TextColumn("{task.description}"), TextColumn("{task.fields[note]}")
    time_left = TimeRemainingColumn(), TextColumn("left")
    return Progress(title, BarColumn(), count or MofNCompleteColumn(), *time_left, note, **options)


@contextmanager
def progress_bar(epochs: int) -> Iterator[EpochProgress]:
    """Show a bar while the context lasts; yields what the training loop calls after every epoch."""
    require("progress=True needs", "rich")
    with live_bars() as bars:
        task = bars.add_task("epoch", total=epochs, note="")

        def watch(epoch: int, epochs: int, loss: float) -> None:
            bars.update(task, completed=epoch, total=epochs, note=f"loss {loss:.4g}")

        yield watch
