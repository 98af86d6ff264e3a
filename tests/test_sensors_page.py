"""The guide for sensors, block by block in one folder as a reader follows it, to the answers of a running network."""

import csv
import json
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path
from statistics import fmean

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "sensors.md").read_text()
REPORT = (ROOT / "results" / "faulty-sensors" / "report.md").read_text()
SCRIPTS, COMMANDS = (re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL) for language in ("python", "sh"))
MAX_LINES, MAX_COMMANDS = 25, 4


def test_it_is_short():
    lines = [line for script in SCRIPTS for line in script.splitlines() if line.strip()]
    assert len(lines) <= MAX_LINES
    commands = re.findall(r"^ *graphact\S* \w+", "".join(COMMANDS), re.MULTILINE)
    assert len(commands) <= MAX_COMMANDS


def test_errors_of_the_experiment_are_those_of_the_rows():
    pytest.importorskip("pyarrow")
    from graphact_lab.experiments.faulty_sensors.report import LABELS, averaged, difference, own_rows
    from graphact_lab.store import Store

    rows = Store(ROOT / "results" / "faulty-sensors").rows()
    names = {label: method for method, label in LABELS.items()}
    lines = re.findall(r"^\| ([^|]+) \| (\d) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", PAGE, re.MULTILINE)
    assert len(lines) == 14
    for label, rounds, *quoted in lines:
        own = own_rows(rows, names.get(label, label), int(rounds))
        parts = ("value", "healthy", "faulty")
        assert quoted == [f"{fmean(row['value'] for row in averaged(own, part)):.2f}" for part in parts], label
    pair = (averaged(own_rows(rows, name, 2), "value") for name in ("gelu", "bank-median"))
    found = difference(*pair, overlap=40 / 300)
    assert f"by {found.mean:.2f} ± {found.margin:.2f}, which is not significant" in PAGE.replace("\n", " ")
    significant = set()
    for name, rounds in (("max-l", 2), ("median-l", 2), ("max-ga", 3), ("median-ga", 3)):
        line = next(line for line in REPORT.splitlines() if line.startswith(f"| {LABELS[name]} | {rounds} | +"))
        significant |= {name} if line.split("|")[-2].strip().startswith("**+") else set()
    assert significant == {"max-l", "max-ga", "median-ga"}
    assert "| bank of medians | 2 | -0.053 ± 0.039 |" in REPORT


@pytest.mark.slow
def test_it_leads_to_a_running_network(tmp_path):
    pytest.importorskip("sklearn")
    pytest.importorskip("pandas")
    scripts = sysconfig.get_path("scripts")
    environment = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}

    def run(*command):
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run(sys.executable, str(ROOT / "examples" / "sensors" / "make_readings.py"))
    for name, script in zip(("train.py", "read_sensor.py"), SCRIPTS, strict=True):
        (tmp_path / name).write_text(script)
    errors = {line[:20].strip(): float(line[20:]) for line in run(sys.executable, "train.py").splitlines()}
    assert list(errors)[-1] == "network"
    assert errors["network"] < 0.8 * min(error for name, error in errors.items() if name != "network")
    quoted = re.findall(r"^\| (?!method)([^|(,]+?)(?: \([^|]*|, [^|]*)? \| ([\d.]+) \| [\d.]+ \|$", PAGE, re.MULTILINE)
    assert [name for name, _ in quoted] == list(errors)
    for name, error in quoted:  # training differs a little between processors
        assert errors[name] == pytest.approx(float(error), abs=0.2 if name == "network" else 0.011)
    for command in COMMANDS:
        run("sh", "-ec", command)

    with (tmp_path / "readings.csv").open() as file:
        rows = list(csv.DictReader(file))
    span = [[float(row[f"s{node}"]) for row in rows if row[f"s{node}"]] for node in range(5)]
    for node in range(5):
        events = [json.loads(line) for line in (tmp_path / f"node-{node}.jsonl").read_text().splitlines()]
        results = [event for event in events if event["event"] == "result"]
        assert len(results) >= 6
        assert all(5 not in event["missed"] for event in results)
        for event in results[-3:]:  # with the window full
            assert min(span[node]) - 3 < event["output"][0] < max(span[node]) + 3
    assert max(max(values) for values in span) < 40  # what node 2 reads is at least 50 more than the air has
