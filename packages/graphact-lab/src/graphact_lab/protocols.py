"""Protocols as data, and the training jobs they consist of. Nothing here needs torch."""

import hashlib
import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, fields, replace
from itertools import product
from typing import Any

from graphact._checks import check_choice, check_integer, check_number, check_positive, check_probability
from graphact.registry import COMPARED, POINTWISE, names
from graphact.training.settings import TrainingSettings
from graphact_lab.preparation import PREPARATIONS, SIGNAL_PREPARATIONS

ACTIVATIONS = tuple(COMPARED)  # those of the paper
METHODS = (*ACTIVATIONS, "fir")
EVERY_METHOD = (*ACTIVATIONS, *(name for name in POINTWISE if name != "identity"), "fir")  # the identity is FIR
RIVALS = ("median-gcn", "soft-median-gcn")  # robust convolutions, with ReLU, beside activations
# Controls that an activation of neighbourhoods must beat: a ReLU after further shifts, and a mean of neighbours
CONTROLS = ("relu-hops", "mean-ga")
POOLING = ("grelu", "digraf")  # read a mean over all nodes besides, which no exchange between neighbours gives
ADAPTIVE = ("max-ga", "median-ga", "kernel-ga")
# Fields that no command changes
FIXED = {"experiment", "preset", "name", "methods", "conditions", "task_options", "training"}
REPLICAS = ("graphs", "splits", "nodes")
GRID = {"rates": check_positive, "decays": check_number, "dropouts": check_probability}
# Settings that are whole numbers, or several, and the least of each
MIN_COUNTS = {
    **dict.fromkeys(("features", "hops", "localized_hops", "layers", "graphs", "splits", "nodes"), 1),
    **dict.fromkeys(("orders", "tuning_splits"), 0),
}
SHIFTS = ("adjacency", "laplacian", "translated")

Condition = Mapping[str, Any]


@dataclass(frozen=True)
class Protocol:
    """Everything that decides the results of an experiment."""

    experiment: str
    preset: str  # how much of it to run
    name: str  # which reading of the paper: "paper" is the text, literally; "converged" trains until the figures settle
    methods: tuple[str, ...]  # activations, and "fir" for the linear baseline
    features: tuple[int, ...]  # widths F to try
    orders: tuple[int, ...]  # filter orders K to try
    training: TrainingSettings
    hops: tuple[int, ...] = (1,)  # of the graph-adaptive activations, to try
    localized_hops: tuple[int, ...] = (1,)  # of the localized ones
    layers: int = 1
    graphs: int = 1  # graphs drawn, where graphs are drawn
    splits: int = 1  # of the samples
    nodes: int = 1  # nodes to read, where single nodes are read
    conditions: tuple[Condition, ...] = ({},)  # what else tells tasks apart; every width and order is tried under each
    sweep: tuple[Condition, ...] = ()  # further conditions, tried with the largest width and the lowest order alone
    loss_probabilities: tuple[float, ...] = ()  # of links, at which trained networks are evaluated
    loss_realizations: int = 0  # thinned graphs for each
    bias: bool = False  # constants in the filter banks
    readout_bias: bool = True  # a constant in the readout
    per_feature: bool = True  # activation weights for each feature, rather than shared
    start: str = "uniform"  # of the activations' weights
    preparation: str = (
        "none"  # what nodes make of their signals before the network sees them: graphact_lab.tasks.prepared
    )
    task_options: Mapping[str, Any] = field(default_factory=dict)  # further arguments of the function that makes tasks
    later_order: int | None = None  # filter order of all layers but the first, where it is another
    shift: str = "adjacency"  # the operator that networks shift by: graphact_lab.preparation.shifted_by
    data_seed: int | None = None  # decides graphs, splits and noise, where the seed should not
    # Nested selection (graphact_lab.selection): the grid, and how many splits choose among its points
    rates: tuple[float, ...] = ()
    decays: tuple[float, ...] = ()
    dropouts: tuple[float, ...] = ()
    tuning_splits: int = 0

    def __post_init__(self) -> None:
        for name, least in MIN_COUNTS.items():
            values = getattr(self, name)
            for value in values if isinstance(values, tuple) else (values,):
                check_integer(name, value, minimum=least)
        for name, check in GRID.items():
            for value in getattr(self, name):
                check(name, value)
                if value < 0:
                    raise ValueError(f"{name} must not be negative, got {value}")
        for method in self.methods:
            known = (*names(), "fir", *RIVALS, CONTROLS[0])
            check_choice("activation", method, EVERY_METHOD if method in EVERY_METHOD else known)
        check_choice("preparation", self.preparation, (*PREPARATIONS, "fill-in"))
        if check_choice("shift", self.shift, SHIFTS) != "adjacency" and self.loss_probabilities:
            raise ValueError(
                f"shift must be 'adjacency' together with loss_probabilities {self.loss_probabilities}: what the "
                f"diagonal of another operator becomes when links are lost is not defined, got {self.shift!r}"
            )
        if self.loss_probabilities and self.preparation not in ("none", *SIGNAL_PREPARATIONS):
            raise ValueError(
                f"preparation must be one that nodes can repeat when links are lost, got {self.preparation!r} together "
                f"with loss_probabilities {self.loss_probabilities}"
            )

    def smallest(self) -> "Protocol":
        """Seconds, for tests: the same code on as little as possible."""
        return replace(
            self,
            preset="smoke",
            features=(2,),
            orders=self.orders[:2],
            hops=self.hops[:1],
            localized_hops=self.localized_hops[:1],
            graphs=1,
            splits=2,
            nodes=min(self.nodes, 2),
            conditions=self.conditions[:1],
            sweep=self.sweep[:1],
            loss_probabilities=self.loss_probabilities[:1],
            loss_realizations=min(self.loss_realizations, 2),
            tuning_splits=min(self.tuning_splits, 1),
            training=replace(self.training, epochs=2, batch_size=500),
        )


