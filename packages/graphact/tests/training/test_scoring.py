import math

import pytest
import torch

from graphact.training import loss_of, metric_of

LOGITS = torch.tensor([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 3.0]])
CLASSES = torch.tensor([0, 1, 0])


def test_cross_entropy_of_known_logits():
    terms = [math.log(1 + 2 * math.exp(-2)), math.log(1 + 2 * math.exp(-1)), math.log(2 + math.exp(3))]
    assert loss_of("cross_entropy", LOGITS, CLASSES).item() == pytest.approx(sum(terms) / 3)


@pytest.mark.parametrize(("name", "expected"), [("mse", (0.25 + 4 + 0) / 3), ("smooth_l1", (0.125 + 1.5 + 0) / 3)])
def test_regression_losses_of_known_errors(name, expected):
    outputs, targets = torch.tensor([[0.5], [3.0], [-1.0]]), torch.tensor([0.0, 1.0, -1.0])
    assert loss_of(name, outputs, targets).item() == pytest.approx(expected)


def test_accuracy_is_a_percentage():
    assert metric_of("accuracy", LOGITS, CLASSES).item() == pytest.approx(200 / 3)


def test_rmse_over_all_nodes():
    outputs, targets = torch.zeros(2, 2, 1), torch.tensor([[[1.0], [1.0]], [[1.0], [3.0]]])
    assert metric_of("rmse", outputs, targets).item() == pytest.approx(math.sqrt(3))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_the_accuracy_of_answers_that_are_not_finite_is_nan(value):
    """A model that has diverged is not one that is 0 % accurate, or 33 %."""
    logits = torch.tensor([[[value, 0.0], [1.0, value], [1.0, 0.0]], [[3.0, 0.0], [1.0, 2.0], [1.0, 0.0]]])
    found = metric_of("accuracy", logits, torch.zeros(2, 3, dtype=torch.int64), leading=1)
    assert found[0].isnan()
    assert found[1].item() == pytest.approx(200 / 3)  # the model beside it


def test_a_diverged_regression_has_no_rmse():
    assert metric_of("rmse", torch.tensor([[float("nan")]]), torch.tensor([0.0])).isnan()


@pytest.mark.parametrize(
    ("score", "name", "outputs", "targets"),
    [
        (loss_of, "cross_entropy", torch.randn(2, 3, 5, 4), torch.randint(4, (2, 3, 5))),
        (metric_of, "accuracy", torch.randn(2, 3, 5, 4), torch.randint(4, (2, 3, 5))),
        (loss_of, "mse", torch.randn(2, 3, 5, 1), torch.randn(2, 3, 5)),
        (loss_of, "smooth_l1", torch.randn(2, 3, 5, 1), torch.randn(2, 3, 5)),
        (metric_of, "rmse", torch.randn(2, 3, 5, 7, 1), torch.randn(2, 3, 5, 7, 1)),
    ],
)
def test_a_fleet_scores_like_its_models_one_by_one(score, name, outputs, targets):
    together = score(name, outputs, targets, leading=2)
    assert together.shape == (2, 3)
    for a in range(2):
        for b in range(3):
            assert together[a, b].item() == pytest.approx(score(name, outputs[a, b], targets[a, b]).item())


def test_the_summed_loss_of_a_fleet_gives_each_model_its_own_gradient():
    outputs, targets = torch.randn(3, 5, 1, requires_grad=True), torch.randn(3, 5)
    loss_of("smooth_l1", outputs, targets, leading=1).sum().backward()
    alone = outputs[1].detach().requires_grad_()
    loss_of("smooth_l1", alone, targets[1]).backward()
    torch.testing.assert_close(outputs.grad[1], alone.grad)


@pytest.mark.parametrize("leading", [0, 1])
def test_no_samples_give_nan(leading):
    outputs, targets = torch.zeros(2, 0, 1), torch.zeros(2, 0)
    assert metric_of("rmse", outputs, targets, leading=leading).isnan().all()


def test_non_contiguous_outputs():
    outputs, targets = torch.randn(4, 5, 3).transpose(0, 1), torch.randint(3, (4, 5)).T
    expected = loss_of("cross_entropy", outputs.contiguous(), targets.contiguous(), leading=1)
    torch.testing.assert_close(loss_of("cross_entropy", outputs, targets, leading=1), expected)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: loss_of("hinge", LOGITS, CLASSES), ValueError, "loss must be one of 'cross_entropy'.*'hinge'"),
        (lambda: metric_of("f1", LOGITS, CLASSES), ValueError, "metric must be one of 'accuracy', 'rmse', got 'f1'"),
        (lambda: loss_of("mse", torch.zeros(3, 2), torch.zeros(3)), ValueError, r"shape \(3,\).*got \(3, 2\)"),
        (lambda: loss_of("mse", torch.zeros(3, 3), torch.zeros(3)), ValueError, r"shape \(3,\).*got \(3, 3\)"),
        (lambda: loss_of("cross_entropy", LOGITS, CLASSES[:2]), ValueError, r"shape \(2,\).*got \(3, 3\)"),
        (lambda: loss_of("cross_entropy", LOGITS, CLASSES.float()), TypeError, "classes.*float32"),
        (lambda: loss_of("cross_entropy", LOGITS, CLASSES, leading=1), ValueError, "leading must leave.*got 1"),
        (lambda: loss_of("cross_entropy", LOGITS, CLASSES, leading=-1), ValueError, "leading must be at least 0"),
    ],
)
def test_mistakes_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()
