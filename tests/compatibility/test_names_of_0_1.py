"""Every public name, command and option of version 0.1 is still there; ``names_of_0_1.txt`` lists them."""

import contextlib
import functools
import importlib
import io
import re
import types
import warnings
from pathlib import Path

import pytest

from graphact import Graph
from graphact.cli import main

LINES = Path(__file__).with_name("names_of_0_1.txt").read_text().splitlines()
NAMES = [line for line in LINES if line.startswith("graphact.")]
MODULES = [line.split()[1] for line in LINES if line.startswith("module ")]
COMMANDS = [line for line in LINES if line.startswith("graphact ")]


def test_nobody_shortened_the_list():
    assert (len(set(NAMES)), len(set(MODULES)), len(set(COMMANDS))) == (190, 18, 95)


@pytest.mark.parametrize("name", MODULES)
def test_module(name):
    assert isinstance(importlib.import_module(name), types.ModuleType)


@functools.cache
def holder(name):
    """The module that holds a name, or an object of the class that does: some attributes only objects have."""
    if name == "graphact.Graph":
        return Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]])
    if name == "graphact.graph.Neighborhoods":
        return holder("graphact.Graph").incoming
    return importlib.import_module(name)


@pytest.mark.parametrize("name", NAMES)
def test_name(name):
    home, _, attribute = name.rpartition(".")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a name may be on its way out
        found = getattr(holder(home), attribute)
    assert not isinstance(found, types.ModuleType)  # of the same name


@functools.cache
def help_of(*command):
    """What ``graphact COMMAND --help`` prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), pytest.raises(SystemExit) as stopped:
        main([*command, "--help"])
    assert stopped.value.code == 0
    return printed.getvalue()


@pytest.mark.parametrize("line", COMMANDS)
def test_command_or_option(line):
    _, *command, last = line.split()
    assert re.search(rf"^ +(-\w, )?{re.escape(last)}(,| |$)", help_of(*command), flags=re.MULTILINE)
