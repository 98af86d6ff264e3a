"""A bracket around the median that gets narrower with every count: the steps of a search, for Triton kernels.

Numbers are held as keys, unsigned integers in the same order. The median m of a list lies in ``low < m <= high``; of
its numbers, ``below`` are at most ``low`` and ``upto`` at most ``high``. A step counts the numbers up to three pivots
inside the bracket. They are put where the ranks let expect the median; after a step that told little, they halve the
keys, so that no list takes long.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs

import triton
import triton.language as tl


@triton.jit
def ascending_key(value, signed: tl.constexpr, unsigned: tl.constexpr, top):
    """Unsigned integers in the order of the numbers, the same for both zeros; ``top`` has only the highest bit."""
    pattern = value.to(signed, bitcast=True)
    pattern = tl.where(value == 0.0, tl.zeros_like(pattern), pattern)
    key = pattern.to(unsigned, bitcast=True)
    return tl.where(pattern < 0, ~key, key | top)


@triton.jit
def number_of(key, wide: tl.constexpr, top):
    """The number that a key stands for; the key below that of zero stands for the largest number below zero."""
    key = tl.where(key == top - 1, key - 1, key)  # its own pattern, -0.0, has the key of zero
    return tl.where(key >= top, key ^ top, ~key).to(wide, bitcast=True)


@triton.jit
def is_open(low, high, below, upto):
    """Whether numbers that differ may still lie in the bracket."""
    return (upto - below > 1) & (high - low > 1)


@triton.jit
def pivots_inside(low, high, below, upto, smaller, halving, wide: tl.constexpr, signed: tl.constexpr, top):
    """Three ascending keys strictly inside a bracket that is open."""
    unsigned: tl.constexpr = low.dtype
    inside = tl.maximum(upto - below, 1).to(wide)
    expected = (smaller - below + 0.5).to(wide) / inside
    spread = 1.2 * tl.sqrt(expected * (1.0 - expected) / inside) + 0.3 / inside
    bottom, top_number = number_of(low, wide, top), number_of(high, wide, top)
    span = top_number - bottom
    by_rank = (span < float("inf")) & (halving == 0)  # not so for NaN
    start, reach = tl.where(by_rank, bottom, 0.0), tl.where(by_rank, span, 0.0)
    first = ascending_key(start + (expected - spread) * reach, signed, unsigned, top)
    second = ascending_key(start + expected * reach, signed, unsigned, top)
    third = ascending_key(start + (expected + spread) * reach, signed, unsigned, top)
    half = (high - low) >> 1
    first = tl.where(by_rank, first, low + (half >> 1))
    second = tl.where(by_rank, second, low + half)
    third = tl.where(by_rank, third, low + half + (half >> 1))
    least, most = low + 1, high - 1
    first = tl.minimum(tl.maximum(first, least), most)
    second = tl.minimum(tl.maximum(second, least), most)
    third = tl.minimum(tl.maximum(third, least), most)
    return first, second, third


@triton.jit
def narrowed(low, high, below, upto, smaller, pivot, count, active):
    """The bracket after ``count`` numbers were found to be at most ``pivot``."""
    above = active & (count <= smaller)
    not_above = active & (count > smaller)
    low = tl.where(above, tl.maximum(low, pivot), low)
    below = tl.where(above, tl.maximum(below, count), below)
    high = tl.where(not_above, tl.minimum(high, pivot), high)
    upto = tl.where(not_above, tl.minimum(upto, count), upto)
    return low, high, below, upto


@triton.jit
def after_counts(low, high, below, upto, smaller, halving, active, first, a, second, b, third, c):
    """The bracket after the numbers up to three pivots were counted: ``a``, ``b`` and ``c``; and how to go on.

    Returns the bracket, whether the next pivots are to halve the keys, and whether the bracket is still open.
    """
    before = upto - below
    low, high, below, upto = narrowed(low, high, below, upto, smaller, first, a, active)
    low, high, below, upto = narrowed(low, high, below, upto, smaller, second, b, active)
    low, high, below, upto = narrowed(low, high, below, upto, smaller, third, c, active)
    halving = ((halving == 0) & (2 * (upto - below) > before)).to(tl.int32)
    return low, high, below, upto, halving, is_open(low, high, below, upto)
