"""The experiment on faulty sensors: its faults, its simple rules, its rows and its report."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from graphact_lab.experiments.faulty_sensors.experiment import FULL, QUICK, SMOKE, find_settings, training_faults
from graphact_lab.experiments.faulty_sensors.faults import (
    columns_of,
    hampel_in_space,
    hampel_in_time,
    least_squares,
    neighbors_median,
    spoil,
)
from graphact_lab.experiments.faulty_sensors.report import averaged, difference_table, write_page
from graphact_lab.experiments.faulty_sensors.runner import Origin, Stations, check_settings, run
from graphact_lab.store import Store, StoreError

ROOT = Path(__file__).parents[4]
RING = [np.array([(i - 1) % 20, (i + 1) % 20, (i + 2) % 20]) for i in range(20)]


@pytest.fixture
def clean():
    return 280 + np.random.default_rng(0).normal(size=(50, 20))


@pytest.mark.parametrize("fault", ["outliers", "drift", "stuck"])
def test_faults_hit_some_stations_alone(fault, clean):
    readings, faulty = spoil(clean, fault, 0.2, FULL, 2.0, np.random.default_rng(1))
    assert faulty.sum() == 4
    np.testing.assert_array_equal(readings[:, ~faulty], clean[:, ~faulty])
    errors = readings[:, faulty] - clean[:, faulty]
    if fault == "outliers":
        assert set(np.abs(errors[errors != 0]).round(6)) == {20.0}
        assert 0.1 < (errors != 0).mean() < 0.4
    if fault == "drift":
        steps = np.abs(np.diff(errors, axis=0))
        assert set(steps.round(6).ravel()) == {0.0, 0.2}
        assert (steps[25:] > 0).all()  # begun in the first half at the latest
    if fault == "stuck":
        assert (np.diff(readings[25:, faulty], axis=0) == 0).all()
        assert (errors[0] == 0).all()


def test_rules_without_a_network(clean):
    found = neighbors_median(clean, RING)
    assert found[7, 3] == np.median(clean[7, [2, 4, 5]])
    spoilt = clean.copy()
    spoilt[30, 3] += 100
    in_space, in_time = hampel_in_space(spoilt, RING), hampel_in_time(spoilt)
    assert in_space[30, 3] == np.median(spoilt[30, [2, 4, 5]])
    assert in_time[30, 3] == np.median(spoilt[19:31, 3])
    assert (in_time[:30] != clean[:30]).mean() < 0.1
    constant = np.full((5, 20), 3.0)
    np.testing.assert_array_equal(hampel_in_space(constant, RING), constant)
    np.testing.assert_array_equal(hampel_in_time(constant), constant)


def test_robust_least_squares_ignores_wild_targets():
    rng = np.random.default_rng(2)
    columns = rng.normal(size=(500, 3))
    target = columns @ [1.0, -2.0, 0.5]
    target[:50] += 1000
    plain, robust = (least_squares(columns, target, robust=robust) for robust in (False, True))
    assert np.abs(robust - [1.0, -2.0, 0.5]).max() < 0.05
    assert np.abs(plain - [1.0, -2.0, 0.5]).max() > 1
    past = columns_of(np.arange(10.0).reshape(5, 2), 3, 0.0, 1.0)
    assert past[4, 1].tolist() == [9.0, 7.0, 5.0]
    assert past[0, 0].tolist() == [0.0, 0.0, 0.0]


def test_origins_roll_behind_a_gap():
    kelvin = np.arange(744.0)[:, None] * np.ones(32)
    origins = [Origin(kelvin, number, FULL, 0) for number in range(FULL.origins)]
    for origin in origins:
        last = np.nanmax(origin.targets)
        tests = [clean for _, clean, _, _ in origin.tests]
        assert all(test[0, 0] == last + 1 + FULL.gap_hours and len(test) == FULL.test_hours for test in tests)
    assert np.nanmin(origins[0].targets) == 0
    assert origins[-1].tests[0][1][-1, 0] == 743
    assert len({np.nanmax(origin.targets) for origin in origins}) == 10


def test_training_has_the_faults_that_the_report_names(clean):
    parts = []
    for fault, share in training_faults(FULL.draws, FULL.shares):
        _, faulty = spoil(clean, fault, share, FULL, 2.0, np.random.default_rng(0))
        parts.append((fault, int(faulty.sum())))
    assert parts == 2 * [("outliers", 1), ("drift", 2), ("stuck", 4)]
    text = (ROOT / "results" / "faulty-sensors" / "report.md").read_text()
    assert "trained on outliers at 5%, drift at 10%, stuck at 20% of the stations" in text


def test_rounds_that_layers_do_not_divide_are_left_out():
    jobs = {(job.method, job.rounds) for job in FULL.jobs}
    assert ("median-l", 2) in jobs
    assert ("median-l", 3) not in jobs
    assert ("max-ga", 3) in jobs
    assert ("max-ga", 2) not in jobs
    assert find_settings("full", changes={"rounds": "2", "epochs": "3"}).epochs == 3
    with pytest.raises(ValueError, match="--set must be one of"):
        find_settings("full", changes={"layers": "3"})
    for name, text, message in (
        ("outlier", "a", "outlier must be a number, got 'a'"),
        ("outlier_share", "2", "outlier_share must lie between 0 and 1, got 2"),
        ("drift", "nan", "drift must be a"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            find_settings("full", changes={name: text})
    with pytest.raises(ValueError, match=r"rounds must be those of whole layers of max-ga, got \(5,\)"):
        find_settings("full", ("max-ga",), {"rounds": "5"})
    with pytest.raises(ValueError, match="activation must be one of"):
        find_settings("quick", ("median",))


@pytest.mark.slow
@pytest.mark.usefixtures("molene")
def test_rows_and_report(tmp_path):
    store = Store(tmp_path)
    store.create("graphact-lab run faulty-sensors --preset smoke")
    run(SMOKE, store, seed=3)
    rows = store.rows()
    again = [row["value"] for row in rows if row["method"] == "gelu"]
    assert len(again) == SMOKE.origins * (1 + 3 * len(SMOKE.shares))
    same = Store(tmp_path / "again")
    same.create("")
    run(SMOKE, same, seed=3, with_baselines=False)
    assert [row["value"] for row in same.rows() if row["method"] == "gelu"] == again
    untouched = [row for row in rows if row["method"] == "reading as it is"]
    assert all(row["healthy"] == 0 for row in untouched)
    assert all(row["faulty"] > 0.5 for row in untouched if row["condition"]["fault"] != "none")
    for row in rows:  # all stations are the healthy and the faulty ones
        share = max(1, round(row["condition"]["share"] * 32)) / 32 if row["faulty"] is not None else 0.0
        total = (1 - share) * row["healthy"] ** 2 + share * (row["faulty"] or 0.0) ** 2
        assert row["value"] == pytest.approx(total**0.5)
    page = write_page(rows, tmp_path, store.commands()).read_text()
    assert "| GELU (pointwise) | 2 |" in page
    assert "trained on outliers at 5% of the stations; tests have each fault\nat each share" in page
    assert "Differences at equal rounds" in page
    assert json.dumps(rows)
    with pytest.raises(StoreError, match="draws 1 instead of 3"):
        check_settings(QUICK, store, 3)


def test_differences_are_paired_over_origins():
    rows = []
    for method, gain in (("gelu", 0.0), ("bank-median", -0.2)):
        for split in range(10):
            for fault, share in (("none", 0.0), ("drift", 0.1), ("stuck", 0.2)):
                base = 1.0 + 0.1 * split + gain
                error = {"value": base, "healthy": base, "faulty": None if fault == "none" else base}
                own = {"kind": "model", "method": method, "rounds": 2, "split": split}
                rows.append(own | {"condition": {"fault": fault, "share": share}} | error)
    assert [round(row["value"], 3) for row in averaged(rows[:3], "faulty")] == [1.0]
    table = difference_table(rows, 40 / 300)
    assert (
        table.splitlines()[-1]
        == "| bank of medians | 2 | **-0.200 ± 0.000** | **-0.200 ± 0.000** | **-0.200 ± 0.000** |"
    )


@pytest.fixture
def molene():
    from graphact_lab.data.download import DataError, locate

    try:
        locate("molene", None, False)
    except DataError as error:
        pytest.skip(str(error))


def test_tests_of_origins_share_no_hour(molene):
    """Intervals over origins take them for independent."""
    with pytest.raises(ValueError, match="origins must be at most 10, so that no hour is tested twice, got 11"):
        Stations(replace(FULL, origins=11), 0)


def test_stations_know_who_is_within_two_rounds(molene):
    stations = Stations(SMOKE, 0)
    for i, others in enumerate(stations.around):
        assert i not in others
        assert {i, *others} <= {*stations.reach[i]}
    matrix = stations.graph.to_dense().numpy() + np.eye(32)
    assert [len(reach) for reach in stations.reach] == ((matrix @ matrix) != 0).sum(1).tolist()
