"""The paper's four problems, as data: graph, signals, targets, splits, metric; and what simple methods make of them."""

from graphact.tasks.baselines import baselines, prepared_baselines
from graphact.tasks.consensus import consensus, consensus_tasks
from graphact.tasks.data import FileStatus, check, data_directory, fetch, locate
from graphact.tasks.datasets import DATASETS, DataError, DataFile
from graphact.tasks.denoising import denoising, denoising_tasks
from graphact.tasks.download import Progress, show_progress
from graphact.tasks.fill_in import FillIn
from graphact.tasks.film_graph import film_graph
from graphact.tasks.local_estimate import with_local_estimate
from graphact.tasks.molene import Temperatures, read_molene
from graphact.tasks.movielens import Ratings, read_movielens
from graphact.tasks.preparation import prepared
from graphact.tasks.recommendation import FILMS, recommendation, recommendation_tasks
from graphact.tasks.scoring import loss_of, metric_of
from graphact.tasks.source_localization import source_localization, source_localization_tasks
from graphact.tasks.task import Task
from graphact.tasks.user_centering import centered_by_user

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
