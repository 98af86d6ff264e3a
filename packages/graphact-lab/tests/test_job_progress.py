"""Progress on the screen while something runs."""

from graphact_lab.job_progress import JobProgress, download_bar, show_progress


def test_the_progress_line(capsys):
    show_progress("http://example.org/ml-100k.zip", 2_500_000, 5_000_000)
    show_progress("http://example.org/ml-100k.zip", 5_000_000, 5_000_000)
    show_progress("http://example.org/other", 1_000_000, None)
    expected = "\rdownloading ml-100k.zip:  50 % of 5.0 MB\rdownloading ml-100k.zip: 100 % of 5.0 MB\n"
    assert capsys.readouterr().err == expected + "\rdownloading other: 1.0 MB"


def test_jobs_are_lines_in_a_pipe(capsys):
    with JobProgress() as watcher:
        watcher.plan(3, 1)
        watcher.start("relu F=2", 2)
        watcher.epoch(1)
        watcher.finish("relu F=2", "50 %")
    expected = "3 cells, 1 of them finished already\n[2/3] relu F=2: 50 % (0 s so far)\n"
    assert capsys.readouterr().out == expected


def test_a_cell_that_takes_long_has_a_line_now_and_then_in_a_pipe(capsys, monkeypatch):
    clock = iter([0.0, 1.0, 10.0, 20.0, 20.0, 25.0, 40.0, 40.0, 50.0])
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    with JobProgress() as watcher:
        watcher.plan(4, 1)
        watcher.start("max-ga F=8", 10)
        for epoch in (1, 5, 6, 9, 10):  # at 10, 20, 25, 40 and 50 seconds
            watcher.epoch(epoch)
    assert capsys.readouterr().out.splitlines()[1:] == [
        "    max-ga F=8: epoch 5 of 10, about 1 min 40 s left for all cells",
        "    max-ga F=8: epoch 9 of 10, about 1 min 30 s left for all cells",
    ]


def test_jobs_have_bars_in_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    with JobProgress() as watcher:
        watcher.plan(2, 0)
        watcher.start("relu F=2", 4)
        watcher.epoch(1)
        tasks = {task.description: (task.completed, task.total) for task in watcher.bars.tasks}
        assert tasks == {"cells": (0.25, 2), "relu F=2": (1, 4)}
        watcher.finish("relu F=2", "[bold]50 %[/bold]")
    assert "[1/2] relu F=2: [bold]50 %[/bold] (0 s so far)" in capsys.readouterr().out


def test_downloads_are_shown_in_a_terminal_only(capsys, monkeypatch):
    with download_bar() as progress:
        assert progress is None
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with download_bar() as progress:
        progress("http://example.org/ml-100k.zip", 5_000_000, 5_000_000)
    assert "downloading ml-100k.zip" in capsys.readouterr().err
