"""When it pays: ranks, critical differences and gains, beside tables and hand-made rows."""

import json
import math

import numpy as np
import pytest
from scipy import stats

from benchmark_rows import Benchmarks, Cell
from evidence import Evidence, NotRunError
from graphact_lab.descriptions import find_protocol
from graphact_lab.protocols import jobs_of
from page import ROOT
from quotes import STALE
from ranking import Ranking, draw_ranking, ranking_of, ranks_of
from when import RESULTS, draw_cost, draw_gains, lacks_the_shift, render
from when_tables import by_data_set, certain_pairs, controls_table, gains_table, missing, scores_table, verdicts

DATASETS = ("cora", "citeseer", "pubmed", "blogcatalog")
SCORES = {"relu": 80.0, "tanh": 79.0, "max-ga": 82.0, "median-ga": 78.0}


def write_rows(folder, seed=0, scores=SCORES, datasets=DATASETS, tuning=None, protocol="gcn", **changes):
    """Twenty splits of activations on graphs, with known means and a noise that all of them share."""
    rng = np.random.default_rng(seed)
    (folder / "rows").mkdir(parents=True)
    values = {}
    for dataset in datasets:
        shared = rng.normal(0, 2, 20)
        settings = {"dataset": dataset, "hops": "1"} | changes
        for job in jobs_of(find_protocol("node-classification", "full", protocol, tuple(scores), settings), 0):
            own = scores[job.method] + shared + rng.normal(0, 0.5, 20)
            values[dataset, job.method] = own
            rows = [
                {"experiment": "node-classification", "preset": "full", "protocol": protocol, "kind": "model"}
                | {"method": job.method, "hops": job.hops, "features": 64, "order": 1, "seed": 0, "epochs": 1000}
                | {"condition": {"dataset": dataset}, "split": 5 + split, "graph": None, "node": None}
                | {"metric": "accuracy", "value": float(value), "validation": float(value) - 1, "best_epoch": 9}
                | {"exchanges": 2 if job.hops is None else 4, "parameters": 10, "seconds": 0.5, "device": "cpu"}
                | {"settings": job.settings(), "finished": "2026-01-01T00:00:00Z"}
                for split, value in enumerate(own)
            ]
            if tuning:
                rows[0]["tuning"] = [[1.0, 2.0], [tuning[job.method], tuning[job.method] + 2]]
            (folder / "rows" / f"{job.key}.json").write_text(json.dumps(rows))
    return values


def test_settings_of_a_data_set_are_counted(tmp_path):
    scores = SCORES | {"mean-ga": 82.5}
    for width in (4, 16, 64):
        write_rows(tmp_path / str(width), width, scores | ({"mean-ga": 70.0} if width == 4 else {}), ("cora",))
        for file in (tmp_path / str(width) / "rows").iterdir():
            file.write_text(file.read_text().replace('"features": 64', f'"features": {width}'))
    cells = Benchmarks(tmp_path).comparable("node-classification")
    gains = [cell.gain().mean for cell in cells]
    (line,) = by_data_set(cells)
    assert line == (
        f"Cora: ahead in 3 of 3, gains from {min(gains):+.1f} to {max(gains):+.1f} points; "
        "the highest linear control is level or higher in 2 of 3"
    )
    assert by_data_set(cells[:2]) == []


def test_ranks_share_ties():
    assert ranks_of([70.0, 80.0, 80.0, 60.0]) == [3.0, 1.5, 1.5, 4.0]
    assert ranks_of([70.0, 80.0, 60.0], higher_is_better=False) == [2.0, 3.0, 1.0]
    values = np.random.default_rng(0).integers(0, 5, 30)
    assert ranks_of(values.tolist()) == stats.rankdata(-values).tolist()


def test_the_critical_difference_is_that_of_the_table(tmp_path):
    """Quantiles of Nemenyi's test for 0.05: Demsar (2006), Table 5a."""
    write_rows(tmp_path / "gcn")
    ranking = ranking_of(Benchmarks(tmp_path).of("node-classification", "gcn"))
    assert ranking.critical == pytest.approx(2.569 * math.sqrt(4 * 5 / (6 * 4)), abs=2e-3)
    ranks = dict(zip([method for method, _ in ranking.variants], ranking.ranks, strict=True))
    assert ranks == {"max-ga": 1.0, "relu": 2.0, "tanh": 3.0, "median-ga": 4.0}
    assert ranking.p == pytest.approx(stats.chi2.sf(12 * 4 / (4 * 5) * sum((r - 2.5) ** 2 for r in (1, 2, 3, 4)), 3))
    cells = Benchmarks(tmp_path).of("node-classification", "gcn")
    assert ranking_of(cells[:2]) is None
    del cells[0].rows["tanh", None], cells[0].rows["relu", None]  # a data set on which little was run is left out
    found = ranking_of(cells)
    assert len(found.variants) == 4
    assert found.levels == [cell.setting.level for cell in cells[1:]]


