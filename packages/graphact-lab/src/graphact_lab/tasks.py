"""The paper's four problems as data, what simple methods make of them, and the world of flocking: public names.

Nothing inside the package imports this module.
"""

from graphact.training import Task, loss_of, metric_of
from graphact_lab.baselines import baselines, prepared_baselines
from graphact_lab.data.diffused_sources import source_localization, source_localization_tasks
from graphact_lab.data.download import DataError, FileStatus, check, data_directory, fetch, locate
from graphact_lab.data.molene import Temperatures, read_molene
from graphact_lab.data.movielens import Ratings, read_movielens
from graphact_lab.data.sources import DATASETS, DataFile
from graphact_lab.experiments.consensus.task import consensus, consensus_tasks
from graphact_lab.experiments.denoising.task import denoising, denoising_tasks, with_local_estimate
from graphact_lab.experiments.flocking import world as flocking
from graphact_lab.experiments.recommendation.films import film_graph
from graphact_lab.experiments.recommendation.task import FILMS, centered_by_user, recommendation, recommendation_tasks
from graphact_lab.preparation import prepared

__all__ = ["DATASETS", "FILMS", "DataError", "DataFile", "FileStatus", "Ratings", "Task"]
__all__ += ["Temperatures", "baselines", "centered_by_user", "check", "consensus", "consensus_tasks", "data_directory"]
__all__ += ["denoising", "denoising_tasks", "fetch", "film_graph", "flocking", "locate", "loss_of", "metric_of"]
__all__ += ["prepared", "prepared_baselines", "read_molene", "read_movielens", "recommendation"]
__all__ += ["recommendation_tasks", "source_localization", "source_localization_tasks"]
__all__ += ["with_local_estimate"]
