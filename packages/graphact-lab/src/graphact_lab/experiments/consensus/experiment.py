"""Finite-time consensus as an experiment: the paper's Figure 2a, and 2b, where links are lost."""

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from graphact._lazy import Imported
from graphact.training.settings import TrainingSettings
from graphact_lab.descriptions import Experiment, Measure, Variation
from graphact_lab.protocols import EVERY_METHOD, METHODS, Protocol

if TYPE_CHECKING:
    import pandas as pd

MAKE_TASKS = Imported("graphact_lab.experiments.consensus.task:consensus_tasks")
NO_LOSS = 0.0

PAPER = Protocol(
    experiment="consensus",
    preset="paper",
    name="paper",
    methods=METHODS,
    features=(32,),
    orders=(20, 25, 30, 35),
    layers=2,
    graphs=10,
    splits=10,
    loss_probabilities=(0.025, 0.05, 0.075, 0.1, 0.125, 0.15),
    loss_realizations=10,
    readout_bias=False,
    training=TrainingSettings(epochs=400, batch_size=100, learning_rate=1e-3),
)
# With a constant in the readout, which the text does not have
READOUT_BIAS = replace(PAPER, name="readout-bias", readout_bias=True)
# What a search with eight trials for every method found (benchmarks/search_protocols.py, rows in results/search)
CONVERGED = replace(
    READOUT_BIAS,
    name="converged",
    methods=EVERY_METHOD,
    bias=True,
    training=TrainingSettings(epochs=400, batch_size=100, learning_rate=1e-2, schedule="cosine"),
)
# What a search on the validation samples of seed 0 found; to be judged on other seeds
BEST = replace(
    READOUT_BIAS,
    preset="best",
    name="best",
    orders=(10,),
    later_order=2,
    preparation="by-centrality",
    training=TrainingSettings(epochs=40, batch_size=25, learning_rate=2e-2, schedule="cosine"),
)
# A minute on two CPU cores: fewer runs, shorter training at a higher rate, the most telling settings
QUICK = replace(
    READOUT_BIAS,
    preset="quick",
    name="paper",
    features=(8,),
    orders=(5, 20),
    graphs=2,
    splits=1,
    loss_probabilities=(0.05, 0.1, 0.15),
    loss_realizations=3,
    training=TrainingSettings(epochs=15, batch_size=100, learning_rate=5e-3),
)


def shown_under_losses(cells: "pd.DataFrame") -> "pd.DataFrame":
    """Return the networks with the most features at one filter order for all, at every level, and baselines.

    Of the orders at which most networks were run with lost links, it is the one with the lowest mean error on
    validation samples. Baselines that were tested with lost links stand at their levels; the best of each other kind,
    on the whole graph, at all of them.
    """
    import pandas as pd

    networks, simple = cells[cells.kind == "model"], cells[cells.kind == "baseline"]
    networks = networks[networks.features == networks.features.max()]
    lossy = networks[networks.column != NO_LOSS].groupby("order").line.nunique()
    errors = networks[networks.column == NO_LOSS].groupby("order").validation.mean()
    order = min(lossy.index, key=lambda order: (-lossy[order], errors.get(order, math.inf)), default=None)
    is_tested = simple.method.isin(simple[simple.level.notna()].method)
    whole = simple[~is_tested].sort_values("mean", kind="stable").drop_duplicates("method")
    whole = whole.assign(column=None, line=whole.line + ", no link lost")
    return pd.concat([networks[networks.order == order], whole, simple[is_tested]])


EXPERIMENT = Experiment(
    name="consensus",
    title="Finite-time consensus",
    explanation=(
        "Every node of a graph holds a random number and has to find the mean of all of them, with messages between "
        "neighbours only. A filter of order K gives a layer a receptive field of K hops.",
        "Then the trained networks are evaluated again on graphs that lost links at random. Baselines are answering "
        "zero, which is right on average, and the best linear filter, found by least squares instead of training. L.: "
        "localized. G.A.: graph-adaptive.",
    ),
    measure=Measure("rmse", "Test RMSE", 4),
    protocols=(PAPER, CONVERGED, BEST, QUICK, READOUT_BIAS),
    make_tasks=lambda protocol, _condition, seed, _data: MAKE_TASKS(
        protocol.graphs, protocol.splits, seed, **protocol.task_options
    ),
    baselines=Imported("graphact_lab.experiments.consensus.task:baselines"),
    prepared_baselines=Imported("graphact_lab.experiments.consensus.task:prepared_baselines"),
    evaluate_conditions=Imported("graphact_lab.experiments.consensus.task:under_link_loss"),
    evaluate_baselines=Imported("graphact_lab.experiments.consensus.task:baselines_under_link_loss"),
    make_tables=partial(
        Imported("graphact_lab.report.sections:sweeps"),
        usual_level=NO_LOSS,
        shown=shown_under_losses,
        exhibits=("Figure 2a", "Figure 2b"),
        axis="Probability that a link is lost",
        column="p = {}",
        is_best_told=True,
    ),
    variation=Variation("loss_probability"),
    task_options=("communities", "community_size", "p", "q"),
    usual_options={"communities": 5, "community_size": 20, "p": 0.8, "q": 0.1},
)
