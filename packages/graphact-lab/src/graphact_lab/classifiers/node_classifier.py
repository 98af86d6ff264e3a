"""Node classifiers: convolutions with any activation between them, and the training of a cell's models as fleets."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from graphact._checks import check_choice, check_flag, check_integer
from graphact.functional import shift
from graphact.graph import Graph
from graphact.nn import make_activation
from graphact.training.fleet import FleetResult
from graphact_lab.classifiers.stacked_layers import (
    CONVOLUTIONS,
    BatchNorm,
    GINConvolution,
    NodeGraph,
    Signal,
    StackedLinear,
    node_graph,
)
from graphact_lab.data.node_sets import NodeData, read_nodes
from graphact_lab.fleets.active import in_parts, models_at_once, trial_options
from graphact_lab.fleets.features import DroppedFeatures, SparseFeatures
from graphact_lab.fleets.nodes import NodeFleet
from graphact_lab.protocols import RIVALS, TrainingJob, run_seed
from graphact_lab.selection import TrainingTrial
from graphact_lab.splits import Split

SPLITS = ("random", "given", "public", "fifth")
NETWORK_OPTIONS = ("convolution", "norm", "skip", "readout", "feature_dropout", "biases", "linear_start")
GAMMA = 1.0  # from which the width of the kernel activation is learned
NORMS = ("none", "layer", "batch")
SKIPS = ("none", "linear", "block")


class HopsAndReLU(nn.Module):
    """``relu(S^k x)``: a control that spends exchanges as activations of neighbourhoods do, on a linear shift."""

    def __init__(self, hops: int) -> None:
        super().__init__()
        self.hops = check_integer("hops", hops, minimum=1)

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        for _ in range(self.hops):
            x = shift(x, graph)
        return torch.relu(x)


def exchanges_of(activation: Any) -> int:
    """Return the number of exchanges between neighbours for an activation."""
    if isinstance(activation, HopsAndReLU):
        return activation.hops
    return int(sum(layer.exchanges for layer in activation.layers()))


class NodeNetwork(nn.Module):
    """Convolutions with an activation after each, and dropout after that.

    Args:
        in_features, width, classes: sizes.
        convolution: a name of ``CONVOLUTIONS``.
        layers: convolutions; without ``readout`` the last one gives the logits.
        activation, hops: a name of :data:`graphact.nn.ACTIVATIONS`, and its hops; or "relu-hops", a ReLU after as many
            further shifts.
        norm: "layer" or "batch", between convolution and activation.
        skip: "linear" adds a linear map of what a convolution reads to what it gives (Luo et al. 2024); "block" makes
            layers ``x + linear(act(conv(norm(x))))`` of a signal that a linear map has made.
        readout: give the logits by a linear map, rather than by the last convolution.
        feature_dropout: drop features, too.
        biases: whether convolutions have them.
        linear_start: how linear maps beside convolutions are drawn; see :class:`StackedLinear`.
    """

    def __init__(
        self,
        in_features: int,
        width: int,
        classes: int,
        *,
        convolution: str = "gcn",
        layers: int = 2,
        activation: str = "relu",
        hops: int = 1,
        norm: str = "none",
        skip: str = "none",
        readout: bool = False,
        feature_dropout: bool = False,
        biases: bool = True,
        linear_start: str = "glorot",
        start: str = "zero",
    ) -> None:
        super().__init__()
        check_choice("norm", norm, NORMS)
        kind = CONVOLUTIONS[check_choice("convolution", convolution, tuple(CONVOLUTIONS))]
        self.skip, self.readout = check_choice("skip", skip, SKIPS), readout or skip == "block"
        hidden = check_integer("layers", layers, minimum=1) - (0 if self.readout else 1)

        def make() -> Any:
            options: dict[str, Any] = {"gamma": GAMMA, "learn_gamma": True, "start": start}
            if activation == "relu-hops":
                return HopsAndReLU(hops)
            return make_activation(activation, hops=hops, features=width, **options)

        def linear(inputs: int, outputs: int) -> StackedLinear:
            return StackedLinear(inputs, outputs, start=linear_start)

        self.first = linear(in_features, width) if skip == "block" else None
        widths = [width if skip == "block" else in_features, *[width] * hidden]
        self.activations = nn.ModuleList(make() for _ in range(hidden))
        inner = [make() if kind is GINConvolution else self.activations[number] for number in range(hidden)]
        shape: dict[str, Any] = {"hidden": width, "bias": biases}  # maps are the same for all activations
        self.convolutions = nn.ModuleList(kind(widths[i], width, activation=inner[i], **shape) for i in range(hidden))
        if not self.readout:
            last = make() if kind is GINConvolution else None
            self.convolutions.append(kind(widths[hidden], classes, activation=last, **shape))
        norms = {"none": nn.Identity, "layer": nn.LayerNorm, "batch": BatchNorm}
        self.norms = nn.ModuleList(norms[norm](width) for _ in range(hidden))
        added, within = ([linear(size, width) for size in sizes] for sizes in (widths[:hidden], [width] * hidden))
        self.skips = nn.ModuleList({"none": [], "linear": added, "block": within}[skip])
        self.last = linear(width, classes) if self.readout else None
        self.feature_dropout = feature_dropout
        self.dropout_widths = (*([None] if feature_dropout else []), *[width] * hidden)
        self.dropped_last = hidden == 1 and norm != "batch" and not feature_dropout and skip != "block"

    @property
    def exchanges(self) -> int:
        """The number of exchanges between neighbours for an answer."""
        convolutions: list[Any] = list(self.convolutions)
        inner = [each.activation for each in convolutions if isinstance(each, GINConvolution)]
        activations = sum(map(exchanges_of, [*self.activations, *inner]))
        return activations + int(sum(each.exchanges for each in convolutions))

    def forward(
        self, x: Tensor | SparseFeatures, graph: NodeGraph, masks: Sequence[Tensor] = (), both: bool = False
    ) -> Any:
        masks = list(masks)
        signal: Any = x
        if self.feature_dropout and masks:
            mask = masks.pop(0)
            signal = DroppedFeatures(x, mask) if isinstance(x, SparseFeatures) else x * mask
        if self.first is not None:
            signal = self.first(signal)
        for number, activation in enumerate(self.activations):
            if self.skip == "block":
                read = self.convolutions[number](self.norms[number](signal), graph)
                out = self.dropped(activation(read, graph.activation), masks, number)
                signal = signal + self.skips[number](out)
                continue
            made = self.convolutions[number](signal, graph)
            if self.skip == "linear":
                made = made + self.skips[number](signal)
            signal = activation(self.norms[number](made), graph.activation)
            if both and number == len(self.activations) - 1:
                with torch.no_grad():
                    evaluated = self.finish(signal.detach(), graph)
                return self.finish(self.dropped(signal, masks, number), graph), evaluated
            signal = self.dropped(signal, masks, number)
        return self.finish(signal, graph)

    def finish(self, signal: Signal, graph: NodeGraph) -> Tensor:
        """The logits from the last hidden signal."""
        return self.convolutions[-1](signal, graph) if self.last is None else self.last(signal)

    @staticmethod
    def dropped(x: Tensor, masks: Sequence[Tensor], number: int) -> Tensor:
        return x * masks[number] if masks else x


def dataset_of(job: TrainingJob) -> str:
    """The data set of a cell: what it varies, or else the name of its protocol."""
    return str(job.condition.get("dataset", job.protocol.name))


@cache
def read_once(name: str, directory: Path | None, raw: bool) -> NodeData:
    """A data set, read once; ``raw``: words are counts."""
    return read_nodes(name, directory, normalize_features=not raw)


def data_of(job: TrainingJob, directory: Path | None) -> NodeData:
    """The data set of a cell."""
    raw = check_flag("raw_features", job.protocol.task_options.get("raw_features", False))
    return read_once(dataset_of(job), directory, raw)


@lru_cache(maxsize=1)
def on_device(data: NodeData, convolution: str, device: str) -> tuple[Tensor | SparseFeatures, NodeGraph]:
    """Features and shift operators, moved to the device once for all activations."""
    dtype = torch.float32
    return data.x.to(device, dtype), node_graph(data.graph, convolution).to(device, dtype)


def split_of(job: TrainingJob, data: NodeData, replica: int) -> Split:
    """The split of a replica; with the public split, replicas differ in their seeds alone."""
    kind = check_choice("split", job.protocol.task_options.get("split", "random"), SPLITS)
    if kind == "fifth":
        return data.fifth(replica)
    if kind != "public":
        return data.split(replica)
    if data.public is None:
        raise ValueError(f"split must be 'random' or 'given' for {data.name}, which has no public split, got 'public'")
    return data.public


def make_network(job: TrainingJob, data: NodeData, replica: int) -> NodeNetwork:
    """The network of a replica, drawn from its seed, which is the same for every activation and grid point."""
    protocol, options = job.protocol, dict(job.protocol.task_options)
    activation = job.method
    if job.method in RIVALS:
        activation, options["convolution"] = "relu", job.method.removesuffix("-gcn")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(run_seed("replica", job.seed, replica))
        return NodeNetwork(
            data.x.size(1),
            job.features,
            data.num_classes,
            layers=protocol.layers,
            activation=activation,
            hops=job.hops or 1,
            start=protocol.start,
            **{name: options[name] for name in NETWORK_OPTIONS if name in options},
        )


def decayed_by(options: Mapping[str, Any]) -> Callable[[str], bool] | None:
    """Return which parameters decay, as a function of their name; None for the usual ones."""
    every, first = (check_flag(name, options.get(name, False)) for name in ("decay_all", "decay_first"))
    if every:
        return lambda _: True
    return (lambda name: name.startswith("convolutions.0.maps")) if first else None


def train_trials(
    job: TrainingJob, trials: Sequence[TrainingTrial], device: str, directory: Path | None, *, keep: bool = False
) -> tuple[FleetResult, list[NodeFleet]]:
    """Train models of a job as few fleets, as large as memory allows; with ``keep``, fleets know their best models."""
    data = data_of(job, directory)
    convolution = job.protocol.task_options.get("convolution", "gcn")
    networks = {replica: make_network(job, data, replica) for replica in {trial.replica for trial in trials}}
    x, graph = on_device(data, convolution, device)
    settings, window = job.protocol.training, job.protocol.task_options.get("window")

    def train(part: slice) -> tuple[FleetResult, NodeFleet]:
        own = trials[part]
        fleet = NodeFleet(
            [networks[trial.replica] for trial in own],
            x,
            graph,
            data.y,
            [split_of(job, data, trial.replica) for trial in own],
            **trial_options(job, own),
            metric=data.metric,
            is_decayed=decayed_by(job.protocol.task_options),
            device=device,
        )
        return fleet.train(settings.epochs, settings.patience, keep=keep, window=window), fleet

    results, fleets = zip(*in_parts(len(trials), models_at_once(job, len(data.y), device), train), strict=True)
    return FleetResult.joined(results), list(fleets)
