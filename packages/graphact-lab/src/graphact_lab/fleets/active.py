"""Classifiers of a fleet that are still trained, stacked: parameters, Adam, dropout, best scores, and which stopped.

All of it stays on the device, and no step of an epoch waits for a value, so that an epoch can be recorded.
"""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from graphact._checks import check_integer
from graphact.training.randomness import scramble
from graphact_lab.protocols import TrainingJob, run_seed
from graphact_lab.selection import TrainingTrial

T = TypeVar("T")
BETAS, EPSILON = (0.9, 0.999), 1e-8
State = dict[str, Tensor]
LIVE_TENSORS = 24  # signals of a layer that are held at once, about
MEMORY = {"cuda": 48 * 2**30, "cpu": 2 * 2**30}


@dataclass(eq=False)
class ActiveModels:
    """The models that are still trained; every tensor has a leading dimension R."""

    parameters: State
    buffers: State
    seeds: Tensor
    rates: Tensor
    decays: Tensor
    dropouts: Tensor
    nodes: State
    counts: State
    losses: Tensor | None = None  # (R, window): those of the last epochs, where they decide

    def __post_init__(self) -> None:
        self.draws = draws_of(self.seeds, self.dropouts)

    def begin(self, patience: int, keep: bool, window: int | None = None) -> None:
        """Forget all epochs before."""
        self.patience, device = patience, self.seeds.device
        self.stopped = torch.zeros_like(self.seeds, dtype=torch.bool)
        size = None if window is None else check_integer("window", window, minimum=1)
        self.losses = None if size is None else self.rates.new_zeros(len(self.seeds), size)
        self.steps = torch.zeros((), dtype=torch.int64, device=device)  # epochs
        self.updates = self.steps.clone()  # steps of Adam
        self.best = torch.full(self.seeds.shape, torch.nan, dtype=torch.float64, device=device)
        self.best_test, self.best_epoch = self.best.clone(), torch.zeros_like(self.seeds)
        self.first = {name: torch.zeros_like(tensor) for name, tensor in self.parameters.items()}
        self.second = {name: torch.zeros_like(tensor) for name, tensor in self.parameters.items()}
        self.kept = {name: tensor.detach().clone() for name, tensor in self.state().items()} if keep else {}

    def state(self) -> State:
        return {**self.parameters, **self.buffers}

    def is_waiting(self) -> Tensor:
        """Return which models may still improve."""
        return self.steps - self.best_epoch <= self.patience if self.losses is None else ~self.stopped

    def masks(self, site: int, shape: tuple[int, ...]) -> Tensor:
        """The masks of dropout of this step."""
        owner, stream = self.draws
        drawn = dropout_masks(self.seeds[owner], self.dropouts[owner], self.updates, site, shape)
        return drawn if len(owner) == len(self.seeds) else drawn.index_select(0, stream)

    def select(self, scores: tuple[Tensor, Tensor]) -> None:
        """Note the scores of the models as they are, where the first is better than before."""
        validation, test = scores
        better = ((validation > self.best) | self.best.isnan()) & ~validation.isnan()
        self.keep(better & self.is_waiting() & (self.steps > 0), validation, test)

    def follow(self, scores: tuple[Tensor, Tensor], losses: Tensor) -> None:
        """Note the scores of the models that still run, and stop those whose loss is above the mean of those before."""
        assert self.losses is not None
        runs = ~self.stopped & (self.steps > 0)
        self.keep(runs, *scores)
        is_full = self.steps > self.losses.size(1) + 1  # one epoch later than it need be, as in that code
        self.stopped.logical_or_(runs & is_full & (losses > self.losses.mean(1)))
        moved = torch.cat([self.losses[:, 1:], losses.unsqueeze(1)], 1)
        self.losses.copy_(torch.where(runs.unsqueeze(1), moved, self.losses))

    def keep(self, better: Tensor, validation: Tensor, test: Tensor) -> None:
        """Take the scores and states of some models as their best."""
        for best, value in ((self.best, validation), (self.best_test, test), (self.best_epoch, self.steps)):
            best.copy_(torch.where(better, value, best))
        for name, tensor in self.state().items():
            if name in self.kept:
                self.kept[name].copy_(torch.where(along(better, tensor), tensor.detach(), self.kept[name]))

    @torch.no_grad()
    def adam(self, grads: Mapping[str, Tensor | None], decayed: set[str]) -> None:
        """One step of Adam with an L2 penalty; torch's has no rate and decay for each model of a stack."""
        self.updates.add_(1)
        corrections = [1 - beta ** self.updates.double() for beta in BETAS]
        for name, parameter in self.parameters.items():
            grad, first, second = grads[name], self.first[name], self.second[name]
            if grad is None:
                continue
            if name in decayed:
                grad = grad + along(self.decays, parameter) * parameter
            first.lerp_(grad, 1 - BETAS[0])
            second.mul_(BETAS[1]).addcmul_(grad, grad, value=1 - BETAS[1])
            scale = (second / corrections[1]).sqrt_().add_(EPSILON)
            parameter.sub_(along(self.rates, parameter) / corrections[0] * (first / scale))

    def rows(self, index: Tensor) -> "ActiveModels":
        """Some of the models, as far as they have come."""
        made = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, dict):
                setattr(made, name, {key: tensor.detach().index_select(0, index) for key, tensor in value.items()})
            elif isinstance(value, Tensor):
                setattr(made, name, value.index_select(0, index) if value.dim() else value.clone())
        for parameter in made.parameters.values():
            parameter.requires_grad_()
        made.draws = draws_of(made.seeds, made.dropouts)
        return made


