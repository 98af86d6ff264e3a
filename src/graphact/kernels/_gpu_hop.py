"""The Triton kernel for one look at the neighbours: their extreme value or squared distance, and their weighted sum."""

# mypy: allow-untyped-defs, allow-incomplete-defs

import triton
import triton.language as tl

from graphact.kernels._gpu_walk import UNROLL, columns_of_program, list_of_row, piece_of_list, rows_of_program


@triton.jit
def is_ahead(value, best, largest: tl.constexpr):
    """Whether a value wins over the best one; NaN wins over all numbers, and the first among equals stays."""
    ahead = value > best if largest else value < best
    return ahead | ((value != value) & (best == best))


@triton.jit
def more_extreme(a, b, largest: tl.constexpr):
    """The larger or the smaller of two numbers; NaN where one of them is."""
    both: tl.constexpr = tl.PropagateNan.ALL
    return tl.maximum(a, b, propagate_nan=both) if largest else tl.minimum(a, b, propagate_nan=both)


@triton.jit
def place_of_own(members, begin, end, node):
    """How many neighbours have a lower number than the node itself."""
    low = begin
    high = tl.maximum(begin, end)
    while tl.max((high - low).to(tl.int32), 0) > 0:
        middle = (low + high) // 2
        searching = low < high
        lower = searching & (tl.load(members + middle, mask=searching, other=0) < node)
        high = tl.where(lower, high, tl.where(searching, middle, high))
        low = tl.where(lower, middle + 1, low)
    return (low - begin).to(tl.int32)


@triton.jit
def with_own(best, place, own, members, begin, end, node, largest: tl.constexpr):
    """The choice in a closed neighbourhood: the node itself, at the place d after d neighbours, is a candidate, too."""
    degree = (end - begin).to(tl.int32)[:, None]
    before = place_of_own(members, begin, end, node)[:, None]
    equal = (own == best) | ((own != own) & (best != best))
    wins = is_ahead(own, best, largest) | (equal & (place >= before)) | (degree == 0)
    return tl.where(wins, own, best), tl.where(wins, degree, place)


