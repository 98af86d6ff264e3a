"""A model as nodes hold it: its layers with NumPy arrays, decoded strictly from a description, and what it costs."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from graphact_agents import scalar_functions
from graphact_agents.messages import DIGEST_BYTES, Array, datagram_bytes
from graphact_agents.operations import NeighborhoodFunction, check_runs, find_operation

MAX_WINDOW = 2**16
"""Readings of a window; more would take all memory before the first answer. Its two copies must agree: the maximum in
model.schema.json, and ``MAX_WINDOW`` of graphact.nn.scaled_network."""
PRECISION_ADVICE = "convert the model with .float() or .double() before graphact.save"


class IncompatibleModelError(TypeError, ValueError):
    """A part of a model that agents cannot compute.

    Attributes:
        part: which part, such as ``"activations.0"``; empty for the model itself.
        reason: what is unknown or impossible about it.
    """

    def __init__(self, part: str, reason: str) -> None:
        self.part, self.reason = part, reason
        super().__init__(f"{part}: {reason}" if part else reason)


@dataclass(frozen=True, eq=False)
class ModelLayer:
    """One layer.

    Attributes:
        kind: a key of :data:`DECODERS`.
        settings: what the description says besides arrays; JSON values.
        arrays: its arrays by role, such as ``taps``.
        exchanges: how many exchanges between neighbours it takes.
        in_features: features of the input; None where any number will do.
        out_features: features of the output; None where it has those of the input.
        functions: the functions of a neighbourhood that it evaluates, with their parameters.
        closed: whether neighbourhoods include the node itself.
        branches: of a sum, the chains whose outputs it adds; the empty one is the identity.
    """

    kind: str
    settings: Mapping[str, Any]
    arrays: Mapping[str, Array]
    exchanges: int = 0
    in_features: int | None = None
    out_features: int | None = None
    functions: tuple[tuple[NeighborhoodFunction, Mapping[str, Any]], ...] = ()
    closed: bool = False
    branches: tuple[tuple["ModelLayer", ...], ...] = ()

    @property
    def mixing(self) -> Array:
        """The weights of a hop mixture by operation and hop."""
        return self.arrays["weights"][np.newaxis] if self.kind == "hop-mixture" else self.arrays["weights"]


# Decoding: each takes settings and arrays, and raises ValueError for what it does not know


def decode_filter(settings: Mapping[str, Any], arrays: Mapping[str, Array]) -> ModelLayer:
    """Decode a bank of graph filters: ``taps`` ``(K + 1, F_in, F_out)``, ``bias`` ``(F_out,)``."""
    check_settings(settings, {})
    check_shapes(arrays, {"taps": (3,)}, optional={"bias": (1,)})
    count, inputs, outputs = arrays["taps"].shape
    check_bias(arrays, outputs)
    return ModelLayer("filter", settings, arrays, count - 1, inputs, outputs)


def decode_adaptive_filter(settings: Mapping[str, Any], arrays: Mapping[str, Array]) -> ModelLayer:
    """Decode a bank of graph-adaptive filters: taps as a filter, ``function_taps`` ``(M, K, F_in, F_out)``."""
    check_settings(settings, {"functions": list, "closed": bool})
    check_shapes(arrays, {"taps": (3,), "function_taps": (4,)}, optional={"bias": (1,)})
    count, inputs, outputs = arrays["taps"].shape
    entries, expected = settings["functions"], (len(settings["functions"]), count - 1, inputs, outputs)
    if arrays["function_taps"].shape != expected:
        raise ValueError(f"function_taps must have the shape {expected}, got {arrays['function_taps'].shape}")
    check_bias(arrays, outputs)
    for entry in entries:
        fits = isinstance(entry, dict) and {*entry} == {"operation", "constants"}
        if not fits or type(entry["constants"]) is not dict or type(entry["operation"]) is not str:
            raise ValueError(f"functions must be objects with operation and constants, got {entry!r:.60}")
    dtype = arrays["taps"].dtype
    functions = tuple(
        decode_function(find_operation(each["operation"]), each["constants"], {}, dtype) for each in entries
    )
    size = (count - 1, inputs, outputs)
    return ModelLayer("adaptive-filter", settings, arrays, *size, functions, settings["closed"])


def decode_linear(settings: Mapping[str, Any], arrays: Mapping[str, Array]) -> ModelLayer:
    """Decode a linear map: ``weight`` ``(F_out, F_in)``, ``bias`` ``(F_out,)``."""
    check_settings(settings, {})
    check_shapes(arrays, {"weight": (2,)}, optional={"bias": (1,)})
    outputs, inputs = arrays["weight"].shape
    check_bias(arrays, outputs)
    return ModelLayer("linear", settings, arrays, 0, inputs, outputs)


def decode_pointwise(settings: Mapping[str, Any], arrays: Mapping[str, Array]) -> ModelLayer:
    """Decode a function of each value: ``prelu`` has ``slope``, ``maxout`` has ``slope`` and ``offset``."""
    check_settings(settings, {"function": str})
    function = settings["function"]
    if function not in scalar_functions.FUNCTIONS:
        raise ValueError(f"function must be one of {', '.join(scalar_functions.FUNCTIONS)} on agents, got {function!r}")
    needed = {"prelu": {"slope": (0, 1)}, "maxout": {"slope": (1, 2), "offset": (1, 2)}}.get(function, {})
    check_shapes(arrays, needed)
    if len({array.shape for array in arrays.values()}) > 1:
        raise ValueError(f"slope and offset must have one shape, got {[a.shape for a in arrays.values()]}")
    slope, features = arrays.get("slope"), None
    if slope is not None and slope.ndim == (2 if function == "maxout" else 1):
        features = slope.shape[-1]
    return ModelLayer("pointwise", settings, arrays, 0, features, features)


def decode_hop_mixture(settings: Mapping[str, Any], arrays: Mapping[str, Array]) -> ModelLayer:
    r"""Decode an activation :math:`\beta\,\mathrm{ReLU}(x) + \sum_k h_k\,f_k(x)`.

    ``reads`` is ``shifted`` (graph-adaptive: neighbours of :math:`S^k x`, k = 1..K), ``unshifted`` (the same from k = 0
    on) or ``hops`` (localized: neighbours of x).
    """
    check_settings(settings, {"operation": str, "reads": str, "closed": bool, "constants": dict})
    operation, constants, reads = find_operation(settings["operation"]), settings["constants"], settings["reads"]
    trained = {f"log_{name}": (0,) for name in operation.parameters if name not in constants}
    if reads not in ("shifted", "unshifted", "hops"):
        raise ValueError(f"reads must be 'shifted', 'unshifted' or 'hops', got {reads!r}")
    check_shapes(arrays, {"beta": (0,), "weights": (1, 2), **trained})
    hops = len(arrays["weights"])
    if reads == "hops" and hops > 1:
        raise ValueError(
            "a localized activation must have one hop to run on agents (more need messages from nodes that are not "
            f"neighbours), got {hops}"
        )
    features = arrays["weights"].shape[1] if arrays["weights"].ndim == 2 else None
    exchanges = hops + 1 if reads == "shifted" else hops
    exponents = {name: np.exp(arrays[f"log_{name}"]) for name in operation.parameters if name not in constants}
    function = decode_function(operation, constants, exponents, arrays["beta"].dtype)
    size = (exchanges, features, features)
    return ModelLayer("hop-mixture", settings, arrays, *size, (function,), settings["closed"])


def decode_activation(settings: Mapping[str, Any], arrays: Mapping[str, Array]) -> ModelLayer:
    """Decode ``max-k``, which keeps the k largest features, or ``mixture-ga``, a hop mixture of several operations."""
    kinds = {"function": str, "options": dict, "rounds": int, "features": (int, type(None)), "pools": bool}
    check_settings(settings, kinds)
    function, options, features = settings["function"], settings["options"], settings["features"]
    if function == "max-k":
        check_shapes(arrays, {})
        kept = options.get("k")
        if not (kept is None or (type(kept) is int and kept > 0)) or settings["rounds"]:
            raise ValueError(f"k must be a positive number, got {kept!r}")
        return ModelLayer("activation", settings, arrays, 0, features, features)
    if function != "mixture-ga":
        hint = "; it reads means over all nodes, which no neighbour sends" if settings["pools"] else ""
        raise ValueError(f"agents know the activations max-k, mixture-ga, got {function!r}{hint}")
    names, hops, closed = (options.get(name) for name in ("ops", "hops", "closed"))
    unshifted = options.get("unshifted", False)
    fits = isinstance(names, list) and names and type(hops) is int and type(closed) is type(unshifted) is bool
    if not fits or hops + unshifted < 1:
        raise ValueError(f"ops, hops, closed and unshifted must be names, a number and truth values, got {options}")
    check_shapes(arrays, {"beta": (0,), "weights": (2, 3)})
    expected = (len(names), hops + unshifted) + (() if features is None else (features,))
    if arrays["weights"].shape != expected or settings["rounds"] != hops + 1:
        raise ValueError(f"weights must have the shape {expected} for {hops + 1} exchanges, got {settings['rounds']}")
    functions = tuple(decode_function(find_operation(name), {}, {}, arrays["beta"].dtype) for name in names)
    return ModelLayer("activation", settings, arrays, hops + 1, features, features, functions, closed)


def decode_standardize(settings: Mapping[str, Any], arrays: Mapping[str, Array]) -> ModelLayer:
    """Decode the scaling of readings: ``mean`` and ``std`` ``(F,)``, or ``(N, F)`` with a row for each of ``nodes``."""
    check_settings(settings, {"nodes": (list, type(None)), "window": int, "mask": bool})
    features, window = check_scaling(settings["nodes"], arrays), settings["window"]
    if not 1 <= window <= MAX_WINDOW:
        raise ValueError(f"window must be from 1 to {MAX_WINDOW}, got {window}")
    inputs = window * features
    return ModelLayer("standardize", settings, arrays, 0, inputs, 2 * inputs if settings["mask"] else inputs)


def decode_rescale(settings: Mapping[str, Any], arrays: Mapping[str, Array]) -> ModelLayer:
    """Decode the scaling of outputs, with arrays as that of readings."""
    check_settings(settings, {"nodes": (list, type(None))})
    features = check_scaling(settings["nodes"], arrays)
    return ModelLayer("rescale", settings, arrays, 0, features, features)


DECODERS: dict[str, Callable[[Mapping[str, Any], Mapping[str, Array]], ModelLayer]] = {
    "filter": decode_filter,
    "adaptive-filter": decode_adaptive_filter,
    "linear": decode_linear,
    "pointwise": decode_pointwise,
    "hop-mixture": decode_hop_mixture,
    "activation": decode_activation,
    "standardize": decode_standardize,
    "rescale": decode_rescale,
}
"""Decoders by the kind of a layer."""


def check_settings(settings: Mapping[str, Any], kinds: Mapping[str, Any]) -> None:
    """Raise ValueError unless exactly these settings are there, of these types."""
    if {*settings} != {*kinds}:
        raise ValueError(f"its settings must be {sorted(kinds)}, got {sorted(settings)}")
    for name, kind in kinds.items():
        accepted = kind if isinstance(kind, tuple) else (kind,)
        if type(settings[name]) not in accepted:
            names = " or ".join(each.__name__ for each in accepted)
            raise ValueError(f"{name} must be of type {names}, got {settings[name]!r:.60}")


def check_shapes(
    arrays: Mapping[str, Array],
    needed: Mapping[str, tuple[int, ...]],
    optional: Mapping[str, tuple[int, ...]] | None = None,
) -> None:
    """Raise ValueError unless all needed arrays are there, with these numbers of dimensions, and no others."""
    known = {**needed, **(optional or {})}
    if not {*needed} <= {*arrays} <= {*known}:
        raise ValueError(f"its arrays must be {sorted(known)}, got {sorted(arrays)}")
    for name, array in arrays.items():
        if array.ndim not in known[name] or 0 in array.shape:
            dimensions = " or ".join(map(str, known[name]))
            raise ValueError(f"{name} must have {dimensions} dimensions, got the shape {array.shape}")


def decode_function(
    operation: NeighborhoodFunction, constants: Mapping[str, Any], trained: Mapping[str, Any], dtype: np.dtype[Any]
) -> tuple[NeighborhoodFunction, dict[str, Any]]:
    """Return an operation with its parameters in the precision of the computation; ValueError if they do not fit."""
    are_numbers = all(type(value) in (int, float) and np.isfinite(value) for value in constants.values())
    if {*constants, *trained} != {*operation.parameters} or not are_numbers:
        raise ValueError(f"the parameters of {operation.name!r} must be {list(operation.parameters)}, got {constants}")
    parameters = {name: dtype.type(value) for name, value in {**constants, **trained}.items()}
    check_runs(operation, parameters, dtype)
    return operation, parameters


def check_scaling(nodes: Sequence[Any] | None, arrays: Mapping[str, Array]) -> int:
    """Return the number of features of a scaling; raise ValueError if nodes and arrays do not fit together."""
    check_shapes(arrays, {"mean": (1, 2), "std": (1, 2)})
    mean, std = arrays["mean"], arrays["std"]
    if nodes is not None and not (nodes and all(type(name) is str for name in nodes) and len({*nodes}) == len(nodes)):
        raise ValueError(f"nodes must be different names, or null, got {nodes!r:.60}")
    expected = (mean.shape[-1],) if nodes is None else (len(nodes), mean.shape[-1])
    if not mean.shape == std.shape == expected:
        raise ValueError(f"mean and std must have the shape {expected}, got {mean.shape} and {std.shape}")
    if not (np.isfinite(mean).all() and np.isfinite(std).all() and (std > 0).all()):
        raise ValueError("mean must hold finite numbers, and std positive ones")
    return int(mean.shape[-1])


def check_bias(arrays: Mapping[str, Array], outputs: int) -> None:
    """Raise ValueError if a bias has not one entry for each output."""
    if "bias" in arrays and len(arrays["bias"]) != outputs:
        raise ValueError(f"bias must have {outputs} entries, got {arrays['bias'].shape}")


def decode_layer(entry: Any, parameters: Mapping[str, Array], number: int) -> ModelLayer:
    """Return the layer of an entry of a description; IncompatibleModelError names the part and what is wrong."""
    part = f"layer {number}"
    if isinstance(entry, dict) and entry.get("kind") == "sum":
        return decode_sum(entry, parameters, part)
    if not isinstance(entry, dict) or not isinstance(entry.get("arrays"), dict) or "kind" not in entry:
        raise IncompatibleModelError(part, f"must be an object with kind and arrays, got {entry!r:.60}")
    names = entry["arrays"]
    part = next((str(name).rpartition(".")[0] for name in names.values()), part) or part
    for role, name in names.items():
        if not isinstance(name, str) or name not in parameters:
            raise IncompatibleModelError(part, f"{role} must be a tensor of the file, got {name!r:.60}")
    if entry["kind"] not in DECODERS:
        raise IncompatibleModelError(
            part, f"agents know the layers {', '.join(DECODERS)}, sum, got {entry['kind']!r:.60}"
        )
    settings = {name: value for name, value in entry.items() if name not in ("kind", "arrays")}
    try:
        arrays = {role: parameters[names[role]] for role in sorted(names, key=role_order)}
        return DECODERS[entry["kind"]](settings, arrays)
    except IncompatibleModelError:
        raise
    except (TypeError, ValueError) as error:
        raise IncompatibleModelError(part, str(error)) from error


def decode_sum(entry: Mapping[str, Any], parameters: Mapping[str, Array], part: str) -> ModelLayer:
    """Decode chains whose outputs are added, such as those of a residual layer; none holds a sum itself."""
    branches = entry.get("branches")
    if {*entry} != {"kind", "branches"} or not isinstance(branches, list) or not branches:
        raise IncompatibleModelError(part, f"a sum must have branches, got {sorted(entry)}")
    for inner in (inner for chain in branches for inner in (chain if isinstance(chain, list) else [chain])):
        if not isinstance(inner, dict) or inner.get("kind") == "sum":
            raise IncompatibleModelError(part, f"branches must be lists of layers that are no sums, got {inner!r:.60}")
    try:
        chains = tuple(tuple(decode_layer(inner, parameters, i) for i, inner in enumerate(chain)) for chain in branches)
        widths = [next((layer.in_features for layer in chain if layer.in_features), None) for chain in chains]
        inputs = next((width for width in widths if width), None)
        outputs = {chain_features(chain, inputs or 1) for chain in chains}
        if len(outputs) > 1:
            raise ValueError(f"branches of a sum must have equally many outputs, got {sorted(outputs)}")
    except IncompatibleModelError as error:
        raise IncompatibleModelError(f"{part}, {error.part}", error.reason) from error
    except ValueError as error:
        raise IncompatibleModelError(part, str(error)) from error
    exchanges = sum(layer.exchanges for chain in chains for layer in chain)
    return ModelLayer("sum", {}, {}, exchanges, inputs, outputs.pop() if inputs else None, branches=chains)


def chain_features(layers: Sequence[ModelLayer], features: int) -> int:
    """Return the features of the output of a chain; raise if they do not fit on the way."""
    for layer in layers:
        if layer.in_features not in (None, features):
            raise ValueError(f"signal must have {layer.in_features} features, got {features}")
        features = layer.out_features or features
    return features


def chain_widths(layers: Sequence[ModelLayer], width: int) -> list[int]:
    """Return the number of features that each exchange of a chain carries: those of its layer's input."""
    widths: list[int] = []
    for layer in layers:
        for chain in layer.branches:
            widths += chain_widths(chain, width)
        widths += [] if layer.branches else [width] * layer.exchanges
        width = layer.out_features or width
    return widths


