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

__all__ = ["DATASETS", "FILMS", "DataError", "DataFile", "FileStatus", "FillIn", "Progress", "Ratings", "Task"]
__all__ += ["Temperatures", "baselines", "centered_by_user", "check", "consensus", "consensus_tasks", "data_directory"]
__all__ += ["denoising", "denoising_tasks", "fetch", "film_graph", "locate", "loss_of", "metric_of", "prepared"]
__all__ += ["prepared_baselines", "read_molene", "read_movielens", "recommendation", "recommendation_tasks"]
__all__ += ["show_progress", "source_localization", "source_localization_tasks", "with_local_estimate"]

_DOWNLOADS = "DATASETS DataError DataFile FileStatus Progress check data_directory fetch locate"
_HOMES = {
    "graphact.data.datasets.download": _DOWNLOADS,
    "graphact.data.datasets.molene": "Temperatures read_molene",
    "graphact.data.datasets.movielens": "Ratings read_movielens",
    "graphact.data.scoring": "loss_of metric_of",
    "graphact.data.task": "Task",
    "graphact.experiments.baselines": "baselines prepared_baselines",
    "graphact.experiments.consensus.task": "consensus consensus_tasks",
    "graphact.experiments.denoising.local_estimate": "with_local_estimate",
    "graphact.experiments.denoising.task": "denoising denoising_tasks",
    "graphact.experiments.preparation": "prepared",
    "graphact.experiments.recommendation.baselines": "centered_by_user",
    "graphact.experiments.recommendation.fill_in": "FillIn",
    "graphact.experiments.recommendation.film_graph": "film_graph",
    "graphact.experiments.recommendation.task": "FILMS recommendation recommendation_tasks",
    "graphact.experiments.source_localization.task": "source_localization source_localization_tasks",
    "graphact.progress": "show_progress",
}
__getattr__ = lazy_names(__name__, _HOMES)
