"""A model as a node holds it, layer specs with NumPy arrays; what an inference costs; its file."""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from graphact.agents.inference import check_layer
from graphact.agents.messages import DIGEST_BYTES, Array, datagram_bytes
from graphact.layers import Layer, UnsupportedModelError, from_json, structure
from graphact.storage import check_tensors, digest, load_tensors, one_line, save_tensors

DTYPES = (np.dtype("f4"), np.dtype("f8"))


@dataclass(frozen=True)
class Model:
    """A network that agents can run.

    Args:
        module: the class of the model, such as ``GCNN``.
        config: the arguments of its constructor.
        parameters: its parameters by name, as ``state_dict`` names them, all of one dtype.
        description: its layers, with the names of their parameters (:func:`graphact.layers.to_json`).
        frozen: names of the parameters that learning leaves as they are.

    Attributes:
        layers: the same layers, with the parameters.

    Raises:
        UnsupportedModelError: agents cannot run it; the error names the part.
        KeyError, TypeError, ValueError: the description is none, or does not fit the parameters.
    """

    module: str
    config: Mapping[str, Any]
    parameters: Mapping[str, Array] = field(repr=False)
    description: Sequence[Mapping[str, Any]] = field(repr=False)
    frozen: Sequence[str] = ()
    layers: tuple[Layer, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", from_json(self.description, self.parameters))
        if sorted(self.names) != sorted(self.parameters) or not {*self.frozen} <= {*self.names}:
            raise ValueError(f"parameters must be those of the layers, {self.names}, got {tuple(self.parameters)}")
        for part, layer in zip(self.parts, self.layers, strict=True):
            check_layer(layer, part)
        self.out_features(self.in_features or 1)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the parameters, layer by layer: an order that does not depend on where the model came from."""
        described = zip(self.layers, self.description, strict=True)
        return tuple(entry["arrays"][name] for layer, entry in described for name in layer.arrays())

    @property
    def trained(self) -> tuple[str, ...]:
        return tuple(name for name in self.names if name not in self.frozen)

    @property
    def parts(self) -> list[str]:
        """What errors call each layer: the module that holds its parameters, or its number."""
        firsts = [next(iter(entry["arrays"].values()), None) for entry in self.description]
        return [f"layer {i}" if name is None else name.rpartition(".")[0] for i, name in enumerate(firsts)]

    @property
    def dtype(self) -> np.dtype[Any]:
        return next((p.dtype for p in self.parameters.values()), np.dtype(float))

    @property
    def in_features(self) -> int | None:
        """The features of the input; None if any number will do."""
        return next((layer.in_features for layer in self.layers if layer.in_features is not None), None)

    @property
    def rounds(self) -> int:
        return sum(layer.exchanges for layer in self.layers)

    def widths(self, features: int | None = None) -> list[int]:
        """The number of features that each exchange of an inference carries: those of the input of its layer."""
        width = features or self.in_features or 1
        widths: list[int] = []
        for layer in self.layers:
            widths += [width] * layer.exchanges
            width = layer.out_features or width
        return widths

    def out_features(self, features: int) -> int:
        for layer in self.layers:
            if layer.in_features not in (None, features):
                raise ValueError(f"signal must have {layer.in_features} features, got {features}")
            features = layer.out_features or features
        return features

    @cached_property
    def digest(self) -> bytes:
        """What tells this model, with the values of its parameters, from every other one; from whatever file it is."""
        arrays = [digest(np.asarray(a, order="C")) for layer in self.layers for a in layer.arrays().values()]
        return hashlib.sha256(json.dumps([structure(self.layers), arrays], sort_keys=True).encode()).digest()


def agreement(model: Model, **settings: Any) -> bytes:
    """The digest of what all nodes of a network must agree upon: the model, and settings (JSON values)."""
    content = model.digest + json.dumps(settings, sort_keys=True).encode()
    return hashlib.blake2b(content, digest_size=DIGEST_BYTES).digest()


@dataclass(frozen=True)
class Cost:
    """The cost of one inference.

    Attributes:
        rounds: exchanges.
        messages: data messages of all nodes together, without loss.
        bytes: their bytes, as handed to the transport (lower layers add theirs, 28 for UDP over IPv4).
        longest: seconds after which the inference has ended at every node at the latest, whatever happens.
    """

    rounds: int
    messages: int
    bytes: int
    longest: float


def cost_of_inference(
    model: Model, num_edges: int, batch: tuple[int, ...] = (), *, slot: float = 0.18, features: int | None = None
) -> Cost:
    r"""The cost of one inference: :math:`R = \sum_l (K_l + A_l)` rounds of one message over each directed edge.

    A filter of order K exchanges K times, an activation over H hops H + 1 times (graph-adaptive) or once (localized).
    A message with F features of B signals in numbers of s bytes has :math:`52 + 4d + s\,B\,F` bytes, with d the
    number of dimensions of the array (1 for one signal, 2 for a batch); a layer exchanges its input features.

    Args:
        model: the model.
        num_edges: directed edges between different nodes, as :attr:`graphact.Graph.num_edges` counts them.
        batch: the batch shape of the signals; ``()`` for one signal.
        slot: time for one round.
        features: features of the signal, where the model takes any number.

    Example:
        >>> import graphact
        >>> from graphact.agents import cost_of_inference
        >>> from graphact.agents.split import plain_model
        >>> model = graphact.nn.GCNN(features=[1, 8], order=2, activation="max-ga", hops=1).double()
        >>> cost_of_inference(plain_model(model), num_edges=4)  # 2 rounds of 1 feature, 2 rounds of 8
        Cost(rounds=4, messages=16, bytes=1472, longest=0.72)
    """
    widths = model.widths(features)
    sizes = [datagram_bytes((*batch, width), model.dtype) for width in widths]
    return Cost(len(widths), len(widths) * num_edges, num_edges * sum(sizes), len(widths) * slot)


def save_model(model: Model, path: str | os.PathLike[str]) -> None:
    """Write a model so that :func:`load_model` and :func:`graphact.load` can read it."""
    tensors = {name: np.asarray(value, order="C") for name, value in model.parameters.items()}
    header = {"module": model.module, "config": dict(model.config)}
    save_tensors(Path(path), tensors, {**header, "layers": list(model.description), "frozen": list(model.frozen)})


def load_model(path: str | os.PathLike[str]) -> Model:
    """Read a model file; float32 and float64 only.

    Raises:
        FileNotFoundError: there is no such file.
        UnsupportedModelError: agents cannot run the model; the error names the part. It is a ValueError.
        ValueError: the file is damaged or not a model of graphact; the message names what is wrong.
    """
    header, tensors = load_tensors(Path(path), "np")
    check_tensors(Path(path), header, tensors)
    if len({value.dtype for value in tensors.values()}) > 1 or any(v.dtype not in DTYPES for v in tensors.values()):
        raise ValueError(f"{path}: agents compute in float32 or float64; graphact agents split converts a model")
    try:
        return Model(header["module"], header["config"], tensors, header["layers"], header.get("frozen", ()))
    except UnsupportedModelError as error:
        raise UnsupportedModelError(f"{path}: {error.part}" if error.part else str(path), error.reason) from error
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise ValueError(f"{path}: the configuration does not fit the tensors: {one_line(error)}") from error
