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


def shown_under_losses(at_levels: "pd.DataFrame", cells: "pd.DataFrame") -> "list[pd.DataFrame]":
    """The networks of each method at one filter order for all, at every level, and baselines.

    Of the orders at which every method was run with lost links, it is the one with the lowest mean error; where there
    is no such order, each method has its own. Other settings (hops, features) are the best of the method. Errors are
    those on validation samples without loss; where they are not known for all, on test samples there; where those are
    not known either, the mean test error over the levels. Baselines that were tested with lost links stand at their
    levels; the best of each other kind, on the whole graph, at all of them.
    """
    methods: list[dict[int, tuple[float, list[int]]]] = []  # by order, the error and the cells of the best setting
    for _, method in at_levels[at_levels.kind == "model"].groupby("method", sort=False):
        keys = [method[key].map(lambda value: value or 0) for key in ("order", "hops", "features")]
        settings = [setting for _, setting in method.groupby(keys) if (setting.column != NO_LOSS).any()]
        criteria = [
            [setting[setting.column == NO_LOSS]["validation"].mean() for setting in settings],
            [setting[setting.column == NO_LOSS]["mean"].mean() for setting in settings],
            [setting["mean"].fillna(math.inf).mean() for setting in settings],
        ]
        errors = next(values for values in criteria if not any(map(math.isnan, values)))
        best: dict[int, tuple[float, list[int]]] = {}
        for error, setting in zip(errors, settings, strict=True):
            order = int(setting.order.iloc[0] or 0)
            best[order] = min(
                best.get(order, (math.inf, [])), (error, setting.index.tolist()), key=lambda pair: pair[0]
            )
        methods += [best] if best else []
    common = set.intersection(*map(set, methods)) if methods else set()
    if common:
        chosen = min(sorted(common), key=lambda order: sum(best[order][0] for best in methods))
        methods = [{chosen: best[chosen]} for best in methods]
    shown = [index for best in methods for index in min(best.values(), key=lambda pair: pair[0])[1]]
    simple = cells[cells.kind == "baseline"]
    is_tested = simple.method.isin(simple[simple.level.notna()].method)
    tested, others = simple[is_tested], simple[~is_tested]
    whole = others.sort_values("mean", kind="stable").drop_duplicates("method")
    whole = whole.assign(column=None, line=whole.line + ", no link lost")
    at_level = tested.assign(column=tested.level.astype(float).fillna(NO_LOSS).astype(object))
    return [at_levels.loc[shown].astype({"column": object}), whole, at_level]


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
    content=partial(
        Imported("graphact_lab.report.content:sweeps"),
        usual_level=NO_LOSS,
        shown=shown_under_losses,
        orders=(
            "Figure 2a",
            "Mean over graphs and splits.",
        ),
        levels=(
            "Figure 2b",
            "All methods at one filter order, the one with the lowest validation error on average, on graphs that lost "
            "each link with the given probability.",
        ),
        title="error over lost links",
        axis="Probability that a link is lost",
        column="p = {}",
        headline="best",
    ),
    variation=Variation("loss_probability", retrained=False),
    needed=("features", "order"),
    task_options=("communities", "community_size", "p", "q"),
    usual_options={"communities": 5, "community_size": 20, "p": 0.8, "q": 0.1},
)
