"""Expensive objects that tests only read: made by one worker of a run, found by the others."""

import shutil

from filelock import FileLock


def made_once(config, tmp_path_factory, name, make):
    """The folder ``name``, which ``make(folder)`` fills in the first process that asks; those that ask then wait."""
    place = tmp_path_factory.getbasetemp()
    if hasattr(config, "workerinput"):  # of pytest-xdist: a folder in that of the run
        place = place.parent
    folder, finished = place / name, place / f"{name}-finished"
    with FileLock(place / f"{name}-lock"):
        if not finished.exists():
            shutil.rmtree(folder, ignore_errors=True)  # of one that failed
            folder.mkdir()
            make(folder)
            finished.touch()
    return folder
