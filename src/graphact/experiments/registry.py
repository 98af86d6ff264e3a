"""All experiments by name. Nothing here needs torch."""

from functools import cache
from pkgutil import resolve_name

from graphact._checks import check_choice
from graphact.experiments.experiment import Experiment
from graphact.experiments.protocol import Protocol

# Each has a folder of its name, with the description EXPERIMENT in experiment.py
EXPERIMENTS = ("source-localization", "consensus", "denoising", "recommendation")


@cache
def find_experiment(name: str) -> Experiment:
    """The experiment of a name."""
    check_choice("experiment", name, EXPERIMENTS)
    found: Experiment = resolve_name(f"graphact.experiments.{name.replace('-', '_')}.experiment:EXPERIMENT")
    return found


def find_protocol(
    experiment: str, preset: str = "quick", name: str | None = None, methods: tuple[str, ...] = ()
) -> Protocol:
    """The protocol of an experiment, limited to some methods where they are given."""
    return find_experiment(experiment).find_protocol(preset, name, methods)
