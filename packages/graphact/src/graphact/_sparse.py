"""Sparse tensors of torch without its warnings at their first use."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quietly() -> Iterator[None]:
    """Silence the warnings that sparse CSR is in beta and that indices are unchecked; ours are valid."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse (CSR tensor support is in beta|invariant checks are)")
        yield
