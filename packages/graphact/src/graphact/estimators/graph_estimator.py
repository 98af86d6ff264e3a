"""Base of all estimators: their settings, the network they make, and its training."""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.base import BaseEstimator, is_classifier
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from graphact._checks import check_keywords, check_number
from graphact.estimators.estimator_file import write
from graphact.estimators.inputs import Array, as_graph
from graphact.graph import Graph
from graphact.graph.normalize import Normalization
from graphact.nn import GCNN
from graphact.nn.call import resolve_graph
from graphact.nn.gcnn import LayeredNetwork
from graphact.nn.lookup import Activation
from graphact.training import TrainingSettings
from graphact.training.loop import SingleModel, train

DIVERGED = "X and y must hold numbers that float32 can be trained with at this learning_rate, got {}: scale them"


@check_keywords
@dataclass(eq=False, repr=False)
class GraphEstimator(BaseEstimator):
    """Base of all estimators: settings of training, early stopping, files.

    Args:
        activation: of the layers; see :func:`graphact.nn.make_activation`. With ``"identity"`` the network is linear.
        normalize: how a graph given as an edge_index or by NetworkX is normalised; a ``Graph`` or a matrix is a shift
            operator and used unchanged.
        dropout: the share of values that is dropped at random in training, in front of each layer and the readout.
        epochs: passes over the training part.
        learning_rate: step size of Adam.
        weight_decay: decoupled decay of the parameters.
        early_stopping: hold out a part, keep the parameters with the least loss on it, and stop after ``patience``
            epochs without a smaller one.
        validation_fraction: the part that is held out.
        patience: epochs to wait.
        device: where to train and predict.
        verbose: print a line each epoch.
        random_state: decides initial parameters, what is held out, and all else that is random in training.

    Attributes:
        model_: the trained module.
        loss_curve_: the training loss of each epoch.
        n_iter_: epochs that were run.
        best_epoch_: the epoch whose parameters were kept.
    """

    _: KW_ONLY
    activation: Activation = "max-ga"
    normalize: Normalization | None = "symmetric"
    dropout: float = 0.0
    epochs: int = 200
    learning_rate: float = 0.01
    weight_decay: float = 0.0
    early_stopping: bool = False
    validation_fraction: float = 0.1
    patience: int = 20
    device: str | torch.device = "cpu"
    verbose: bool = False
    random_state: Any = None

    def _build(self, in_features: int, out_features: int) -> nn.Module:
        """The network, on its device, in float32."""
        raise NotImplementedError

    def _sizes(self) -> tuple[int, int]:
        """Features of inputs and outputs."""
        inputs: Any = getattr(self, "n_channels_", self.n_features_in_)
        return inputs, len(self.classes_) if is_classifier(self) else max(self.n_outputs_, 1)

    def _decide(self, outputs: Array) -> Array:
        """The answers of some outputs: the classes with the largest ones, or the numbers as they are."""
        return np.asarray(self.classes_[outputs.argmax(-1)]) if is_classifier(self) else outputs

    def _graph(self, x: Tensor, graph: Any, edge_weight: Tensor | None = None) -> Any:
        """The graph of a call, ready for the network; None is one without edges, on which every row is on its own."""
        if graph is None:
            graph = Graph.from_edge_index(torch.empty(2, 0, dtype=torch.int64), num_nodes=x.size(0))
        weight = None if edge_weight is None else edge_weight.to(x.device)
        ready: Any = resolve_graph(x, as_graph(graph, self.normalize).to(x.device), weight, self.normalize)
        return ready if ready.dtype == x.dtype else ready.to(x.dtype)

    def _train(
        self,
        loss: Callable[[nn.Module, Array], Tensor],
        samples: Array,
        *,
        held_out: Array | None = None,
        batch_size: int | None = None,
        schedule: str = "constant",
    ) -> None:
        """Train a new network; ``loss(model, samples)`` is the mean over samples, of which some are held out to stop.

        The parameters with the least loss on these are kept; without early stopping those after the last epoch.

        Args:
            loss: the loss to minimize.
            samples: numbers of the samples.
            held_out: numbers of those that are held out; drawn from ``samples`` when left out.
            batch_size: samples in a step; None takes all.
            schedule: of the step size, see :class:`~graphact.training.TrainingSettings`.
        """
        own = {name: getattr(self, name) for name in ("epochs", "learning_rate", "weight_decay", "patience")}
        settings = TrainingSettings(batch_size=1 if batch_size is None else batch_size, schedule=schedule, **own)
        random = check_random_state(self.random_state)
        if self.early_stopping and held_out is None:
            count = round(self.validation_fraction * len(samples))
            if not 0 < count < len(samples):
                raise ValueError(
                    f"validation_fraction must leave samples on both sides, got {self.validation_fraction} of "
                    f"{len(samples)} samples"
                )
            samples = random.permutation(samples)
            held_out, samples = samples[:count], samples[count:]
        held_out = np.array([], dtype=np.int64) if held_out is None else held_out
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(random.randint(2**31)))
            self.model_ = self._build(*self._sizes())
            undo = add_dropout(self.model_, self.dropout)
            self.loss_curve_, held_out_losses = list[float](), list[float]()

            def training_loss(positions: Tensor | None = None) -> Tensor:
                return loss(self.model_.train(), samples if positions is None else samples[positions.numpy()])

            def held_out_loss() -> Tensor:
                found = loss(self.model_.eval(), held_out)
                held_out_losses.append(found.item())
                return found

            def follow(epoch: int, epochs: int, value: float) -> None:
                self.loss_curve_.append(value)
                if not math.isfinite(value):
                    raise ValueError(DIVERGED.format(f"a loss of {value} in epoch {epoch}"))
                if self.verbose:
                    validated = f", held out {held_out_losses[-1]:.4g}" if self.early_stopping else ""
                    print(f"epoch {epoch}/{epochs}: loss {value:.4g}{validated}")  # noqa: T201, asked for

            batch = SingleModel(
                self.model_,
                training_loss,
                held_out_loss if self.early_stopping else None,
                None if batch_size is None else len(samples),
                int(random.randint(2**31)),
            )
            try:
                selection = train(batch, settings, progress=follow)
            finally:
                undo()
            self.n_iter_, self.best_epoch_ = len(self.loss_curve_), int(selection.epoch) or self.epochs
            if selection.state:
                batch.restore(selection.state)
        if not all(parameter.isfinite().all() for parameter in self.model_.parameters()):
            raise ValueError(DIVERGED.format(f"parameters that are not finite after epoch {self.n_iter_}"))
        self.model_.eval()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write settings and parameters to a file (safetensors and JSON, nothing executed); :func:`load` reads it.

        Raises:
            TypeError: a setting is not a JSON value, such as an activation of your own.
        """
        check_is_fitted(self)
        write(Path(path), self)

    def _describe(self) -> dict[str, Any]:
        """Further entries of the header of its file."""
        return {}

    @torch.no_grad()
    def _answers(self, *arguments: Any) -> Tensor:
        """The outputs of the network, on the CPU."""
        outputs: Tensor = self.model_(*arguments).cpu()
        if not outputs.isfinite().all():
            raise ValueError("X must hold numbers for which the answers are finite in float32, got larger ones")
        return outputs

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")


@check_keywords
@dataclass(eq=False, repr=False)
class GCNNEstimator(GraphEstimator):
    """Base of estimators with the layers of a :class:`graphact.nn.GCNN`."""

    _: KW_ONLY
    hidden: Sequence[int] = (16,)
    order: int = 2
    hops: int = 1

    def _build(self, in_features: int, out_features: int) -> nn.Module:
        options: dict[str, Any] = {"order": self.order, "activation": self.activation, "hops": self.hops}
        options |= {"bias": True, "out_features": out_features, "normalize": self.normalize}
        return GCNN([in_features, *self._hidden()], **options).to(self.device)

    def _hidden(self) -> Sequence[int]:
        """The features of each layer, of which there must be one at least."""
        if np.ndim(self.hidden) != 1 or len(self.hidden) == 0:
            few = f": write hidden=({self.hidden},)" if isinstance(self.hidden, int) else ", such as (16,)"
            raise TypeError(f"hidden must list the features of each layer, got {self.hidden!r}{few}")
        return self.hidden


def add_dropout(model: nn.Module, share: float) -> Callable[[], None]:
    """Drop inputs of layers and readout in training, without a trace in the model once the result was called."""
    if not 0 <= check_number("dropout", share) < 1:
        raise ValueError(f"dropout must be at least 0 and below 1, got {share}")
    handles = [
        part.register_forward_pre_hook(lambda module, given: (F.dropout(given[0], share, module.training), *given[1:]))
        for network in model.modules()
        if isinstance(network, LayeredNetwork) and share > 0
        for part in (*getattr(network, network.layered[0]), network.readout)
    ]

    def undo() -> None:
        for handle in handles:
            handle.remove()

    return undo