def test_groups_that_do_not_differ_are_maximal():
    variants = [(name, None) for name in "abcde"]
    ranking = Ranking(variants, [4.9, 1.0, 1.8, 2.7, 4.0], ["cora"] * 10, 0.0, 1.75)
    assert ranking.cliques() == [
        [("b", None), ("c", None), ("d", None)],
        [("d", None), ("e", None)],
        [("e", None), ("a", None)],
    ]


def test_gains_are_paired_and_corrected(tmp_path):
    values = write_rows(tmp_path / "gcn")
    cell = Benchmarks(tmp_path).of("node-classification", "gcn")[-1]
    assert cell.setting.level == "pubmed"
    assert (cell.pointwise, cell.ours) == (("relu", None), ("max-ga", 1))
    gap, pairs = cell.gain(), values["pubmed", "max-ga"] - values["pubmed", "relu"]
    assert gap.mean == pytest.approx(pairs.mean())
    spread = pairs.std(ddof=1) * math.sqrt(1 / 20 + 1000 / 18717)
    assert gap.margin == pytest.approx(stats.t.ppf(0.975, 19) * spread)
    with pytest.raises(NotRunError, match="no activation of the kind was run: gcn, F = 64, PubMed"):
        cell.best(lambda variant: variant[0] == "abs")


class Like:
    """Equal to any cell of the same setting."""

    def __init__(self, cell):
        self.setting = cell.setting

    def __eq__(self, other):
        return self.setting == other.setting

    __hash__ = None


def test_verdicts_are_those_of_adjusted_p_values(tmp_path):
    write_rows(tmp_path / "gcn")
    cells = Benchmarks(tmp_path).of("node-classification", "gcn")
    found = verdicts(cells)
    assert found["gains"] == cells, "two points with a noise of half a point"
    swapped = cells[0].rows
    swapped["relu", None], swapped["max-ga", 1] = swapped["max-ga", 1], swapped["relu", None]
    swapped["median-ga", 1], swapped["tanh", None] = swapped["max-ga", 1], swapped["max-ga", 1]
    same = cells[1].rows
    same["max-ga", 1] = same["median-ga", 1] = same["relu", None]
    assert verdicts([Cell(cell.setting, cell.rows) for cell in cells]) == {
        **{"gains": [Like(cells[2]), Like(cells[3])], "losses": [Like(cells[0])], "open": [Like(cells[1])]}
    }


def cora(folder):
    (cell,) = Benchmarks(folder).of("node-classification", "gcn")
    return cell


def test_a_certain_gain_is_over_the_strongest_pointwise_activation(tmp_path):
    """Also where another one validates best; and a linear control that is as high stands beside it."""
    scores = {"tanh": 70.0, "relu": 78.0, "max-ga": 74.0, "median-ga": 85.0, "kernel-ga": 60.0, "mean-ga": 90.0}
    tuning = dict.fromkeys(scores, 50.0) | {"tanh": 99.0}
    write_rows(tmp_path / "gcn", datasets=("pubmed",), scores=scores, tuning=tuning)
    cells = Benchmarks(tmp_path).comparable("node-classification")
    assert cells[0].pointwise == ("tanh", None)
    found = certain_pairs(cells)
    gap = cells[0].gain(("median-ga", 1), ("relu", None))
    assert gap.mean == pytest.approx(7, abs=1)
    [gain] = found["gains"]  # Max G.A. is above tanh and below ReLU: neither a gain nor a loss
    assert gain.startswith(f"gcn, F = 64, PubMed, Median G.A. (1), {gap.mean:+.1f} ± {gap.margin:.1f} (of 8")
    assert ", where Mean G.A., a linear control, has " in gain
    assert found["losses"] == 1
    assert not found["on_one_split"]


