"""Argument checks that all layers share. Every message names the argument, what was expected and what came.

Packages that do without torch use them, too, so torch is imported only where a tensor is checked.
"""

import functools
import inspect
from collections.abc import Iterable, Sequence
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, TypeVar

MAX_SEED = 2**63 - 1
FEW_NAMES = 8  # a longer list hides the suggestion
MIN_PREFIX = 3  # letters that tell what an abbreviation stands for
# Names that other libraries use, too far from ours for difflib; the first one that is known is suggested
ALSO_CALLED = {
    "gpu": ("cuda",),
    "lr": ("learning_rate",),
    "nodes": ("agents", "community_size"),
    "num_nodes": ("agents", "community_size"),
    "row": ("random_walk",),
    "rw": ("random_walk",),
}
T = TypeVar("T")

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    HALF_PRECISION: tuple[torch.dtype, ...]
else:

    def __getattr__(name: str) -> Any:
        """``HALF_PRECISION``, the 16-bit types of torch, when it is first asked for."""
        if name != "HALF_PRECISION":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import torch

        globals()[name] = (torch.float16, torch.bfloat16)
        return globals()[name]


class UserError(RuntimeError):
    """An error that a command shows as one line; other errors of this kind are bugs and keep their traceback."""


def check_integer(name: str, value: Any, *, minimum: int) -> int:
    """Return ``value`` as an int that is at least ``minimum``."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be an integer, got {value!r} of type {type(value).__name__}")
    if value < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {value}")
    return int(value)


def check_seed(name: str, value: Any) -> int:
    """Return ``value`` as an int that every generator of random numbers takes as a seed."""
    if check_integer(name, value, minimum=0) > MAX_SEED:
        raise ValueError(f"{name} must be at most {MAX_SEED}, got {value}")
    return int(value)


def check_number(name: str, value: Any) -> float:
    """Return ``value`` as a float."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, got {value!r} of type {type(value).__name__}")
    return float(value)


def check_positive(name: str, value: Any) -> float:
    """Return ``value`` as a finite float above zero."""
    if not 0 < check_number(name, value) < float("inf"):
        raise ValueError(f"{name} must be a finite number above 0, got {value}")
    return float(value)


def check_probability(name: str, value: Any) -> float:
    """Return ``value`` as a float between 0 and 1."""
    if not 0 <= check_number(name, value) <= 1:
        raise ValueError(f"{name} must lie between 0 and 1, got {value}")
    return float(value)


def check_flag(name: str, value: Any) -> bool:
    """Return ``value`` if it is True or False; other values that Python takes for true are refused."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be true or false, got {value!r} of type {type(value).__name__}")
    return value


def check_choice(name: str, value: Any, choices: Sequence[str]) -> str:
    """Return ``value`` if it is one of ``choices``."""
    if value not in choices:
        meant = did_you_mean(value, choices)
        listed = ", ".join(repr(choice) for choice in choices)
        if meant and len(choices) > FEW_NAMES:
            listed = f"{len(choices)} names"
        raise ValueError(f"{name} must be one of {listed}, got {value!r}{meant}")
    return str(value)


def did_you_mean(value: Any, choices: Iterable[Any]) -> str:
    """The end of a message: what may have been meant, if anything is near."""
    import difflib

    known, name = [str(choice) for choice in choices], str(value).lower()
    near = [other for other in (*ALSO_CALLED.get(name, ()), name) if other in known]
    near += difflib.get_close_matches(str(value), known, n=1, cutoff=0.7)
    near += [each for each in known if is_prefix(name, each) or is_prefix(each, name)]
    return f"; did you mean {near[0]!r}?" if near else ""


def is_prefix(short: str, long: str) -> bool:
    """Return whether a name begins another one and is long enough to stand for it."""
    return len(short) >= MIN_PREFIX and long.startswith(short)


def check_keywords(kind: type[T]) -> type[T]:
    """Let a class refuse an argument that it does not have with the one that may have been meant."""
    construct = kind.__init__
    known = list(inspect.signature(kind).parameters)

    @functools.wraps(construct)
    def checked(self: Any, *arguments: Any, **options: Any) -> None:
        for name in options:
            if name not in known:
                meant = did_you_mean(name, known) or f"; it has {', '.join(known)}"
                raise TypeError(f"{type(self).__name__} has no argument {name!r}{meant}")
        construct(self, *arguments, **options)

    kind.__init__ = checked  # type: ignore[method-assign]
    return kind


def check_generator(value: Any) -> "torch.Generator | None":
    """Return ``value`` if it is a source of randomness on the CPU, or None."""
    import torch

    if value is not None and not isinstance(value, torch.Generator):
        raise TypeError(f"generator must be a torch.Generator or None, got {value!r} of type {type(value).__name__}")
    if value is not None and value.device.type != "cpu":
        raise ValueError(f"generator must be on the CPU, so that draws are the same everywhere, got {value.device}")
    return value


def check_tensor(name: str, value: Any) -> "Tensor":
    """Return ``value`` if it is a tensor."""
    import torch

    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(value).__name__}")
    return value


def converting_to(dtype: "torch.dtype") -> str:
    """The method of tensors and modules that converts them to a type."""
    short = {"torch.float32": "float()", "torch.float64": "double()"}
    return short.get(str(dtype), f"to({dtype})")


def check_companion(name: str, value: "Tensor", signal: "Tensor") -> "Tensor":
    """Return ``value`` in the precision of ``signal``; raise if the two do not go together.

    A half-precision signal may meet float32 values (that is what autocast produces). Any other mixture is a mistake
    that would silently lose or invent digits.
    """
    if value.device != signal.device:
        raise ValueError(f"{name} must be on the device of x, {signal.device}, got {value.device}")
    if value.dtype != signal.dtype:
        is_half = signal.dtype.itemsize == 2 and signal.dtype.is_floating_point
        if not (is_half and value.dtype.is_floating_point):
            raise TypeError(
                f"{name} must have the dtype of x, {signal.dtype}, got {value.dtype}: convert one of them, with "
                f"model.{converting_to(signal.dtype)} or x.{converting_to(value.dtype)}"
            )
        return value.to(signal.dtype)
    return value
