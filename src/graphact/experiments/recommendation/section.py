"""Recommendation in the report: Table 2 of the paper."""

import pandas as pd

from graphact.experiments.recommendation.experiment import EXPERIMENT
from graphact.experiments.report.content import Content, comparison
from graphact.experiments.report.tables import PublishedTable

FILMS = {"toy-story": "Toy Story", "contact": "Contact", "return-of-the-jedi": "Return of the Jedi"}
# Test RMSE by (activation, hops) and film
TABLE_2: PublishedTable = {
    variant: dict(zip(FILMS, line, strict=True))
    for variant, line in {
        ("relu", None): ((0.976, 0.158), (1.022, 0.042), (1.018, 0.177)),
        ("max-l", 1): ((0.999, 0.166), (1.028, 0.029), (1.001, 0.162)),
        ("max-ga", 1): ((0.968, 0.168), (1.018, 0.038), (0.998, 0.172)),
        ("median-l", 1): ((0.987, 0.156), (1.039, 0.055), (1.020, 0.177)),
        ("median-ga", 1): ((0.989, 0.160), (1.020, 0.038), (1.021, 0.181)),
        ("kernel-ga", 1): ((0.977, 0.152), (1.021, 0.037), (1.014, 0.177)),
    }.items()
}
MEASURE = EXPERIMENT.measure


def content(cells: pd.DataFrame, name: str) -> Content:
    """Table 2 for each number of features and filter order; other films go by their number or name."""
    return comparison(
        cells,
        name,
        MEASURE,
        number="Table 2",
        title="recommendation",
        paper=TABLE_2,
        column="level",
        column_label=lambda film: FILMS.get(film) or f"Film {film}",
        column_order=tuple(FILMS),
        settings={"features": "F", "order": "K"},
    )