@dataclass(frozen=True)
class TrainingJob:
    """The training of one cell of a table, as one fleet: all graphs, splits and nodes of one setting."""

    protocol: Protocol
    method: str  # activation, or "fir"
    hops: int | None  # of the activation; None where it has none
    features: int
    order: int
    seed: int  # decides graphs, splits, noise, initial parameters and the order of samples
    condition: Condition = field(default_factory=dict)  # the film, or the signal-to-noise ratio

    @property
    def title(self) -> str:
        told = self.method in (*ADAPTIVE, CONTROLS[0]) or (self.hops or 1) > 1
        hops = [f"({self.hops} hop{'s' if self.hops != 1 else ''})"] if told else []
        words = [self.method, *hops, f"F={self.features}", f"K={self.order}"]
        words += [f"{str(name).replace('_', ' ')} {value}" for name, value in self.condition.items()]
        return " ".join(words)

    def settings(self) -> dict[str, Any]:
        """Everything its result depends on, as JSON values; options that are not used are not named."""
        protocol, training = self.protocol, self.protocol.training
        settings = {
            "experiment": protocol.experiment,
            "protocol": protocol.name,
            **{name: getattr(self, name) for name in ("method", "hops", "features", "order")},
            "condition": dict(self.condition),
            "seed": self.seed,
            **{name: getattr(protocol, name) for name in ("layers", *REPLICAS, "bias", "per_feature")},
            **{name: getattr(training, name) for name in ("epochs", "batch_size", "learning_rate")},
            "betas": list(training.betas),
            "patience": training.patience,
            "loss_probabilities": list(protocol.loss_probabilities),
            "loss_realizations": protocol.loss_realizations,
        }
        options: dict[str, tuple[Any, Any]] = {
            "start": (protocol.start, "uniform"),
            "later_order": (protocol.later_order, None),
            "readout_bias": (protocol.readout_bias, True),
            "shift": (protocol.shift, "adjacency"),
            "schedule": (training.schedule, "constant"),
            "weight_decay": (training.weight_decay, 0.0),
            **{name: (list(getattr(protocol, name)), []) for name in GRID},
            "tuning_splits": (protocol.tuning_splits, 0),
        }
        return settings | changed_options(protocol, **options)

    @property
    def key(self) -> str:
        """A file name that is the same for the same settings and different for different ones."""
        return file_key(f"{self.method}-F{self.features}-K{self.order}", self.settings())


def changed_options(protocol: Protocol, **options: tuple[Any, Any]) -> dict[str, Any]:
    """The options that are not as usual: results from before there was an option keep their keys."""
    usual: dict[str, tuple[Any, Any]] = {
        "preparation": (protocol.preparation, "none"),
        "task_options": (json.loads(json.dumps(dict(protocol.task_options))), {}),
        "data_seed": (protocol.data_seed, None),
    }
    return {name: value for name, (value, default) in (usual | options).items() if value != default}


