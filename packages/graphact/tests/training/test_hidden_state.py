"""Checkpoints tell models apart that keep modules where ``named_modules`` does not look."""

import collections
import functools
import types

import pytest
import torch
from torch import nn

from graphact.training import Fleet
from support.general_models import SETTINGS, make_tasks


class Holder:
    """A plain object."""

    def __init__(self, kept):
        self.kept = kept


class Slotted:
    __slots__ = ("kept",)

    def __init__(self, kept):
        self.kept = kept


class Hiding(nn.Module):
    """A module kept in a tuple, which ``named_modules`` does not reach."""

    def __init__(self, part):
        super().__init__()
        self.own = (part,)

    def forward(self, x):
        return self.own[0](x)


class Model(nn.Module):
    """A trained linear map after a part that stands somewhere in an attribute."""

    def __init__(self, hide, find, part=None):
        super().__init__()
        self.last = nn.Linear(3, 1)
        self.kept = hide(nn.Linear(2, 3) if part is None else part)
        self.find = find

    def forward(self, x, graph):
        return self.last(torch.tanh(self.find(self.kept)(x)))


def first(kept):
    return kept[0]


def nested(kept):
    return kept[1][0]["part"][0]


def held(holder):
    return holder.kept


def as_it_is(part):
    return part


def find_in_partial(bound):
    return bound.args[0]


def find_in_method(method):
    return method.__self__


def find_in_mapping(mapping):
    return mapping["part"]


def in_partial(part):
    return functools.partial(apply, part)


def apply(part, x):
    return part(x)


PLACES = {
    "tuple": (lambda part: (part,), first),
    "list": (lambda part: [part], first),
    "deque": (lambda part: collections.deque([part]), first),
    "dict": (lambda part: {"part": part}, find_in_mapping),
    "defaultdict": (lambda part: collections.defaultdict(list, part=part), find_in_mapping),
    "nested list": (lambda part: [None, ({"part": [part]},)], nested),
    "plain object": (Holder, held),
    "object with slots": (Slotted, held),
    "namespace": (lambda part: types.SimpleNamespace(kept=part), held),
    "partial": (in_partial, find_in_partial),
    "partial that is called": (in_partial, as_it_is),
    "bound method": (lambda part: part.forward, find_in_method),
    "hidden module of a registered one": (Hiding, as_it_is),
    "hidden module of a hidden one": (lambda part: (Hiding(part),), first),
    "closure": (lambda part: lambda x: part(x), as_it_is),
}


def with_hidden_part(hide, find, seed):
    """A model that the seed tells from others by its hidden part alone."""
    torch.manual_seed(7)
    part = nn.Linear(2, 3)
    nn.init.normal_(part.weight, generator=torch.Generator().manual_seed(seed))
    return Model(hide, find, part)


@pytest.mark.parametrize("place", PLACES)
def test_a_checkpoint_of_other_hidden_values_is_ignored(place, tmp_path):
    tasks, path = make_tasks(2), tmp_path / "checkpoint.safetensors"

    def count_epochs(seed):
        seen = []
        fleet = Fleet([with_hidden_part(*PLACES[place], seed) for _ in tasks], tasks)
        fleet.train(SETTINGS, checkpoint=path, every=lambda: True, progress=lambda epoch, *_: seen.append(epoch))
        return len(seen)

    assert [count_epochs(seed) for seed in (1, 1, 2, 2)] == [4, 0, 4, 0]
