"""Source localization in the report: Table 1 of the paper."""

import pandas as pd

from graphact.experiments.report.content import Content, comparison
from graphact.experiments.report.tables import PublishedTable
from graphact.experiments.source_localization.experiment import EXPERIMENT

# Test accuracy in percent by (activation, hops) and number of features F. None: the paper does not state the hops.
TABLE_1: PublishedTable = {
    ("relu", None): {2: (47.9, 12.1), 4: (44.9, 15.6), 8: (47.2, 15.5)},
    ("max-l", None): {2: (64.5, 8.0), 4: (69.7, 8.6), 8: (72.2, 7.7)},
    ("max-ga", 2): {2: (64.9, 7.6), 4: (69.2, 7.0), 8: (73.9, 6.8)},
    ("median-l", None): {2: (61.6, 7.4), 4: (65.1, 8.3), 8: (69.6, 7.2)},
    ("median-ga", 2): {2: (65.4, 7.5), 4: (65.6, 7.6), 8: (71.3, 7.1)},
    ("kernel-ga", 1): {2: (58.6, 9.5), 4: (57.4, 10.2), 8: (61.9, 10.7)},
}
MEASURE = EXPERIMENT.measure


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
