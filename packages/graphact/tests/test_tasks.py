"""The public names of the tasks, wherever they live."""

import graphact_lab.tasks
from graphact_lab.experiments.consensus.task import consensus


def test_all_names_are_there():
    for name in graphact_lab.tasks.__all__:
        assert getattr(graphact_lab.tasks, name) is not None
    imported = {name for name in vars(graphact_lab.tasks) if not name.startswith("_")}
    assert sorted(imported) == sorted(graphact_lab.tasks.__all__)


def test_names_of_tasks_are_functions():
    assert graphact_lab.tasks.consensus is consensus
    assert callable(graphact_lab.tasks.source_localization)
    assert not hasattr(graphact_lab.tasks, "chess")
