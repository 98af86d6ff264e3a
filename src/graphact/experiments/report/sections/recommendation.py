"""Recommendation: Table 2."""

from collections.abc import Hashable, Sequence

from graphact.experiments.report.cells import Cell
from graphact.experiments.report.paper import TABLE_2
from graphact.experiments.report.sections.comparison import Comparison, comparison_block
from graphact.experiments.report.sections.section import Section, by_block

NAME = "recommendation"
FILMS = {"toy-story": "Toy Story", "contact": "Contact", "return-of-the-jedi": "Return of the Jedi"}
EXPLANATION = (
    "MovieLens 100K: what will a user think of a film, from the user's ratings of other films? The ratings of a user "
    "are a signal on a graph of films that are rated alike. The error is in stars.",
    "The baselines need no network: a constant, the user's own mean with a constant, ridge regression, and what is "
    "filled in from similar films where networks start from that. An activation is worth its cost where its network is "
    "better than the best of them. L.: localized. G.A.: graph-adaptive.",
)


def film_of(cell: Cell) -> Hashable:
    """The column of Table 2."""
    return dict(cell.condition)["film"]


def film_label(film: Hashable) -> str:
    """The title of a film; other films go by their number or name."""
    return FILMS.get(str(film)) or f"Film {film}"


def features_and_order(cell: Cell) -> tuple[int | None, ...]:
    """What tells networks apart that predict the same film."""
    return cell.features, cell.order


def features_and_order_label(setting: tuple[int | None, ...]) -> str:
    """Features and filter order in words."""
    names = zip(("F", "K"), setting, strict=True)
    return ", ".join(f"{name} = {value}" for name, value in names if value is not None)


TABLE = Comparison(
    experiment=NAME,
    number="Table 2",
    title="recommendation",
    paper=TABLE_2,
    column=film_of,
    column_label=film_label,
    column_order=tuple(FILMS),
    setting=features_and_order,
    setting_label=features_and_order_label,
    headline_columns=slice(None),
)


def recommendation(cells: Sequence[Cell]) -> Section:
    """The section of all cells of this experiment."""
    blocks = (comparison_block(TABLE, *block) for block in by_block(cells))
    return Section(NAME, "Recommendation", EXPLANATION, tuple(blocks))