def test_the_two_are_chosen_on_splits_that_are_not_reported(tmp_path):
    """The reported splits say ReLU and Max G.A.; those that choose say tanh and Median G.A."""
    write_rows(tmp_path / "a", datasets=("cora",))
    cell = cora(tmp_path / "a")
    assert (cell.pointwise, cell.ours, cell.tuned) == (("relu", None), ("max-ga", 1), None)
    assert "| reported splits |" in gains_table([cell])
    write_rows(tmp_path / "b", datasets=("cora",), tuning={"relu": 70, "tanh": 71, "max-ga": 72, "median-ga": 73})
    cell = cora(tmp_path / "b")
    assert (cell.pointwise, cell.ours) == (("tanh", None), ("median-ga", 1))
    assert cell.tuned["tanh", None] == 72
    assert "| other splits |" in gains_table([cell])


def test_a_control_is_none_of_ours_and_has_a_line_of_its_own(tmp_path):
    values = write_rows(tmp_path / "gcn", datasets=("cora",), scores=SCORES | {"mean-ga": 90.0, "relu-hops": 85.0})
    cell = cora(tmp_path / "gcn")
    assert cell.ours == ("max-ga", 1)
    assert cell.controls == [("relu-hops", 1), ("mean-ga", None)]
    lines = controls_table([cell]).splitlines()[2:]
    over = (values["cora", "mean-ga"] - values["cora", "relu"]).mean()
    under = (values["cora", "max-ga"] - values["cora", "mean-ga"]).mean()
    assert lines[1].startswith("| gcn | 64 | Cora | Mean G.A. | 2 |")
    assert f"ReLU: {over:+.2f}" in lines[1]
    assert f"Max G.A. (1): {under:+.2f}" in lines[1]
    assert "| ReLU + hops (1) |" in lines[0]


def test_other_settings_under_a_protocols_name_are_a_setting_of_their_own(tmp_path):
    write_rows(tmp_path / "a", datasets=("cora",), scores={"relu": 80.0, "max-ga": 82.0})
    write_rows(tmp_path / "b", datasets=("cora",), scores={"tanh": 10.0}, epochs="5", rates="1.0")
    benchmarks = Benchmarks(tmp_path)
    assert set(cora(tmp_path).rows) == {("relu", None), ("max-ga", 1)}
    (other,) = benchmarks.unlisted_settings()
    assert other.protocol == "gcn, epochs 5, rates [1.0]"
    assert benchmarks.comparable("node-classification") == benchmarks.of("node-classification", "gcn")
    assert "none of a protocol, which no table shows: gcn, epochs 5, rates [1.0], F = 64, Cora." in render(benchmarks)


def test_of_two_folders_with_a_cell_the_fuller_then_the_newer_counts(tmp_path):
    write_rows(tmp_path / "a", datasets=("cora",))
    write_rows(tmp_path / "b", datasets=("cora",), scores={"relu": 60.0}, seed=1)
    (file,) = (tmp_path / "b" / "rows").iterdir()
    rows = json.loads(file.read_text())
    file.write_text(json.dumps([row | {"finished": "2026-02-02T00:00:00Z"} for row in rows]))
    assert cora(tmp_path).mean(("relu", None)) == pytest.approx(60, abs=2)
    assert cora(tmp_path).pointwise == ("tanh", None)
    file.write_text(json.dumps([row | {"finished": "2026-02-02T00:00:00Z"} for row in rows[:5]]))
    assert cora(tmp_path).mean(("relu", None)) == pytest.approx(80, abs=2)


def test_an_activation_with_a_run_that_diverged_stands_for_nobody(tmp_path):
    write_rows(tmp_path / "gcn", datasets=("cora",))
    for method in ("relu", "max-ga"):
        (file,) = (tmp_path / "gcn" / "rows").glob(f"*-{method}-F64-*")
        rows = json.loads(file.read_text())
        rows[3] |= {"value": math.nan, "validation": math.nan}
        file.write_text(json.dumps(rows))
    cell = cora(tmp_path)
    assert (cell.pointwise, cell.ours) == (("tanh", None), ("median-ga", 1))
    assert "| ReLU | diverged | 2 |" in scores_table([cell])
    assert "diverged" in render(Benchmarks(tmp_path))


