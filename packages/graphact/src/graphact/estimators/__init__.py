"""Networks with the conventions of scikit-learn: fit, predict, score, clone.

Needs the extra ``estimators``. Those of nodes and of graphs take the graph with every call and predict on any; those of
signals keep the graph that they were fitted on, and take another one of the same nodes.
"""

import os
from pathlib import Path
from typing import get_args

from graphact._extras import require

require("graphact.estimators needs", "sklearn")  # named before a module asks for it

from graphact.estimators.estimator_file import read  # noqa: E402
from graphact.estimators.graph_classifier import GraphClassifier  # noqa: E402
from graphact.estimators.graph_estimator import GraphEstimator as GraphEstimator  # noqa: E402
from graphact.estimators.node_estimators import NodeClassifier, NodeRegressor  # noqa: E402
from graphact.estimators.on_nodes import OnNodes  # noqa: E402
from graphact.estimators.signal_baselines import compare_baselines  # noqa: E402
from graphact.estimators.signal_estimators import SignalClassifier, SignalRegressor  # noqa: E402
from graphact.estimators.signal_estimators import SignalEstimator as SignalEstimator  # noqa: E402

__all__ = [
    "GraphClassifier",
    "NodeClassifier",
    "NodeRegressor",
    "OnNodes",
    "SignalClassifier",
    "SignalRegressor",
    "compare_baselines",
    "load",
]

Estimator = NodeClassifier | NodeRegressor | GraphClassifier | SignalRegressor | SignalClassifier


def load(path: str | os.PathLike[str]) -> Estimator:
    """Read an estimator that :meth:`save` wrote.

    Raises:
        ValueError: the file is damaged, or holds something else.
    """
    found: Estimator = read(Path(path), get_args(Estimator))
    return found
