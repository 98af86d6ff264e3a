"""Tables of everything that was run: those in docs/tables are the rows', and what they compute is plain arithmetic."""

import numpy as np
import pytest
from scipy import stats

from evidence import Cell, Evidence, Study, preference
from graphact_lab.store import Store
from rounds_cells import WIDTH, baselines_of, lines_of
from tables import FOLDER, Tables, to_csv

STUDY = Study("source-localization", "paper", "converged")
NOISE = np.random.default_rng(0).normal(0, 1, 10)


def rows_of(values, validation, rounds=2, parameters=10):
    usual = {"split": 0, "node": 0, "seed": 0, "validation": validation, "exchanges": rounds, "parameters": parameters}
    usual |= {"best_epoch": 9, "epochs": 10}
    return [{"graph": n, "value": float(value), **usual} for n, value in enumerate(values)]


def tables_of(cells):
    made = Tables.__new__(Tables)
    made.evidence = Evidence("nowhere")
    made.evidence.cells = {STUDY: cells}
    return made


def cell(method, hops=None):
    return Cell("model", method, hops, 8, 4, ())


@pytest.mark.slow
def test_tables_are_those_of_the_rows(results):
    """Every number of the pages stands in them; a changed row changes them."""
    tables = Tables(results)
    assert {f"{name}.csv" for name in tables.makers} == {path.name for path in FOLDER.iterdir()}
    for name in tables.makers:
        assert to_csv(tables.make(name)) == (FOLDER / f"{name}.csv").read_text(), f"{name}.csv: run make pages"


def test_the_rival_validates_best_and_ties_are_told_apart():
    strong, weak = rows_of(60 + NOISE, 55), rows_of(70 + NOISE, 50)  # tests better, validates worse
    cells = {cell("prelu"): strong, cell("tanh"): weak, cell("max-ga", 2): rows_of(75 + NOISE[::-1], 65)}
    lines = {line["method"]: line for line in tables_of(cells).cells()}
    assert lines["max-ga"]["rival"] == "prelu"
    assert "gain" not in lines["prelu"]
    for change, chosen in (({"rounds": 1}, "tanh"), ({"parameters": 9}, "tanh"), ({"parameters": 10}, "prelu")):
        tied = {**cells, cell("tanh"): rows_of(70 + NOISE, 55, **change)}
        assert {line["method"]: line for line in tables_of(tied).cells()}["max-ga"]["rival"] == chosen
    assert sorted([preference(1, 2, 3, "a"), preference(2, 9, 9, "z")])[0][-1] == "z"


def test_gains_are_paired_over_common_runs():
    cells = {cell("prelu"): rows_of(60 + NOISE, 55), cell("fir"): rows_of(50 + NOISE[:6], 40)}
    cells[cell("max-ga", 2)] = rows_of(75 + NOISE[::-1], 65)
    lines = {line["method"]: line for line in tables_of(cells).cells()}
    gains = 75 + NOISE[::-1] - (60 + NOISE)
    interval = stats.ttest_1samp(gains, 0).confidence_interval()
    found = lines["max-ga"]
    assert [found[key] for key in ("gain", "gain_low", "gain_high")] == pytest.approx([gains.mean(), *interval])
    assert found["minus_fir"] == pytest.approx(np.mean(75 + NOISE[::-1][:6] - (50 + NOISE[:6])))
    assert found["margin"] == pytest.approx(stats.t.ppf(0.975, 9) * stats.sem(NOISE))
    assert found["best_in_last_quarter"] == 1


def test_a_network_that_diverged_is_no_rival_and_has_no_gain():
    cells = {cell("prelu"): rows_of([np.nan, *NOISE[1:]], 99), cell("tanh"): rows_of(60 + NOISE, 50)}
    lines = {line["method"]: line for line in tables_of(cells).cells()}
    assert lines["prelu"]["rival"] == "tanh"
    assert "gain" not in lines["prelu"]
    assert to_csv(list(lines.values())).splitlines()[1].split(",")[11] == ""  # the mean of the first line, PReLU


@pytest.mark.slow
def test_published_equivalence_is_that_of_two_t_tests(results):
    made = Tables(results)
    (line,) = [one for one in made.equivalence() if one["protocol"] == "gcn" and one["stands_for_kind"]]
    (found,) = [
        one
        for one in made.benchmarks.comparable("node-classification")
        if (one.setting.protocol, one.setting.level) == ("gcn", "cora")
    ]
    ours, rival = ([row["value"] for row in found.rows[variant]] for variant in (found.ours, found.pointwise))
    gaps = np.subtract(ours, rival)
    error = gaps.std(ddof=1) * np.sqrt(1 / 20 + 1000 / 1708)
    p = max(stats.t.sf((gaps.mean() + 1) / error, 19), stats.t.cdf((gaps.mean() - 1) / error, 19))
    assert {row["split"] for row in found.rows[found.ours]} == set(range(5, 25))
    assert (line["difference"], line["p"]) == pytest.approx((gaps.mean(), p))


