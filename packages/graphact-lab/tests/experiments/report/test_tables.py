"""Tables of a report, and the sentences on them."""

import csv
import io

import numpy as np
import pytest

from experiments.report.factory import baseline, every_experiment, row
from graphact.nn import make_activation
from graphact.registry import names
from graphact.spec import Activation
from graphact_lab.protocols import POOLING
from graphact_lab.report.page import sections_of, terminal_table
from graphact_lab.report.tables import MISSING, file_name
from graphact_lab.statistics import difference, holm

NAN, INF = float("nan"), float("inf")


def section(rows):
    (only,) = sections_of(rows)
    return only


def tables(rows):
    return section(rows).tables


def entry(table, line, column):
    (found,) = [one for one in table.entries.itertuples() if (one.line, one.column) == (line, column)]
    return found


def means(table, line):
    return [one.mean if one.runs else None for one in table.entries.itertuples() if one.line == line]


def labels(table):
    return [label for label, *_ in table.lines]


def headline(rows):
    ((where, sentence),) = [pair for table in tables(rows) for pair in table.headlines]
    return f"{where}: {sentence}".replace("\N{NO-BREAK SPACE}", " ")


def runs(experiment, method, values, **changes):
    """A row for each value, on graphs of its own or, where there is a data set, on splits of its own."""
    drawn = experiment in ("source-localization", "consensus")
    places = [{"graph": n, "split": 0} if drawn else {"graph": None, "split": n} for n in range(len(values))]
    make = baseline if changes.pop("simple", False) else row
    return [make(experiment, method, value, **place, **changes) for value, place in zip(values, places, strict=True)]


def consensus(method="relu", value=0.02, order=20, loss=None, **changes):
    condition = {} if loss is None else {"loss_probability": loss}
    return row("consensus", method, value, order=order, features=32, condition=condition, **changes)


def denoising(method="relu", value=1.0, order=1, snr=None, features=4, **changes):
    condition = {} if snr is None else {"snr_db": snr}
    return row("denoising", method, value, order=order, features=features, condition=condition, **changes)


@pytest.mark.parametrize(
    ("experiment", "line", "column", "wanted"),
    [
        ("source-localization", "Max G.A. (2)", "F = 4", {"method": "max-ga", "hops": 2, "features": 4}),
        ("consensus", "ReLU", "K = 25", {"method": "relu", "order": 25, "condition": {}}),
        ("consensus", "least-squares FIR", "K = 30", {"method": "least-squares FIR", "order": 30}),
        ("denoising", "FIR", "K = 8", {"method": "fir", "order": 8, "features": 4, "condition": {}}),
        ("recommendation", "Kernel G.A. (1)", "Contact", {"method": "kernel-ga", "condition": {"film": "contact"}}),
    ],
)
def test_cells_hold_mean_deviation_and_number_of_the_runs(experiment, line, column, wanted):
    rows = [row for row in every_experiment() if row["experiment"] == experiment and row["protocol"] == "paper"]
    values = [row["value"] for row in rows if all(row[key] == value for key, value in wanted.items())]
    found = entry(tables(rows)[0], line, column)
    assert found.runs == len(values) > 3
    assert (found.mean, found.std) == pytest.approx((np.mean(values), np.std(values, ddof=1)))


@pytest.mark.parametrize(
    ("value", "where"), [(60.0, "inside"), (35.8, "inside"), (60.01, "above"), (35.79, "below"), (NAN, None)]
)
def test_signs_say_where_our_mean_lies(value, where):
    assert entry(tables([row(value=value, features=2)])[0], "ReLU", "F = 2").against_paper == where


def test_the_papers_numbers_stand_beside_ours():
    """Those whose hops it does not state beside every number of hops; a network that we did not run has a line."""
    rows = [row(method="max-l", hops=hops, value=70.0, features=2) for hops in (1, 2)]
    (table,) = tables([*rows, row(method="max-ga", hops=1, value=64.0), row(method="fir", value=64.0)])
    for line in ("Max L. (1)", "Max L. (2)"):
        found = entry(table, line, "F = 2")
        assert (found.paper_mean, found.paper_std) == (64.5, 8.0)
    assert np.isnan(entry(table, "Max G.A. (1)", "F = 8").paper_mean)
    assert entry(table, "FIR", "F = 8").against_paper is None
    assert "Inside: 2 of 2 cells." in table.caption
    assert "Max L." not in labels(table)
    assert "Max G.A. (2)" in labels(table)
    assert entry(table, "Max G.A. (2)", "F = 8").runs == 0


