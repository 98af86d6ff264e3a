"""Networks of comparisons that leave the lower median of a short list in place, for many columns at once.

The comparisons do not depend on the values, so each is one instruction for all lanes. For lists up to `IN_REGISTERS`
the whole network is compiled as one piece, whose values never leave the registers.
"""

from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from graphact.kernels._cpu_lanes import in_compiled_code
from graphact.kernels._cpu_run import Array, Size

IN_REGISTERS = 32
LONGEST = 64  # lists up to this length go through a network
BYTES = 64  # of a signal side by side
LOW, HIGH, BOTH = range(3)


@in_compiled_code
def middle(_: Any, length: Size, x: Array, at: Size, rows: Array, out: Array) -> Any:
    """Put the lower median of ``x[rows[0] + at], ..., x[rows[length - 1] + at]`` into ``out``, for 64 bytes of columns.

    The length is 1..IN_REGISTERS; no value is NaN, or else the result has no meaning.
    """

    def emit(context: Any, builder: Any, _: Any, values: Any) -> Any:
        data, offsets, result = (
            context.make_array(array)(context, builder, value).data
            for array, value in ((x, values[1]), (rows, values[3]), (out, values[4]))
        )
        data = builder.gep(data, [values[2]])
        end = builder.append_basic_block("end")
        choice = builder.switch(values[0], end)
        for number in range(1, IN_REGISTERS + 1):
            with builder.goto_block(builder.append_basic_block(f"of_{number}")):
                builder.call(_network(builder.module, x.dtype, number), [data, offsets, result])
                choice.add_case(values[0].type(number), builder.block)
                builder.branch(end)
        builder.position_at_end(end)
        return context.get_dummy_value()

    return types.void(length, x, at, rows, out), emit


def _network(module: Any, number: Any, length: int) -> Any:
    """The compiled network for lists of one length."""
    one = ir.FloatType() if number.bitwidth == 32 else ir.DoubleType()
    size = number.bitwidth // 8
    lanes = ir.VectorType(one, BYTES // size)
    signature = ir.FunctionType(ir.VoidType(), [one.as_pointer(), ir.IntType(64).as_pointer(), one.as_pointer()])
    name = f"middle_of_{length}_{number}"
    if name in module.globals:
        return module.globals[name]
    function = ir.Function(module, signature, name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    builder = ir.IRBuilder(function.append_basic_block())
    x, rows, out = function.args
    values = []
    for k in range(length):
        row = builder.load(builder.gep(rows, [ir.IntType(64)(k)]))
        values.append(builder.load(builder.bitcast(builder.gep(x, [row]), lanes.as_pointer()), align=size))
    for a, b, keep in median_network(length):
        left, right = values[a], values[b]
        if keep != HIGH:
            values[a] = builder.select(builder.fcmp_ordered("<", right, left), right, left)
        if keep != LOW:
            values[b] = builder.select(builder.fcmp_ordered(">", right, left), right, left)
    builder.store(values[(length - 1) // 2], builder.bitcast(out, lanes.as_pointer()), align=size)
    builder.ret_void()
    return function


@cache
def tables() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """All networks; the comparisons for lists of length d are in rows ``starts[d]`` to ``starts[d + 1]``."""
    networks = [median_network(length) for length in range(LONGEST + 1)]
    starts = np.cumsum([0, *map(len, networks)])
    return np.array([row for network in networks for row in network], dtype=np.uint64), starts.astype(np.uint64)


def median_network(length: int) -> list[tuple[int, int, int]]:
    """The comparisons of Batcher's odd-even merge sort that the lower median depends on.

    Each is (offset, offset, which of the two results is needed).
    """
    needed, kept = {(length - 1) // 2}, []
    for a, b in reversed(_sorting_network(length)):
        if a in needed or b in needed:
            kept.append((a, b, BOTH if a in needed and b in needed else LOW if a in needed else HIGH))
            needed |= {a, b}
    return kept[::-1]


def _sorting_network(length: int) -> list[tuple[int, int]]:
    pairs = []
    merged = 1
    while merged < length:
        apart = merged
        while apart >= 1:
            for start in range(apart % merged, length - apart, 2 * apart):
                for a in range(start, min(start + apart, length - apart)):
                    if a // (2 * merged) == (a + apart) // (2 * merged):
                        pairs.append((a, a + apart))
            apart //= 2
        merged *= 2
    return pairs
