"""Finite-time consensus in the report: figures 2a and 2b of the paper."""

import math

import pandas as pd

from graphact.experiments.consensus.experiment import EXPERIMENT
from graphact.experiments.report.content import Content, at_levels, level_sweep, order_sweep

MEASURE = EXPERIMENT.measure
NO_LOSS = 0.0


def content(cells: pd.DataFrame, name: str) -> Content:
    """The error over the filter order, and over the share of links that are lost."""
    intact = at_levels(cells, NO_LOSS, prefer_named=False)
    orders = order_sweep(
        intact[intact.column == NO_LOSS],
        name,
        MEASURE,
        number="Figure 2a",
        caption="Mean over graphs and splits; bands reach one standard deviation to either side. Dotted: baselines.",
    )
    networks = best_settings(at_levels(cells, NO_LOSS, prefer_named=True))
    losses = level_sweep(
        pd.concat([networks.astype({"column": object}), baselines(cells)]),
        name,
        MEASURE,
        number="Figure 2b",
        title="error over lost links",
        axis="Probability that a link is lost",
        column="p = {}",
        caption=(
            "Each method in its best setting, the one with the lowest validation error, on graphs that lost each link "
            "with the given probability. Bands reach one standard deviation to either side. Dotted: baselines."
        ),
    )
    return orders + losses


def best_settings(cells: pd.DataFrame) -> pd.DataFrame:
    """The networks of each method's best setting (hops, features and order), at every level.

    Of the settings that were run with lost links, the best has the lowest validation error without loss; where that is
    not known for all of them, the lowest test error there; where that is not known either, the lowest mean test error
    over the levels.
    """
    chosen = []
    for _, method in cells[cells.kind == "model"].groupby("method", sort=False):
        keys = [method[key].map(lambda value: value or 0) for key in ("hops", "features", "order")]
        settings = [setting for _, setting in method.groupby(keys) if (setting.column != NO_LOSS).any()]
        criteria = [
            [setting[setting.column == NO_LOSS]["validation"].mean() for setting in settings],
            [setting[setting.column == NO_LOSS]["mean"].mean() for setting in settings],
            [setting["mean"].fillna(math.inf).mean() for setting in settings],
        ]
        errors = next(values for values in criteria if not any(map(math.isnan, values)))
        chosen += [settings[errors.index(min(errors))]] if settings else []
    return pd.concat(chosen) if chosen else cells[:0]


def baselines(cells: pd.DataFrame) -> pd.DataFrame:
    """Baselines at their probability of loss; the best of each kind on the whole graph for every other column."""
    simple = cells[cells.kind == "baseline"]
    lossy = simple[simple.level.notna()]
    whole = simple[simple.level.isna()].sort_values("mean", kind="stable").drop_duplicates("method")
    return pd.concat([whole.assign(column=None, line=whole.line + ", no link lost"), lossy.assign(column=lossy.level)])