def test_cells_of_rounds_are_compared_with_the_strongest_at_as_many_rounds(tmp_path):
    def write(kind, values, validation, number=2):
        rows = [
            {"graph": n // 2, "node": n % 2, "rate": 0.02, "validation": validation, "value": float(value)}
            | {"kind": "model", "method": kind, "rounds": number, "sources": "unseen"}
            for n, value in enumerate(values)
        ]
        store.finish(f"{kind}-{number}", rows)

    store = Store(tmp_path)
    store.create("a command")
    write("gelu", 60 + NOISE, 50)
    write("prelu", 50 + NOISE, 55)  # tests worse, validates better
    write("bank-max", 70 + NOISE[::-1], 60)
    write("pna", 70 + NOISE[:4], 60)  # fewer networks: compared with nothing
    write("sage-max", 70 + NOISE, 60, number=4)
    found = {line["kind"]: line for line in lines_of(tmp_path)}
    gains = (70 + NOISE[::-1] - (50 + NOISE)).reshape(5, 2).mean(1)
    interval = stats.ttest_1samp(gains, 0).confidence_interval()
    bank = found["bank-max"]
    assert (bank["rival"], bank["networks"], bank["graphs"]) == ("prelu", 10, 5)
    assert (bank["gain"], bank["gain_low"], bank["gain_high"]) == pytest.approx((gains.mean(), *interval))
    assert bank["values_on_a_link"] == 1 + WIDTH
    assert bank["gain_p"] == pytest.approx(stats.ttest_1samp(gains, 0).pvalue)
    assert "rival" not in found["prelu"]
    assert "rival" not in found["pna"]
    assert "rival" not in found["sage-max"]
    assert lines_of(tmp_path / "none") == []


def test_sweeps_with_more_networks_replace_cells_and_banks_meet_their_relatives_in_the_largest_that_has_both(tmp_path):
    def write(folder, cells):
        store = Store(tmp_path / folder)
        store.create("a command")
        for kind, values in cells.items():
            common = {"kind": "model", "method": kind, "rounds": 4, "sources": "random", "rate": 0.02}
            rows = [{"graph": n, "node": 0, "validation": 50.0, "value": float(v)} for n, v in enumerate(values)]
            store.finish(kind, [row | common for row in rows])
        store.publish()

    few = {"gelu": 60 + NOISE, "bank-max": 70 + NOISE[::-1], "sage-max": 65 + NOISE**2}
    write("few", few)
    many = {"prelu": np.tile(55 + NOISE, 2), "bank-max": np.tile(80 + NOISE[::-1], 2), "tanh": [np.nan] * 20}
    write("", many)
    found = {line["kind"]: line for line in lines_of(tmp_path)}
    assert found.keys() == {"gelu", "bank-max", "sage-max", "prelu"}
    bank = found["bank-max"]
    assert (bank["networks"], bank["rival"], bank["mean"]) == (20, "prelu", pytest.approx(80 + NOISE.mean()))
    assert bank["gain_p"] < found["sage-max"]["gain_p"]
    assert bank["gain_p_holm"] == pytest.approx(2 * bank["gain_p"], rel=1e-9)  # the smaller one of two
    assert (bank["shift_minus"], bank["shift_networks"]) == ("sage-max", 10)
    shift = stats.ttest_1samp(few["bank-max"] - few["sage-max"], 0)
    assert (bank["shift_low"], bank["shift_high"]) == pytest.approx(tuple(shift.confidence_interval()))
    assert (bank["shift_p"], bank["shift_p_holm"]) == pytest.approx((shift.pvalue, shift.pvalue))
    assert (found["sage-max"]["networks"], found["sage-max"]["rival"]) == (10, "gelu")
    assert found["sage-max"]["gain"] == pytest.approx((few["sage-max"] - few["gelu"]).mean())


def test_baselines_of_rounds_count_each_graph_once(tmp_path):
    store = Store(tmp_path)
    store.create("a command")
    common = {"kind": "baseline", "method": "nearest-neighbor", "sources": "unseen", "split": 0}
    store.finish("a", [{**common, "graph": n // 2, "node": n % 2, "value": 90.0 + n // 2} for n in range(6)])
    assert baselines_of(tmp_path) == {("nearest-neighbor", "unseen"): [90.0, 91.0, 92.0]}
    assert lines_of(tmp_path) == []


@pytest.mark.slow
def test_banks_are_compared_with_the_convolution_of_their_setting(results):
    made = Tables(results)
    lines = {(line["level"], line["bank"]): line for line in made.node_banks() if line["protocol"] == "kipf"}
    assert lines.keys() == {(graph, bank) for graph in ("cora", "citeseer") for bank in ("bank-max", "bank-pna")}
    (usual,) = [one for one in made.benchmarks.cells.values() if str(one.setting) == "kipf, F = 16, Cora"]
    (bank,) = [one for one in made.benchmarks.cells.values() if str(one.setting).endswith("bank-max, F = 16, Cora")]
    ours, theirs = ({row["split"]: row["value"] for row in one.rows["relu", None]} for one in (bank, usual))
    test = stats.ttest_1samp([ours[split] - theirs[split] for split in ours], 0)
    line = lines["cora", "bank-max"]
    assert (line["minus_relu"], line["device"], line["runs"]) == (
        pytest.approx(line["mean"] - line["relu_mean"]),
        "cpu",
        100,
    )
    assert (line["minus_relu_low"], line["minus_relu_high"]) == pytest.approx(tuple(test.confidence_interval()))
