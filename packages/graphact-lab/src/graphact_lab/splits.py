"""Randomness from given seeds alone; and which samples to learn from, to choose with, and to report on."""

import hashlib
from typing import Any, NamedTuple

import torch
from torch import Tensor

from graphact._checks import check_integer, check_seed
from graphact.graph import Graph


def data_generator(purpose: str, seed: int, *numbers: int) -> torch.Generator:
    """A generator on the CPU, seeded from what it is used for, a seed, and the number of the realisation.

    Every combination has its own stream: one purpose never uses up the randomness of another.

    Example:
        >>> import torch
        >>> draws = [torch.rand(1, generator=data_generator("noise", 0, split)) for split in (0, 1, 0)]
        >>> draws[0] == draws[2], draws[0] == draws[1]
        (tensor([True]), tensor([False]))
    """
    numbers = tuple(check_seed("seed", number) for number in (seed, *numbers))
    key = "/".join([purpose, *map(str, numbers)])
    return torch.Generator().manual_seed(int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big"))


def check_drawn(name: str, value: Any, *, minimum: int = 0) -> int:
    """Return the number of something that a task draws, such as its graph, or how many of them."""
    if isinstance(value, Graph) or (isinstance(value, list | tuple) and any(isinstance(one, Graph) for one in value)):
        what = f"how many {name} are drawn" if name.endswith("s") else f"the number of a {name} that the task draws"
        raise TypeError(
            f"{name} must be an integer, {what}, got a Graph; signals on a graph of your own are a "
            "graphact.training.Task(graph=graph, inputs=x, targets=y, ...)"
        )
    return check_integer(name, value, minimum=minimum)


class Split(NamedTuple):
    """Index tensors (int64) that share no sample."""

    train: Tensor
    validation: Tensor
    test: Tensor


def random_split(count: int, *, validation: int, test: int, generator: torch.Generator) -> Split:
    """Deal the samples 0 to ``count - 1`` at random; what is left after test and validation is for training.

    The test samples come first in the random order, so they do not depend on the size of the validation set.
    """
    if validation + test >= count:
        raise ValueError(
            f"at least one of {count} samples must remain for training, got {validation} for validation and {test} "
            "for testing"
        )
    order = torch.randperm(count, generator=generator)
    return Split(order[test + validation :], order[test : test + validation], order[:test])


def eighty_ten_ten(count: int, generator: torch.Generator) -> Split:
    """Deal 80 % of the samples for training, 10 % for validation (both rounded) and the rest for testing.

    Example:
        >>> import torch
        >>> [part.numel() for part in eighty_ten_ten(744, torch.Generator())]
        [595, 74, 75]
    """
    train, validation = round(0.8 * count), round(0.1 * count)
    return random_split(count, validation=validation, test=count - train - validation, generator=generator)


def class_split(labels: Tensor, *, per_class: int, validation: int, test: int, generator: torch.Generator) -> Split:
    """Deal ``per_class`` samples of each class for training, and of the rest some for validation and for testing.

    Args:
        labels: ``(N,)``, integers; samples with a label below 0 are left out.
        per_class, validation, test: numbers of samples.
        generator: source of randomness, on the CPU.

    Example:
        >>> import torch
        >>> labels = torch.tensor([0, 1, 0, 1, 1, -1, 0])
        >>> split = class_split(labels, per_class=2, validation=1, test=1, generator=torch.Generator().manual_seed(0))
        >>> labels[split.train], len(split.validation), len(split.test)
        (tensor([0, 0, 1, 1]), 1, 1)
    """
    order = torch.randperm(labels.numel(), generator=generator)
    order = order[labels[order] >= 0]
    dealt = labels[order]
    first = [(dealt == label).nonzero().squeeze(1)[:per_class] for label in dealt.unique()]
    if any(len(chosen) < per_class for chosen in first) or len(order) < len(first) * per_class + validation + test:
        raise ValueError(
            f"{per_class} samples of each class, {validation} for validation and {test} for testing were expected, "
            f"got classes of {dealt.bincount().tolist()}"
        )
    training = torch.cat(first)
    others = torch.ones(len(order), dtype=torch.bool)
    others[training] = False
    rest = order[others]
    return Split(order[training], rest[:validation], rest[validation : validation + test])
