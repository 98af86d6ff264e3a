"""A bracket around the median that gets narrower with every count: the steps of a search, for Triton kernels.

Numbers are held as keys, unsigned integers in the same order. The median m of a list lies in ``low < m <= high``; of
its numbers, ``below`` are at most ``low`` and ``upto`` at most ``high``. A step counts the numbers up to three pivots
inside the bracket. They are put around a first guess, then where the ranks let expect the median; after a step that
told little, they halve the keys, so that no list takes long. The search may end as soon as the median is the first or
the last number inside the bracket, which one more look finds.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs

import triton
import triton.language as tl

BY_RANK, HALVING, GUESSED = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)  # where the next pivots come from


@triton.jit
def lower_number(a, b):
    """The lower of two numbers; NaN is none."""
    return tl.minimum(a, b)


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
def is_within(low, high, below, upto, smaller):
    """Whether the median may be neither the first nor the last number in the bracket."""
    return (smaller > below) & (smaller < upto - 1) & (high - low > 1)


@triton.jit
def guess_of(total, squares, amount, wide: tl.constexpr):
    """The mean of some numbers, and how far from it their median may be expected."""
    count = tl.maximum(amount, 1).to(wide)
    mean = total / count
    return mean, 1.5 * tl.sqrt(tl.maximum(squares / count - mean * mean, 0.0) / count)


@triton.jit
def pivots_inside(low, high, below, upto, smaller, source, guess, reach, wide: tl.constexpr, signed: tl.constexpr, top):
    """Three keys strictly inside a bracket that is open, ascending where the guess is a number."""
    unsigned: tl.constexpr = low.dtype
    inside = tl.maximum(upto - below, 1).to(wide)
    expected = (smaller - below + 0.5).to(wide) / inside
    spread = 0.8 * tl.sqrt(expected * (1.0 - expected) / inside) + 0.3 / inside
    bottom, top_number = number_of(low, wide, top), number_of(high, wide, top)
    span = top_number - bottom
    by_rank = (span < float("inf")) & (source == BY_RANK)  # not so for NaN
    span = tl.where(by_rank, span, 0.0)
    center = tl.where(by_rank, bottom + expected * span, guess)
    reach = tl.where(by_rank, spread * span, reach)
    first = ascending_key(center - reach, signed, unsigned, top)
    second = ascending_key(center, signed, unsigned, top)
    third = ascending_key(center + reach, signed, unsigned, top)
    half = (high - low) >> 1
    by_number = by_rank | (source == GUESSED)
    first = tl.where(by_number, first, low + (half >> 1))
    second = tl.where(by_number, second, low + half)
    third = tl.where(by_number, third, low + half + (half >> 1))
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
def after_counts(low, high, below, upto, smaller, source, active, first, a, second, b, third, c):
    """The bracket after the numbers up to three pivots were counted: ``a``, ``b`` and ``c``; and the next source."""
    before = upto - below
    low, high, below, upto = narrowed(low, high, below, upto, smaller, first, a, active)
    low, high, below, upto = narrowed(low, high, below, upto, smaller, second, b, active)
    low, high, below, upto = narrowed(low, high, below, upto, smaller, third, c, active)
    told_little = (source != HALVING) & (2 * (upto - below) > before)
    return low, high, below, upto, tl.where(told_little, HALVING, BY_RANK)


@triton.jit
def end_of_bracket(low, high, below, smaller, wide: tl.constexpr, signed: tl.constexpr, top):
    """A sign and a bound: times that sign, the median is the lowest number that is not up to the bound.

    The bound is NaN where all numbers are beyond it.
    """
    unsigned: tl.constexpr = low.dtype
    is_first = smaller == below
    mirrored = ascending_key(-number_of(high, wide, top), signed, unsigned, top) - 1
    bound = tl.where(is_first, number_of(low, wide, top), number_of(mirrored, wide, top))
    return tl.where(is_first, 1.0, -1.0).to(wide), bound
