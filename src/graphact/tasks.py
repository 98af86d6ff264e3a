"""The paper's four problems as data, and what simple methods make of them: the public names, wherever they live.

Nothing inside the package imports this module.
"""

from typing import TYPE_CHECKING

from graphact._lazy import lazy_names

if TYPE_CHECKING:
    from graphact.data.datasets.download import (
        DATASETS,
        DataError,
        DataFile,
        FileStatus,
        Progress,
        check,
        data_directory,
        fetch,
        locate,
    )
    from graphact.data.datasets.molene import Temperatures, read_molene
    from graphact.data.datasets.movielens import Ratings, read_movielens
    from graphact.data.scoring import loss_of, metric_of
    from graphact.data.task import Task
    from graphact.experiments.baselines import baselines, prepared_baselines
    from graphact.experiments.consensus.task import consensus, consensus_tasks
    from graphact.experiments.denoising.local_estimate import with_local_estimate
    from graphact.experiments.denoising.task import denoising, denoising_tasks
    from graphact.experiments.preparation import prepared
    from graphact.experiments.recommendation.baselines import centered_by_user
    from graphact.experiments.recommendation.fill_in import FillIn
    from graphact.experiments.recommendation.film_graph import film_graph
    from graphact.experiments.recommendation.task import FILMS, recommendation, recommendation_tasks
    from graphact.experiments.source_localization.task import source_localization, source_localization_tasks
    from graphact.progress import show_progress

_EXPERIMENTS = "graphact.experiments"
_HOMES = {
    "graphact.data.datasets.download": (
        "DATASETS",
        "DataError",
        "DataFile",
        "FileStatus",
        "Progress",
        "check",
        "data_directory",
        "fetch",
        "locate",
    ),
    "graphact.data.datasets.molene": ("Temperatures", "read_molene"),
    "graphact.data.datasets.movielens": ("Ratings", "read_movielens"),
    "graphact.data.scoring": ("loss_of", "metric_of"),
    "graphact.data.task": ("Task",),
    f"{_EXPERIMENTS}.baselines": ("baselines", "prepared_baselines"),
    f"{_EXPERIMENTS}.consensus.task": ("consensus", "consensus_tasks"),
    f"{_EXPERIMENTS}.denoising.local_estimate": ("with_local_estimate",),
    f"{_EXPERIMENTS}.denoising.task": ("denoising", "denoising_tasks"),
    f"{_EXPERIMENTS}.preparation": ("prepared",),
    f"{_EXPERIMENTS}.recommendation.baselines": ("centered_by_user",),
    f"{_EXPERIMENTS}.recommendation.fill_in": ("FillIn",),
    f"{_EXPERIMENTS}.recommendation.film_graph": ("film_graph",),
    f"{_EXPERIMENTS}.recommendation.task": ("FILMS", "recommendation", "recommendation_tasks"),
    f"{_EXPERIMENTS}.source_localization.task": ("source_localization", "source_localization_tasks"),
    "graphact.progress": ("show_progress",),
}
__all__ = [
    "DATASETS",
    "FILMS",
    "DataError",
    "DataFile",
    "FileStatus",
    "FillIn",
    "Progress",
    "Ratings",
    "Task",
    "Temperatures",
    "baselines",
    "centered_by_user",
    "check",
    "consensus",
    "consensus_tasks",
    "data_directory",
    "denoising",
    "denoising_tasks",
    "fetch",
    "film_graph",
    "locate",
    "loss_of",
    "metric_of",
    "prepared",
    "prepared_baselines",
    "read_molene",
    "read_movielens",
    "recommendation",
    "recommendation_tasks",
    "show_progress",
    "source_localization",
    "source_localization_tasks",
    "with_local_estimate",
]
__getattr__ = lazy_names(__name__, _HOMES)
