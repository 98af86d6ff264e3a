"""Fewer models at a time where there is too little memory."""

import pytest
import torch

from graphact_lab.fleets.active import in_parts


def fits(most):
    """Train at most so many models; the numbers of those that were."""

    def train(part):
        if part.stop - part.start > most:
            raise torch.OutOfMemoryError("too many")
        return list(range(part.start, part.stop))

    return train


@pytest.mark.parametrize(
    ("most", "parts"), [(9, [8, 3]), (8, [8, 3]), (7, [4, 4, 3]), (3, [2, 2, 2, 2, 2, 1]), (1, [1] * 11)]
)
def test_parts_are_halved_until_they_fit(most, parts):
    made = in_parts(11, 8, fits(most))
    assert [len(part) for part in made] == parts
    assert [number for part in made for number in part] == list(range(11))


def test_one_model_that_does_not_fit_is_too_many():
    with pytest.raises(torch.OutOfMemoryError, match="too many"):
        in_parts(3, 2, fits(0))


def test_other_errors_are_not_taken_for_it():
    def train(part):
        raise RuntimeError("something else")

    with pytest.raises(RuntimeError, match="something else"):
        in_parts(3, 2, train)
