"""Random orders and random streams that depend on a seed, an epoch and a batch alone.

A counter-based generator needs no state: a run that resumes at epoch 200, a model trained alone and the same model
inside a fleet, on any device, all see the same samples in the same order, and drop the same units.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


def epoch_order(seeds: Tensor, epoch: int, count: int) -> Tensor:
    """A random order of ``count`` samples for each seed, ``(R, count)``, new in every epoch; seeds are ``(R,)``."""
    if count == 1:
        return torch.zeros(len(seeds), 1, dtype=torch.int64, device=seeds.device)
    samples = torch.arange(count, device=seeds.device)
    streams = scramble(scramble(seeds) + epoch)
    return scramble(streams.unsqueeze(-1) + samples).argsort(dim=-1)


def scramble(bits: Tensor) -> Tensor:
    """The finaliser of SplitMix64 (Steele, Lea, Flood 2014): a bijection of int64 whose outputs look random."""
    bits = bits * _signed(0x9E3779B97F4A7C15) + _signed(0x9E3779B97F4A7C15)
    bits = (bits ^ _shift_right(bits, 30)) * _signed(0xBF58476D1CE4E5B9)
    bits = (bits ^ _shift_right(bits, 27)) * _signed(0x94D049BB133111EB)
    return bits ^ _shift_right(bits, 31)


def _signed(value: int) -> int:
    """A 64-bit pattern as the signed integer that torch takes."""
    return value - (1 << 64) if value >= 1 << 63 else value


def _shift_right(bits: Tensor, by: int) -> Tensor:
    """A logical shift; torch's is arithmetic."""
    return (bits >> by) & ((1 << (64 - by)) - 1)


@contextmanager
def random_stream(device: torch.device, seed: int, epoch: int, batch: int) -> Iterator[None]:
    """Let random operations on the CPU and on ``device`` draw from a stream of their own.

    The stream depends on the three numbers alone. Afterwards the generators of torch are as they were before.
    """
    generators = [torch.default_generator]
    if device.type == "cuda":
        number = torch.cuda.current_device() if device.index is None else device.index
        generators.append(torch.cuda.default_generators[number])
    before = [generator.get_state() for generator in generators]
    digest = hashlib.blake2b(f"{seed} {epoch} {batch}".encode(), digest_size=8).digest()
    try:
        for generator in generators:
            generator.manual_seed(int.from_bytes(digest, "big") >> 1)
        yield
    finally:
        for generator, state in zip(generators, before, strict=True):
            generator.set_state(state)
