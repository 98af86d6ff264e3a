"""Threads of training: real steps, timed by a clock that counts the cost of a step with each number of threads."""

import pytest
import torch

from graphact.nn import GCNN
from graphact.training import Fleet, TrainingSettings
from graphact.training.threads import measured_threads, timed
from support.tasks import make_task

SETTINGS = TrainingSettings(epochs=4, batch_size=20)


class Clock:
    """Goes on by what work costs with the threads that torch has at the time."""

    def __init__(self, costs):
        self.now, self.costs = 0.0, costs

    def __call__(self):
        return self.now

    def work(self, units=1.0):
        self.now += units * self.costs[torch.get_num_threads()]


@pytest.fixture(autouse=True)
def _two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def make_step(clock, seen):
    """A step of real work, which notes how many threads did it."""
    left, right = torch.randn(2, 8, 8)

    def step(positions, units=1.0):
        seen.append(torch.get_num_threads())
        clock.work(units)
        return left @ right + positions.sum()

    return step


@pytest.mark.parametrize(("costs", "fastest"), [({1: 0.02, 2: 0.03}, 1), ({1: 0.03, 2: 0.02}, 2)])
def test_the_faster_number_is_taken(costs, fastest):
    clock, seen, positions = Clock(costs), [], torch.arange(10)
    plain = make_step(Clock(costs), [])
    with measured_threads(clock):
        step = timed(make_step(clock, seen))
        answers = [step(positions) for _ in range(30)]
        assert torch.get_num_threads() == fastest
    assert torch.get_num_threads() == 2
    assert len(seen) == 30  # every step is one of training, none is repeated
    assert set(seen[:8]) == {1, 2}
    assert set(seen[12:]) == {fastest}
    assert all(answer.shape == plain(positions).shape for answer in answers)


@pytest.mark.parametrize(
    ("costs", "work"),
    [
        ({1: 0.05, 2: 0.06}, lambda number, seen: (10, 100.0 if number == seen.count(1) == 0 else 1.0)),
        ({1: 0.020, 2: 0.022}, lambda number, seen: (1, 0.1) if number % 2 else (10, 1.0)),
    ],
    ids=["first steps compile kernels or wake threads", "smaller batches"],
)
def test_steps_that_do_not_count(costs, work):
    """The last batch of an epoch always falls to the same number of threads where the number of batches is even."""
    clock, seen = Clock(costs), []
    with measured_threads(clock):
        step = timed(make_step(clock, seen))
        for number in range(60):
            size, units = work(number, seen)
            step(torch.arange(size), units)
        assert torch.get_num_threads() == 1


def test_long_steps_are_decided_by_a_few_and_short_ones_by_many():
    for cost, most in ((5.0, 6), (0.0005, 500)):
        clock, seen = Clock({1: cost, 2: 2 * cost}), []
        with measured_threads(clock):
            step = timed(make_step(clock, seen))
            for _ in range(1000):
                step(torch.arange(10))
        assert seen.count(2) <= most


def test_nothing_is_measured_outside_nor_with_one_thread_and_an_error_leaves_the_number_as_it_was():
    def step():
        raise ValueError("no step")

    assert timed(step) is step
    with pytest.raises(ValueError, match="no step"), measured_threads():
        timed(step)()
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)
    with measured_threads():
        assert timed(step) is step


def small_fleet():
    torch.manual_seed(3)
    return Fleet([GCNN([1, 4], order=2, activation="max-ga")], [make_task(samples=200)], [5])


@pytest.mark.parametrize("fastest", [1, 2])
def test_a_fleet_ends_alike_with_either(fastest):
    plain = small_fleet().train(SETTINGS)
    times = iter(range(10**9))
    # the clock is read before and after a step: with the favoured number it stands still in between
    now = [0.0]

    def clock():
        now[0] += 0.0 if torch.get_num_threads() == fastest else 0.05 * next(times)
        return now[0]

    with measured_threads(clock):
        assert small_fleet().train(SETTINGS) == plain
        assert torch.get_num_threads() == fastest
