"""The command line imports what a command needs, and nothing else."""

import importlib
import pkgutil
import resource
import subprocess
import sys

import pytest

import graphact_agents as agents
from graphact import commands
from graphact.cli import COMMANDS, main
from graphact.commands.parser import Command, CommandParser
from graphact_agents.command import COMMANDS as SUBCOMMANDS
from graphact_agents.command import Subcommand as AgentsCommand

HEAVY = {"torch", "numpy", "scipy", "pandas", "matplotlib", "numba", "triton", "rich", "jinja2", "safetensors"}
CODE = f"""
import sys
from graphact.cli import main
try:
    code = main(sys.argv[1:])
except SystemExit as stopped:
    code = stopped.code
loaded = {HEAVY} & set(sys.modules)
sys.exit(f"loaded {{loaded}}" if loaded else code)
"""
LIGHT = ["--version", "--help", "data --help", "report --help", "certify --help", "bench --help", "partition --help"]
LIGHT += ["agents --help", "agents run --help", "agents split --help", "list", "run --help"]


@pytest.mark.parametrize("words", LIGHT)
def test_answers_without_heavy_modules(words):
    result = subprocess.run([sys.executable, "-c", CODE, *words.split()], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout


def test_a_missing_package_is_one_line(monkeypatch, capsys, tmp_path):
    words = ["run", "source-localization", "--preset", "smoke", "--activation", "relu", "--device", "cpu"]
    assert main([*words, "--rows-only", "--out", str(tmp_path / "run")]) == 0
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["report", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert "matplotlib" in error
    assert len(error.strip().splitlines()) == 1


def test_a_missing_module_of_graphact_is_a_bug(monkeypatch):
    monkeypatch.setitem(sys.modules, "graphact.commands.bench", None)
    with pytest.raises(ModuleNotFoundError):
        main(["bench", "graph.npz"])


def seconds_of_cpu(*words):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "graphact.cli", *words], capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize("words", ["--version", "--help", "list", "run --help"])
def test_answers_at_once(words):
    assert min(seconds_of_cpu(*words.split()) for _ in range(3)) < 0.2


def real_commands(table, capsys):
    """Names and help lines as the parser shows them, each of a command that loads and answers."""
    parser = CommandParser()
    parser.add_commands(table)
    (action,) = parser._subparsers._group_actions
    for name, command in action.choices.items():
        with pytest.raises(SystemExit, match="0"):
            parser.parse_args([name, "--help"])
        assert command.description in " ".join(capsys.readouterr().out.split()) or "\n" in command.description
        assert command.get_default("command") is not None or command._subparsers is not None
    return {action.dest: action.help for action in action._choices_actions}


@pytest.mark.parametrize("table", [COMMANDS, SUBCOMMANDS])
def test_the_tables_say_what_the_modules_say(table, capsys):
    assert {name: line for name, (_, line) in table.items()} == real_commands(table, capsys)


def test_every_command_is_in_a_table():
    packages = (commands, agents)
    modules = [
        importlib.import_module(f"{p.__name__}.{m.name}") for p in packages for m in pkgutil.iter_modules(p.__path__)
    ]
    kinds = (Command, AgentsCommand)
    places = {f"{m.__name__}:{name}" for m in modules for name, value in vars(m).items() if isinstance(value, kinds)}
    assert places == {place for table in (COMMANDS, SUBCOMMANDS) for place, _ in table.values()}
