"""README and the site: examples run as they stand, and every public name has its place in the reference."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
PAGES = ["../README.md", *(f"{name}.md" for name in ("start", "pyg", "choosing", "guarantees"))]
PAGES += ["agents-protocol.md", "agents-learning.md"]
BLOCKS = [block for page in PAGES for block in re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)]


def documented(directive=r"(?:auto\w+|py:data)"):
    pages = [page.read_text() for page in (DOCS / "api").glob("*.rst")]
    return {name for page in pages for name in re.findall(rf"{directive}:: (\S+)", page)}


@pytest.mark.slow
@pytest.mark.parametrize("block", BLOCKS)
def test_examples(block, tmp_path):
    if "estimators" in block:
        pytest.importorskip("sklearn")
    if "lightning" in block:
        pytest.importorskip("lightning")
    script = tmp_path / "block.py"
    script.write_text(block)
    result = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert bool(result.stdout) == ("print(" in block)


def test_every_public_package_has_a_page():
    import graphact

    packages = {name for name in graphact.__all__ if type(getattr(graphact, name)).__name__ == "module"}
    assert {f"graphact.{name}" for name in packages} | {"graphact_agents", "graphact_lab.tasks"} <= documented()


def test_constants_have_an_entry():
    """autodoc shows functions and classes by themselves, and other things only where they are named."""
    named = documented()
    for package in sorted(documented("automodule")):
        if package == "graphact.estimators":
            pytest.importorskip("sklearn")
        module = importlib.import_module(package)
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name)
            if not callable(value):
                assert f"{package}.{name}" in named
