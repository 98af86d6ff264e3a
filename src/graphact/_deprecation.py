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
            owner, late = type(self).__name__, args[count:]
            if len(late) > len(old_order):
                most = count + len(old_order)
                raise TypeError(f"{owner} takes at most {most} positional arguments, got {len(args)}")
            named = dict(zip(old_order, late, strict=False))
            if twice := [name for name in named if name in kwargs]:
                raise TypeError(f"{owner} got multiple values for argument {twice[0]!r}")
            if named:
                written = ", ".join(f"{name}={value!r}" for name, value in named.items())
                them = "it works" if len(named) == 1 else "they work"
                message = f"{owner}: pass {written} by keyword; by position {them} until version 0.3"
                warnings.warn(message, DeprecationWarning, stacklevel=2)
            return init(self, *args[:count], **kwargs, **named)

        return wrapper  # type: ignore[return-value]

    return decorate
