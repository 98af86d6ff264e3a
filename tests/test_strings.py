"""Modules that are named in strings exist: a rename that overlooks one is noticed here, not by a user."""

import ast
import importlib
import importlib.util
import re
import shlex
import sys
import tomllib
from pathlib import Path
from pkgutil import resolve_name

import pytest

from house import tracked

ROOT = Path(__file__).parent.parent
PACKAGES = ("graphact", "graphact_agents", "graphact_lab")
FOLDERS = {name: ROOT / "packages" / name.replace("_", "-") for name in PACKAGES}
NAME = re.compile(r"(?:graphact|graphact_agents|graphact_lab)(?:\.[a-z_]\w*)+(?::[A-Za-z_][\w.]*)?")
FILES = (  # in which a shell, systemd or a container finds commands
    "Makefile", ".ci/run", "requirements-dev.txt", ".github/workflows/*.yml", "deploy/*",
    "docs/*.md", "README.md", "packages/*/README.md", "CONTRIBUTING.md", "packages/*/CONTRIBUTING.md",
)  # fmt: skip
OUTSIDE = {"graphact.activations", "graphact.operations", "graphact_agents.operations"}  # groups of entry points


def names_in(tree):
    """Every string of a program, but for docstrings, that is the dotted name of a module or of something in it."""
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        is_string = isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
        if is_string and NAME.fullmatch(node.value):
            yield node.lineno, node.value


def is_there(name):
    if name in OUTSIDE or any(name.startswith(f"{group}.") for group in OUTSIDE):
        return True
    try:
        resolve_name(name)
    except (ImportError, AttributeError, ValueError):
        return False
    return True


def test_names_in_strings():
    found = {}
    for path in tracked("packages/*/src/*.py", "examples/*.py", "benchmarks/*.py", "studies/*.py"):
        for line, name in names_in(ast.parse(path.read_text())):
            found.setdefault(name, f"{path.relative_to(ROOT)}:{line}")
    assert len(found) > 20
    assert {name: place for name, place in found.items() if not is_there(name)} == {}


def test_entry_points():
    for folder in FOLDERS.values():
        project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
        assert project["scripts"]
        groups = [project["scripts"], *project.get("entry-points", {}).values()]
        for place in [place for group in groups for place in group.values()]:
            assert callable(resolve_name(place)), place


def commands_in_files():
    """Commands of the three packages in files: their words up to the first that a shell would change."""
    pattern = re.compile(r"(?:^|[\s\"'`/])(graphact(?:-agents|-lab)?) ([a-z-][^\n\"'`#;|<>$]*)", re.MULTILINE)
    for path in tracked(*FILES):
        lines = re.sub(r"\\\n", " ", path.read_text()).splitlines()
        text = "\n".join(line for line in lines if "pip install" not in line and "sys.exit" not in line)
        if path.suffix == ".md":
            text = "\n".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL) + re.findall(r"`(graphact[^`]*)`", text))
        for program, words in pattern.findall(text):
            yield path.relative_to(ROOT), program, words


def subcommands(program):
    package = program.replace("-", "_")
    home = f"{package}.cli" if importlib.util.find_spec(f"{package}.cli") else f"{package}.command"
    return importlib.import_module(home).COMMANDS


def test_commands_in_files():
    """The unit of systemd, the container, make, CI and pages start commands that exist, with options that they have."""
    found, wrong = 0, []
    for path, program, words in commands_in_files():
        first, *rest = shlex.split(words, posix=False) or [""]
        if first.startswith("-") or not re.fullmatch(r"[a-z]+", first):
            continue
        found += 1
        table = subcommands(program)
        if first not in table:
            wrong.append(f"{path}: {program} {first}")
            continue
        known = options_of(program, table[first][0])
        options = [word.partition("=")[0].rstrip(".,)") for word in rest if re.match(r"--[a-z]", word)]
        wrong += [f"{path}: {program} {first} {option}" for option in options if option not in known]
    assert found > 20
    assert wrong == []


def options_of(program, command):
    """The options of a command, with those that every command of its program has."""
    import argparse

    from graphact.commands.parser import CommandParser

    parser = argparse.ArgumentParser()
    if program == "graphact-agents":
        importlib.import_module(command).add_arguments(parser)
    else:
        command = resolve_name(command) if isinstance(command, str) else command
        every = CommandParser()
        every.add_commands({"it": (command, "")})
        parser = every._subparsers._group_actions[0].choices["it"]
    return set(parser._option_string_actions)


@pytest.mark.filterwarnings("ignore:Setuptools is replacing distutils")  # where pip is looked for
def test_modules_run_by_make_and_workflows():
    """Modules that follow python -m, and scripts by their paths."""
    paths = tracked("Makefile", ".ci/run", ".github/workflows/*.yml", ".pre-commit-config.yaml")
    texts = {path: path.read_text() for path in paths}
    folders = [ROOT, *(folder / "tests" for folder in FOLDERS.values())]
    for path, whole in texts.items():
        text = "".join(line for line in whole.splitlines(keepends=True) if "files: ^" not in line)
        for module in re.findall(r"python[\w.]* -m (\S+)", text):
            parts = Path(*module.split("."))
            here = any((folder / parts.with_suffix(".py")).is_file() for folder in folders)
            assert here or importlib.util.find_spec(module), f"{path.name}: {module}"
        folder = "tests|benchmarks|studies|examples|packages|docs|deploy"
        for script in re.findall(rf"(?<![\w./$^-])((?:{folder})/[\w./*-]+)", text):
            assert list(ROOT.glob(script.rstrip("."))), f"{path.name}: {script}"


def test_paths_in_the_container():
    text = (ROOT / "deploy" / "Containerfile").read_text()
    for folder in re.findall(r"/src/(packages/\S+)", text):
        assert (ROOT / folder / "pyproject.toml").is_file(), folder


def test_the_check_bites(tmp_path):
    tree = ast.parse('"""graphact.nowhere"""\nplace = "graphact.nowhere:x"\ngood = "graphact.cli:main"')
    assert [(name, is_there(name)) for _, name in names_in(tree)] == [
        ("graphact.nowhere:x", False), ("graphact.cli:main", True)
    ]  # fmt: skip
    assert not is_there("graphact.cli:mian")
    assert sys.modules["graphact.cli"].COMMANDS
