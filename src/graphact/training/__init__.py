"""Training: one model of any kind, or hundreds of models of one shape as one batch."""

from graphact.training.fleet import Fleet, FleetResult
from graphact.training.settings import TrainingSettings
from graphact.training.single import Fit, fit
from graphact.training.stacked import StackedGraphs

__all__ = ["Fit", "Fleet", "FleetResult", "StackedGraphs", "TrainingSettings", "fit"]
