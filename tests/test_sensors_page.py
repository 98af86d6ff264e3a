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
    from graphact_lab.experiments.faulty_sensors.report import LABELS, averaged, difference, rows_of_method
    from graphact_lab.store import Store

    rows = Store(ROOT / "results" / "faulty-sensors").rows()
    names = {label: method for method, label in LABELS.items()}
    lines = re.findall(r"^\| ([^|]+) \| (\d) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", PAGE, re.MULTILINE)
    assert len(lines) == 14
    for label, rounds, *quoted in lines:
        own = rows_of_method(rows, names.get(label, label), int(rounds))
        parts = ("value", "healthy", "faulty")
        assert quoted == [f"{fmean(row['value'] for row in averaged(own, part)):.2f}" for part in parts], label
    pair = (averaged(rows_of_method(rows, name, 2), "value") for name in ("gelu", "bank-median"))
    found = difference(*pair, overlap=40 / 300)
    assert f"by {found.mean:.2f} ± {found.margin:.2f}, which is not significant" in PAGE.replace("\n", " ")
    significant = set()
    for name, rounds in (("max-l", 2), ("median-l", 2), ("max-ga", 3), ("median-ga", 3)):
        line = next(line for line in REPORT.splitlines() if line.startswith(f"| {LABELS[name]} | {rounds} | +"))
        significant |= {name} if line.split("|")[-2].strip().startswith("**+") else set()
    assert significant == {"max-l", "max-ga", "median-ga"}
    assert "| bank of medians | 2 | -0.053 ± 0.039 |" in REPORT


def test_names_of_sensors_may_be_numbers(tmp_path, monkeypatch):
    pytest.importorskip("sklearn")
    pandas = pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    hours = pandas.date_range("2026-03-01", periods=200, freq="h", name="time")
    pandas.DataFrame(1.5, hours, [103, 101, 102]).to_csv("readings.csv")
    places = pandas.DataFrame({"x": [0.0, 1.0, 5.0], "y": 0.0}, pandas.Index([101, 102, 103], name="sensor"))
    places.to_csv("places.csv")
    found = {}
    exec(SCRIPTS[0].partition("model =")[0].replace("k=3", "k=1"), found)
    assert found["places"]["x"].tolist() == [5.0, 0.0, 1.0]
    assert found["graph"].num_nodes == 3


class Reader:
    """A reader of the guide, in one folder."""

    def __init__(self, folder):
        self.folder = folder
        scripts = f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}"
        self.environment = {**os.environ, "PATH": scripts, "OMP_NUM_THREADS": "1"}

    def run(self, *command):
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def train(self, k, *options):
        """Make readings and train; return the lines that ``train.py`` prints, by name."""
        self.run(sys.executable, str(ROOT / "examples" / "sensors" / "make_readings.py"), *options)
        (self.folder / "train.py").write_text(SCRIPTS[0].replace("k=3", f"k={k}"))
        lines = self.run(sys.executable, "train.py").splitlines()
        return {line[:20].strip(): [float(number) for number in line[20:].split()] for line in lines}

    def results(self, node):
        """The last answers of a node, with the window full."""
        events = [json.loads(line) for line in (self.folder / f"node-{node}.jsonl").read_text().splitlines()]
        return [event for event in events if event["event"] == "result"]

    def errors(self, dead):
        """Errors over the test part with sensor 2 off by 50: its own, of the others, and of these with a dead node."""
        import numpy as np
        import pandas as pd

        import graphact
        from graphact.estimators import load

        test = pd.read_csv(self.folder / "readings.csv", index_col="time", parse_dates=True)[-144:]
        model, graph = load(self.folder / "model.safetensors"), graphact.Graph.load(self.folder / "graph.npz")
        broken = test.copy()
        broken["s2"] += 50

        def error(readings, graph, nodes):
            squares = (model.predict(readings, graph=graph) - test.to_numpy()) ** 2
            return float(np.sqrt(np.nanmean(squares[:, nodes])))

        nodes = np.arange(test.shape[1])
        found = [error(broken, graph, [2]), error(broken, graph, nodes != 2)]
        weights, silent = graph.to_dense(), broken.copy()
        weights[dead], weights[:, dead] = 0.0, 0.0
        silent[f"s{dead}"] = np.nan
        return [*found, error(silent, graphact.Graph.from_dense(weights), (nodes != 2) & (nodes != dead))]


