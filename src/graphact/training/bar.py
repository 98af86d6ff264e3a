"""A progress bar with the time left."""

from collections.abc import Iterator
from contextlib import contextmanager

from graphact.training.loop import Progress


@contextmanager
def progress_bar(epochs: int) -> Iterator[Progress]:
    """Show a bar while the context lasts; yields what the training loop calls after every epoch."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    loss_column = TextColumn("{task.fields[loss]}")
    columns = TextColumn("epoch"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), loss_column
    with Bar(*columns) as bar:
        task = bar.add_task("epoch", total=epochs, loss="")

        def watch(epoch: int, epochs: int, loss: float) -> None:
            bar.update(task, completed=epoch, total=epochs, loss=f"loss {loss:.4g}")

        yield watch
