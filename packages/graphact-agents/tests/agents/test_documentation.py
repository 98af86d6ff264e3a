"""The walkthrough of the pages on agents runs as it stands; tables name every reason, promise and setting."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from graphact_agents.network import SETTINGS
from graphact_agents.status import REASONS
from local_agents import free_addresses
from support.places import ROOT

pytestmark = pytest.mark.slow

DOCUMENT = ROOT / "docs" / "agents.md"
PAGES = "\n".join((ROOT / "docs" / f"agents{name}.md").read_text() for name in ("", "-protocol", "-learning"))


def test_the_walkthrough_runs_as_it_stands(tmp_path):
    """On ports that are free, and with the commands of this environment."""
    block = re.search(r"```sh\n(python - .*?)```", DOCUMENT.read_text(), flags=re.DOTALL)[1]
    names = [f"127.0.0.1:{port + i}" for port in (7500, 8500) for i in range(4)]
    swaps = "; ".join(f"s/{name}/{address}/" for name, address in zip(names, free_addresses(8), strict=True))
    assert "graphact-agents deploy" in block
    block = block.replace("graphact-agents deploy", f"sed -i '{swaps}' network/network.toml; graphact-agents deploy", 1)
    for name, words in (("graphact-agents", "-m graphact_agents.command "), ("python", "")):
        (tmp_path / name).write_text(f'#!/bin/sh\nexec {sys.executable} {words}"$@"\n')
        (tmp_path / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    command = ["timeout", "--kill-after=20", "200", "bash", "-euc", f"trap 'kill $(jobs -p) || :' EXIT\n{block}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    *_, head, a, b, c, d, end = done.stdout.splitlines()
    assert [row.split()[0] for row in (head, a, b, c, d)] == ["agent", "node-0", "node-1", "node-2", "node-3"]
    assert json.loads(end)["reason"] == "stopped"
    assert json.loads(end)["counters"]["complete"] > 0


def test_every_reason_of_a_refusal_is_explained():
    table = re.search(r"\| reason \|.*?\n\n", DOCUMENT.read_text(), flags=re.DOTALL)[0]
    explained = [name for row in table.strip().splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert sorted(explained) == sorted(REASONS)


def test_every_promise_has_a_test_that_is_there():
    tests = "".join(path.read_text() for path in Path(__file__).parent.rglob("test_*.py"))
    table = re.search(r"\| promise \|.*?\n\n", PAGES, flags=re.DOTALL)[0]
    named = [re.findall(r"`(test_\w+)(\.py)?`", row.split("|")[3]) for row in table.strip().splitlines()[2:]]
    assert len(named) > 10
    assert all(names for names in named)
    for name, ending in (each for names in named for each in names):
        assert (Path(__file__).parent / f"{name}.py").exists() if ending else f"def {name}(" in tests, name


def test_every_setting_is_explained():
    table = re.search(r"\| setting \|.*?\n\n", DOCUMENT.read_text(), flags=re.DOTALL)[0]
    named = [name for row in table.strip().splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert sorted(named) == sorted([*SETTINGS, "address", "valid_days"])
