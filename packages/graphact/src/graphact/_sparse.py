"""Sparse tensors of torch, without what it says about them at their first use in a process."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quietly() -> Iterator[None]:
    """Their indices are right by construction, and that they are in beta, users of this library need not know."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse (CSR tensor support is in beta|invariant checks are)")
        yield