def test_lines_are_in_the_papers_order_and_baselines_from_worst_to_best():
    simple = [baseline("denoising", name, value) for name, value in (("a", 0.9), ("b", 2.0), ("c", 1.1))]
    networks = [denoising(method) for method in ("fir", "kernel-ga", "relu")]
    assert labels(tables([*simple, *networks])[0]) == ["ReLU", "Kernel G.A.", "FIR", "b", "c", "a"]


def test_the_best_of_several_networks_is_marked():
    rows = [row(value=50.0), row(method="max-l", hops=1, value=70.0), baseline("source-localization", "oracle", 99.0)]
    for made, line in ((rows, "Max L. (1)"), ([denoising(value=1.0), denoising("fir", 2.0)], "ReLU")):
        (table,) = tables(made)[:1]
        assert [one.line for one in table.entries.itertuples() if one.best] == [line]
    assert not tables(rows[:1])[0].entries.best.any()


def test_runs_that_diverged_and_cells_without_runs_are_told():
    rows = [denoising(value=50.0), denoising("max-ga", NAN, hops=2), denoising("fir", 1.0, order=2)]
    rows += [denoising("median-ga", value, hops=2, split=split) for split, value in enumerate((60.0, 62.0, INF))]
    found = section(rows)
    cells = {label: shown[0] for label, _, shown in found.tables[0].lines}
    assert cells == {
        "ReLU": "**50.000** (1 run)",
        "Max G.A. (2)": "diverged (1 run, 1 not finite)",
        "Median G.A. (2)": "61.000 ± 1.414 (3 runs, 1 not finite)",
        "FIR": MISSING,
    }
    assert found.caveats[1:] == [
        "Partial: 4 of 8 cells of networks have no result.",
        "Results that are not finite and left out of the means: 2.",
    ]


def test_markdown_is_aligned_and_csv_has_full_precision():
    rows = [row(value=50.0), row(value=50.1, split=1), baseline("source-localization", "a|b, <i>", 25.0)]
    (table,) = tables([*rows, row(method="max-l", hops=1, value=20.0)])
    lines = table.to_markdown().splitlines()
    assert lines[0] == "Table 1: source localization, test accuracy (%)"
    assert lines[2].split() == ["|", "Activation", "|", *["F", "=", "8", "|"], *["F", "=", "8,", "paper", "|"]]
    assert lines[4].split(" | ")[1].strip() == "**50.0 ± 0.1** ✓ (2 runs)"
    assert len({len(line) for line in lines[2:-2]}) == 1
    assert lines[-3].startswith(r"| a\|b, <i>")
    records = {record["line"]: record for record in csv.DictReader(io.StringIO(table.to_csv()))}
    relu, missing, simple = (records[name] for name in ("ReLU", "Kernel G.A. (1)", "a|b, <i>"))
    assert (float(relu["mean"]), float(relu["std"])) == pytest.approx((50.05, np.std([50.0, 50.1], ddof=1)), abs=1e-12)
    assert [relu[name] for name in ("runs", "paper_mean", "paper_std", "against_paper")] == [
        "2",
        "47.2",
        "15.5",
        "inside",
    ]
    assert [missing[name] for name in ("mean", "runs", "paper_mean")] == ["", "0", "61.9"]
    assert (simple["kind"], simple["std"]) == ("baseline", "")


def test_small_numbers_are_not_shown_as_zero():
    assert "2.3e-06" in terminal_table([denoising(value=1.0), denoising("fir", 2.34e-6)])


@pytest.mark.parametrize("experiment", ["source-localization", "recommendation"])
def test_a_headline_names_ours_its_rivals_and_their_paired_differences(experiment):
    ours, relu, best, simple = [70.0, 72.0, 74.0], [60.0, 63.0, 62.0], [80.0, 81.0, 79.0], [25.0, 25.0, 25.0]
    if experiment == "recommendation":
        ours, relu, best, simple = ([100 - value for value in values] for values in (ours, relu, best, simple))
    rows = runs(experiment, "max-ga", ours, hops=2) + runs(experiment, "relu", relu)
    rows += runs(experiment, "max-l", best, hops=1) + runs(experiment, "chance", simple, simple=True)
    text = headline(rows)
    overlap = None if experiment == "source-localization" else 1 / 9
    digits = 1 if experiment == "source-localization" else 3
    for name, other in (("ReLU", relu), ("localized max (1 hop)", best), ("chance", simple)):
        gap = difference(runs(experiment, "a", ours), runs(experiment, "b", other), overlap=overlap)
        assert f"({gap.mean:+.{digits}f} ± {gap.margin:.{digits}f})" in text.split(name)[1].split(", ")[0]
    assert text.startswith("F = 8" if overlap is None else "Toy Story")
    assert "graph-adaptive max (2 hops) " in text.split(", beside ")[0]