def check_errors(found, columns):
    """Compare what ``train.py`` printed with two columns of the page."""
    assert list(found)[-1] == "network"
    for column in (0, 1):
        others = [errors[column] for name, errors in found.items() if name not in ("network", "reading as it is")]
        assert found["network"][column] < 0.8 * min(others)
    quoted = re.findall(
        r"^\| (?!method)([^|(,]+?)(?: \([^|]*|, [^|]*)? \|" + 4 * r" (\d+\.\d\d) \|" + "$", PAGE, re.MULTILINE
    )
    assert [name for name, *_ in quoted] == list(found)
    for name, *numbers in quoted:  # training differs a little between processors
        expected = [float(numbers[column]) for column in columns]
        assert found[name] == pytest.approx(expected, abs=0.1 if name == "network" else 0.011), name


def check_broken(found, column):
    """Compare errors with a column of the table of a broken sensor."""
    quoted = re.findall(r"^\| of the [^|]+ \| ([\d.]+) \| ([\d.]+) \|$", PAGE, re.MULTILINE)
    assert found == pytest.approx([float(numbers[column]) for numbers in quoted], abs=0.1)


@pytest.mark.slow
def test_it_leads_to_a_running_network(tmp_path):
    pytest.importorskip("sklearn")
    pytest.importorskip("pandas")
    reader = Reader(tmp_path)
    check_errors(reader.train(3), (0, 1))
    check_broken(reader.errors(dead=5), 0)
    (tmp_path / "read_sensor.py").write_text(SCRIPTS[1])
    for command in COMMANDS:
        reader.run("sh", "-ec", command)

    with (tmp_path / "readings.csv").open() as file:
        rows = list(csv.DictReader(file))
    span = [[float(row[f"s{node}"]) for row in rows if row[f"s{node}"]] for node in range(5)]
    for node in range(5):
        results = reader.results(node)
        assert len(results) >= 6
        assert all(5 not in event["missed"] for event in results)
        for event in results[-3:]:  # with the window full
            assert min(span[node]) - 3 < event["output"][0] < max(span[node]) + 3
    assert max(max(values) for values in span) < 40  # what node 2 reads is at least 50 more than the air has


@pytest.mark.slow
@pytest.mark.skipif("GRAPHACT_DATA" not in os.environ, reason="the Molène readings are in GRAPHACT_DATA")
def test_the_stations_are_as_the_page_says_and_run(tmp_path):
    pytest.importorskip("sklearn")
    pytest.importorskip("pandas")
    reader = Reader(tmp_path)
    check_errors(reader.train(5, "--molene"), (2, 3))
    check_broken(reader.errors(dead=7), 1)
    (tmp_path / "read_sensor.py").write_text(SCRIPTS[1].replace("time.time() / 2", "time.time() / 10"))
    stations = [node for node in range(32) if node != 7]
    timing = re.search(r"Two busy cores need\s`(.*?)`", PAGE).group(1)
    loop = COMMANDS[1].replace("0 1 2 3 4", " ".join(map(str, stations)))
    assert "--period 2 --runs 12" in loop
    for command in (COMMANDS[0], loop.replace("--period 2 --runs 12", f"{timing} --runs 6")):
        reader.run("sh", "-ec", command)
    for node in stations:
        results = reader.results(node)
        assert len(results) == 6, node
        for event in results[-2:]:  # with the window full
            assert -10 < event["output"][0] < 25, (node, event)