def parts_of(layers: Sequence[Any]) -> list[Any]:
    """Return decoded layers, or entries of a description, with those of branches in the place of their sum."""
    found: list[Any] = []
    for layer in layers:
        branches = layer.get("branches") if isinstance(layer, dict) else layer.branches
        found += [inner for chain in branches for inner in chain] if branches else [layer]
    return found


@dataclass(frozen=True)
class Model:
    """A network that agents can run.

    Args:
        module: the class of the model, such as ``GCNN``; for the file alone.
        config: the arguments of its constructor; likewise.
        parameters: its parameters by name, all float32 or all float64.
        description: its layers as the model file has them: kind, settings, and the names of their parameters.
        frozen: names of the parameters that learning does not change.

    Attributes:
        layers: the same layers, with the parameters.

    Raises:
        IncompatibleModelError: agents cannot run it; the error names the part. It is a ValueError.
    """

    module: str
    config: Mapping[str, Any]
    parameters: Mapping[str, Array] = field(repr=False)
    description: Sequence[Mapping[str, Any]] = field(repr=False)
    frozen: Sequence[str] = ()
    layers: tuple[ModelLayer, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_precision(self.parameters)
        if not isinstance(self.description, list | tuple):
            raise IncompatibleModelError("", f"layers must be a list, got {self.description!r:.60}")
        layers = tuple(decode_layer(entry, self.parameters, i) for i, entry in enumerate(self.description))
        object.__setattr__(self, "layers", layers)
        if sorted(self.names) != sorted(self.parameters):
            raise ValueError(f"parameters must be those of the layers, {self.names}, got {tuple(self.parameters)}")
        if not isinstance(self.frozen, list | tuple) or not {*map(str, self.frozen)} <= {*self.names}:
            raise ValueError(f"frozen must list names of parameters, got {self.frozen!r:.60}")
        self.out_features(self.in_features or 1)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the parameters, layer by layer, by role in a fixed order."""
        described = zip(parts_of(self.layers), parts_of(self.description), strict=True)
        return tuple(entry["arrays"][role] for layer, entry in described for role in layer.arrays)

    @property
    def trained(self) -> tuple[str, ...]:
        return tuple(name for name in self.names if name not in self.frozen)

    @property
    def parts(self) -> list[str]:
        """The name of each layer in errors: the module that holds its parameters, or its number."""
        firsts = [next(iter(entry.get("arrays", {}).values()), None) for entry in self.description]
        return [f"layer {i}" if name is None else name.rpartition(".")[0] for i, name in enumerate(firsts)]

    @property
    def dtype(self) -> np.dtype[Any]:
        return next((p.dtype for p in self.parameters.values()), np.dtype(float))

    @property
    def in_features(self) -> int | None:
        """The features of the input; None if any number will do."""
        return next((layer.in_features for layer in self.layers if layer.in_features is not None), None)

    @property
    def readings(self) -> ModelLayer | None:
        """The layer that scales readings of a sensor, if the model begins with one."""
        return self.layers[0] if self.layers and self.layers[0].kind == "standardize" else None

    @property
    def window(self) -> int:
        """The number of readings that are one input, the newest first."""
        return 1 if self.readings is None else int(self.readings.settings["window"])

    @property
    def takes_missing(self) -> bool:
        """True if NaN in the input stands for a missing reading."""
        return self.readings is not None and bool(self.readings.settings["mask"])

    @property
    def node_names(self) -> tuple[str, ...] | None:
        """The names of the nodes that the model has a scaling of their own for, in the order of its rows."""
        scaled = [layer.settings["nodes"] for layer in self.layers if layer.kind in ("standardize", "rescale")]
        named = [tuple(names) for names in scaled if names is not None]
        return named[0] if named else None

    @property
    def rounds(self) -> int:
        return sum(layer.exchanges for layer in self.layers)

    def widths(self, features: int | None = None) -> list[int]:
        """Return the number of features that each exchange of an inference carries: those of its layer's input."""
        return chain_widths(self.layers, features or self.in_features or 1)

    def out_features(self, features: int) -> int:
        return chain_features(self.layers, features)

    @cached_property
    def digest(self) -> bytes:
        """A hash of the layers and the values of all parameters, whatever file they come from."""
        content = hashlib.sha256(json.dumps(self.description, sort_keys=True).encode())
        for name in self.names:
            array = self.parameters[name]
            content.update(f"{array.dtype} {array.shape}".encode() + array.tobytes())
        return content.digest()


def role_order(role: str) -> tuple[int, str]:
    """Order arrays of a layer: those that carry most first, then by name."""
    first = ("taps", "weight", "slope", "beta", "weights", "bias", "offset")
    return (first.index(role) if role in first else len(first), role)


def check_precision(parameters: Mapping[str, Array]) -> None:
    """Raise IncompatibleModelError unless all parameters are float32, or all float64."""
    found = sorted({str(value.dtype) for value in parameters.values()})
    if found not in ([], ["float32"], ["float64"]):
        reason = f"agents compute in float32 or float64, got {', '.join(found)}; {PRECISION_ADVICE}"
        raise IncompatibleModelError("", reason)


def agreement(model: Model, **settings: Any) -> bytes:
    """Return the digest of what all nodes of a network must agree upon: the model, and settings (JSON values)."""
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
        >>> import numpy as np
        >>> from graphact_agents import Model, cost_of_inference
        >>> filters = {"kind": "filter", "arrays": {"taps": "taps"}}
        >>> model = Model("GraphFilter", {}, {"taps": np.ones((3, 1, 8))}, [filters])
        >>> cost_of_inference(model, num_edges=4)  # 2 rounds of 1 feature
        Cost(rounds=2, messages=8, bytes=512, longest=0.36)
    """
    widths = model.widths(features)
    sizes = [datagram_bytes((*batch, width), model.dtype) for width in widths]
    return Cost(len(widths), len(widths) * num_edges, num_edges * sum(sizes), len(widths) * slot)
