"""Source localization: Table 1."""

from collections.abc import Hashable, Sequence

from graphact.experiments.report.cells import Cell
from graphact.experiments.report.paper import TABLE_1
from graphact.experiments.report.sections.comparison import Comparison, comparison_block
from graphact.experiments.report.sections.section import Section, by_block

NAME = "source-localization"
EXPLANATION = (
    "A diffusion starts at one node of a graph with four communities and spreads for up to 29 steps. One node, the "
    "best connected of its community, has to tell in which community it started. A guess is right once in four times.",
    "Brackets hold the number of hops of the activation. The paper prints the better of one and two hops for the "
    "graph-adaptive activations and does not state the hops of the localized ones; here every number of hops that was "
    "run has a line. L.: localized. G.A.: graph-adaptive.",
)


def features_of(cell: Cell) -> Hashable:
    """The column of Table 1; a baseline without features holds for every column."""
    return cell.features


def features_label(features: Hashable) -> str:
    """The text above a column."""
    return f"F = {features}"


def order_of(cell: Cell) -> tuple[int | None, ...]:
    """The filter order, which the paper does not state."""
    return (cell.order,)


def order_label(setting: tuple[int | None, ...]) -> str:
    """The filter order in words."""
    return "" if setting[0] is None else f"K = {setting[0]}"


TABLE = Comparison(
    experiment=NAME,
    number="Table 1",
    title="source localization",
    paper=TABLE_1,
    column=features_of,
    column_label=features_label,
    column_order=(2, 4, 8),
    setting=order_of,
    setting_label=order_label,
    headline_columns=slice(-1, None),
)


def source_localization(cells: Sequence[Cell]) -> Section:
    """The section of all cells of this experiment."""
    blocks = (comparison_block(TABLE, *block) for block in by_block(cells))
    return Section(NAME, "Source localization", EXPLANATION, tuple(blocks))
