"""The paper's four problems as data, what simple methods make of them, and the world of flocking: public names.

Nothing inside the package imports this module.
"""

from graphact.data import (
    DATASETS,
    DataError,
    DataFile,
    FileStatus,
    Ratings,
    Task,
    Temperatures,
    check,
    fetch,
    locate,
    loss_of,
    metric_of,
    read_molene,
    read_movielens,
)
from graphact.data.datasets.download import Progress, data_directory
from graphact.experiments.baselines import baselines, prepared_baselines
from graphact.experiments.consensus.task import consensus, consensus_tasks
from graphact.experiments.denoising.task import denoising, denoising_tasks, with_local_estimate
from graphact.experiments.flocking import world as flocking
from graphact.experiments.preparation import prepared
from graphact.experiments.recommendation.films import FillIn, film_graph
from graphact.experiments.recommendation.task import FILMS, centered_by_user, recommendation, recommendation_tasks
from graphact.experiments.source_localization.task import source_localization, source_localization_tasks
from graphact.progress import show_progress

__all__ = ["DATASETS", "FILMS", "DataError", "DataFile", "FileStatus", "FillIn", "Progress", "Ratings", "Task"]
__all__ += ["Temperatures", "baselines", "centered_by_user", "check", "consensus", "consensus_tasks", "data_directory"]
__all__ += ["denoising", "denoising_tasks", "fetch", "film_graph", "flocking", "locate", "loss_of", "metric_of"]
__all__ += ["prepared", "prepared_baselines", "read_molene", "read_movielens", "recommendation"]
__all__ += ["recommendation_tasks", "show_progress", "source_localization", "source_localization_tasks"]
__all__ += ["with_local_estimate"]
