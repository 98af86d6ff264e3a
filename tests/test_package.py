"""The package as a whole: what importing it costs and loads."""

import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

README = Path(__file__).parent.parent / "README.md"
OPTIONAL = ["matplotlib", "networkx", "numba", "safetensors", "scipy", "sklearn", "torch_geometric", "triton", "zenoh"]


def run_python(*arguments, cwd=None):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, cwd=cwd)


def test_import_is_clean_and_light():
    code = f"""
import sys, torch
before = set(sys.modules)
import graphact
import graphact_lab
loaded = sorted(name for name in set(sys.modules) - before if name.split('.')[0] in {OPTIONAL})
assert not loaded, loaded
"""
    result = run_python("-W", "error", "-c", code)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""


def test_dir_shows_the_public_names_alone():
    import graphact

    graphact.Graph, graphact.training  # noqa: B018, loaded names change nothing
    assert dir(graphact) == sorted(graphact.__all__)
    assert not {name for name in vars(graphact) if not name.startswith("_")} & {"importlib", "Any", "TYPE_CHECKING"}
    with pytest.raises(AttributeError, match="module 'graphact' has no attribute 'activations'"):
        graphact.activations  # noqa: B018


def test_the_packages_have_one_version():
    packages = [importlib.import_module(name) for name in ("graphact", "graphact_agents", "graphact_lab")]
    assert len({package.__version__ for package in packages}) == 1
    assert f"\nversion: {packages[0].__version__}\n" in (README.parent / "CITATION.cff").read_text()
    lab = tomllib.loads((README.parent / "packages" / "graphact-lab" / "pyproject.toml").read_text())
    needed = [Requirement(line) for line in lab["project"]["dependencies"] if line.startswith("graphact")]
    for package in needed:
        assert package.specifier.contains(packages[0].__version__), package
        assert not package.specifier.contains("99.0"), package
    assert {package.name for package in needed} == {"graphact", "graphact-agents"}


def test_a_bare_import_loads_no_torch():
    code = "import sys, graphact, graphact_agents; assert not {'torch', 'scipy', 'numba'} & set(sys.modules)"
    assert run_python("-c", code).returncode == 0


def test_types_are_announced():
    import graphact

    assert (Path(graphact.__file__).parent / "py.typed").is_file()


def test_tests_that_are_noted_as_slow_are_there():
    """A name that no test has any more would hide nothing, and tell nobody."""
    tests = Path(__file__).parent
    for line in (tests / "slow.txt").read_text().splitlines():
        file, *inner = line.split("::")
        first = inner[0].rpartition(".")[2]  # of a class, of functions, of objects with examples
        assert re.search(rf"\b(def|class) {first}\b", (tests.parent / file).read_text()), line
