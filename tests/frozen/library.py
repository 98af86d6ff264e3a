"""Every name of the packages that frozen values are computed with, and every keyword that may be renamed.

When modules move or are renamed, this file changes and no other in this folder.
"""
# ruff: noqa: F401

from dataclasses import fields, make_dataclass
from pathlib import Path
from types import SimpleNamespace

import graphact
import graphact_agents
from agents.learning.problems import train_centrally
from agents.replay import replay_inference
from graphact import Graph, export_onnx, functional, load, nn, save
from graphact import distributed as scaleout
from graphact import guarantees as analysis
from graphact.registry import BUILT_IN
from graphact.spec.reductions import OURS
from graphact.training import Fleet, Task, TrainingSettings, fit, loss_of, metric_of
from graphact_agents.learning import Learning, simulate_training
from graphact_lab.data.download import DataError
from graphact_lab.descriptions import find_protocol
from graphact_lab.experiments.flocking.experiment import find_settings as find_flocking
from graphact_lab.experiments.flocking.runner import run
from graphact_lab.runner import run_protocol
from graphact_lab.store import Store
from graphact_lab.tasks import locate
from support.on_agents import deploy, split


class Guarantees:
    """The public functions; bounds show the share of forms that were used as ``followed``, as they did."""

    def __getattr__(self, name):
        return getattr(analysis, name)

    def lipschitz_bound(self, module, graph):
        """The fields of a bound; on small graphs all forms are used."""
        bound = analysis.lipschitz_bound(module, graph)
        found = {item.name: getattr(bound, item.name) for item in fields(bound) if item.name != "uses_forms"}
        return make_dataclass("Bound", [*found, "followed"])(**found, followed=float(bound.uses_forms))


ACTIVATIONS = tuple(BUILT_IN)  # and not those that other tests register
OPERATIONS = {operation.name: operation for operation in OURS}
GUARANTEES = Guarantees()
GUARANTEE_NAMES = tuple(analysis.__all__)
NORMALIZATIONS = ("spectral", "symmetric", "gcn", "random_walk", "laplacian")
STRATEGIES = ("stacked", "loop")


agents = SimpleNamespace(
    **{name: getattr(graphact_agents, name) for name in graphact_agents.__all__} | {"deploy": deploy, "split": split}
)


def estimator(name, *arguments, **options):
    """An estimator by the name of its class; they need scikit-learn, which nothing else does."""
    from graphact import estimators

    return getattr(estimators, name)(*arguments, **options)


def make_fleet(models, tasks, seeds, strategy):
    """A fleet that uses one strategy."""
    return Fleet(models, tasks, seeds, strategy=strategy)


def strategy_of(fleet):
    """The strategy that a fleet uses."""
    return fleet.strategy


def owners_in_blocks(graph, parts):
    """The process of each node, consecutive nodes together."""
    owner, _ = scaleout.assign_nodes(graph, parts, "blocks")
    return owner


def drawn_graph(sizes, p, q, generator):
    """A random graph of communities."""
    return Graph.stochastic_block_model(sizes, p, q, generator=generator)


def has_data(dataset):
    """Return whether the files of a data set are there; nothing is downloaded."""
    try:
        locate(dataset, download=False)
    except DataError:
        return False
    return True


def run_experiment(name, folder, *, preset="smoke", protocol=None, methods=(), changes=None):
    """The rows of an experiment, by the functions that the command ``run`` calls."""
    store = Store(Path(folder))
    store.create("frozen")
    run_protocol(find_protocol(name, preset, protocol, tuple(methods), changes), store, seed=0)
    return store.rows()


def run_flight(folder, *, methods=(), changes=None):
    """The rows of flocking, likewise."""
    store = Store(Path(folder))
    store.create("frozen")
    run(find_flocking("smoke", tuple(methods), changes), store, seed=0)
    return store.rows()
