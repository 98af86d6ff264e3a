"""The docstring of each public class stands on its own: every argument, and of an activation its formula and a use."""

import inspect
import re

import pytest
import torch

from graphact import nn

CLASSES = {name: value for name in nn.__all__ if inspect.isclass(value := getattr(nn, name))}
ACTIVATIONS = {kind.__name__: kind for kind in (*nn.ACTIVATIONS.values(), nn.GraphAdaptive, nn.Localized)}


def section(kind, title):
    """The lines of a section of a docstring, without their indentation."""
    lines = inspect.cleandoc(vars(kind)["__doc__"]).splitlines()
    if f"{title}:" not in lines:
        return []
    rest = lines[lines.index(f"{title}:") + 1 :]
    return [line[4:] for line in rest[: next((i for i, line in enumerate(rest) if line and line[0] != " "), None)]]


def arguments(kind):
    """The names that a class is constructed with; those of its operation stand for ``**options``."""
    own = getattr(kind, "operation", None)
    for name, parameter in inspect.signature(kind).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD and own is not None:
            yield from (option for each in own.parameters for option in (each, f"learn_{each}"))
        elif kind.__init__ is not torch.nn.Module.__init__:
            yield name


@pytest.mark.parametrize("name", CLASSES)
def test_every_argument_is_documented(name):
    kind = CLASSES[name]
    documented = [match[1] for line in section(kind, "Args") if (match := re.match(r"(\w+)(?: \(.*\))?: \S", line))]
    assert documented == list(arguments(kind))
    assert not re.search(r"(?i)arguments are those|otherwise as", vars(kind)["__doc__"])


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_have_a_formula_shapes_and_an_example(name):
    kind = ACTIVATIONS[name]
    text = vars(kind)["__doc__"]
    assert ":math:" in text or ".. math::" in text
    assert section(kind, "Shapes")[0].startswith("x: ``(")
    *lines, result = [line for line in section(kind, "Example") if line]
    assert any(f"nn.{name}" in line for line in lines)
    assert not result.startswith((">>>", "..."))  # what it gives, which doctests compare


def test_all_activations_are_public():
    assert set(ACTIVATIONS) <= set(CLASSES)
