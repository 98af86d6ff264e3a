"""The experiment from its command to its report; and published results beside their rows."""

import json
import re
import subprocess
import sys
from pathlib import Path
from statistics import fmean, stdev

import pytest

from graphact.registry import COMPARED, POINTWISE
from graphact_lab.cli import main
from graphact_lab.experiments.flocking.experiment import FULL, LEVELS, NOT_FLOWN, Job, find_settings, job_of
from graphact_lab.experiments.flocking.report import (
    Results,
    compared,
    draw_condition,
    draw_exchanges,
    write_page,
)
from graphact_lab.experiments.flocking.runner import Airfield
from graphact_lab.store import Store
from graphact_lab.style import markdown_table
from support.places import ROOT

PUBLISHED = ROOT / "results" / "flocking" / "full"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("flocking") / "out"
    assert main(["run", "flocking", "--preset", "smoke", "--device", "cpu", "--out", str(folder)]) == 0
    return folder


def test_rows_hold_every_policy_realization_and_condition(finished: Path) -> None:
    rows = Store(finished).rows()
    networks = [row for row in rows if row["kind"] == "model"]
    expected = {
        (name, level) for name, levels in LEVELS.items() for level in levels if name not in ("agents", "delay")
    } | {("agents", 12)}
    for job in find_settings("smoke").jobs:
        own = [row for row in networks if (row["method"], row["delayed"]) == (job.method, job.delayed)]
        flown = {(row["graph"], *next(iter(row["condition"].items()), ("", 0))) for row in own}
        wanted = expected | {("", 0)} | (set() if job.delayed else {("delay", 1)})
        assert flown == {(graph, name, level) for graph in (0, 1) for name, level in wanted}
        assert len(flown) == len(own)
    expert = [row["value"] for row in rows if row["method"] == "expert"]
    assert expert == pytest.approx([1.0] * len(expert))
    assert all(row["value"] > 1 for row in rows if row["method"] == "none")


def test_a_finished_run_is_not_repeated_and_its_report_is_the_same(finished: Path) -> None:
    before = {path: path.read_bytes() for path in finished.rglob("*.json") if path.name != "run.json"}
    page = (finished / "report.md").read_text()
    assert main(["run", "flocking", "--preset", "smoke", "--device", "cpu", "--out", str(finished)]) == 0
    assert {path: path.read_bytes() for path in before} == before
    assert (finished / "report.md").read_text() == page
    assert "## Trained and flown with delay" in page


def test_an_absolute_value_is_one_cell() -> None:
    assert markdown_table(("policy", "cost"), [("|x|, K = 2", "1.5")]).splitlines()[2] == "| \\|x\\|, K = 2 | 1.5 |"


def test_tables_name_the_level_that_was_trained_with(finished: Path) -> None:
    page = (finished / "report.md").read_text()
    header = page[page.index("## Agents") :].splitlines()[2]
    assert header == "| policy | 8 | 12 |"  # trained with 8
    rows = [row for row in Store(finished).rows() if row["method"] == "relu" and not row["condition"]]
    found = [row["value"] for row in rows]
    usual = f"{fmean(found):.3f} ± {stdev(found):.3f}"
    line = next(line for line in page[page.index("## Agents") :].splitlines() if line.startswith("| ReLU"))
    assert line.split(" | ")[1] == usual


def test_other_conditions_do_not_touch_the_expert() -> None:
    field = Airfield(find_settings("smoke"), 0, "cpu")
    usual = field.expert_cost({})
    assert field.expert_cost({"loss": 0.5}) is usual
    assert not usual.equal(field.expert_cost({"speed": 1.5}))


def test_settings_change_by_name() -> None:
    changed = find_settings("full", ("max-ga",), {"epochs": "3", "squash": "true", "features": "8"})
    assert {job.method for job in changed.jobs} == {"max-ga"}
    assert (changed.imitation, changed.world, changed.features) == ({"epochs": 3}, {"squash": True}, 8)
    assert changed.key(changed.jobs[0], 0) != FULL.key(changed.jobs[0], 0)
    with pytest.raises(ValueError, match="--set"):
        find_settings("full", (), {"nothing": "1"})
    with pytest.raises(ValueError, match="activation"):
        find_settings("full", ("digraf",))


