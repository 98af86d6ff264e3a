"""The public names of the tasks, wherever they live."""

import graphact.tasks
from graphact.experiments.consensus.task import consensus


def test_all_names_are_there():
    for name in graphact.tasks.__all__:
        assert getattr(graphact.tasks, name) is not None
    imported = {name for name in vars(graphact.tasks) if not name.startswith("_")}
    assert sorted(imported) == sorted(graphact.tasks.__all__)


def test_names_of_tasks_are_functions():
    assert graphact.tasks.consensus is consensus
    assert callable(graphact.tasks.source_localization)
    assert not hasattr(graphact.tasks, "chess")
