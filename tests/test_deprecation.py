"""The positional order of version 0.1, on classes with the shapes of those that changed."""

import inspect
import warnings

import pytest

from graphact._deprecation import keyword_only_after


class Bank:
    """Sizes stay positional, an argument without default follows."""

    @keyword_only_after(2, "order", "bias")
    def __init__(self, in_features, out_features, *, order, bias=False):
        self.given = in_features, out_features, order, bias


class Activation:
    """The first position will mean another argument: until then it keeps the old meaning."""

    @keyword_only_after(0, "hops", "features", "closed")
    def __init__(self, features=None, *, hops=1, closed=False):
        self.given = features, hops, closed


class Derived(Activation):
    def __init__(self):
        super().__init__(features=3, hops=2)


@pytest.mark.parametrize(
    ("args", "kwargs", "given"),
    [
        ((1, 2), {"order": 3}, (1, 2, 3, False)),
        ((1,), {"out_features": 2, "order": 3, "bias": True}, (1, 2, 3, True)),
        ((), {"in_features": 1, "out_features": 2, "order": 3}, (1, 2, 3, False)),
    ],
)
def test_new_calls_are_silent(args, kwargs, given):
    assert Bank(*args, **kwargs).given == given


@pytest.mark.parametrize(
    ("args", "kwargs", "given", "words"),
    [
        ((1, 2, 3), {}, (1, 2, 3, False), "order=3 by keyword; by position it works until version 0.3"),
        ((1, 2, 3, True), {}, (1, 2, 3, True), "order=3, bias=True by keyword; by position they work until"),
        ((1, 2, 3), {"bias": True}, (1, 2, 3, True), "order=3 by keyword"),
    ],
)
def test_old_calls_work_and_warn(args, kwargs, given, words):
    with pytest.warns(DeprecationWarning, match=f"^Bank: pass {words}") as caught:
        assert Bank(*args, **kwargs).given == given
    assert [warning.filename for warning in caught] == [__file__]  # the warning names the line of the call


def test_a_position_keeps_its_old_meaning():
    with pytest.warns(DeprecationWarning, match="^Activation: pass hops=5 by keyword"):
        assert Activation(5).given == (None, 5, False)
    with pytest.warns(DeprecationWarning, match="hops=5, features=8, closed=True"):
        assert Activation(5, 8, True).given == (8, 5, True)
    with pytest.warns(DeprecationWarning, match="hops=5"):
        assert Activation(5, features=8).given == (8, 5, False)
    assert Activation(features=8, hops=2).given == (8, 2, False)
    assert Derived().given == (3, 2, False)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Bank(1, 2, 3, True, 5), "Bank takes at most 4 positional arguments, got 5"),
        (lambda: Bank(1, 2, 3, order=4), "Bank got multiple values for argument 'order'"),
        (lambda: Bank(1, order=4), "missing 1 required positional argument: 'out_features'"),
        (lambda: Bank(1, 2), "missing 1 required keyword-only argument: 'order'"),
        (lambda: Bank(1, 2, order=3, taps=4), "unexpected keyword argument 'taps'"),
    ],
)
def test_wrong_calls(call, message):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        with pytest.raises(TypeError, match=message):
            call()


def test_the_signature_is_the_new_one():
    assert str(inspect.signature(Bank)) == "(in_features, out_features, *, order, bias=False)"
