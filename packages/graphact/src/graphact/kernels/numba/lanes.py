"""Numbers side by side: the columns that a compiled kernel keeps in registers along a list; and how it walks.

Numba vectorises loops, but keeps what a loop adds up in memory. Here a few columns are one value, `Lanes`, that
compiled code adds, multiplies and compares as it does numbers: ``total = total + weight * load(x, at, live)``.

Signals are flat arrays of B x N x C numbers. A plane is a section of the columns of one sample; a range of work counts
rows on and on through the planes. A row is done block by block of columns: along the list of
neighbours, all that adds up stays in registers. Neighbours come one after another in the order of the list, so results
depend neither on the number of threads nor on how the work is cut. All integers are unsigned: an index that could be
negative would have to be looked at before each use.
"""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, models, overload, register_model

from graphact.kernels.numba.launch import BYTES, Array, Number, Size, helper

ONE, TWO = np.uint64(1), np.uint64(2)
LINE = np.uint64(16)  # numbers in a line of memory
ALL = None  # for `live`: a whole block


class Lanes(types.Type):
    """The type of ``count`` numbers side by side."""

    def __init__(self, number: types.Type, count: int) -> None:
        self.number, self.count = number, count
        super().__init__(name=f"Lanes({number}, {count})")


@register_model(Lanes)
class LanesInRegisters(models.PrimitiveModel):
    """Lanes as an LLVM vector."""

    def __init__(self, manager: Any, lanes: Lanes) -> None:
        one = manager.lookup(lanes.number).get_value_type()
        super().__init__(manager, lanes, ir.VectorType(one, lanes.count))


# a function for kernels, by the rule that gives its type and its instructions
in_compiled_code: Callable[[Callable[..., Any]], Callable[..., Any]] = intrinsic


