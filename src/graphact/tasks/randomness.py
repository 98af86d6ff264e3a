"""Randomness that depends on numbers given by the caller and on nothing else."""

import hashlib

import torch

from graphact._checks import check_integer


def generator_for(purpose: str, seed: int, *numbers: int) -> torch.Generator:
    """A generator on the CPU, seeded from what it is used for, a seed, and the number of the realisation.

    Every combination has its own stream: one purpose never uses up the randomness of another.

    Example:
        >>> import torch
        >>> draws = [torch.rand(1, generator=generator_for("noise", 0, split)) for split in (0, 1, 0)]
        >>> draws[0] == draws[2], draws[0] == draws[1]
        (tensor([True]), tensor([False]))
    """
    numbers = tuple(check_integer("seed", number, minimum=0) for number in (seed, *numbers))
    key = "/".join([purpose, *map(str, numbers)])
    return torch.Generator().manual_seed(int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big"))
