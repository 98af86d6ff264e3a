"""Finite-time consensus: figures 2a and 2b."""

from collections.abc import Hashable, Sequence

from graphact.experiments.report.cells import Cell
from graphact.experiments.report.sections.facts import facts_of
from graphact.experiments.report.sections.level_sweep import level_sweep
from graphact.experiments.report.sections.order_sweep import order_sweep
from graphact.experiments.report.sections.progress import progress_over
from graphact.experiments.report.sections.section import Block, Section, by_block, file_name
from graphact.experiments.report.sections.sweep import at_levels, best_settings, everywhere

NAME = "consensus"
CONDITION, NO_LOSS = "loss_probability", 0.0
EXPLANATION = (
    "Every node of a graph holds a random number and has to find the mean of all of them, with messages between "
    "neighbours only. A filter of order K lets a layer hear nodes up to K hops away.",
    "Then the trained networks are asked again on graphs that lost links at random. The baselines are answering zero, "
    "which is right on average, and the best linear filter, found by least squares instead of training. L.: localized. "
    "G.A.: graph-adaptive.",
)
FIGURE_2A = "Mean over graphs and splits; bands reach one standard deviation to either side. Dotted: baselines."
FIGURE_2B = (
    "Each method in its best setting, the one with the lowest validation error, on graphs that lost each link with the "
    "given probability. Bands reach one standard deviation to either side. Dotted: baselines."
)


def consensus(cells: Sequence[Cell]) -> Section:
    """The section of all cells of this experiment."""
    return Section(NAME, "Finite-time consensus", EXPLANATION, tuple(block_of(*block) for block in by_block(cells)))


def block_of(preset: str, protocol: str, cells: Sequence[Cell]) -> Block:
    """Figures and tables of one preset and protocol."""
    name = file_name(NAME, preset, protocol)
    intact = [cell for level, cell in at_levels(cells, CONDITION, NO_LOSS, prefer_named=False) if level == NO_LOSS]
    orders = order_sweep(NAME, intact, number="Figure 2a", name=name, caption=FIGURE_2A)
    losses = level_sweep(
        NAME,
        best_settings(at_levels(cells, CONDITION, NO_LOSS, prefer_named=True), NO_LOSS),
        link_loss_baselines(cells),
        number="Figure 2b",
        name=name,
        title="error over lost links",
        axis="Probability that a link is lost",
        column="p = {}",
        caption=FIGURE_2B,
        baseline_label=lambda cell: cell.method if cell.condition else f"{cell.method}, no link lost",
    )
    return Block(
        preset=preset,
        protocol=protocol,
        headlines=orders.headlines,
        progress=progress_over([*orders.grids, *losses.grids]),
        facts=facts_of(cells),
        figures=(*orders.figures, *losses.figures),
        tables=(*orders.tables, *losses.tables, *orders.weights),
        more_tables=orders.more_tables,
    )


def link_loss_baselines(cells: Sequence[Cell]) -> list[tuple[Hashable, Cell]]:
    """Baselines at their probability of loss; those of the whole graph stand for every column without one."""
    simple = [cell for cell in cells if not cell.is_model]
    whole = [cell for cell in simple if not cell.condition]
    return [*everywhere(whole), *((cell.level(CONDITION, NO_LOSS), cell) for cell in simple if cell.condition)]