@in_compiled_code
def load(_: Any, array: Array, at: Size, live: Any) -> Any:
    """A block of numbers, from ``array[at]`` on; beyond the first ``live`` none is read."""
    lanes = Lanes(array.dtype, 8 * BYTES // array.dtype.bitwidth)
    return lanes(array, at, live), _loading(array, live, lanes)


@in_compiled_code
def load_half(_: Any, array: Array, at: Size, live: Any) -> Any:
    """The same for half a block: so many values of it may be kept in registers."""
    lanes = Lanes(array.dtype, 4 * BYTES // array.dtype.bitwidth)
    return lanes(array, at, live), _loading(array, live, lanes)


@in_compiled_code
def load_beside(_: Any, array: Array, at: Size, live: Any, others: Any) -> Any:
    """The same for as many numbers as there are ``others``, which may be of another size."""
    lanes = Lanes(array.dtype, others.count)
    return lanes(array, at, live, others), _loading(array, live, lanes)


@in_compiled_code
def store(_: Any, array: Array, at: Size, live: Any, lanes: Any) -> Any:
    """Write a block, its integers cut to the type of ``array``."""

    def emit(context: Any, builder: Any, _: Any, values: Any) -> Any:
        stored = Lanes(array.dtype, lanes.count)
        pointer = _pointer(context, builder, array, values, stored)
        vector, value = pointer.type.pointee, values[3]
        if array.dtype.bitwidth < lanes.number.bitwidth:
            value = builder.trunc(value, vector)
        size = array.dtype.bitwidth // 8
        if live == types.none:
            builder.store(value, pointer, align=size)
        else:
            arguments = [value, pointer, ir.IntType(32)(size), _mask(builder, values[2], lanes.count)]
            _call(builder, "llvm.masked.store", ir.VoidType(), arguments, f".{_suffix(vector)}.p0")
        return context.get_dummy_value()

    return types.void(array, at, live, lanes), emit


@in_compiled_code
def fill(_: Any, number: Number, like: Any) -> Any:
    """The same number in as many lanes as ``like`` has."""
    lanes = Lanes(number, like.count)

    def emit(context: Any, builder: Any, _: Any, values: Any) -> Any:
        return _repeat(builder, context.get_value_type(lanes), values[0])

    return lanes(number, like), emit


@in_compiled_code
def blend(_: Any, mask: Any, yes: Any, no: Any) -> Any:
    """One or the other, lane by lane."""
    return yes(mask, yes, no), lambda _, builder, __, values: builder.select(*values)


@in_compiled_code
def some(_: Any, mask: Any) -> Any:
    """Return true if any lane is true."""

    def emit(_: Any, builder: Any, __: Any, values: Any) -> Any:
        bits = ir.IntType(mask.count)
        return builder.icmp_unsigned("!=", builder.bitcast(values[0], bits), bits(0))

    return types.boolean(mask), emit


@in_compiled_code
def square_root(_: Any, lanes: Any) -> Any:
    """The square roots of floating-point numbers."""

    def emit(_: Any, builder: Any, __: Any, values: Any) -> Any:
        return _call(builder, "llvm.sqrt", values[0].type, [values[0]], f".{_suffix(values[0].type)}")

    return lanes(lanes), emit


@in_compiled_code
def prefetch(_: Any, array: Array, at: Size) -> Any:
    """Ask for the line of memory that holds ``array[at]``, which will soon be read."""

    def emit(context: Any, builder: Any, _: Any, values: Any) -> Any:
        i32 = ir.IntType(32)
        pointer = _pointer(context, builder, array, values, Lanes(types.uint8, 1))
        _call(builder, "llvm.prefetch", ir.VoidType(), [pointer, i32(0), i32(3), i32(1)], ".p0")
        return context.get_dummy_value()

    return types.void(array, at), emit


def _binary(operation: Callable[..., Any], emit: Callable[[Any, types.Type, Any], Any], to_mask: bool = False) -> None:
    """Teach compiled code an operation on lanes."""

    @in_compiled_code
    def apply(_: Any, left: Any, right: Any) -> Any:
        result = Lanes(types.boolean, left.count) if to_mask else left
        return result(left, right), lambda _, builder, __, values: emit(builder, left.number, values)

    def on_lanes(left: Any, right: Any) -> Any:
        return apply(left, right)

    @overload(operation)
    def _(left: Any, right: Any) -> Any:
        return on_lanes if isinstance(left, Lanes) and isinstance(right, Lanes) else None


def _arithmetic(name: str) -> Callable[[Any, types.Type, Any], Any]:
    def emit(builder: Any, number: types.Type, values: Any) -> Any:
        return getattr(builder, f"f{name}" if isinstance(number, types.Float) else name)(*values)

    return emit


def _comparison(sign: str) -> Callable[[Any, types.Type, Any], Any]:
    def emit(builder: Any, number: types.Type, values: Any) -> Any:
        if isinstance(number, types.Float):  # NaN differs from all numbers, and no other comparison holds
            return (builder.fcmp_unordered if sign == "!=" else builder.fcmp_ordered)(sign, *values)
        return builder.icmp_signed(sign, *values)

    return emit


for name in ("add", "sub", "mul"):
    _binary(getattr(operator, name), _arithmetic(name))
_binary(operator.truediv, lambda builder, _, values: builder.fdiv(*values))
for name, sign in {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}.items():
    _binary(getattr(operator, name), _comparison(sign), to_mask=True)
_binary(operator.and_, lambda builder, _, values: builder.and_(*values))
_binary(operator.or_, lambda builder, _, values: builder.or_(*values))
_binary(operator.xor, lambda builder, _, values: builder.xor(*values))
_binary(operator.rshift, lambda builder, _, values: builder.ashr(*values))


# What the above is made of


def _pointer(context: Any, builder: Any, array: Any, values: Any, lanes: Lanes) -> Any:
    """Return the address of element ``values[1]`` of ``values[0]`` as a pointer to lanes."""
    data = context.make_array(array)(context, builder, values[0]).data
    return builder.bitcast(builder.gep(data, [values[1]]), context.get_value_type(lanes).as_pointer())


def _loading(array: Any, live: Any, lanes: Lanes) -> Callable[..., Any]:
    size = array.dtype.bitwidth // 8

    def emit(context: Any, builder: Any, _: Any, values: Any) -> Any:
        pointer = _pointer(context, builder, array, values, lanes)
        if live == types.none:
            return builder.load(pointer, align=size)
        vector = context.get_value_type(lanes)
        arguments = [pointer, ir.IntType(32)(size), _mask(builder, values[2], lanes.count), vector(None)]
        return _call(builder, "llvm.masked.load", vector, arguments, f".{_suffix(vector)}.p0")

    return emit


def _mask(builder: Any, live: Any, count: int) -> Any:
    """True in the first lanes, ``live`` in number."""
    numbers = ir.VectorType(live.type, count)
    return builder.icmp_unsigned("<", numbers(list(range(count))), _repeat(builder, numbers, live))


def _repeat(builder: Any, vector: Any, number: Any) -> Any:
    """The same number in all lanes."""
    one = builder.insert_element(vector(ir.Undefined), number, ir.IntType(32)(0))
    nowhere = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), None)
    return builder.shuffle_vector(one, vector(ir.Undefined), nowhere)


