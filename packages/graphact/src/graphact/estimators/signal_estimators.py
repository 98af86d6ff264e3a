"""Estimators of signals on one graph: readings of sensors over time, in the units of their user."""

import copy
import warnings
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, Self

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.base import ClassifierMixin, RegressorMixin, is_classifier
from sklearn.utils import column_or_1d
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from graphact._checks import check_choice, check_integer, check_keywords, check_number, check_probability
from graphact.estimators.graph_estimator import GraphEstimator
from graphact.estimators.inputs import Array, as_array, as_graph, check_nodes, encode_classes, score_of
from graphact.estimators.node_estimators import MISSING
from graphact.estimators.signal_inputs import (
    MIN_TIMES,
    MISSING_POLICIES,
    Scale,
    check_columns,
    check_readings,
    check_same_labels,
    check_times,
    corrupt,
    find_column,
    find_node,
    fit_scale,
    known_labels,
    names_of_columns,
    report_columns,
    windows,
)
from graphact.functional.adaptive_filter import BankFunction, check_functions
from graphact.graph.advice import is_networkx
from graphact.nn import GCNN, ScaledNetwork
from graphact.nn.lookup import Activation

TASKS = ("denoise", "impute", "forecast")
SCALINGS = ("global", "node")
HELD_OUT_SEED = 0  # of the corruption of held-out readings, the same in every epoch
TIMES_AT_ONCE = 1024
CORRUPTION = {"denoise": (0.2, 0.05, 0.05), "impute": (0.0, 0.0, 0.2)}
"""Noise, outliers and hidden readings that a task is trained with, where they are None; 0 in other tasks."""


