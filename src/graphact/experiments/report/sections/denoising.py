"""Distributed regression on the Molène temperatures: figures 2c and 2d."""

from collections.abc import Sequence

from graphact.experiments.report.cells import Cell
from graphact.experiments.report.sections.facts import facts_of
from graphact.experiments.report.sections.level_sweep import level_sweep
from graphact.experiments.report.sections.order_sweep import order_sweep
from graphact.experiments.report.sections.progress import progress_over
from graphact.experiments.report.sections.section import Block, Section, by_block, file_name
from graphact.experiments.report.sections.sweep import at_levels, feature_counts

NAME = "denoising"
CONDITION, PAPER_SNR = "snr_db", 3.0
EXPLANATION = (
    "Temperatures of 32 weather stations in Brittany, one signal for each hour of January 2014, with white noise "
    "added. The stations have to remove the noise, with messages between neighbours only. The error is in kelvin.",
    "The paper's claim is about the lowest filter order, K = 1, where a station hears its neighbours alone. The "
    "baselines leave the noise in, average over stations, or use all stations at once, which no distributed method "
    "may. L.: localized. G.A.: graph-adaptive.",
)
FIGURE_2C = (
    "Signal-to-noise ratio 3 dB, the largest number of features. Mean over splits; bands reach one standard deviation "
    "to either side. Dotted: baselines."
)
FIGURE_2D = (
    "The lowest filter order. Mean over splits; bands reach one standard deviation to either side. Dotted: baselines."
)


def denoising(cells: Sequence[Cell]) -> Section:
    """The section of all cells of this experiment."""
    return Section(NAME, "Distributed regression", EXPLANATION, tuple(block_of(*block) for block in by_block(cells)))


def block_of(preset: str, protocol: str, cells: Sequence[Cell]) -> Block:
    """Figures and tables of one preset and protocol."""
    name = file_name(NAME, preset, protocol)
    usual = [cell for level, cell in at_levels(cells, CONDITION, PAPER_SNR, prefer_named=False) if level == PAPER_SNR]
    orders = order_sweep(NAME, usual, number="Figure 2c", name=name, caption=FIGURE_2C)
    at_snr = at_levels(cells, CONDITION, PAPER_SNR, prefer_named=True)
    features, order = snr_setting(cells)
    levels = level_sweep(
        NAME,
        [(snr, cell) for snr, cell in at_snr if cell.is_model and (cell.features, cell.order) == (features, order)],
        [(snr, cell) for snr, cell in at_snr if not cell.is_model and cell.order in (None, order)],
        number="Figure 2d",
        name=name,
        title="error over the noise",
        axis="Signal-to-noise ratio (dB)",
        column="{} dB",
        caption=FIGURE_2D,
    )
    return Block(
        preset=preset,
        protocol=protocol,
        headlines=orders.headlines,
        progress=progress_over([*orders.grids, *levels.grids]),
        facts=facts_of(cells),
        figures=(*orders.figures, *levels.figures),
        tables=(*orders.tables, *levels.tables, *orders.weights),
        more_tables=orders.more_tables,
    )


def snr_setting(cells: Sequence[Cell]) -> tuple[int | None, int | None]:
    """The most features and the lowest order that networks were run with at several noise levels."""
    swept = [cell for cell in cells if cell.is_model and cell.level(CONDITION, PAPER_SNR) != PAPER_SNR]
    features = next(iter(feature_counts(swept)), None)
    return features, min(
        (cell.order for cell in swept if cell.features == features and cell.order is not None), default=None
    )
