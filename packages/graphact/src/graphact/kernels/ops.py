"""A pass over the neighbours with its shape, batching and gradient rules, each written once.

Torch needs three forms of one operation. Eager code takes the shortest way: the backend is called directly, inside a
plain `torch.autograd.Function` if a gradient is wanted. `torch.compile`, `torch.export` and fake tensors need a
registered operator, one node of their graphs; compiled code passes the handle of a graph instead of its tensors
(:mod:`graphact.graph.handles`). `torch.func.grad`, `jvp` and `vmap` trace a function with a separate
``setup_context`` around that operator. :class:`KernelOp` makes all of them from one set of rules.
"""

import re
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch._functorch import eager_transforms
from torch.utils._pytree import tree_flatten, tree_unflatten

from graphact.graph.eager import outside_compiled_code
from graphact.kernels.dispatch import (
    backend,
    is_differentiated,
    is_forward_mode,
    is_traced,
    materialized,
    requested,
)
from graphact.kernels.graph_tensors import is_of_handles

LIBRARY = torch.library.Library("graphact", "FRAGMENT")
# the host reads degrees to find the launches, so a CUDA graph that the compiler records would be of one graph only
LAUNCHED_BY_THE_HOST = [torch.Tag.cudagraph_unsafe] if hasattr(torch.Tag, "cudagraph_unsafe") else []


