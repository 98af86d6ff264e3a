"""Triton's interpreter without what it does again and again; the kernels are computed as before."""

from contextlib import contextmanager
from types import SimpleNamespace
from unittest import mock


def reduce_by_halves(reduction, given):
    """A reduction as on a GPU, half of the numbers with the other half, not number by number."""
    import triton.language as tl

    given, axis = reduction.unravel(given, reduction.axis)
    data, types = [part.handle.data for part in given], [part.dtype for part in given]
    size = data[0].shape[axis]
    while size > 1:
        assert size % 2 == 0, "blocks have sizes that are powers of two"
        size //= 2
        halves = [
            reduction.to_tensor(part.take(range(start, start + size), axis), dtype)
            for start in (0, size)
            for part, dtype in zip(data, types, strict=True)
        ]
        found = reduction.combine_fn.fn(*halves)
        data = [part.handle.data for part in ((found,) if isinstance(found, tl.tensor) else found)]
    if not reduction.keep_dims:
        data = [part.squeeze(axis) for part in data]
    elif reduction.axis is None:
        data = [part.reshape((1,) * len(given[0].shape)) for part in data]
    return [reduction.to_tensor(part, dtype) for part, dtype in zip(data, types, strict=True)]


@contextmanager
def swift():
    """Put the interpreted language in place once, not at each call of a function; look up types; reduce by halves.

    Operands of one shape are left as they are, and sums are not checked where nobody is told what that finds. It all
    takes a quarter of the time. Versions of Triton whose interpreter is another one are left as they are.
    """
    import triton.language as tl
    from triton.language.semantic import TritonSemantic
    from triton.runtime import interpreter

    if not hasattr(interpreter, "_LangPatchScope"):
        yield
        return
    scope = interpreter._patch_lang(SimpleNamespace(__globals__={"tl": tl, "core": tl.core}))
    nothing, types, compute = interpreter._LangPatchScope(), {}, interpreter._get_np_dtype

    def leave_language(_):
        return nothing

    def look_up(dtype):
        name = dtype.scalar.name
        if name not in types:
            types[name] = compute(dtype)
        return types[name]

    blocks, make_block = {}, tl.block_type.__init__

    def take_block(block, element_ty, shape):
        key = (element_ty.name, *(getattr(size, "value", size) for size in shape))
        if key not in blocks:
            make_block(block, element_ty, shape)
            blocks[key] = block.__dict__
        block.__dict__.update(blocks[key])

    sizes, make_tensor = {}, tl.tensor.__init__

    def take_sizes(tensor, handle, type):  # noqa: A002, as Triton names it
        shape = (*type.shape,) if type.is_block() else ()
        if shape not in sizes:
            make_tensor(tensor, handle, type)
            sizes[shape] = dict(tensor.__dict__)
        tensor.__dict__.update(sizes[shape], handle=handle, type=type, dtype=type.scalar)

    broadcast = TritonSemantic.broadcast_impl_value

    def broadcast_others(semantic, one, other):
        shapes = [list(each.type.shape) if each.type.is_block() else None for each in (one, other)]
        return (one, other) if shapes[0] == shapes[1] else broadcast(semantic, one, other)

    check_overflow = TritonSemantic.binary_op_sanitize_overflow_impl

    def check_if_told(semantic, *operation):
        if semantic.builder.options.debug:  # without it, Triton computes the check and drops it
            check_overflow(semantic, *operation)

    try:
        with (
            mock.patch.object(interpreter, "_patch_lang", leave_language),
            mock.patch.object(interpreter, "_get_np_dtype", look_up),
            mock.patch.object(tl.block_type, "__init__", take_block),
            mock.patch.object(tl.tensor, "__init__", take_sizes),
            mock.patch.object(TritonSemantic, "broadcast_impl_value", broadcast_others),
            mock.patch.object(TritonSemantic, "binary_op_sanitize_overflow_impl", check_if_told),
            mock.patch.object(interpreter.ReduceOps, "generic_reduce", reduce_by_halves),
        ):
            yield
    finally:
        scope.restore()