@check_keywords
@dataclass(eq=False, repr=False)
class SignalEstimator(GraphEstimator):
    """Base of estimators whose samples are times, at each of which every node of one graph has a reading."""

    rounds: int = 2
    _: KW_ONLY
    task: Literal["denoise", "impute", "forecast"] | None = None
    horizon: int = 1
    window: int = 1
    target_node: int | str | None = None
    missing: Literal["mask", "refuse"] = "mask"
    scaling: Literal["global", "node"] = "global"
    noise: float | None = None
    outliers: float | None = None
    hide: float | None = None
    width: int = 16
    bank: Literal["linear", "adaptive"] = "adaptive"
    ops: Sequence[BankFunction] = ("median",)
    activation: Activation = "gelu"
    epochs: int = 100
    batch_size: int = 32
    early_stopping: bool = True
    validation_fraction: float = 0.15

    hidden_node_ = None  # the number of the node whose column is predicted from the others

    # The network

    def _build(self, in_features: int, out_features: int) -> nn.Module:
        """The network with its scaling: as many layers of order 1 as the rounds pay for."""
        mask = check_choice("missing", self.missing, MISSING_POLICIES) == "mask"
        nodes = list(self.nodes_) if check_choice("scaling", self.scaling, SCALINGS) == "node" else None
        rounds, width = (check_integer(name, getattr(self, name), minimum=1) for name in ("rounds", "width"))
        options: dict[str, Any] = {"order": 1, "activation": self.activation, "bank": self.bank}
        options |= {"bias": True, "residual": True, "normalize": self.normalize}
        options |= {"ops": list(self.ops)} if self.bank == "adaptive" else {}
        cost = sum(layer.exchanges for layer in GCNN([1, 1], **options).layers())
        if rounds % cost:
            raise ValueError(
                f"rounds must be a multiple of {cost}, those of a layer with {self.activation!r}, got {rounds}"
            )
        features = [self.window * in_features * (2 if mask else 1), *[width] * (rounds // cost)]
        network = GCNN(features, out_features=out_features, **options)
        scaled = None if isinstance(self, ClassifierMixin) else out_features
        options = {"out_features": scaled, "window": self.window, "mask": mask, "nodes": nodes}
        return ScaledNetwork(network, in_features, **options).to(self.device)

    def _describe(self) -> dict[str, Any]:
        """The entries of a model file, so that agents read the file of the estimator."""
        from graphact.files import describe_model

        assert isinstance(self.model_, ScaledNetwork)
        return describe_model(self.model_)

    # Inputs

    def _readings(self, X: Any, *, reset: bool) -> Array:  # noqa: N803
        """Readings ``(T, N, F)`` in float64."""
        check_columns("X", X)
        check_times("X", X, equal_steps=self.task == "forecast" or self.window > 1)
        policy = check_choice("missing", self.missing, MISSING_POLICIES)
        options: dict[str, Any] = {"dtype": np.float64, "allow_nd": True, "ensure_all_finite": False}
        options["ensure_min_samples"] = MIN_TIMES if reset else 1
        given = as_array(X) if isinstance(X, Tensor | np.ma.MaskedArray) else X
        array = as_array(X)
        if array.ndim < 2 and not hasattr(X, "tocoo"):  # scikit-learn refuses a sparse matrix
            need = "X must have the shape (times, nodes)"
            raise ValueError(f"{need}, got {array.shape}. Reshape your data: X.reshape(-1, 1)")
        if array.dtype.kind == "c":
            raise ValueError(f"Complex data not supported: X must hold real numbers, got {array.dtype}")
        values = validate_data(self, given, reset=reset, **options)
        values = np.ascontiguousarray(check_readings("X", values, policy))
        names, numbers = names_of_columns(X, values.shape[1]), names_of_columns(None, values.shape[1])
        if reset:
            self.nodes_ = names
            self.n_channels_ = values.shape[2]
        elif values.shape[2] != self.n_channels_:
            raise ValueError(f"X must have {self.n_channels_} features at each node, got {values.shape[2]}")
        is_named = self.nodes_ != numbers or sorted(names) == sorted(numbers)
        if is_named and not hasattr(self, "feature_names_in_") and names not in (self.nodes_, numbers):
            raise ValueError(
                f"X must have the columns {', '.join(self.nodes_)[:60]} in this order, as in fit, got "
                f"{', '.join(names)[:60]}"
            )
        return values

    def _graph_of_nodes(self, graph: Any, num_nodes: int) -> Any:
        """The graph of a call, which must have the nodes of the readings."""
        names = [str(node) for node in graph.nodes] if is_networkx(graph) else self.nodes_
        if names != self.nodes_ and sorted(names) == sorted(self.nodes_):
            found, wanted = next(pair for pair in zip(names, self.nodes_, strict=True) if pair[0] != pair[1])
            raise ValueError(
                f"graph must list its nodes in the order of the columns of X, got {found!r} for {wanted!r}: add them "
                "in this order before the edges, graph.add_nodes_from(...)"
            )
        graph = as_graph(graph, self.normalize)
        check_nodes(graph, num_nodes, "column", "; columns are in the order of the nodes")
        return self._graph(torch.zeros(num_nodes, 1), graph).to(self.device)

    def _check_settings(self) -> None:
        check_integer("window", self.window, minimum=1)
        if self.task is not None:
            check_choice("task", self.task, TASKS)
        if self.task == "forecast":
            check_integer("horizon", self.horizon, minimum=1)
        elif self.horizon != 1:
            raise ValueError(
                f"horizon must be 1 unless task='forecast', which alone uses it, got {self.horizon}; a y of your own "
                "holds in row t what is asked for at time t"
            )
        if self.early_stopping and not 0 < check_number("validation_fraction", self.validation_fraction) < 1:
            raise ValueError(f"validation_fraction must lie between 0 and 1, got {self.validation_fraction}")
        if self.bank == "adaptive":
            check_functions(self.ops)
        if self.missing == "refuse" and self.window > 1:
            raise ValueError("missing must be 'mask' for a window: the first times have no past, which is missing")

    def _corruption(self) -> tuple[float, float, float]:
        """Shares of noise, outliers and hidden readings in training."""
        given = zip((self.noise, self.outliers, self.hide), CORRUPTION.get(str(self.task), (0.0,) * 3), strict=True)
        noise, outliers, hide = (default if value is None else value for value, default in given)
        if not 0 <= check_number("noise", noise) < np.inf:
            raise ValueError(f"noise must be a number of standard deviations, at least 0, got {noise}")
        if self.missing == "refuse":
            if self.hide:
                raise ValueError("hide must be 0 with missing='refuse', which has no feature for a hidden reading")
            hide = 0.0
        return float(noise), check_probability("outliers", outliers), check_probability("hide", hide)

    @property
    def _shift(self) -> int:
        """The number of times from readings to their target."""
        return self.horizon if self.task == "forecast" else 0

    def _split(self, times: int) -> tuple[Array, Array]:
        """The times to learn from and, with early stopping, the last ones; none of the first reaches into these."""
        usable = times - self._shift
        least = MIN_TIMES + 2 * bool(self.early_stopping) + self._shift
        if times < least:
            raise ValueError(f"X must hold at least {least} times to learn from, got {times}")
        if not self.early_stopping:
            return np.arange(usable), np.array([], dtype=np.int64)
        held, gap = round(self.validation_fraction * usable), self.window - 1 + self._shift
        learned = usable - held - gap
        if held < 1 or learned < MIN_TIMES:
            raise ValueError(
                f"X must hold more times: of {times}, {max(held, 0)} are held out to stop, and {gap} between them and "
                f"the training part belong to the window and the horizon; change validation_fraction, got "
                f"{self.validation_fraction}, or set early_stopping=False"
            )
        return np.arange(learned), np.arange(usable - held, usable)

    # Training

    def _learn(self, X: Any, y: Any, graph: Any) -> Self:  # noqa: N803
        """Fit scaling and network on the training part."""
        self._check_settings()
        if y is not None and self.task is not None:
            raise ValueError(f"y must be None for task={self.task!r}, whose targets are readings; or leave task out")
        if y is None and self.task is None:
            raise ValueError(
                f"requires y to be passed, but the target y is None; without y, task= must be one of {', '.join(TASKS)}"
            )
        if hasattr(X, "columns") and len(X) == 0:
            raise ValueError("X must hold times to learn from, got a table without rows: [:-168] leaves none of 168")
        readings = self._readings(X, reset=True)
        column = y if isinstance(y, str) else None
        y = y if column is None else find_column(X, column)
        check_same_labels(X, y)
        self.has_graph_ = graph is not None
        self.graph_ = self._graph_of_nodes(graph, readings.shape[1])
        if graph is None or (self.graph_.num_edges == 0 and readings.shape[1] > 1):
            what = MISSING if graph is None else "graph has no edges, and every node is on its own"
            warnings.warn(f"{type(self).__name__}.fit: {what}", stacklevel=4)
        target_node = column if self.target_node is None else self.target_node
        self.target_node_ = None if target_node is None else find_node(target_node, self.nodes_)
        self.hidden_node_ = None if column is None else self._node_to_hide(column)
        train, held_out = self._split(len(readings))
        last = int(train[-1]) + 1
        report_columns("X", readings[:last], self.nodes_, self.scaling == "node")
        inputs = self._hide(readings)
        scale = fit_scale("X", inputs[:last], self.scaling == "node")
        scaled = scale.apply(inputs).to(self.device)
        targets, loss_of, out_scale = self._prepare_targets(readings, y, last)
        is_known = targets.isfinite() if targets.is_floating_point() else targets >= 0
        for times, part in ((train, "training"), (held_out, "held-out")):
            if len(times) and not is_known[torch.as_tensor(times)].any():
                name, what = "X" if y is None else "y", "class" if is_classifier(self) else "number"
                raise ValueError(f"{name} must hold a {what} in the {part} part, got NaN alone")
        corruption = self._corruption()

        def inputs_at(times: Array, generator: torch.Generator | None = None) -> Tensor:
            return corrupt(windows(scaled, times, self.window), *corruption, generator, self.window)

        held_out_inputs = inputs_at(held_out, torch.Generator().manual_seed(HELD_OUT_SEED))

        def loss(model: nn.Module, times: Array) -> Tensor:  # the model scales nothing yet
            outputs = model(inputs_at(times) if model.training else held_out_inputs, self.graph_)
            outputs = outputs if self.target_node_ is None else outputs[:, self.target_node_]
            return loss_of(outputs, targets[torch.as_tensor(times)])

        self._train(loss, train, held_out=held_out, batch_size=self.batch_size, schedule="cosine")
        assert isinstance(self.model_, ScaledNetwork)
        self.model_.input.set(*scale)
        if self.model_.output is not None:
            self.model_.output.set(*out_scale)
        return self

    def _node_to_hide(self, column: str) -> int:
        """The number of the node whose own readings are the targets, and are hidden from the inputs."""
        if self.missing == "refuse":
            raise ValueError(
                f"missing must be 'mask' to predict the column {column!r}, which is hidden from the inputs"
            )
        node = find_node(column, self.nodes_)
        if node != self.target_node_:
            raise ValueError(f"target_node must be {column!r}, as y, or left out, got {self.target_node!r}")
        return node

    def _hide(self, readings: Array) -> Array:
        """Readings without those of the node whose column is predicted from the others."""
        if self.hidden_node_ is None:
            return readings
        others = readings.copy()
        others[:, self.hidden_node_] = np.nan
        return others

    def _given_targets(self, readings: Array, y: Any, max_dims: int) -> tuple[Array, Array]:
        """The targets of a user, which are float64 unless they are classes, and where they are known."""
        (times, nodes), node = readings.shape[:2], self.target_node_
        values, known = known_labels(y)
        if not is_classifier(self) and values.dtype.kind in "cmMSU":
            raise ValueError(f"y must hold real numbers, got {values.dtype}")
        if values.ndim == 2 and values.shape[1] == 1 and node is not None:
            values, known = column_or_1d(values, warn=True), known[:, 0]
        if node is not None and values.shape != (times,):
            raise ValueError(f"y must have the shape ({times},) for target_node={node}, got {values.shape}")
        if node is None and values.shape == (times,):
            raise ValueError(
                f"y has one value for each time: target_node= must say which of the {nodes} nodes it belongs to"
            )
        if node is None and (values.shape[:2] != (times, nodes) or values.ndim > max_dims):
            raise ValueError(f"y must have the shape ({times}, {nodes}), as X, got {values.shape}")
        if not is_classifier(self):
            try:
                values = np.where(known, values, np.nan).astype(np.float64)
            except (TypeError, ValueError) as error:
                raise ValueError(f"y must hold real numbers: {error}") from None
        bad = known & np.isinf(values) if values.dtype.kind == "f" else np.zeros(values.shape, bool)
        bad |= (self.missing == "refuse") & ~known
        if bad.any():
            at = tuple(np.argwhere(bad)[0])
            what, found = "classes" if is_classifier(self) else "finite numbers", "infinity" if known[at] else "NaN"
            raise ValueError(f"y must hold {what}, got {found} at time {at[0]}")
        return values, known

    def _prepare_targets(self, readings: Array, y: Any, last: int) -> tuple[Tensor, Any, Scale]:
        """Targets of all times, the loss of outputs, and the scale of outputs; ``last`` ends the training part."""
        raise NotImplementedError

    # Answers

    def _corrupt(self, readings: Array, seed: int = HELD_OUT_SEED) -> Array:
        """Readings corrupted one by one with the shares of training, drawn with a fixed seed."""
        mean, std = (getattr(self.model_.input, name).double().cpu() for name in ("mean", "std"))
        generator = torch.Generator().manual_seed(seed)
        scaled = corrupt((torch.tensor(readings) - mean) / std, *self._corruption(), generator)
        return np.asarray((scaled * std + mean).numpy())

    def _outputs(self, X: Any, graph: Any) -> Array:  # noqa: N803
        check_is_fitted(self)
        return self._outputs_of(self._readings(X, reset=False), graph)

    def _outputs_of(self, readings: Array, graph: Any) -> Array:
        """Outputs ``(T, N, O)``, or ``(T, O)`` at the target node, for readings ``(T, N, F)``."""
        ready = self._fitted_graph(graph, readings.shape[1])
        x = torch.tensor(self._hide(readings), device=self.device)
        times = torch.arange(len(readings)).split(TIMES_AT_ONCE)
        model, wide = copy.deepcopy(self.model_).double(), ready.to(dtype=torch.float64)
        with torch.no_grad():
            parts = [model(windows(x, some, self.window), wide).cpu() for some in times]
        outputs: Array = torch.cat(parts).numpy()
        return outputs if self.target_node_ is None else outputs[:, self.target_node_]

    def _fitted_graph(self, graph: Any, num_nodes: int) -> Any:
        if graph is None and hasattr(self, "graph_"):
            return self.graph_
        if graph is None and self.has_graph_:
            raise ValueError("graph must be given: the file of an estimator holds no graph")
        return self._graph_of_nodes(graph, num_nodes)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None, *, graph: Any = None) -> float:  # noqa: N803
        """The share of known classes that are right or, of numbers, the coefficient of determination, R², over all.

        Without ``y`` it is that of the task: of forecasts, or of readings from those that are corrupted as in
        training, one by one; those of an imputer count where they were hidden.
        """
        check_is_fitted(self)
        y = find_column(X, y) if isinstance(y, str) else y
        check_same_labels(X, y)
        inputs, targets, known = self._scored(self._readings(X, reset=False), y)
        found = self._decide(self._outputs_of(inputs, graph))
        weight = np.ones(len(found)) if sample_weight is None else as_array(sample_weight)
        if weight.shape != (len(found),):
            raise ValueError(f"sample_weight must have the shape ({len(found)},), got {weight.shape}")
        if not known.any():
            name, what = "X" if y is None else "y", "class" if is_classifier(self) else "number"
            raise ValueError(f"{name} must hold a {what} to score, got none")
        return score_of(self, targets[known], found[known], weight[np.nonzero(known)[0]])

    def _scored(self, readings: Array, y: Any, seed: int = HELD_OUT_SEED) -> tuple[Array, Array, Array]:
        """The inputs and targets that an error is computed of, and where the targets count."""
        if y is None and self.task is None:
            raise ValueError("y must be given to an estimator without task=, got None")
        inputs = self._corrupt(readings, seed) if y is None else readings
        targets, known = self._targets(readings, y)
        if y is None and self.task == "impute":
            known &= np.isnan(inputs if self.target_node_ is None else inputs[:, self.target_node_])
        return inputs, targets, known

    def _targets(self, readings: Array, y: Any) -> tuple[Array, Array]:
        """Targets in the shape of the outputs, and where they are known."""
        raise NotImplementedError

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.input_tags.allow_nan = self.missing == "mask"
        tags.target_tags.required = self.task is None
        return tags


class SignalRegressor(RegressorMixin, SignalEstimator):
    """Numbers at the nodes of a graph, from readings over time: denoised, filled in, forecast, or a target of your own.

    The network has its scaling in itself: readings go in and answers come out in their own units, also in a model file,
    in ONNX and on agents. The last times are held out to stop training; none of them is shuffled into the others.
    Further settings are those of :class:`GraphEstimator`.

    Args:
        rounds: exchanges between neighbours for one answer: as many layers of order 1; an activation of neighbourhoods
            takes rounds of its own.
        task: what to learn without ``y``. ``"denoise"`` and ``"impute"`` learn the readings from corrupted ones: with
            noise, outliers and hidden readings, or with hidden ones alone; ``"forecast"`` learns those to come.
        horizon: times to forecast ahead.
        window: readings that a node looks back on, with the present one.
        target_node: the number or name of the node that a one-dimensional ``y`` belongs to.
        missing: ``"mask"`` takes NaN for a missing reading, which neighbours get as 0 with a feature that says so;
            ``"refuse"`` raises.
        scaling: ``"global"`` for one mean and standard deviation, ``"node"`` for those of each node, with which nodes
            are no longer alike: a node that is added needs its own.
        noise: standard deviation of noise added to readings in training, in theirs; 0.2 for ``"denoise"``, else 0.
            Less keeps healthy readings closer to themselves, more smooths them.
        outliers: share of readings with an error of ten standard deviations in training; 0.05 for ``"denoise"``. Half
            of them last for a whole window.
        hide: share of readings that are hidden in training, likewise; 0.05 for ``"denoise"``, 0.2 for ``"impute"``.
        width: features of a layer.
        bank: ``"adaptive"`` or ``"linear"`` filter banks, see :class:`graphact.nn.GCNN`.
        ops: a list of the functions of adaptive banks.
        batch_size: times in a step; the step size falls along half a cosine, epoch by epoch.

    Attributes:
        model_: the trained :class:`graphact.nn.ScaledNetwork`; :meth:`save` writes it for ``load`` and for agents.
        graph_: the graph it was trained on, as a shift operator.
        nodes_: names of the nodes.

    Example:
        >>> import numpy as np, graphact
        >>> from graphact.estimators import SignalRegressor
        >>> graph = graphact.Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]]).normalize("symmetric")
        >>> weather = np.sin(np.arange(200) / 10)[:, None] * 5 + 280
        >>> readings = weather + np.random.default_rng(0).normal(size=(200, 3))
        >>> model = SignalRegressor(task="forecast", window=3, epochs=20, random_state=0)
        >>> model.fit(readings[:150], graph=graph).score(readings[150:]) > 0.5
        True
    """

    def fit(self, X: Any, y: Any = None, *, graph: Any = None) -> Self:  # noqa: N803
        """Train on a graph, with the mean squared error of scaled targets.

        Args:
            X: readings ``(T, N)`` or ``(T, N, F)`` of NumPy, torch or pandas, whose columns are nodes and whose index,
                if it is one of times, ascends.
            y: targets ``(T, N)`` or ``(T, N, O)``, ``(T,)`` with ``target_node``, or None with ``task``; NaN asks for
                nothing. The name of a column of the table ``X`` is predicted from the other columns: it stays a node of
                the graph, and its own readings are hidden from the network.
            graph: as :meth:`NodeClassifier.fit` takes it, with its nodes in the order of the columns of ``X``.

        Raises:
            ValueError: arguments that do not fit together, times that do not ascend, or too few of them.
        """
        return self._learn(X, y, graph)

    def _prepare_targets(self, readings: Array, y: Any, last: int) -> tuple[Tensor, Any, Scale]:
        self.has_outputs_ = y is not None and as_array(y).ndim == 3
        values, _ = self._targets(readings, y)
        self.n_outputs_ = values.shape[-1]
        per_node = self.scaling == "node" and self.target_node_ is None
        known: Any = np.isfinite(values[:last]).any(axis=(0, 2)) if per_node else np.ones(1, bool)
        if y is not None and known.any() and not known.all():
            names = ", ".join(name for name, is_known in zip(self.nodes_, known, strict=True) if not is_known)
            raise ValueError(
                f"y: {names[:60]} has no target in the training part, and scaling='node' needs some: scaling='global'"
            )
        part = values[:last] if values.ndim == 3 else values[:last, np.newaxis]
        scale = fit_scale("X" if y is None else "y", part, per_node)
        targets = scale.apply(values).to(self.device)

        def loss_of(outputs: Tensor, target: Tensor) -> Tensor:
            known = ~target.isnan()
            error = (outputs - target.nan_to_num(0.0)).square()
            return (error * known).sum() / known.sum().clamp_min(1)

        return targets, loss_of, scale

    def _targets(self, readings: Array, y: Any) -> tuple[Array, Array]:
        """Targets ``(T, N, O)``, or ``(T, O)`` with a target node; NaN where nothing is known."""
        if y is not None:
            values, _ = self._given_targets(readings, y, 3)
            values = values[..., np.newaxis] if values.ndim < 3 else values
        else:
            ahead = np.full((self._shift, *readings.shape[1:]), np.nan)
            values = np.concatenate([readings[self._shift :], ahead])
            values = values if self.target_node_ is None else values[:, self.target_node_]
        return values, np.isfinite(values)

    def predict(self, X: Any, *, graph: Any = None) -> Array:  # noqa: N803
        """The answers at all times, ``(T, N)``, with a last dimension where ``y`` or ``X`` has one, or ``(T,)``.

        They are computed in float64, with the parameters of the model, which are float32.
        A forecast in row t is that of time t + horizon. A row needs the rows before it that the window reads.
        """
        found = self._outputs(X, graph)
        return found if self.n_outputs_ > 1 or self.has_outputs_ else found[..., 0]

    score = SignalEstimator.score


class SignalClassifier(ClassifierMixin, SignalEstimator):
    """Classes at the nodes of a graph, from readings over time. Settings are those of :class:`SignalRegressor`.

    Attributes:
        classes_: the classes, in the order of the last dimension of ``predict_proba``.

    Example:
        >>> import numpy as np, graphact
        >>> from graphact.estimators import SignalClassifier
        >>> graph = graphact.Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]]).normalize("symmetric")
        >>> readings = np.random.default_rng(0).normal(size=(200, 3)) + 20
        >>> is_above = readings > readings.mean(1, keepdims=True)
        >>> model = SignalClassifier(epochs=20, random_state=0).fit(readings[:150], is_above[:150], graph=graph)
        >>> model.score(readings[150:], is_above[150:]) > 0.8
        True
    """

    def fit(self, X: Any, y: Any, *, graph: Any = None) -> Self:  # noqa: N803
        """Train on a graph, with the cross entropy.

        Args:
            X: readings, as :meth:`SignalRegressor.fit` takes them.
            y: classes ``(T, N)``, or ``(T,)`` with ``target_node``; NaN or None where they are not known.
            graph: as :meth:`SignalRegressor.fit` takes it.
        """
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        return self._learn(X, y, graph)

    def _prepare_targets(self, readings: Array, y: Any, last: int) -> tuple[Tensor, Any, Scale]:  # noqa: ARG002
        labels, known = self._targets(readings, y)
        numbers = np.full(labels.shape, -1)
        self.classes_, numbers[known] = encode_classes(labels[known])
        targets = torch.from_numpy(numbers).to(self.device)

        def loss_of(outputs: Tensor, target: Tensor) -> Tensor:
            loss = F.cross_entropy(outputs.flatten(0, -2), target.flatten(), ignore_index=-1, reduction="sum")
            return loss / (target >= 0).sum().clamp_min(1)

        return targets, loss_of, Scale(np.zeros(1), np.ones(1))

    def predict_proba(self, X: Any, *, graph: Any = None) -> Array:  # noqa: N803
        """Probabilities of the classes, ``(T, N, classes)``, or ``(T, classes)`` at the target node."""
        return np.asarray(torch.from_numpy(self._outputs(X, graph)).softmax(-1))

    def predict(self, X: Any, *, graph: Any = None) -> Array:  # noqa: N803
        """The most probable class at each time, ``(T, N)``, or ``(T,)`` at the target node."""
        return self._decide(self._outputs(X, graph))

    def _targets(self, readings: Array, y: Any) -> tuple[Array, Array]:
        return self._given_targets(readings, y, 2)

    score = SignalEstimator.score
