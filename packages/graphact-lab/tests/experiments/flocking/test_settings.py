"""Settings: named before anything runs, chosen by name, and never mixed in one folder or one report."""

import copy
from pathlib import Path

import pytest

from graphact_lab.cli import main
from graphact_lab.experiments.flocking.experiment import FULL, OTHER_GAIN, differing, find_settings, world_of
from graphact_lab.experiments.flocking.report import Results, condition_sections, setting
from graphact_lab.experiments.flocking.runner import Airfield
from graphact_lab.experiments.flocking.world import World
from graphact_lab.store import Store, StoreError
from support.places import ROOT

PUBLISHED = ROOT / "results" / "flocking"
SMALL = ["run", "flocking", "--preset", "smoke", "--activation", "fir", "--device", "cpu"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("settings") / "out"
    assert main([*SMALL, "--out", str(folder)]) == 0
    return folder


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("epoch=3", "--set must be one of"),
        ("epochs=many", "epochs must be"),
        ("epochs=2.5", "epochs must be"),
        ("features=0", "features must be"),
        ("rate=fast", "rate must be"),
        ("rate=-1", "rate must be"),
        ("steps=none", "steps must be"),
        ("squash=no", "squash must be true or false"),
        ("connected=1", "connected must be true or false"),
        ("alignment=-50", "alignment must be"),
        ("expert_share=1.5", "expert_share must lie between"),
        ("flown_again=5", "flown_again must be at most the 4 teams"),
        ("agents=2", "agents must be"),
        ("parts=3", "parts must divide the 10 steps"),
        ("nearest=2", "nearest must be less than the radius 2"),
    ],
)
def test_a_setting_that_is_none_is_named_before_anything_runs(tmp_path: Path, capsys, change: str, words: str) -> None:
    out = tmp_path / "out"
    assert main([*SMALL, "--set", change, "--out", str(out)]) != 0
    said = capsys.readouterr().err
    assert words in said
    assert len(said.splitlines()) == 1
    assert not out.exists()


def test_a_folder_takes_results_of_one_setting(finished: Path, capsys) -> None:
    before = {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()}
    for change, words in (
        ("connected=false", "connected True instead of False"),
        ("alignment=50", "alignment None instead of 50"),
        ("epochs=1", "epochs 2 instead of 1"),
        ("tests=3", "tests 2 instead of 3"),
    ):
        assert main([*SMALL, "--set", change, "--out", str(finished)]) != 0
        assert f"holds results of other settings ({words}" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()} == before


def test_a_report_refuses_rows_of_several_settings(finished: Path) -> None:
    rows = Store(finished).rows()
    assert differing(rows) == ""
    for part, name, value in (("world", "connected", False), ("imitation", "rate", 1.0), (None, "features", 5)):
        other = copy.deepcopy(rows[-1])
        (other["settings"] if part is None else other["settings"][part])[name] = value
        with pytest.raises(StoreError, match=f"rows of one setting, got some with {name} {value} instead of"):
            Results([*rows, other])


@pytest.mark.usefixtures("results")
def test_rows_that_do_not_name_them_have_the_settings_of_before() -> None:
    for name, words in (
        ("parts", "Teams may start in parts that do not hear each other; the gain of the expert's alignment is 50"),
        ("medium", "Teams start connected; the gain of the expert's alignment is 50"),
        ("full", "Teams start connected; the gain of the expert's alignment is the size of the team"),
    ):
        assert words in (PUBLISHED / name / "report.md").read_text()
        assert words in setting(Results(Store(PUBLISHED / name).rows()))
    rows = Store(PUBLISHED / "parts").rows()
    assert differing(rows, FULL.settings(None, 0)) == "alignment 50.0 instead of None"
    now = find_settings("full", (), {"alignment": "50"})
    assert differing(rows, now.settings(None, 0)) == "connected False instead of True"
    old = find_settings("full", (), {"connected": "false", "alignment": "50"})
    assert differing(rows, old.settings(None, 0)) == ""
    for name, settings, count in (("parts", old, 4), ("full", FULL, 32)):  # cells go on where they were, none twice
        held = {*Store(PUBLISHED / name).keys()}
        assert len(held & {settings.key(job, 0) for job in settings.jobs}) == count == len(held) - 1
    assert World() == World(**world_of(FULL.settings(None, 0)))


@pytest.mark.usefixtures("results")
def test_other_sizes_are_reported_over_both_experts(finished: Path) -> None:
    rows, field = Store(finished).rows(), Airfield(find_settings("smoke", ("fir",)), 0, "cpu")
    larger = [row for row in rows if row["condition"] == {"agents": 12}]
    assert larger
    assert {OTHER_GAIN in row for row in rows if row not in larger} == {False}
    cost_12, cost_8 = (field.expert_cost({"agents": 12}, gain).mean(1).tolist() for gain in (None, 8.0))
    assert cost_12 != cost_8
    for row in larger:
        assert row["value"] == pytest.approx(row["cost"] / cost_12[row["graph"]], rel=1e-6)
        assert row[OTHER_GAIN] == pytest.approx(row["cost"] / cost_8[row["graph"]], rel=1e-6)
    page = "\n\n".join(condition_sections(Results(rows)))
    agents = page[page.index("## Agents") :]
    own = [row for row in larger if row["method"] == "fir"]
    above, below = (f"{sum(row[key] for row in own) / 2:.3f} ±" for key in ("value", OTHER_GAIN))
    assert above in agents.partition("whose gain is 8 for all sizes")[0]
    assert below in agents.partition("whose gain is 8 for all sizes")[2]
    assert "for all sizes:" not in (PUBLISHED / "medium" / "report.md").read_text()