def file_key(prefix: str, settings: Mapping[str, Any]) -> str:
    """A readable prefix and a fingerprint of the settings."""
    fingerprint = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]
    return f"{settings['experiment']}-{settings['protocol']}-{prefix}-{fingerprint}"


def key_of_baselines(protocol: Protocol, condition: Condition, seed: int) -> str:
    """The key of the baselines under a condition."""
    settings = {
        "experiment": protocol.experiment,
        "preset": protocol.preset,
        "protocol": protocol.name,
        "condition": dict(condition),
        "seed": seed,
        **{name: getattr(protocol, name) for name in REPLICAS},
    }
    return file_key("baselines", settings | changed_options(protocol))


def jobs_of(protocol: Protocol, seed: int) -> list[TrainingJob]:
    """All jobs of a protocol, the main conditions first."""
    grid = [(condition, protocol.features, protocol.orders) for condition in protocol.conditions]
    grid += [(condition, (max(protocol.features),), (min(protocol.orders),)) for condition in protocol.sweep]
    return [
        TrainingJob(protocol, method, hops, features, order, seed, condition)
        for condition, widths, orders in grid
        for features, order, method in product(widths, orders, protocol.methods)
        for hops in hops_of(protocol, method)
    ]


def hops_of(protocol: Protocol, method: str) -> tuple[int | None, ...]:
    """The numbers of hops to try with a method; None where it has none."""
    if method in (*ADAPTIVE, CONTROLS[0]):
        return protocol.hops
    return protocol.localized_hops if method.endswith("-l") else (None,)


def is_pointwise(method: str) -> bool:
    """Return whether a method is an activation of each value on its own."""
    return method == "relu" or method in POINTWISE


def is_neighborhood(method: str) -> bool:
    """Return whether a method is an activation of neighbourhoods; their mean, which is linear, is a control."""
    return method.endswith(("-ga", "-l")) and method not in CONTROLS


def changed_protocol(
    protocol: Protocol, changes: Mapping[str, str], task_options: Sequence[str], unread: Set[str] = frozenset()
) -> Protocol:
    """The protocol with settings given as text, such as ``{"features": "2,4", "learning_rate": "0.01"}``.

    A setting is a field of the protocol or of its training that the experiment reads, or an option of its tasks.

    Example:
        >>> from graphact_lab.descriptions import find_protocol
        >>> changed_protocol(find_protocol("consensus", "paper"), {"orders": "5,10", "epochs": "3"}, ()).orders
        (5, 10)
    """
    own = {item.name for item in fields(Protocol)} - FIXED - unread
    training = {item.name for item in fields(TrainingSettings)}
    changed, options = dict[str, dict[str, Any]](protocol={}, training={}), dict(protocol.task_options)
    for name, text in changes.items():
        values = tuple(as_value(part) for part in text.split(",") if part)
        check_choice("--set", name, (*sorted(own | training), *task_options))
        holder = protocol if name in own else protocol.training
        present = getattr(holder, name, protocol.task_options.get(name))
        value: Any = values if isinstance(present, tuple) else values[0] if len(values) == 1 else None
        if value is None and text.lower() != "none":
            raise ValueError(f"--set {name} must be one value, got {text!r}")
        (changed["protocol"] if name in own else changed["training"] if name in training else options)[name] = value
    trained = replace(protocol.training, **changed["training"])
    return replace(protocol, training=trained, task_options=options, **changed["protocol"])


def changed_settings(
    found: Any, methods: Sequence[str], changes: Mapping[str, str] | None, names: Sequence[str]
) -> Any:
    """Settings of an experiment of its own, limited to some methods and with changes of these names given as text."""
    changed: dict[str, Any] = {"methods": tuple(dict.fromkeys(methods))} if methods else {}
    for name, text in (changes or {}).items():
        values = tuple(as_value(part) for part in text.split(","))
        is_list = isinstance(getattr(found, check_choice("--set", name, names)), tuple)
        changed[name] = values if is_list else values[0]
    return replace(found, **changed)


def as_value(text: str) -> Any:
    """A number, a truth value or None where the text is one, else the text."""
    try:
        return json.loads({"none": "null"}.get(text.lower(), text.lower()))
    except ValueError:
        return text


def run_seed(*what: object) -> int:
    """A seed for one purpose, unlike those of all others."""
    digest = hashlib.sha256(" ".join(map(str, what)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
