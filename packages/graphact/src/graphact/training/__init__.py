"""Training: one model of any kind, or hundreds of models of one shape as one batch."""

from typing import TYPE_CHECKING

from graphact._lazy import lazy_names

if TYPE_CHECKING:
    from graphact.training.fleet import Fleet, FleetResult
    from graphact.training.settings import TrainingSettings
    from graphact.training.single import Fit, fit
    from graphact.training.stacked import StackedGraphs
    from graphact.training.task import Task, loss_of, metric_of

__all__ = ["Fit", "Fleet", "FleetResult", "StackedGraphs", "Task", "TrainingSettings", "fit", "loss_of", "metric_of"]

# settings need no torch: protocols are listed without it
_HOMES = {
    "graphact.training.fleet": "Fleet FleetResult",
    "graphact.training.settings": "TrainingSettings",
    "graphact.training.single": "Fit fit",
    "graphact.training.stacked": "StackedGraphs",
    "graphact.training.task": "Task loss_of metric_of",
}
__getattr__ = lazy_names(__name__, _HOMES)
