"""Fleets of models that keep modules and tensors where ``named_modules`` does not look: each is trained as alone."""

import collections
import functools
import types

import pytest
import torch
from torch import nn

from graphact.training import Fleet, fit
from graphact.training.module_state import same
from support.general_models import GRAPHS, SETTINGS, compare, make_tasks


class Holder:
    """A plain object."""

    def __init__(self, kept):
        self.kept = kept


class Forgetful(Holder):
    """A plain object whose pickled state leaves out what it holds."""

    def __getstate__(self):
        return {}

    def __setstate__(self, state):
        self.__dict__.update(state)


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
    "object that pickles nothing": (Forgetful, held),
    "object with slots": (Slotted, held),
    "namespace": (lambda part: types.SimpleNamespace(kept=part), held),
    "partial": (in_partial, find_in_partial),
    "partial that is called": (in_partial, as_it_is),
    "bound method": (lambda part: part.forward, find_in_method),
    "hidden module of a registered one": (Hiding, as_it_is),
    "hidden module of a hidden one": (lambda part: (Hiding(part),), first),
    "closure": (lambda part: lambda x: part(x), as_it_is),
}
ALWAYS_APART = ("closure", "object that pickles nothing")  # copies of them are not what they are copies of


def check_as_alone(make, strategy, count=2):
    """Train a fleet and each model alone, and compare; the strategy of the fleet is known."""
    tasks = make_tasks(count)
    models, alone = [], []
    for made in (models, alone):
        for number in range(count):
            torch.manual_seed(number)
            made.append(make())
    fleet = Fleet(models, tasks, seeds=list(range(count)))
    result = fleet.train(SETTINGS)
    for number, (model, task) in enumerate(zip(alone, tasks, strict=True)):
        single = fit(model, task, SETTINGS, seed=number)
        assert result.test[number] == pytest.approx(single.test, rel=1e-6)
        compare(models[number], model, fleet.strategy)
    assert fleet.strategy == strategy, fleet.reason


@pytest.mark.parametrize("place", PLACES)
def test_hidden_modules_with_other_values_are_each_used_by_their_own_model(place):
    hide, find = PLACES[place]
    check_as_alone(lambda: Model(hide, find), "loop")


@pytest.mark.parametrize("place", [place for place in PLACES if place not in ALWAYS_APART])
def test_hidden_modules_with_the_same_values_are_called_together(place):
    hide, find = PLACES[place]

    def make():
        state = torch.get_rng_state()
        torch.manual_seed(99)
        part = nn.Linear(2, 3)
        torch.set_rng_state(state)
        return Model(hide, find, part)

    check_as_alone(make, "vmap")


def with_hidden_part(hide, find, seed):
    """A model that the seed tells from others by its hidden part alone."""
    torch.manual_seed(7)
    part = nn.Linear(2, 3)
    nn.init.normal_(part.weight, generator=torch.Generator().manual_seed(seed))
    return Model(hide, find, part)


@pytest.mark.parametrize("place", [place for place in PLACES if place != "object that pickles nothing"])
def test_a_checkpoint_of_other_hidden_values_is_ignored(place, tmp_path):
    tasks, path = make_tasks(2), tmp_path / "checkpoint.safetensors"

    def count_epochs(seed):
        seen = []
        fleet = Fleet([with_hidden_part(*PLACES[place], seed) for _ in tasks], tasks)
        fleet.train(SETTINGS, checkpoint=path, every=lambda: True, progress=lambda epoch, *_: seen.append(epoch))
        return len(seen)

    assert [count_epochs(seed) for seed in (1, 1, 2, 2)] == [4, 0, 4, 0]


def test_one_hidden_module_of_all_models():
    torch.manual_seed(5)
    part = nn.Linear(2, 3)
    check_as_alone(lambda: Model(lambda part: (part,), first, part), "vmap")


