"""Source localization in the report: Table 1 of the paper."""

import pandas as pd

from graphact.experiments.report.content import comparison
from graphact.experiments.report.section import Content, Section
from graphact.experiments.report.tables import Measure, PublishedTable

# Test accuracy in percent by (activation, hops) and number of features F. None: the paper does not state the hops.
TABLE_1: PublishedTable = {
    ("relu", None): {2: (47.9, 12.1), 4: (44.9, 15.6), 8: (47.2, 15.5)},
    ("max-l", None): {2: (64.5, 8.0), 4: (69.7, 8.6), 8: (72.2, 7.7)},
    ("max-ga", 2): {2: (64.9, 7.6), 4: (69.2, 7.0), 8: (73.9, 6.8)},
    ("median-l", None): {2: (61.6, 7.4), 4: (65.1, 8.3), 8: (69.6, 7.2)},
    ("median-ga", 2): {2: (65.4, 7.5), 4: (65.6, 7.6), 8: (71.3, 7.1)},
    ("kernel-ga", 1): {2: (58.6, 9.5), 4: (57.4, 10.2), 8: (61.9, 10.7)},
}
MEASURE = Measure("accuracy", "Test accuracy (%)", 1, higher_is_better=True, unit="\N{NO-BREAK SPACE}%")


def content(cells: pd.DataFrame, name: str) -> Content:
    """Table 1 for each filter order, which the paper does not state; its last column is the headline."""
    return comparison(
        cells,
        name,
        MEASURE,
        number="Table 1",
        title="source localization",
        paper=TABLE_1,
        column="features",
        column_label="F = {}".format,
        column_order=(2, 4, 8),
        settings={"order": "K"},
        headlines=slice(-1, None),
    )


SECTION = Section(
    title="Source localization",
    explanation=(
        "A diffusion starts at one node of a graph with four communities and spreads for up to 29 steps. One node, the "
        "best connected of its community, has to tell in which community it started. A guess is right once in four "
        "times.",
        "Brackets hold the number of hops of the activation. The paper prints the better of one and two hops for the "
        "graph-adaptive activations and does not state the hops of the localized ones; here every number of hops that "
        "was run has a line. L.: localized. G.A.: graph-adaptive.",
    ),
    measure=MEASURE,
    content=content,
    needed=("features",),
)
