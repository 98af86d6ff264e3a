"""A module taken apart into what the certificates reason about: taps, coefficients, readout, all in float64."""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from graphact.layers import UnsupportedModelError
from graphact.nn import FIR, GCNN, GraphAdaptive, GraphAdaptiveKernel, GraphFilter, LocalizedMax, LocalizedMedian, ReLU
from graphact.nn.activation import MixedActivation
from graphact.nn.base import describe

Reads = Literal["shifted", "hops"]


@dataclass(frozen=True)
class Nonlinearity:
    r"""An activation :math:`\beta\,\mathrm{ReLU}(x) + \sum_{k=1}^{K} h_k\,f_k(x)`; a plain ReLU has K = 0.

    Attributes:
        op: "max", "min", "median" or "kernel".
        reads: "shifted" (the one-hop neighbours of :math:`S^k x`) or "hops" (the k-hop neighbours of x).
        beta: scalar.
        weights: ``(K, F)``.
        gamma: width of the kernel's Gaussian.
        closed: whether a node counts among its neighbours.
    """

    op: str
    reads: Reads
    beta: Tensor
    weights: Tensor
    gamma: Tensor
    closed: bool


@dataclass(frozen=True)
class Stage:
    """A filter bank, then an activation; either may be missing.

    Attributes:
        taps: ``(K + 1, F_in, F_out)``.
        bias: ``(F_out,)``.
        nonlinearity: the activation.
    """

    taps: Tensor | None
    bias: Tensor | None
    nonlinearity: Nonlinearity | None


@dataclass(frozen=True)
class Network:
    """Stages and a readout ``(O, F)`` with its constants ``(O,)``."""

    in_features: int
    stages: tuple[Stage, ...]
    readout: Tensor | None = None
    readout_bias: Tensor | None = None


def take_apart(module: nn.Module) -> Network:
    """The parts of a GCNN, an FIR, a filter bank or an activation, as they are now; gradients flow back to them.

    An activation that shares its weights among features treats all of them alike, so one feature stands for all.

    Raises:
        TypeError: the module is none of these, or applies a function of the user's own.
    """
    describe(module)  # refuses what was changed
    if isinstance(module, GCNN):
        pairs = zip(module.filters, module.activations, strict=True)
        stages = tuple(_stage(bank, _nonlinearity(activation, _width(bank))) for bank, activation in pairs)
        return Network(_width(module.filters[0], 1), stages, *_readout(module.readout))
    if isinstance(module, FIR):
        stages = tuple(_stage(bank, None) for bank in module.filters)
        return Network(_width(module.filters[0], 1), stages, *_readout(module.readout))
    if isinstance(module, GraphFilter):
        return Network(module.in_features, (_stage(module, None),))
    width = module.features or 1 if isinstance(module, MixedActivation) else 1
    return Network(width, (Stage(None, None, _nonlinearity(module, width)),))


def fit_together(network: Network, x: Tensor) -> tuple[Network, Tensor]:
    """A network for the features of signals, and the signals as float64 ``(B, N, F)``.

    An activation that shares its weights takes any number of features; everything else has its own.

    Raises:
        ValueError: the numbers of features differ, or there is no signal.
    """
    if x.numel() == 0:
        raise ValueError(f"x must hold at least one signal, got the shape {tuple(x.shape)}")
    features, stage = x.size(-1), network.stages[0]
    if features != network.in_features:
        if stage.taps is not None or stage.nonlinearity is None or network.in_features != 1:
            raise ValueError(f"x must have {network.in_features} features, got {features}")
        weights = stage.nonlinearity.weights.expand(-1, features)
        network = Network(features, (replace(stage, nonlinearity=replace(stage.nonlinearity, weights=weights)),))
    return network, wide(x.detach()).reshape(-1, *x.shape[-2:])


def _width(bank: nn.Module, dimension: int = 2) -> int:
    assert isinstance(bank, GraphFilter)
    return bank.out_features if dimension == 2 else bank.in_features


def _stage(bank: nn.Module, nonlinearity: Nonlinearity | None) -> Stage:
    assert isinstance(bank, GraphFilter)
    return Stage(wide(bank.taps), None if bank.bias is None else wide(bank.bias), nonlinearity)


def _readout(readout: nn.Module) -> tuple[Tensor | None, Tensor | None]:
    if not isinstance(readout, nn.Linear):
        return None, None
    return wide(readout.weight), None if readout.bias is None else wide(readout.bias)


def _nonlinearity(module: nn.Module, features: int) -> Nonlinearity:
    if isinstance(module, ReLU):
        one = torch.ones((), dtype=torch.float64)
        return Nonlinearity("max", "hops", one, one.new_zeros(0, features), one, False)
    op, reads = _operation(module)
    assert isinstance(module, MixedActivation)
    weights = wide(module.weights)
    weights = weights if weights.dim() == 2 else weights.unsqueeze(-1).expand(-1, features)
    gamma = module.gamma if isinstance(module, GraphAdaptiveKernel) else 0.1
    gamma = wide(gamma) if isinstance(gamma, Tensor) else torch.tensor(gamma, dtype=torch.float64)
    return Nonlinearity(op, reads, wide(module.beta), weights, gamma, module.closed)


def _operation(module: nn.Module) -> tuple[str, Reads]:
    if isinstance(module, MixedActivation) and not module.operation.is_built_in:
        raise UnsupportedModelError("", f"nothing is known about a function of your own, {module.operation.name!r}")
    if isinstance(module, LocalizedMax):
        return "max", "hops"
    if isinstance(module, LocalizedMedian):
        return "median", "hops"
    if isinstance(module, GraphAdaptiveKernel):
        return "kernel", "shifted"
    if isinstance(module, GraphAdaptive) and isinstance(module.op, str):
        return module.op, "shifted"
    raise TypeError(
        f"module must be a GCNN, FIR, GraphFilter or an activation of graphact.nn, got {type(module).__name__}"
    )


def wide(tensor: Tensor) -> Tensor:
    """The same numbers in float64 on the CPU, still attached to what they came from."""
    return tensor.to("cpu", torch.float64)
