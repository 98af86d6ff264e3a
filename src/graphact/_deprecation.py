"""Arguments that became keyword-only: the positional order of version 0.1 works for one version, with a warning."""

import functools
import warnings
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def keyword_only_after(count: int, *old_order: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let an ``__init__`` take its keyword-only arguments by position, as in version 0.1, with a DeprecationWarning.

    Positional arguments after the first ``count`` get the names of ``old_order``. A position whose meaning changes is
    not among the first ``count``: it keeps its old meaning as long as the old order works, whatever the new signature
    has there, so that no call silently means something else.

    Args:
        count: number of arguments after ``self`` that stay positional and mean what they meant.
        old_order: names of the arguments that followed them in version 0.1.

    Raises:
        TypeError: a call has more positional arguments than version 0.1 took, or gives an argument twice.

    Example:
        >>> class Filter:
        ...     @keyword_only_after(1, "order", "bias")
        ...     def __init__(self, features, *, order=2, bias=False):
        ...         self.order = order
        >>> import warnings
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     Filter(8, 3).order
        3
        >>> print(caught[0].message)
        Filter: pass order=3 by keyword; by position it works until version 0.3
    """

    def decorate(init: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(init)
        def wrapper(self: Any, *args: Any, **kwargs: Any) -> R:
            given, late = args[:count], args[count:]
            if late:
                kwargs |= _named(type(self).__name__, late, kwargs, count, old_order)
            return init(self, *given, **kwargs)

        return wrapper  # type: ignore[return-value]

    return decorate


def _named(
    owner: str, late: tuple[Any, ...], kwargs: dict[str, Any], count: int, old_order: tuple[str, ...]
) -> dict[str, Any]:
    """The late positional arguments by their old names, after a warning that says how to write the call."""
    if len(late) > len(old_order):
        raise TypeError(f"{owner} takes at most {count + len(old_order)} positional arguments, got {count + len(late)}")
    named = dict(zip(old_order, late, strict=False))
    for name in named:
        if name in kwargs:
            raise TypeError(f"{owner} got multiple values for argument {name!r}")
    written = ", ".join(f"{name}={value!r}" for name, value in named.items())
    them = "it works" if len(named) == 1 else "they work"
    warnings.warn(
        f"{owner}: pass {written} by keyword; by position {them} until version 0.3", DeprecationWarning, stacklevel=3
    )
    return named