def test_the_full_preset_has_every_activation_that_can_fly() -> None:
    methods = {job.method for job in FULL.jobs}
    assert {*COMPARED, *POINTWISE} - {"identity"} <= methods  # the identity is the linear filter
    assert not methods & {*NOT_FLOWN}
    assert job_of("relu", 4) in FULL.jobs  # as far as a graph-adaptive activation of one hop
    assert Job("max-ga", 1, 2, True) in FULL.jobs
    assert len(set(FULL.jobs)) == len(FULL.jobs)


@pytest.mark.usefixtures("results")
def test_p_in_a_table_is_holms_over_its_lines() -> None:
    results = Results(Store(PUBLISHED).rows())
    relu = next(line for line in results.base() if line.method == "relu")
    others = [line for line in results.base() if line != relu]
    alone = {line.label: float(compared(results, [line], relu)[0][3]) for line in others}
    together = {cells[0]: float(cells[3]) for cells in compared(results, results.base(), relu)}
    order = sorted(alone, key=alone.__getitem__)
    assert len(order) == 20
    lowest = 0.0
    for number, label in enumerate(order):
        lowest = max(lowest, min(1.0, (20 - number) * alone[label]))
        assert together[label] == pytest.approx(lowest, rel=0.05)


@pytest.mark.usefixtures("results")
def test_figures_name_every_line_once() -> None:
    results = Results(Store(PUBLISHED).rows())
    assert {line.hops for line in results.base() if line.method == "max-ga"} == {1, 2}
    for sheet in (draw_condition(results, "loss"), draw_exchanges(results)):
        labels = sheet.axes[0].get_legend_handles_labels()[1]
        assert len({*labels}) == len(labels) > 10


@pytest.mark.slow
@pytest.mark.parametrize("name", ["full", "parts", "medium"])
def test_the_published_report_comes_from_its_rows(name: str, tmp_path: Path) -> None:
    published = PUBLISHED.parent / name
    store = Store(published)
    page = write_page(store.rows(), tmp_path, store.commands())
    assert page.read_text() == (published / "report.md").read_text()
    figures = [sorted(file.name for file in (folder / "figures").iterdir()) for folder in (tmp_path, published)]
    assert figures[0] == figures[1]


@pytest.mark.slow
@pytest.mark.usefixtures("results")
def test_what_exchanges_buy_comes_from_the_rows() -> None:
    command = [sys.executable, "studies/flocking_exchanges.py", "results/flocking/full"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert said == (PUBLISHED.parent / "exchanges.md").read_text()


@pytest.mark.usefixtures("results")
def test_the_page_quotes_its_reports() -> None:
    reports = "".join((PUBLISHED.parent / name).read_text() for name in ("full/report.md", "exchanges.md"))
    told = (ROOT / "docs" / "flocking.md").read_text()
    results = told[told.index("\n## Results\n") : told.index("\n## Limits\n")]
    quoted = re.findall(r"\d\.\d{3} ± 0\.\d{3}", results)
    assert len(quoted) > 20
    assert [number for number in quoted if number not in reports] == []


@pytest.mark.slow
def test_the_example_of_the_page_runs_as_it_stands(tmp_path: Path) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "flocking.md").read_text(), flags=re.DOTALL)
    (tmp_path / "block.py").write_text(block)
    command = [sys.executable, str(tmp_path / "block.py")]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    (ratio,) = re.findall(r"(\S+) times the expert's cost", result.stdout)
    assert 1 < float(ratio) < 8


@pytest.mark.slow
def test_the_picture_is_made_of_published_policies(tmp_path: Path) -> None:
    script = str(ROOT / "studies" / "flocking_picture.py")
    command = [sys.executable, script, str(PUBLISHED), "--page", str(tmp_path / "page.html"), "--agents", "8"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    page = (tmp_path / "page.html").read_text()
    data = json.loads(re.findall(r"const data = (\{.*\});", page)[0])
    assert (data["agents"], data["steps"], data["losses"]) == (8, 200, [0.0, 0.3])
    assert [flight["title"] for flight in data["flights"][0]] == ["expert", "ReLU", "graph-adaptive max"]
    assert sum(data["flights"][1][0]["counts"]) > 0 == sum(data["flights"][0][0]["counts"])
