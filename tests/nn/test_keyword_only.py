"""Only sizes are positional; the positional order of version 0.1 works for one version, with a warning."""

import warnings

import pytest

from graphact import nn

OLD_CALLS = [
    (nn.GraphFilter, (2, 3, 1), {"in_features": 2, "out_features": 3, "order": 1}, "order=1"),
    (
        nn.GraphFilter,
        (2, 3, 1, True),
        {"in_features": 2, "out_features": 3, "order": 1, "bias": True},
        "order=1, bias=True",
    ),
    (nn.GCNN, ([1, 2], 1), {"features": [1, 2], "order": 1}, "order=1"),
    (
        nn.GCNN,
        ([1, 2], 1, "kernel-ga", 2, None),
        {"features": [1, 2], "order": 1, "activation": "kernel-ga", "hops": 2, "out_features": None},
        "order=1, activation='kernel-ga', hops=2, out_features=None",
    ),
    (nn.FIR, ([1, 2], 1, 3), {"features": [1, 2], "order": 1, "out_features": 3}, "order=1, out_features=3"),
    (
        nn.GraphAdaptive,
        ("min", 2, 3, True),
        {"op": "min", "hops": 2, "features": 3, "closed": True},
        "hops=2, features=3",
    ),
    (
        nn.GraphAdaptiveKernel,
        (2, 3, False, 0.5, True),
        {"hops": 2, "features": 3, "gamma": 0.5, "learn_gamma": True},
        "hops=2, features=3, closed=False, gamma=0.5, learn_gamma=True",
    ),
]
for kind in (nn.GraphAdaptiveMax, nn.GraphAdaptiveMedian, nn.GraphAdaptiveKernel, nn.LocalizedMax, nn.LocalizedMedian):
    OLD_CALLS += [
        (kind, (3,), {"hops": 3}, "hops=3"),  # not the features that the new signature has there
        (kind, (2, 4, True), {"hops": 2, "features": 4, "closed": True}, "hops=2, features=4, closed=True"),
    ]


@pytest.mark.parametrize(("kind", "args", "kwargs", "words"), OLD_CALLS)
def test_the_order_of_0_1_works_and_warns(kind, args, kwargs, words):
    with pytest.warns(DeprecationWarning, match=f"^{kind.__name__}: pass {words}.* by keyword") as caught:
        old = kind(*args)
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert old.config() == kind(**kwargs).config()


def test_sizes_are_positional():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert nn.GraphFilter(2, 3, order=1).config()["out_features"] == 3
        assert nn.GCNN([1, 2], order=1).config()["features"] == nn.FIR([1, 2], order=1).config()["features"] == [1, 2]
        assert nn.GraphAdaptive("min", features=3).config()["features"] == 3


def test_options_of_the_operation_go_with_its_name():
    module = nn.GraphAdaptive("kernel", gamma=0.5, learn_gamma=True)
    assert module.config() == {
        "op": "kernel",
        "hops": 1,
        "features": None,
        "closed": False,
        "normalize": "symmetric",
        "start": "zero",
        "gamma": 0.5,
        "learn_gamma": True,
    }
    assert module.log_gamma.exp().item() == pytest.approx(0.5)
