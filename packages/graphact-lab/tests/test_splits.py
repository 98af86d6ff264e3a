import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from graphact_lab.splits import class_split, data_generator, eighty_ten_ten, random_split


@given(count=st.integers(10, 300), seed=st.integers(0, 5))
def test_every_sample_is_dealt_once(count, seed):
    parts = eighty_ten_ten(count, data_generator("split", seed))
    assert torch.equal(torch.cat(parts).sort().values, torch.arange(count))
    assert abs(parts.train.numel() - 0.8 * count) <= 0.5
    assert abs(parts.validation.numel() - 0.1 * count) <= 0.5


def test_the_size_of_the_validation_set_does_not_change_the_test_set():
    first = random_split(50, validation=0, test=5, generator=data_generator("split", 0))
    second = random_split(50, validation=7, test=5, generator=data_generator("split", 0))
    assert torch.equal(first.test, second.test)
    assert first.validation.numel() == 0


def test_something_must_be_left_to_learn_from():
    with pytest.raises(ValueError, match="at least one of 10 samples must remain for training, got 5.*and 5"):
        random_split(10, validation=5, test=5, generator=torch.Generator())


def draw(*key):
    return torch.randint(2**62, (1,), generator=data_generator(*key)).item()


def test_every_purpose_seed_and_number_has_its_own_stream():
    keys = [
        ("a", 0),
        ("b", 0),
        ("a", 1),
        ("a", 0, 0),
        ("a", 0, 1),
        ("a", 1, 0),
        ("a", 0, 0, 1),
        ("a", 0, 10),
        ("a", 0, 1, 0),
    ]
    assert len({draw(*key) for key in keys}) == len(keys)
    assert draw("a", 0, 1) == draw("a", 0, 1)


def test_streams_are_those_of_earlier_releases():
    assert torch.randperm(8, generator=data_generator("split", 0, 3)).tolist() == [6, 4, 5, 0, 3, 2, 7, 1]


@pytest.mark.parametrize(("bad", "error"), [(-1, ValueError), (0.5, TypeError), (True, TypeError)])
def test_seeds_are_natural_numbers(bad, error):
    with pytest.raises(error, match="seed must be"):
        data_generator("split", bad)


def test_a_split_of_classes():
    labels = torch.tensor([0] * 30 + [1] * 40 + [-1] * 20 + [2] * 25)
    drawn = [
        class_split(labels, per_class=20, validation=15, test=10, generator=torch.Generator().manual_seed(seed))
        for seed in (0, 1, 0)
    ]
    for split in drawn:
        assert labels[split.train].bincount().tolist() == [20, 20, 20]
        assert [len(part) for part in split] == [60, 15, 10]
        together = torch.cat(split)
        assert len(together.unique()) == 85
        assert (labels[together] >= 0).all()
    assert all(torch.equal(one, other) for one, other in zip(drawn[0], drawn[2], strict=True))
    assert not torch.equal(drawn[0].train, drawn[1].train)
    for sizes in ({"per_class": 26, "validation": 1, "test": 1}, {"per_class": 20, "validation": 15, "test": 21}):
        with pytest.raises(ValueError, match=r"got classes of \[30, 40, 25\]"):
            class_split(labels, **sizes, generator=torch.Generator())
