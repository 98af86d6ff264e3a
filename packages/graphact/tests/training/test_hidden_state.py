"""Checkpoints tell models apart that keep modules where ``named_modules`` does not look."""

import collections
import functools
from operator import attrgetter, itemgetter

import pytest
import torch
from torch import nn

from graphact.training import Fleet
from support.general_models import epochs_run, make_tasks


class Slotted:
    __slots__ = ("kept",)

    def __init__(self, kept):
        self.kept = kept


class Hiding(nn.Module):
    """A module kept in a tuple."""

    def __init__(self, part):
        super().__init__()
        self.own = (part,)

    def forward(self, x):
        return self.own[0](x)


class Model(nn.Module):
    """A trained linear map after a part that stands somewhere in an attribute."""

    def __init__(self, hide, find, part):
        super().__init__()
        self.last, self.kept, self.find = nn.Linear(3, 1), hide(part), find

    def forward(self, x, graph):
        return self.last(torch.tanh(self.find(self.kept)(x)))


def called(kept):
    return kept


def nested(kept):
    return kept[1][0]["part"][0]


def apply(part, x):
    return part(x)


PLACES = {  # how a part is put there, and how it is found again
    "tuple": (lambda part: (part,), itemgetter(0)),
    "deque": (lambda part: collections.deque([part]), itemgetter(0)),
    "dict": (lambda part: {"part": part}, itemgetter("part")),
    "nested list": (lambda part: [None, ({"part": [part]},)], nested),
    "object with slots": (Slotted, attrgetter("kept")),
    "partial": (lambda part: functools.partial(apply, part), called),
    "bound method": (lambda part: part.forward, called),
    "hidden module of a registered one": (Hiding, called),
    "hidden module of a hidden one": (lambda part: (Hiding(part),), itemgetter(0)),
    "closure": (lambda part: lambda x: part(x), called),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_checkpoint_of_other_hidden_values_is_ignored(place, tmp_path):
    tasks, path = make_tasks(2), tmp_path / "checkpoint.safetensors"

    def make(seed):
        """A model that the seed tells from others by its hidden part alone."""
        torch.manual_seed(7)
        part = nn.Linear(2, 3)
        nn.init.normal_(part.weight, generator=torch.Generator().manual_seed(seed))
        return Model(*PLACES[place], part)

    def count_epochs(seed):
        return len(epochs_run(Fleet([make(seed) for _ in tasks], tasks), path))

    assert [count_epochs(seed) for seed in (1, 1, 2, 2)] == [4, 0, 4, 0]
