"""Baselines of a signal estimator: simple rules and least squares, for the same readings."""

import warnings
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import Ridge
from sklearn.utils.validation import check_is_fitted

from graphact.estimators.inputs import Array
from graphact.estimators.signal_estimators import HELD_OUT_SEED, SignalRegressor
from graphact.estimators.signal_inputs import check_same_labels, fit_scale, windows

TRAINING_SEED = HELD_OUT_SEED + 1  # of the corruption that least squares learns from
RIDGE = 1e-3  # of the mean square of a feature


def compare_baselines(
    model: SignalRegressor, train: Any, test: Any, y_train: Any = None, y_test: Any = None, *, graph: Any = None
) -> dict[str, float]:
    """Return the root mean square error of a fitted model and of what needs no network, in the units of the targets.

    All get the same readings, which are corrupted as in training, one by one; an imputer is measured where readings
    were hidden. Least squares learns from another draw than that of the test. With ``y_test`` the readings of the test
    are used unchanged: ``y_test=test`` tells what healthy sensors lose.

    - ``"reading as it is"``: the present reading of a node, or the mean of all where it is missing.
    - ``"neighbours' mean"`` and ``"neighbours' median"``: of the present readings of the neighbours, without its own.
    - ``"each node alone"``: least squares on a node's own window.
    - ``"linear least squares"``: least squares on the windows of all nodes that the rounds of the model reach.
    - ``"network"``: the model.

    Args:
        model: a fitted estimator, with targets of one number at every node.
        train: the readings that it was fitted on, for least squares.
        test: readings of later times.
        y_train: targets, where it was fitted on some.
        y_test: targets of the test, for readings that are not to be corrupted.
        graph: the graph, for a model that was loaded from a file.

    Example:
        >>> import numpy as np, graphact
        >>> from graphact.estimators import SignalRegressor, compare_baselines
        >>> graph = graphact.Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]]).normalize("symmetric")
        >>> readings = np.sin(np.arange(300) / 10)[:, None] + np.random.default_rng(0).normal(size=(300, 3)) / 10
        >>> model = SignalRegressor(task="denoise", epochs=5, random_state=0).fit(readings[:200], graph=graph)
        >>> list(compare_baselines(model, readings[:200], readings[200:]))[-2:]
        ['linear least squares', 'network']
    """
    if not isinstance(model, SignalRegressor):
        raise TypeError(f"model must be a fitted SignalRegressor, got {type(model).__name__}")
    check_is_fitted(model)
    if model.target_node_ is not None or model.n_outputs_ != 1 or model.n_channels_ != 1:
        raise ValueError("model must have one feature and one target at every node to be compared with simple rules")
    if y_train is not None and y_test is None:
        raise ValueError("y_test must be given with y_train, got None")
    (fit_x, fit_y, learned), (x, y, known) = (
        spoil(model, *each) for each in ((train, y_train, TRAINING_SEED), (test, y_test, HELD_OUT_SEED))
    )
    for name, targets in (("train", learned), ("test", known)):
        if not targets.any():
            raise ValueError(f"{name} must hold a target to compare with, got none")
    ready = model._fitted_graph(graph, x.shape[1])
    average = float(np.nanmean(fit_x))
    newest = np.where(np.isfinite(x), x, average)
    edges = ready.to_dense().cpu().numpy() != 0
    reached = np.linalg.matrix_power((edges | np.eye(len(edges), dtype=bool)).astype(float), model.rounds) > 0
    np.fill_diagonal(edges, False)
    found = {
        "reading as it is": newest,
        "neighbours' mean": over_neighbors(np.nanmean, x, edges, average),
        "neighbours' median": over_neighbors(np.nanmedian, x, edges, average),
        "each node alone": least_squares(model, fit_x, fit_y, x, np.eye(len(edges), dtype=bool)),
        "linear least squares": least_squares(model, fit_x, fit_y, x, reached),
        "network": model._outputs_of(x[..., np.newaxis], ready)[..., 0],
    }
    return {name: float(np.sqrt(np.mean((answer - y)[known] ** 2))) for name, answer in found.items()}


def spoil(model: SignalRegressor, readings: Any, y: Any, seed: int) -> tuple[Array, Array, Array]:
    """Return the inputs and the targets ``(T, N)`` of a task, and which targets count."""
    clean = model._readings(readings, reset=False)
    check_same_labels(readings, y)
    inputs, targets, known = (part[..., 0] for part in model._scored(clean, y, seed))
    return inputs, targets, known


def over_neighbors(function: Any, x: Array, edges: Array, otherwise: float) -> Array:
    """Return a function of the present readings of the neighbours; a number where there are none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of neighbours without a reading
        found = np.stack([function(x[:, row], axis=1) for row in edges], axis=1)
    return np.where(np.isnan(found), otherwise, found)


def least_squares(model: SignalRegressor, fit_x: Array, fit_y: Array, x: Array, reached: Array) -> Array:
    """Return the answers of a linear map for each node, of the windows of those that it reaches."""
    scale = fit_scale("train", fit_x[..., np.newaxis], model.scaling == "node")

    def columns(values: Array) -> Array:
        scaled = torch.from_numpy((values[..., np.newaxis] - scale.mean) / scale.std)
        past = windows(scaled, torch.arange(len(values)), model.window).numpy()
        return np.concatenate([np.nan_to_num(past), np.isnan(past)], axis=-1)

    learn, answer, out = columns(fit_x), columns(x), np.empty(x.shape)
    for node, others in enumerate(reached):
        known = np.isfinite(fit_y[:, node])
        if not known.any():  # of a sensor that says nothing
            out[:, node] = np.nanmean(fit_y)
            continue
        a, b = (part[:, others].reshape(len(part), -1) for part in (learn[known], answer))
        out[:, node] = Ridge(RIDGE * len(a)).fit(a, fit_y[known, node]).predict(b)
    return out