@triton.jit(do_not_specialize=["count", "last", "rows"])
def hop_kernel(
    values,
    places,
    shifted,
    x,
    weight,
    pointers,
    members,
    order,
    count,
    last,
    rows,
    nodes,
    columns,
    lanes: tl.constexpr,
    block: tl.constexpr,
    wide: tl.constexpr,
    shared: tl.constexpr,
    ordered: tl.constexpr,
    batched: tl.constexpr,
    piece: tl.constexpr,
    op: tl.constexpr,
    closed: tl.constexpr,
    shifting: tl.constexpr,
):
    """See :func:`graphact.kernels.reference.hop`; ``op`` is "max", "min", "kernel" or "none".

    With ``piece``, programs look at so many neighbours each, and write what they find piece after piece.
    """
    choosing: tl.constexpr = op == "max" or op == "min"
    largest: tl.constexpr = op == "max"
    node, base, alive, writes = rows_of_program(order, count, last, rows, nodes, lanes, shared, ordered, batched)
    column, inside = columns_of_program(columns, block)
    begin, end, enter, steps = list_of_row(pointers, node, alive, False, lanes, shared)
    stop = end
    if piece > 0:
        enter, stop, steps = piece_of_list(begin, end, piece, lanes)
    stride: tl.constexpr = lanes if shared else 1
    own = ((base + node) * columns)[:, None] + column[None, :]
    mask_own = alive[:, None] & inside[None, :]
    loser: tl.constexpr = float("-inf") if largest else float("inf")
    best = tl.full((lanes, block), loser if choosing else 0.0, dtype=wide)
    place = tl.zeros((lanes, block), dtype=tl.int32) + (enter - begin).to(tl.int32)[:, None]
    total = tl.zeros((lanes, block), dtype=wide)
    center = total
    if op == "kernel":
        center = tl.load(x + own, mask=mask_own, other=0.0).to(wide)
    for step in range(0, steps, UNROLL):
        for ahead in tl.static_range(UNROLL):
            position = enter + (step + ahead) * stride
            there = position < stop
            j = tl.load(members + position, mask=there, other=0).to(tl.int64)
            at = ((base + j) * columns)[:, None] + column[None, :]
            mask = there[:, None] & inside[None, :]
            value = tl.load(x + at, mask=mask, other=loser if choosing and not shifting else 0.0).to(wide)
            if shifting:
                factor = tl.load(weight + position, mask=there, other=0.0).to(wide)
                total += factor[:, None] * value
            if choosing:
                if shifting:
                    value = tl.where(mask, value, loser)
                ahead = value > best if largest else value < best
                place = tl.where(ahead, (position - begin).to(tl.int32)[:, None], place)
                best = more_extreme(best, value, largest)
            if op == "kernel":
                distance = tl.where(mask, center - value, 0.0)
                best += distance * distance
    if choosing:
        # NaN has come through, but not its place, and of both zeros the sign of either
        unknown = best != best
        if tl.max(tl.max(unknown.to(tl.int32), 1), 0) > 0:
            for step in range(0, steps):
                position = enter + (steps - 1 - step) * stride
                there = position < stop
                j = tl.load(members + position, mask=there, other=0).to(tl.int64)
                at = ((base + j) * columns)[:, None] + column[None, :]
                value = tl.load(x + at, mask=there[:, None] & inside[None, :], other=0.0).to(wide)
                place = tl.where(unknown & (value != value), (position - begin).to(tl.int32)[:, None], place)
        zero = mask_own & (best == 0.0)
        if tl.max(tl.max(zero.to(tl.int32), 1), 0) > 0:
            source = tl.load(members + begin[:, None] + place, mask=zero, other=0).to(tl.int64)
            at = (base[:, None] + source) * columns + column[None, :]
            best = tl.where(zero, tl.load(x + at, mask=zero, other=0.0).to(wide), best)
    if shared:
        if shifting:
            total = tl.sum(total, 0)[None, :] + tl.zeros((lanes, block), dtype=wide)
        if op == "kernel":
            best = tl.sum(best, 0)[None, :] + tl.zeros((lanes, block), dtype=wide)
        if choosing:
            unknown = best != best
            numbers = tl.where(unknown, loser, best)
            winner = tl.max(numbers, 0) if largest else tl.min(numbers, 0)
            wins = tl.where(tl.max(unknown.to(tl.int32), 0)[None, :] > 0, unknown, best == winner[None, :])
            wins &= (enter < stop)[:, None]
            first = tl.min(tl.where(wins, place, 2147483647), 0)
            place = first[None, :] + tl.zeros((lanes, block), dtype=tl.int32)
            found = mask_own & (first < 2147483647)[None, :]
            position = tl.where(found, begin[:, None] + place, 0)
            source = tl.load(members + position, mask=found, other=0).to(tl.int64)
            best = tl.load(x + (base[:, None] + source) * columns + column[None, :], mask=found, other=0.0).to(wide)
            place = tl.where(found, place, 0)
    mask = writes[:, None] & inside[None, :]
    if piece > 0:
        own = ((tl.program_id(2).to(tl.int64) * rows + tl.program_id(0)) * columns + column)[None, :] + 0 * own
        exists = (begin + tl.program_id(2).to(tl.int64) * piece < end)[:, None]
        place = tl.where(exists, place, -1)
    elif choosing:
        best = tl.where((end > begin)[:, None], best, 0.0)
        if closed:
            itself = tl.load(x + own, mask=mask_own, other=0.0).to(wide)
            best, place = with_own(best, place, itself, members, begin, end, node, largest)
    if op != "none":
        tl.store(values + own, best.to(values.dtype.element_ty), mask=mask)
    if choosing:
        tl.store(places + own, place.to(places.dtype.element_ty), mask=mask)
    if shifting:
        tl.store(shifted + own, total.to(shifted.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["count", "last", "rows", "pieces"])
def join_kernel(
    values,
    places,
    shifted,
    found_values,
    found_places,
    found_sums,
    x,
    pieces,
    pointers,
    members,
    order,
    count,
    last,
    rows,
    nodes,
    columns,
    lanes: tl.constexpr,
    block: tl.constexpr,
    wide: tl.constexpr,
    shared: tl.constexpr,
    ordered: tl.constexpr,
    batched: tl.constexpr,
    op: tl.constexpr,
    closed: tl.constexpr,
    shifting: tl.constexpr,
    adding: tl.constexpr,
):
    """Put together what :func:`hop_kernel` and others found piece by piece, or add it to the sums that are there."""
    tl.static_assert(not shared)
    choosing: tl.constexpr = op == "max" or op == "min"
    largest: tl.constexpr = op == "max"
    node, base, alive, writes = rows_of_program(order, count, last, rows, nodes, lanes, False, ordered, batched)
    column, inside = columns_of_program(columns, block)
    begin, end, _, _ = list_of_row(pointers, node, alive, False, lanes, False)
    slot = tl.program_id(0).to(tl.int64) * lanes + tl.arange(0, lanes)
    mask = writes[:, None] & inside[None, :]
    best = tl.full((lanes, block), (float("-inf") if largest else float("inf")) if choosing else 0.0, dtype=wide)
    place = tl.full((lanes, block), -1, dtype=tl.int32)
    total = tl.zeros((lanes, block), dtype=wide)
    for number in range(0, pieces):
        at = ((number * rows + slot) * columns)[:, None] + column[None, :]
        if shifting:
            total += tl.load(found_sums + at, mask=mask, other=0.0)
        if op == "kernel":
            best += tl.load(found_values + at, mask=mask, other=0.0)
        if choosing:
            value = tl.load(found_values + at, mask=mask, other=0.0)
            where = tl.load(found_places + at, mask=mask, other=-1)
            wins = (where >= 0) & (is_ahead(value, best, largest) | (place < 0))
            best = tl.where(wins, value, best)
            place = tl.where(wins, where, place)
    own = ((base + node) * columns)[:, None] + column[None, :]
    if adding:
        total += tl.load(shifted + own, mask=mask, other=0.0).to(wide)
    if closed and choosing:
        itself = tl.load(x + own, mask=mask, other=0.0).to(wide)
        best, place = with_own(best, place, itself, members, begin, end, node, largest)
    if op != "none":
        tl.store(values + own, best.to(values.dtype.element_ty), mask=mask)
    if choosing:
        tl.store(places + own, place.to(places.dtype.element_ty), mask=mask)
    if shifting:
        tl.store(shifted + own, total.to(shifted.dtype.element_ty), mask=mask)
