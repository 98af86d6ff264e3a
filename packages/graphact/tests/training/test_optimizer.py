"""Step sizes that fall, weights that decay."""

import math

import pytest
import torch

from graphact.training import TrainingSettings
from graphact.training.loop import learning_rate, make_optimizer, set_learning_rate


def test_cosine_falls_from_the_full_rate_towards_zero():
    settings = TrainingSettings(epochs=50, learning_rate=0.02, schedule="cosine")
    rates = [learning_rate(settings, epoch) for epoch in range(1, 51)]
    assert rates == pytest.approx([0.01 * (1 + math.cos(math.pi * epoch / 50)) for epoch in range(50)])


def test_the_optimizer_is_given_the_rate_of_the_epoch():
    settings = TrainingSettings(epochs=10, learning_rate=0.5, schedule="cosine")
    optimizer = make_optimizer([torch.zeros(1, requires_grad=True)], [], settings)
    set_learning_rate(optimizer, settings, 6)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.25)


def test_a_rate_that_is_a_tensor_is_changed_in_place():
    """A recorded step reads it from where it was when it was recorded."""
    rate, settings = torch.tensor(1.0), TrainingSettings(epochs=10, learning_rate=0.5, schedule="cosine")
    optimizer = torch.optim.AdamW([torch.zeros(1, requires_grad=True)], rate, capturable=False, foreach=False)
    set_learning_rate(optimizer, settings, 6)
    assert optimizer.param_groups[0]["lr"] is rate
    assert rate.item() == pytest.approx(0.25)


def test_weights_decay_and_biases_do_not():
    weight, bias = (torch.ones(3, requires_grad=True) for _ in range(2))
    settings = TrainingSettings(learning_rate=0.1, weight_decay=0.5)
    optimizer = make_optimizer([weight, bias], [bias], settings)
    (0.0 * (weight + bias)).sum().backward()
    optimizer.step()
    torch.testing.assert_close(weight.detach(), torch.full((3,), 0.95))
    torch.testing.assert_close(bias.detach(), torch.ones(3))
