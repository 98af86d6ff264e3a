"""The package as a whole: what importing it costs and loads, and that the README runs as it stands."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"
OPTIONAL = ["matplotlib", "networkx", "numba", "safetensors", "scipy", "torch_geometric", "triton", "zenoh"]


def run_python(*arguments, cwd=None):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, cwd=cwd)


def test_import_is_clean_and_light():
    code = f"""
import sys, torch
before = set(sys.modules)
import graphact
loaded = sorted(name for name in set(sys.modules) - before if name.split('.')[0] in {OPTIONAL})
assert not loaded, loaded
"""
    result = run_python("-W", "error", "-c", code)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""


def test_everything_public_is_there():
    import graphact

    for module in (graphact, graphact.functional, graphact.nn):
        for name in module.__all__:
            assert getattr(module, name) is not None


@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL))
def test_readme_runs_as_it_stands(block, tmp_path):
    script = tmp_path / "block.py"
    script.write_text(block)
    result = run_python(str(script), cwd=tmp_path)
    assert result.returncode == 0, result.stderr