def test_a_headline_needs_three_units_for_a_difference():
    rows = runs("source-localization", "max-ga", [70.0, 72.0], hops=2) + runs("source-localization", "relu", [6.0, 6.1])
    text = headline(rows)
    assert text == "F = 8: graph-adaptive max (2 hops) 71.0 ± 1.4 %, beside ReLU 6.0 ± 0.1 %."


def test_headlines_of_sweeps():
    """About the lowest order in denoising, as the paper's claim, and about the one that validates best in consensus."""
    assert headline([denoising(value=1.0), denoising(order=8, value=0.5), denoising("fir", 1.5)]) == (
        "K = 1, F = 4: ReLU 1.000, beside FIR (no nonlinearity) 1.500."
    )
    rows = [consensus(order=order, value=order / 1000, validation=abs(order - 25)) for order in (20, 25, 30)]
    assert headline(rows) == "K = 25, F = 32: ReLU 0.0250."


SCORES = {("relu", None): (70, 60), ("tanh", None): (79, 75), ("max-ga", 1): (80, 78), ("max-ga", 2): (90, 70)}


def benchmark_rows(scores, protocol="gcn", tuning=None):
    """Four splits of a benchmark: test and validation scores by (method, hops), and those on splits that choose."""
    rows = []
    for split, noise in enumerate((0.0, 1.0, -1.0, 0.5)):
        for (method, hops), (value, validation) in scores.items():
            place = {"graph": None, "split": split, "condition": {"dataset": "cora"}, "preset": "full", "hops": hops}
            setting = {"protocol": protocol, "features": 64, "validation": validation, "metric": "accuracy"}
            if tuning and split == 0:
                setting |= {"tuning": [[1.0], [tuning[method, hops]]], "settings": {"tuning_splits": 1}}
            rows.append(row("node-classification", method, value + noise * (method == "tanh"), **place, **setting))
    return rows


def test_a_benchmark_compares_with_the_pointwise_activation_that_validates_best():
    """A linear control, mean-ga, stands for no activation of neighbourhoods although it validates best."""
    rows = benchmark_rows(SCORES | {("mean-ga", None): (85, 99)})
    scores, differences = tables(rows)
    (sentence,) = [sentence for _, sentence in scores.headlines]
    assert sentence.startswith("graph-adaptive max (1 hop) 80.0")
    assert "tanh 79.1" in sentence
    assert "ReLU" not in sentence
    assert "graph-adaptive max (2 hops) 90.0" in sentence
    assert "(Cora: tanh), paired over splits" in differences.caption
    assert labels(differences) == ["ReLU", "Max G.A. (1)", "Max G.A. (2)", "Mean G.A."]
    own = {key: [one for one in rows if (one["method"], one["hops"]) == key] for key in [*SCORES, ("mean-ga", None)]}
    others = [key for key in own if key != ("tanh", None)]
    gaps = {key: difference(own[key], own["tanh", None], overlap=1000 / 1708) for key in others}
    adjusted = dict(zip(gaps, holm([gap.p_unlike() for gap in gaps.values()]), strict=True))
    for one in differences.entries.itertuples():
        gap = gaps[one.method, one.hops]
        assert (one.mean, one.std, one.runs) == pytest.approx((gap.mean, gap.margin, 4))
        assert one.note == f"p = {adjusted[one.method, one.hops]:.3f}"


def test_rivals_are_chosen_on_splits_that_are_not_reported_where_there_are_some():
    tuning = {("relu", None): 80.0, ("tanh", None): 75.0, ("max-ga", 1): 70.0, ("max-ga", 2): 71.0}
    scores, differences = tables(benchmark_rows(SCORES, tuning=tuning))
    ((_, sentence),) = scores.headlines
    assert sentence.startswith("graph-adaptive max (2 hops) 90.0")
    assert "ReLU 70.0" in sentence
    assert "(Cora: ReLU)" in differences.caption