def _call(builder: Any, name: str, result: Any, arguments: list[Any], suffix: str) -> Any:
    signature = ir.FunctionType(result, [argument.type for argument in arguments])
    name += suffix
    function = builder.module.globals.get(name) or ir.Function(builder.module, signature, name)
    return builder.call(function, arguments)


def _suffix(vector: Any) -> str:
    kind = {"float": "f32", "double": "f64"}.get(str(vector.element), str(vector.element))
    return f"v{vector.count}{kind}"


# How kernels go through a signal


@helper
def row_of(task: Size, rowptr: Array, columns: Size, number: Size, width: Size) -> tuple[Size, ...]:
    """For a row of the work: the first node of its sample, its own node, its place in a signal, its list, its columns.

    Lists and columns are given by where they begin and end.
    """
    nodes = np.uint64(rowptr.size) - ONE
    plane, i = task // nodes, task % nodes
    base, left = plane // number * nodes, plane % number * width
    return base, i, (base + i) * columns, rowptr[i], rowptr[i + ONE], left, min(left + width, columns)


@helper
def over_blocks(block: Any, left: Size, right: Size, lanes: Size, arguments: tuple[Any, ...]) -> None:
    """Call ``block(low, live, *arguments)`` for all blocks of columns; the last one may be cut short."""
    cut = left + (right - left) // lanes * lanes
    for low in range(left, cut, lanes):
        block(low, ALL, *arguments)
    if cut < right:
        block(cut, right - cut, *arguments)


@helper
def look_ahead(
    x: Array, col: Array, edge: Size, stop: Size, ahead: Size, base: Size, columns: Size, left: Size, right: Size
) -> None:
    """Ask for the rows of neighbours that will be read soon, ``ahead`` edges from here."""
    edges = np.uint64(col.size)
    for e in range(min(edge + ahead, edges), min(stop + ahead, edges)):
        at = (base + col[e]) * columns
        for c in range(left, right, LINE):
            prefetch(x, at + c)


@helper
def weighted_sum(
    low: Size, live: Any, like: Any, col: Array, weight: Array, x: Array, edge: Size, stop: Size, base: Size,
    columns: Size
) -> Any:  # fmt: skip
    """The shift of a block of columns, as many of them as ``like`` has."""
    total = fill(x.dtype.type(0), like)
    for e in range(edge, stop):
        total = total + fill(weight[e], total) * load_beside(x, (base + col[e]) * columns + low, live, like)
    return total


@helper
def rank(col: Array, edge: Size, stop: Size, i: Size) -> Size:
    """Return the position of node i among ``col[edge:stop]``, which ascends."""
    while edge < stop:
        middle = (edge + stop) // TWO
        if col[middle] < i:
            edge = middle + ONE
        else:
            stop = middle
    return edge
