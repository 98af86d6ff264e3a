"""How far the maximum, minimum or lower median of a neighbourhood can move when some of its members are lost."""

import torch
from torch import Tensor


def change_of_selected(low: Tensor, high: Tensor, op: str, lost: int, *, may_be_empty: bool) -> Tensor:
    """The largest change of the selected value when up to ``lost`` of d members are lost, any of them.

    Args:
        low: the members are at least this, ``(..., d, F)``.
        high: and at most this.
        op: "max", "min" or "median" (the lower one).
        lost: how many can be lost, at most d.
        may_be_empty: whether a neighbourhood without members, whose value is 0, can be left.
    """
    if lost == 0:
        return torch.zeros_like(low.sum(-2))
    if op == "min":
        return change_of_selected(-high, -low, "max", lost, may_be_empty=may_be_empty)
    low, high = low.sort(-2).values, high.sort(-2).values
    count = low.size(-2)
    place = place_of(op, count)
    before_low, before_high = low[..., place, :], high[..., place, :]
    change = torch.zeros_like(before_low)
    for fewer in range(1, min(lost, count - 1) + 1):
        # what stands at a place of the members left stood there before, or up to `fewer` places above
        left = place_of(op, count - fewer)
        after_low, after_high = low[..., left, :], high[..., left + fewer, :]
        change = torch.maximum(change, torch.maximum(after_high - before_low, before_high - after_low))
    if lost == count and may_be_empty:
        change = torch.maximum(change, torch.maximum(before_low.abs(), before_high.abs()))
    return change


def place_of(op: str, count: int) -> int:
    """Where the selected value stands among that many in ascending order."""
    return count - 1 if op == "max" else (count - 1) // 2
