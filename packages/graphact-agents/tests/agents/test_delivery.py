"""The recipes that bring agents to machines: systemd unit, image, pinned packages."""

import configparser
import json
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from agents.networks import undirected
from graphact import nn
from graphact_agents.command import make_parser
from local_agents import free_addresses
from support.on_agents import split
from support.places import ROOT

DEPLOY = ROOT / "deploy"
CONTAINERFILE = (DEPLOY / "Containerfile").read_text()
UNIT = (DEPLOY / "graphact-agent@.service").read_text()
PINNED = dict(line.split("==") for line in (DEPLOY / "requirements.txt").read_text().splitlines() if "==" in line)


def test_the_unit_runs_a_command_that_exists():
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str
    unit.read(DEPLOY / "graphact-agent@.service")
    words = shlex.split(unit["Service"]["ExecStart"].replace("%i", "7"))
    assert str(make_parser().parse_args(words[1:]).folder) == "/var/lib/graphact/node-7"
    assert unit["Service"]["Type"] == "notify"
    user = re.search(r"^u (\w+) ", (DEPLOY / "sysusers.conf").read_text(), re.MULTILINE)[1]
    assert user == unit["Service"]["User"] == unit["Service"]["StateDirectory"]


@pytest.mark.skipif(platform.machine() != "x86_64" or sys.platform != "linux", reason="needs Linux on x86-64")
@pytest.mark.parametrize("transport", ["udp", "zenoh"])
def test_an_agent_runs_with_the_calls_that_the_unit_allows(tmp_path, transport):
    """OpenBLAS calls mbind, of @resources, and goes on where it is refused; a signal would kill the agent."""
    action = re.search(r"^SystemCallErrorNumber=(\w+)$", UNIT, re.MULTILINE)
    model, alone = nn.FIR([1, 1], order=1).double(), undirected([], 1)
    (folder,) = split(model, alone, tmp_path / "nodes", free_addresses(1), transport=transport)
    np.save(folder / "x.npy", np.ones((1, 1)))
    program = str(Path(__file__).with_name("under_seccomp.py"))
    command = [sys.executable, program, action[1] if action else "kill", "run", str(folder)]
    command += ["--runs", "1", "--signals", str(folder / "x.npy"), "--repeat"]
    ended = subprocess.run(command, capture_output=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert b'"complete": true' in ended.stdout


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_knows_all_that_the_unit_says(tmp_path):
    text = (DEPLOY / "graphact-agent@.service").read_text().replace("/opt/graphact/bin/graphact-agents", sys.executable)
    (tmp_path / "graphact-agent@.service").write_text(text.replace("User=graphact", "User=root"))
    command = ["systemd-analyze", "verify", "--man=no", str(tmp_path / "graphact-agent@.service")]
    told = subprocess.run(command, capture_output=True, text=True, check=False).stderr
    assert "graphact-agent@" not in told, told


def test_the_pinned_packages_are_those_that_are_tested_and_all_that_an_agent_needs():
    project = tomllib.loads((ROOT / "packages" / "graphact-agents" / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    needed = {re.split(r"[>=]", line)[0] for line in [*project["dependencies"], *extras["zenoh"], *extras["metrics"]]}
    assert {*PINNED} == needed - {"cryptography"}  # which deploying needs
    tested = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    assert {name: tested[name] for name in PINNED} == PINNED


def test_the_image_copies_what_the_ignore_file_lets_in():
    copied = re.findall(r"^COPY (?!--from)(\S+)", CONTAINERFILE, re.MULTILINE)
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    assert all((ROOT / path).exists() for path in [*copied, *allowed])
    assert all(any(path.startswith(each) for each in copied) for path in allowed)
    assert all(any(path.startswith(each) for path in allowed) for each in copied)
    assert not (ROOT / ".containerignore").exists()  # podman would read it instead, and docker does not
    versions = re.findall(r"^FROM (\S+?)(?: AS \w+)?$", CONTAINERFILE, re.MULTILINE)
    assert len({*versions}) == 1
    assert re.search(r":\d+\.\d+\.\d+-", versions[0])


@pytest.mark.slow
def test_the_image_is_healthy_as_its_recipe_starts_it(tmp_path):
    """Entry point, the documented arguments and the health check, with the paths of this machine, without the other.

    It answers where its folder says, and without that setting is as healthy as its process.
    """
    entry = json.loads(re.search(r"^ENTRYPOINT (\[.*\])$", CONTAINERFILE, re.MULTILINE)[1])
    check = json.loads(re.search(r"^HEALTHCHECK .* CMD (\[.*\])$", CONTAINERFILE, re.MULTILINE)[1])
    lines = [shlex.split(words) for words in re.findall(r"podman run .*/node graphact-agent\b(.*)", CONTAINERFILE)]
    assert [len(words) for words in lines] == [0, 3]
    model, alone = nn.FIR([1, 1], order=1).double(), undirected([], 1)
    port, command = str(free_addresses(1)[0].port), [sys.executable, "-m", "graphact_agents.command"]
    for name, settings, words in (("a", {"status": port}, lines[0]), ("b", {"status": port}, lines[1]), ("c", {}, [])):
        (folder,) = split(model, alone, tmp_path / name, transport="udp", sensor="echo 1", **settings)
        np.save(folder / "x.npy", np.ones((1, 1)))
        started = [*command, *(word.replace("/node", str(folder)) for word in [*entry[1:], *words])]
        asked = [word.replace("/node", str(folder)).replace(entry[0], shlex.join(command)) for word in check]
        with subprocess.Popen(started, stdout=subprocess.PIPE) as agent:
            try:
                assert json.loads(agent.stdout.readline()).get("status") == (f"127.0.0.1:{port}" if settings else None)
                assert subprocess.run(asked, check=False).returncode == 0
            finally:
                agent.kill()
        assert subprocess.run(asked, capture_output=True, check=False).returncode == bool(settings)


def test_the_playbook_brings_what_there_is():
    folder = ROOT / "examples" / "agents" / "ansible"
    playbook, inventory = (folder / name for name in ("playbook.yml", "inventory.ini"))
    text = playbook.read_text()
    named = set(re.findall(r"src/deploy/([\w.@-]+)", text))
    assert named == {"requirements.txt", "sysusers.conf", "graphact-agent@.service"}
    assert all((DEPLOY / name).is_file() for name in named)
    settings = {line.partition("=")[0] for line in inventory.read_text().splitlines() if re.match(r"\w+=", line)}
    variables = {*re.findall(r"{{ (\w+) }}", text), *re.findall(r"(?<!_)when: (\w+)", text)}
    assert variables == settings | {"item", "node", "nodes", "wheels"}
    if command := shutil.which("ansible-playbook"):
        checked = [command, "--syntax-check", "--inventory", str(inventory), str(playbook)]
        assert subprocess.run(checked, capture_output=True, check=False).returncode == 0
