"""Learning problems as data: tasks, losses and metrics, splits, and the data sets of others."""

from typing import TYPE_CHECKING

from graphact._lazy import lazy_names

if TYPE_CHECKING:
    from graphact.data.datasets.download import DataError, FileStatus, check, fetch, locate
    from graphact.data.datasets.molene import Temperatures, read_molene
    from graphact.data.datasets.movielens import Ratings, read_movielens
    from graphact.data.datasets.planetoid import Citations, read_planetoid
    from graphact.data.datasets.sources import DATASETS, DataFile
    from graphact.data.pyg import AttachGraph, GraphData
    from graphact.data.task import Task, loss_of, metric_of

__all__ = [
    "DATASETS",
    "AttachGraph",
    "Citations",
    "DataError",
    "DataFile",
    "FileStatus",
    "GraphData",
    "Ratings",
    "Task",
]
__all__ += ["Temperatures", "check", "fetch", "locate", "loss_of", "metric_of", "read_molene", "read_movielens"]
__all__ += ["read_planetoid"]

_HOMES = {
    "graphact.data.datasets.download": "DataError FileStatus check fetch locate",
    "graphact.data.datasets.molene": "Temperatures read_molene",
    "graphact.data.datasets.movielens": "Ratings read_movielens",
    "graphact.data.datasets.planetoid": "Citations read_planetoid",
    "graphact.data.datasets.sources": "DATASETS DataFile",
    "graphact.data.pyg": "AttachGraph GraphData",
    "graphact.data.task": "Task loss_of metric_of",
}
__getattr__ = lazy_names(__name__, _HOMES)
