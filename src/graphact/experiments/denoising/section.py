"""Distributed regression on the Molène temperatures in the report: figures 2c and 2d of the paper."""

import pandas as pd

from graphact.experiments.denoising.experiment import EXPERIMENT
from graphact.experiments.report.content import Content, at_levels, level_sweep, order_sweep

MEASURE = EXPERIMENT.measure
PAPER_SNR = 3.0


def content(cells: pd.DataFrame, name: str) -> Content:
    """The error over the filter order, and over the noise."""
    usual = at_levels(cells, PAPER_SNR, prefer_named=False)
    orders = order_sweep(
        usual[usual.column == PAPER_SNR],
        name,
        MEASURE,
        number="Figure 2c",
        caption=(
            "Signal-to-noise ratio 3 dB, the largest number of features. Mean over splits; bands reach one standard "
            "deviation to either side. Dotted: baselines."
        ),
    )
    levels = level_sweep(
        noise_sweep(at_levels(cells, PAPER_SNR, prefer_named=True)),
        name,
        MEASURE,
        number="Figure 2d",
        title="error over the noise",
        axis="Signal-to-noise ratio (dB)",
        column="{} dB",
        caption=(
            "The lowest filter order. Mean over splits; bands reach one standard deviation to either side. Dotted: "
            "baselines."
        ),
    )
    return orders + levels


def noise_sweep(cells: pd.DataFrame) -> pd.DataFrame:
    """Networks with the most features and the lowest order that were run at several noise levels, and baselines."""
    is_model = cells.kind == "model"
    swept = cells[is_model & (cells.column != PAPER_SNR)]
    swept = swept[swept.features == swept.features.max()]
    order = swept.order.min()
    networks = is_model & (cells.order == order) & cells.features.isin(swept.features)
    return cells[networks | (~is_model & (cells.order.isna() | (cells.order == order)))]
