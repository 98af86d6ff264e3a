"""Progress on the screen while something runs."""

from graphact_lab.job_progress import JobWatcher


def test_jobs_are_lines_in_a_pipe(capsys):
    watcher = JobWatcher(shows=True)
    watcher.plan(3, 1)
    watcher.start("relu F=2", 2)
    watcher.epoch(1)
    watcher.finish("relu F=2", "50 %")
    expected = "3 cells, 1 of them already finished\n[2/3] relu F=2: 50 % (0 s so far)\n"
    assert capsys.readouterr().out == expected


def test_trainings_say_of_how_many_networks(capsys):
    for cells, finished in ((12, 0), (1, 0), (12, 3)):
        JobWatcher(shows=True).plan(cells, finished, 20)
    assert capsys.readouterr().out.splitlines() == [
        "12 trainings of 20 networks each",
        "1 training of 20 networks",
        "12 trainings of 20 networks each, 3 of them already finished",
    ]


def test_a_cell_that_takes_long_has_a_line_now_and_then_in_a_pipe(capsys, monkeypatch):
    clock = iter([0.0, 1.0, 10.0, 20.0, 20.0, 25.0, 40.0, 40.0, 50.0])
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    watcher = JobWatcher(shows=True)
    watcher.plan(4, 1)
    watcher.start("max-ga F=8", 10)
    for epoch in (1, 5, 6, 9, 10):  # at 10, 20, 25, 40 and 50 seconds
        watcher.epoch(epoch)
    assert capsys.readouterr().out.splitlines()[1:] == [
        "    max-ga F=8: 50 %; about 1 min 0 s left in all",
        "    max-ga F=8: 90 %; about 1 min 20 s left in all",
    ]