class KernelOp:
    """One operation; the operator ``graphact::name`` is among its forms.

    Subclasses define these static methods. Inputs are those of the schema, with a bundle of tensors in the place of the
    flat list of them that the operator takes.

    - ``run(*inputs)``: the result, from a backend.
    - ``fake(*inputs)``: an empty result, for its shape and type; not needed where these are those of the first input.
    - ``save(ctx, inputs, output)``: calls :meth:`save_tensors` with what ``backward`` gets from :meth:`load_saved`; by
      default the bundle and all inputs before it.
    - ``backward(ctx, *grads)``: the gradients of the first inputs; the others get none.
    - ``jvp(inputs, output, tangents)``: the tangents of the outputs; not needed where ``linear`` is given.

    Attributes:
        schema: of the operator.
        signals: how many inputs, the first ones, may have a batch dimension under `torch.vmap`.
        bundle: the class of the bundle, and its position among the inputs.
        linear: groups of inputs, by position; the result is linear in each group while the others stay.
    """

    schema: ClassVar[str]
    signals: ClassVar[int]
    bundle: ClassVar[tuple[Any, int] | None] = None
    linear: ClassVar[tuple[tuple[int, ...], ...]] = ()
    operator: ClassVar[Any]
    by_handles: ClassVar[Any]
    _given: ClassVar[int]  # how many inputs are tensors before the bundle
    _num_trailing: ClassVar[int]  # how many come after it
    _rules: ClassVar[Any]
    _eager: ClassVar[type[torch.autograd.Function]]
    _transformed: ClassVar[type[torch.autograd.Function]]

    def __init_subclass__(cls, name: str) -> None:
        rules: Any = cls
        cls._rules = rules
        defined = torch.library.custom_op(
            f"graphact::{name}",
            lambda *inputs: rules.run(*cls._bundled(inputs)),
            mutates_args=(),
            schema=cls.schema,
            tags=LAUNCHED_BY_THE_HOST,
        )
        cls.operator = getattr(torch.ops.graphact, name)
        cls._given = cls.signals if cls.bundle is None else cls.bundle[1]
        cls._num_trailing = len(cls.operator.default._schema.arguments) - cls._given - 1
        defined.register_fake(rules.fake)
        defined.register_vmap(cls.batched)
        defined.register_autograd(cls._gradients, setup_context=cls._set_up)
        cls._eager, cls._transformed = _functions(cls, name)
        if cls.bundle is not None:
            cls.by_handles = _operator_by_handles(cls, f"{name}_by_handles")

    @classmethod
    def apply(cls, *inputs: Any) -> Any:
        """The result, in the form that fits where it is computed."""
        if is_traced(inputs[0] if inputs[0] is not None else next(x for x in inputs if x is not None)):
            if torch.compiler.is_compiling() and is_forward_mode():
                return _apply_eagerly(cls, *inputs)  # registered operators have no forward mode
            if torch.compiler.is_compiling() or not torch._C._are_functorch_transforms_active():
                if cls.bundle is not None and is_of_handles(inputs[cls.bundle[1]]):
                    return cls.by_handles(*cls._flat(inputs, "handles"))
                return cls.operator(*cls._flat(inputs))
            if eager_transforms.JVP_NESTING < 2:
                return cls._transformed.apply(*cls._splat(inputs))
            with backend("reference"):  # in plain torch, as functions of autograd lose the tangents of an outer level
                return cls._rules.run(*inputs)
        for x in inputs[: cls._given]:
            if x is not None and x._is_zerotensor():
                return cls.apply(*map(materialized, inputs))
        return cls._eager.apply(*inputs) if is_differentiated(*inputs) else cls._rules.run(*inputs)

    fake: ClassVar[Callable[..., Any]] = staticmethod(lambda x, *_: x.new_empty(x.shape))

    @classmethod
    def save(cls, ctx: Any, inputs: tuple[Any, ...], _: Any) -> None:
        """Save the bundle and all inputs before it."""
        cls.save_tensors(ctx, inputs[cls._given], *inputs[: cls._given])

    @staticmethod
    def save_tensors(ctx: Any, bundle: Any, *tensors: Tensor | None) -> None:
        """Save tensors and an optional bundle for the backward pass, which detects changes in place since."""
        parts = bundle if isinstance(bundle, (list, tuple)) else ()
        ctx.bundle, ctx.count = None if isinstance(bundle, list) else bundle, len(tensors)
        ctx.keeping = (*tensors, *(part for part in parts if isinstance(part, Tensor)))

    @classmethod
    def load_saved(cls, ctx: Any) -> tuple[Any, ...]:
        """Return the saved tensors, then the bundle, if there was one."""
        tensors = ctx.saved_tensors  # once: non-reentrant checkpoints allow a single access
        saved, rest = tensors[: ctx.count], tensors[ctx.count : ctx.kept]
        if ctx.bundle is not None:
            return *saved, ctx.bundle
        return (*saved, cls.bundle[0].from_flat(rest)) if cls.bundle is not None and rest else saved

    @classmethod
    def batched(cls, info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> tuple[Any, Any]:
        """The batching rule: a signal takes any leading dimensions, so a batch of signals is a signal."""
        outputs = cls.operator(*cls.batch_first(info, in_dims, inputs), *inputs[cls.signals :])
        if isinstance(outputs, Tensor):
            return outputs, 0
        return outputs, tuple(0 if output.dim() > 1 else None for output in outputs)  # empty ones have no batch

    @classmethod
    def batch_first(
        cls, info: Any, in_dims: tuple[Any, ...], inputs: tuple[Any, ...], count: int | None = None
    ) -> list[Any]:
        """The signals, or the first ``count`` inputs, the batch dimension first; those without one are repeated."""
        count = cls.signals if count is None else count
        for dims in in_dims[count:]:
            if dims is not None and not (isinstance(dims, (list, tuple)) and all(dim is None for dim in dims)):
                raise NotImplementedError("vmap over graphs is not supported: join them with Graph.union instead")
        return [
            x if x is None else x.expand(info.batch_size, *x.shape) if dim is None else x.movedim(dim, 0)
            for x, dim in zip(inputs[:count], in_dims[:count], strict=True)
        ]

    @classmethod
    def _bundled(cls, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Convert the inputs of the operator to those of the rules."""
        if cls.bundle is None:
            return inputs
        kind, at = cls.bundle
        return *inputs[:at], kind.from_flat(inputs[at]), *inputs[at + 1 :]

    @classmethod
    def _flat(cls, inputs: tuple[Any, ...], form: str = "flat") -> tuple[Any, ...]:
        """Convert the inputs of the rules to those of the operator."""
        if cls.bundle is None:
            return inputs
        kind, at = cls.bundle
        return *inputs[:at], getattr(kind, form)(inputs[at]), *inputs[at + 1 :]

    @classmethod
    def _splat(cls, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Convert the inputs of the rules to those of an autograd function; nested vmaps accept no lists of tensors."""
        if cls.bundle is None:
            return inputs
        kind, at = cls.bundle
        return *inputs[:at], *kind.flat(inputs[at]), *inputs[at + 1 :]

    @classmethod
    def _listed(cls, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Convert the inputs of that function to those of the operator."""
        if cls.bundle is None:
            return inputs
        at, end = cls.bundle[1], len(inputs) - cls._num_trailing
        return *inputs[:at], list(inputs[at:end]), *inputs[end:]

    @classmethod
    def _set_up(cls, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.backend = requested()
        cls._rules.save(ctx, inputs, output)
        keeping, ctx.keeping = ctx.keeping, None
        ctx.kept = len(keeping)
        if not is_forward_mode():
            ctx.save_for_backward(*keeping)
            return
        leaves, ctx.structure = tree_flatten((inputs, output))
        ctx.constants = [None if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        # under vmap, torch remembers one list of batch dimensions for what is saved for both directions
        everything = (*keeping, *(leaf if isinstance(leaf, Tensor) else None for leaf in leaves))
        ctx.save_for_backward(*everything)
        ctx.save_for_forward(*everything)

    @classmethod
    def _tangents(cls, ctx: Any, *tangents: Any) -> Any:
        """Return the tangents of the outputs; a bundle has none."""
        saved = zip(ctx.saved_tensors[ctx.kept :], ctx.constants, strict=True)
        leaves = [constant if tensor is None else tensor for tensor, constant in saved]
        inputs, output = tree_unflatten(leaves, ctx.structure)
        if any(isinstance(each, list) for each in inputs):  # as the operator takes them
            inputs = cls._bundled(inputs)
        return cls._rules.jvp(inputs, output, tangents)

    @classmethod
    def jvp(cls, inputs: tuple[Any, ...], _: Any, tangents: tuple[Any, ...]) -> Any:
        """The product rule."""
        total = None
        for group in cls.linear:
            if all(tangents[at] is None for at in group):
                continue
            varied = list(inputs)
            for at in group:
                if inputs[at] is not None:
                    varied[at] = torch.zeros_like(inputs[at]) if tangents[at] is None else tangents[at]
            term = cls.apply(*varied)
            total = term if total is None else total + term
        return total

    @classmethod
    def _gradients(cls, ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        """Return the gradients of all inputs, from the backend of the forward pass.

        Autograd may run a backward pass in another thread, where ``with backend(...)`` has no effect.
        """
        if requested() == ctx.backend:
            found = cls._rules.backward(ctx, *grads)
        else:
            with backend(ctx.backend):
                found = cls._rules.backward(ctx, *grads)
        others = ctx.needs_input_grad[len(found) :]
        return *found, *([None] * len(other) if isinstance(other, list) else None for other in others)


@outside_compiled_code("torch.func.jvp is not compiled: compile the function that it differentiates")
def _apply_eagerly(operation: type[KernelOp], *inputs: Any) -> Any:
    return operation.apply(*inputs)


def _functions(
    operation: type[KernelOp], name: str
) -> tuple[type[torch.autograd.Function], type[torch.autograd.Function]]:
    """Return the operation as functions of autograd: for eager code, and around the operator for `torch.func`."""

    def run_and_save(ctx: Any, *inputs: Any) -> Any:
        output = operation._rules.run(*inputs)
        operation._set_up(ctx, inputs, output)
        return output

    def run_operator(*inputs: Any) -> Any:
        return operation.operator(*operation._listed(inputs))

    def save_listed(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        operation._set_up(ctx, operation._listed(inputs), output)

    # eager code has no setup_context of its own: torch would bind the inputs to the names of parameters at each call
    rules: dict[str, Any] = {
        "backward": staticmethod(operation._gradients),
        "jvp": staticmethod(operation._tangents),
    }
    eager = {"forward": staticmethod(run_and_save), **rules}
    transformed = {
        "forward": staticmethod(run_operator),
        "setup_context": staticmethod(save_listed),
        "generate_vmap_rule": True,
        **rules,
    }
    bases = (torch.autograd.Function,)
    return type(name, bases, eager), type(f"{name}_transformed", bases, transformed)


def _operator_by_handles(operation: type[KernelOp], name: str) -> Any:
    """Define the operator that takes the handles of a graph instead of a list of its tensors."""
    assert operation.bundle is not None
    (kind, at), rules = operation.bundle, operation._rules
    LIBRARY.define(name + re.sub(r"Tensor\[\] (lists|graph)", r"SymInt[] \1", operation.schema))

    def run(*inputs: Any) -> Any:
        return rules.run(*inputs[:at], kind.find(kind.from_handles(inputs[at])), *inputs[at + 1 :])

    def set_up(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        operation._set_up(ctx, (*inputs[:at], kind.from_handles(inputs[at]), *inputs[at + 1 :]), output)

    def gradients(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        return operation._gradients(ctx, *grads)

    qualified = f"graphact::{name}"
    LIBRARY.impl(name, run, "CompositeExplicitAutograd")
    torch.library.register_fake(qualified, rules.fake, lib=LIBRARY)
    torch.library.register_autograd(qualified, gradients, setup_context=set_up, lib=LIBRARY)
    return getattr(torch.ops.graphact, name)