def test_hidden_buffers_and_modes_are_compared():
    def make(mean=0.0, training=False):
        torch.manual_seed(0)
        norm = nn.BatchNorm1d(3)
        norm.running_mean.fill_(mean)
        return Model(lambda part: (part,), first, norm.train(training))

    assert same(make(), make())
    assert not same(make(), make(mean=1.0))
    assert not same(make(), make(training=True))
    registered = [Model(as_it_is, as_it_is, nn.BatchNorm1d(3).train(mode)) for mode in (True, False)]
    registered[1].kept.running_mean.fill_(1.0)
    assert same(*registered)


class Counted(nn.Module):
    """A call that writes to a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))
        self.first = nn.Linear(2, 3)
        nn.init.ones_(self.first.weight)
        nn.init.zeros_(self.first.bias)

    def forward(self, x):
        self.calls += 1
        return self.first(x) * (1 + 0.01 * self.calls)


def test_a_hidden_module_that_a_call_changes():
    check_as_alone(lambda: Model(lambda part: (part,), first, Counted()), "loop")


class Reading(nn.Module):
    """A trained module that is also used through a reference that ``functional_call`` does not replace."""

    def __init__(self, refer):
        super().__init__()
        self.first, self.other, self.last = nn.Linear(2, 3), nn.Linear(2, 3), nn.Linear(3, 1)
        for part in (self.first, self.other):  # the same in all models, as zeros often are
            nn.init.constant_(part.weight, 0.3)
            nn.init.zeros_(part.bias)
        self.reference = refer(self)

    def forward(self, x, graph):
        return self.last(torch.tanh(self.first(x) + x @ self.reference[0].T))


@pytest.mark.parametrize(
    "refer",
    [
        lambda model: (model.first.weight,),
        lambda model: [model.first.weight.data],
        lambda model: (model.first.weight.detach()[:],),
    ],
    ids=["parameter", "data", "view"],
)
def test_a_hidden_reference_to_a_trained_parameter(refer):
    check_as_alone(lambda: Reading(refer), "loop")


class Tying(nn.Module):
    """A hidden module that shares a trained parameter of a registered one."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(2, 3, bias=False), nn.Linear(3, 1)
        nn.init.constant_(self.first.weight, 0.3)
        hidden = nn.Linear(2, 3, bias=False)
        hidden.weight = self.first.weight
        self.hidden = (hidden,)

    def forward(self, x, graph):
        return self.last(torch.tanh(self.hidden[0](x)))


def test_a_hidden_module_tied_to_a_registered_one():
    check_as_alone(Tying, "loop")


class Choosing(nn.Module):
    """A tuple says which of two registered modules is called."""

    def __init__(self, choice):
        super().__init__()
        self.first, self.other, self.last = nn.Linear(2, 3), nn.Linear(2, 3), nn.Linear(3, 1)
        self.chosen = (getattr(self, choice),)

    def forward(self, x, graph):
        return self.last(torch.tanh(self.chosen[0](x)))


@pytest.mark.parametrize(("choices", "strategy"), [(("first", "first"), "vmap"), (("first", "other"), "loop")])
def test_a_reference_to_a_registered_module(choices, strategy):
    remaining = iter(2 * choices)
    check_as_alone(lambda: Choosing(next(remaining)), strategy)


def test_one_list_of_all_models():
    """Each model calls the first; together they would call themselves."""
    team = []

    def make():
        model = Model(lambda _: Holder(team), lambda holder: holder.kept[0].last, nn.Identity())
        model.last = nn.Linear(2, 3) if not team else nn.Linear(3, 1)
        team.append(model)
        return model

    models = [make(), make()]
    assert not same(*models)
    assert same(models[1], models[1])


def test_tensors_that_cannot_be_compared_are_not_the_same():
    kept = torch.eye(2).to_sparse_coo(), torch.eye(2).to_sparse_coo()
    models = [Model(lambda _, tensor=tensor: (tensor,), first) for tensor in kept]
    assert not same(*models)
    assert same(models[0], models[0])


def test_graphs_are_compared_by_value():
    models = [
        Model(lambda _, graph=graph: Holder(graph), held) for graph in (GRAPHS[0], GRAPHS[0].to("cpu"), GRAPHS[1])
    ]
    assert same(models[0], models[1])
    assert not same(models[0], models[2])