def test_where_there_is_one_split_differences_are_over_seeds_without_correction():
    split, seeds = (tables(benchmark_rows(SCORES, protocol=name))[1] for name in ("gcn", "kipf"))
    assert "paired over seeds on one split, which tells nothing of other test samples" in seeds.caption
    ratio = entry(split, "Max G.A. (1)", "Cora").std / entry(seeds, "Max G.A. (1)", "Cora").std
    assert ratio == pytest.approx((1 + 4 * 1000 / 1708) ** 0.5)


def test_activations_that_read_all_nodes_are_named():
    scores, _ = tables(benchmark_rows(SCORES | {("digraf", None): (80, 70)}))
    assert scores.caption.endswith(
        "DiGRAF read a mean over all nodes besides, which no exchange with neighbours gives."
    )
    described = {name: make_activation(name, features=4).layers() for name in names()}
    pools = {n: any(layer.pools for layer in own if isinstance(layer, Activation)) for n, own in described.items()}
    assert [name for name in pools if pools[name]] == list(POOLING)


def test_networks_that_differ_in_a_setting_have_tables_of_their_own():
    found = tables([row(order=2), row(order=4, value=60.0)])
    assert [table.title for table in found] == [f"Table 1: source localization, K = {order}" for order in (2, 4)]
    found = tables([denoising(features=features, value=float(features)) for features in (1, 2, 4)])
    orders = [table for table in found if "2c" in table.title]
    assert [table.title[-5:] for table in orders] == ["F = 4", "F = 2", "F = 1"]
    assert [means(table, "ReLU") for table in orders] == [[4.0], [2.0], [1.0]]
    assert len({table.name for table in found}) == len(found)


@pytest.mark.parametrize("usual", [None, 3.0])
def test_noise_sweep_is_at_the_lowest_order(usual):
    rows = [denoising(value=1.0, snr=usual), denoising(order=8, value=0.9, snr=usual), denoising(value=2.0, snr=0.0)]
    rows += [denoising(order=8, value=1.9, snr=0.0), baseline("denoising", "noise", 3.0, condition={"snr_db": 0.0})]
    orders, noise = tables(rows)
    assert (orders.columns, means(orders, "ReLU")) == (["K = 1", "K = 8"], [1.0, 0.9])
    assert noise.title == "Figure 2d: error over the signal-to-noise ratio (dB), K = 1, F = 4"
    assert (noise.columns, means(noise, "ReLU"), means(noise, "noise")) == (["0 dB", "3 dB"], [2.0, 1.0], [3.0, None])


def test_a_level_that_was_run_twice_is_shown_once():
    orders, noise = tables([denoising(value=1.0), denoising(value=1.1, snr=3.0), denoising(value=2.0, snr=0.0)])
    assert (means(orders, "ReLU"), means(noise, "ReLU")) == ([1.0], [2.0, 1.1])


def test_link_loss_shows_one_order_for_all_with_the_lowest_validation_error():
    rows = []
    for method, validations in (("relu", (0.5, 0.4, 0.6)), ("fir", (0.3, 0.35, 0.2))):  # 0.8, 0.75 and 0.8 in all
        for order, validation in zip((20, 25, 30), validations, strict=True):
            shared = {"order": order, "validation": validation}
            rows += [consensus(method, order / 100, **shared), consensus(method, 1 + order / 100, loss=0.05, **shared)]
    rows += [consensus(order=15, validation=0.1), consensus(order=15, loss=0.05)]  # of one network alone
    losses = tables(rows)[1]
    assert losses.title == "Figure 2b: error over the probability that a link is lost, K = 25, F = 32"
    assert (losses.columns, means(losses, "ReLU")) == (["p = 0", "p = 0.05"], [0.25, 1.25])
    assert means(losses, "FIR") == [0.25, 1.25]


def test_baselines_of_link_loss_say_where_they_were_measured():
    rows = [consensus(), consensus(loss=0.05), consensus(loss=0.1), baseline("consensus", "answer zero", 0.1)]
    lossy = {"condition": {"loss_probability": 0.1}}
    rows += [baseline("consensus", "FIR", 0.05, **lossy)]
    rows += [baseline("consensus", "averaging", 0.01), baseline("consensus", "averaging", 0.02, **lossy)]
    losses = tables(rows)[1]
    assert means(losses, "answer zero, no link lost") == [0.1, 0.1, 0.1]
    assert means(losses, "FIR") == [None, None, 0.05]
    assert means(losses, "averaging") == [0.01, None, 0.02]


def test_names_of_files_cannot_leave_the_folder():
    assert file_name("table-1", "../../etc/passwd") == "table-1-etc-passwd"