def draws_of(seeds: Tensor, dropouts: Tensor) -> tuple[Tensor, Tensor]:
    """Return the first model of each seed and share, and for each model its place among these.

    Models of one seed and share drop the same units, which are drawn once.
    """
    pairs = list(zip(seeds.tolist(), dropouts.tolist(), strict=True))
    place = {pair: number for number, pair in enumerate(dict.fromkeys(pairs))}
    owner = torch.tensor([pairs.index(pair) for pair in place], device=seeds.device)
    return owner, torch.tensor([place[pair] for pair in pairs], device=seeds.device)


def along(values: Tensor, tensor: Tensor) -> Tensor:
    """One value for each model, ready to be broadcast against a stacked tensor."""
    return values.view(-1, *[1] * (tensor.dim() - 1))


def dropout_masks(seeds: Tensor, rates: Tensor, step: Tensor | int, site: int, shape: tuple[int, ...]) -> Tensor:
    """Draw the dropout masks of each model, ``(R, *shape)``: 0 for dropped units, a factor above 1 for others.

    Args:
        seeds: ``(R,)``, int64; models of one seed and rate drop the same units.
        rates: ``(R,)``; the shares to drop, below 1, to the nearest multiple of 2^-16.
        step: the number of the step, on the host or on the device.
        site: tells apart the places of one step at which units are dropped.
        shape: of the signal of one model.

    Example:
        >>> import torch
        >>> masks = dropout_masks(torch.tensor([3, 7]), torch.tensor([0.5, 0.0]), 1, 0, (2, 3))
        >>> masks.unique(), masks[1]
        (tensor([0., 1., 2.]), tensor([[1., 1., 1.],
                [1., 1., 1.]]))
    """
    count = math.prod(shape)
    streams = scramble(scramble(scramble(seeds) + step) + ~site)
    words = scramble(streams.unsqueeze(-1) + torch.arange(-(-count // 4), device=seeds.device))
    bits = words.view(torch.int16)[:, :count]  # four draws of 16 bits in each word
    dropped = (rates.double() * 2**16).round().clamp(max=2**16 - 1).unsqueeze(-1)
    scale = (2**16 / (2**16 - dropped)).to(rates.dtype)
    return torch.where(bits >= (dropped - 2**15).to(torch.int16), scale, 0).unflatten(-1, shape)


def models_at_once(job: TrainingJob, nodes: int, device: str) -> int:
    """Return about how many models of a job fit into memory."""
    bytes_each = 4 * nodes * job.features * LIVE_TENSORS * job.protocol.layers
    return max(1, MEMORY[torch.device(device).type] // bytes_each)


def trial_options(job: TrainingJob, trials: Sequence[TrainingTrial]) -> dict[str, Any]:
    """Return the arguments of a fleet that differ between trials: seeds, rates, decays and dropouts."""
    seeds = [run_seed("dropout", job.seed, trial.replica) for trial in trials]
    points = [trial.point for trial in trials]
    rates, decays, dropouts = ([getattr(one, name) for one in points] for name in ("rate", "decay", "dropout"))
    return {"seeds": seeds, "rates": rates, "decays": decays, "dropouts": dropouts}


def in_parts(count: int, size: int, train: Callable[[slice], T]) -> list[T]:
    """Call ``train`` with consecutive slices of ``count`` models, as large as memory allows; return its results.

    A slice has at most ``size`` models, and half as many from then on whenever a device runs out of memory.
    """
    made, start = list[T](), 0
    while start < count:
        part = slice(start, min(start + size, count))
        try:
            made.append(train(part))
            start = part.stop
        except torch.OutOfMemoryError:
            size = (part.stop - part.start) // 2
            if size == 0:
                raise
        if start < part.stop:  # after the error, which holds what was allocated
            torch.cuda.empty_cache()
    return made