def test_what_was_chosen_on_reported_nodes_tells_no_gain_and_stands_apart(tmp_path):
    write_rows(tmp_path / "gcn", datasets=("blogcatalog",), scores=SCORES | {"digraf": 75.0})
    write_rows(
        tmp_path / "theirs", datasets=("blogcatalog",), scores={"relu": 90.0, "max-ga": 95.0}, protocol="digraf-split"
    )
    for file in (tmp_path / "theirs" / "rows").iterdir():
        file.write_text(json.dumps([row | {"validation": None} for row in json.loads(file.read_text())]))
    benchmarks = Benchmarks(tmp_path)
    [cell] = benchmarks.comparable("node-classification")
    assert cell.setting.protocol == "gcn"
    [apart] = benchmarks.optimistic_of("node-classification")
    assert not apart.has_diverged(("relu", None))
    page = render(benchmarks)
    best = apart.mean(("max-ga", 1))
    assert f"| Max G.A. (1) | {best:.1f} | 4 |" in page
    assert (
        f"our best, Max G.A. (1), has {best:.1f}, {best - 81.6:+.1f} from DiGRAF's published 81.6; the best pointwise"
        in page
    )
    (line,) = [line for line in missing(benchmarks).splitlines() if "`digraf-split`" in line]
    assert "| 2 of 38 | Flickr; BlogCatalog: Identity," in line


@pytest.mark.parametrize(("without", "with_it", "told"), [(72.0, 80.0, True), (72.0, 73.0, False), (80.0, 90.0, False)])
def test_the_shift_is_named_where_it_makes_the_difference(tmp_path, without, with_it, told):
    scores = {"shiftless-max": without, "max-ga": with_it}
    write_rows(tmp_path, datasets=("blogcatalog",), scores=scores, protocol="digraf-split")
    assert lacks_the_shift(Benchmarks(tmp_path).of("node-classification")) is told
    assert not lacks_the_shift([])


def test_power_is_shown_and_what_splits_count_for(tmp_path):
    write_rows(tmp_path / "gcn", datasets=("cora",))
    cell = cora(tmp_path)
    assert cell.effective == pytest.approx(1 / (1 / 20 + 1000 / 1708))
    assert f"| {cell.gain().detectable():.1f} |" in gains_table([cell])
    assert "the 20 splits of Cora count as 1.6 independent ones" in render(Benchmarks(tmp_path))


def test_every_protocol_is_in_the_list_of_what_was_not_run(tmp_path):
    write_rows(tmp_path / "gcn", datasets=("cora",), scores={"relu": 80.0, "max-ga": 82.0})
    lines = missing(Benchmarks(tmp_path)).splitlines()[2:]
    names = [tuple(cell.strip(" `") for cell in line.split("|")[1:3]) for line in lines]
    assert {("node-classification", "narrow"), ("node-classification", "sage-max")} <= set(names)
    assert {("graph-classification", "gin"), ("robustness", "cora")} <= set(names)
    (gcn,) = [line for line in lines if line.startswith("| node-classification | `gcn` |")]
    assert "| 2 of 150 | CiteSeer, PubMed, BlogCatalog, Flickr; Cora: Max L. (1)," in gcn
    assert "ReLU + hops (2)" in gcn
    assert "Cora: ReLU" not in gcn


def test_the_page_is_that_of_the_rows(results):
    """The page in docs equals the one made again from results."""
    page = render(Benchmarks(RESULTS), Evidence(results))
    assert STALE not in page, "sentences still hold"
    assert page == (ROOT / "docs" / "when-it-pays.md").read_text(), "run python studies/when.py"


def test_the_page_and_its_figures(tmp_path):
    write_rows(tmp_path / "rows-of" / "gcn")
    benchmarks = Benchmarks(tmp_path / "rows-of")
    page = render(benchmarks)
    cells = benchmarks.of("node-classification", "gcn")
    relu = benchmarks.cells[next(iter(benchmarks.cells))].mean(("relu", None))
    assert f"{relu:.1f} (72.1)" in page
    assert "| gcn | 64 | BlogCatalog | ReLU (of 2) |" in page
    assert "`residual`: not run." in page
    for draw, what in ((draw_gains, cells), (draw_ranking, ranking_of(cells)), (draw_cost, cells)):
        draw(what, tmp_path / "figure.png")
        assert (tmp_path / "figure.png").stat().st_size > 5000
    with pytest.raises(NotRunError, match="no rows of benchmarks"):
        Benchmarks(tmp_path / "empty")
