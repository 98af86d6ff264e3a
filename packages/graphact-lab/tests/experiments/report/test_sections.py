import pytest

from experiments.report.factory import baseline, every_experiment, row
from graphact.nn import make_activation
from graphact.registry import names
from graphact.spec import Activation
from graphact_lab.protocols import POOLING
from graphact_lab.report.content import file_name
from graphact_lab.report.rows import read_rows
from graphact_lab.report.sentences import provenance
from graphact_lab.report.write import sections_of


def sections(rows):
    return sections_of(read_rows(rows))


def block(rows):
    ((_, (only,)),) = sections(rows).values()
    return only


def content(rows):
    return block(rows).content


def titles(content):
    return [table.title for table in (*content.tables, *content.more_tables)]


def means(table, label):
    (line,) = [line for line in table.lines if line.label == label]
    return [entry.mean if entry.runs else None for entry in line.entries]


def consensus(method="relu", value=0.02, order=20, loss=None, **changes):
    condition = {} if loss is None else {"loss_probability": loss}
    return row("consensus", method, value, order=order, features=32, condition=condition, **changes)


def denoising(method="relu", value=1.0, order=1, snr=None, features=4, **changes):
    condition = {} if snr is None else {"snr_db": snr}
    return row("denoising", method, value, order=order, features=features, condition=condition, **changes)


def test_experiments_come_in_the_order_of_the_paper():
    assert list(sections(reversed(every_experiment()))) == [
        "source-localization",
        "consensus",
        "denoising",
        "recommendation",
    ]


def test_every_protocol_and_preset_has_a_block():
    rows = [
        row(protocol=protocol, preset=preset) for protocol in ("converged", "paper") for preset in ("quick", "paper")
    ]
    ((_, blocks),) = sections(rows).values()
    assert [(block.preset, block.protocol) for block in blocks] == [
        ("paper", "paper"),
        ("paper", "converged"),
        ("quick", "paper"),
        ("quick", "converged"),
    ]


def test_orders_of_source_localization_have_tables_of_their_own():
    found = content([row(order=2), row(order=4, value=60.0)])
    assert titles(found) == ["Table 1: source localization, K = 2", "Table 1: source localization, K = 4"]
    assert len({table.name for table in found.tables}) == len({figure.name for figure in found.figures}) == 2


def test_headline_names_the_best_network_relu_and_chance():
    rows = [row(value=value, split=split) for split, value in enumerate((47.0, 48.0))]
    rows += [row(method="max-ga", hops=2, value=value, split=split) for split, value in enumerate((73.0, 73.2))]
    found = content([*rows, row(features=2, value=99.0), baseline("source-localization", "chance", 25.0)])
    ((where, sentence),) = found.headlines
    assert where == "F = 8"
    plain = sentence.replace("\N{NO-BREAK SPACE}", " ")
    assert plain == "graph-adaptive max (2 hops) 73.1 % ± 0.1, ReLU 47.5 % ± 0.7; chance 25.0 %."


@pytest.mark.parametrize(
    ("best", "verdict"), [(0.9, "which no network beats."), (0.80, "which the best network beats.")]
)
def test_headline_says_whether_a_baseline_is_beaten(best, verdict):
    simple = [baseline("recommendation", name, value) for name, value in (("constant", 0.95), ("ridge", 0.85))]
    found = content([row("recommendation", "max-ga", best, hops=1), row("recommendation", value=1.0), *simple])
    ((where, sentence),) = found.headlines
    assert where == "Toy Story"
    assert sentence == (
        f"graph-adaptive max (1 hop) {best:.3f}, ReLU 1.000; the best simple baseline is ridge 0.850, {verdict}"
    )


def test_headline_does_not_call_noise_a_victory():
    noise = [0.02, -0.03, 0.01, -0.01, 0.005]
    for shift, verdict in (
        (0.0, "from which the best network does not clearly differ."),
        (0.1, "the best network beats."),
    ):
        places = [{"graph": None, "split": split} for split in range(5)]
        rows = [baseline("recommendation", "constant", 0.95, **place) for place in places]
        rows += [baseline("recommendation", "ridge", 0.90, **place) for place in places]
        rows += [row("recommendation", value=0.90 - shift + noise[place["split"]], **place) for place in places]
        ((_, sentence),) = content(rows).headlines
        assert sentence.endswith(verdict)


@pytest.mark.parametrize(("sign", "certain"), [(-1, False), (1, True)])
def test_headline_counts_graphs_not_their_splits(sign, certain):
    places = [{"graph": graph, "split": split} for graph in range(3) for split in range(10)]
    gains = {0: 0.010, 1: 0.012, 2: sign * 0.011}  # splits of one graph tell nothing new
    rows = [baseline("consensus", "answer zero", 0.1, **place) for place in places]
    rows += [baseline("consensus", "least squares", 0.05, **place) for place in places]
    rows += [row("consensus", value=0.05 - gains[place["graph"]], **place) for place in places]
    sentence = content(rows).headlines[0][1]
    assert sentence.endswith("which the best network beats." if certain else "does not clearly differ.")


def test_headline_of_sweeps_is_about_the_lowest_order_and_names_fir():
    found = content([denoising(value=1.0), denoising(order=8, value=0.5), denoising("fir", 1.5)])
    assert found.headlines == [("K = 1, F = 4", "ReLU 1.000, FIR (no nonlinearity) 1.500.")]


def test_headline_of_consensus_is_about_the_order_that_validates_best():
    rows = [consensus(order=order, value=order / 1000, validation=abs(order - 25)) for order in (20, 25, 30)]
    assert content(rows).headlines == [("K = 25, F = 32", "ReLU 0.0250.")]


def test_headline_tells_graph_adaptive_from_relu_even_if_another_is_best():
    rows = []
    for graph, noise in enumerate((0.0, 1.0, -1.0)):
        values = {("relu", None): 50.0, ("max-ga", 2): 60.0 + noise, ("max-l", 1): 65.0}
        rows += [row(method=method, hops=hops, value=value, graph=graph) for (method, hops), value in values.items()]
    ((_, sentence),) = content(rows).headlines
    assert sentence.replace("\N{NO-BREAK SPACE}", " ") == (
        "graph-adaptive max (2 hops) 60.0 % ± 1.0, ReLU 50.0 % ± 0.0, a difference of +10.0 ± 2.5 on the same 3 graphs "
        "(95 % interval); the best is localized max (1 hop) 65.0 % ± 0.0."
    )


def benchmark_rows(scores, protocol="gcn", tuning=None):
    """Four splits of a benchmark: test and validation scores by (method, hops), and those on splits that choose."""
    rows = []
    for split, noise in enumerate((0.0, 1.0, -1.0, 0.5)):
        for (method, hops), (value, validation) in scores.items():
            place = {"graph": None, "split": split, "node": None, "condition": {"dataset": "cora"}, "preset": "full"}
            settings = {
                "protocol": protocol,
                "features": 64,
                "order": 1,
                "hops": hops,
                "validation": validation,
                "metric": "accuracy",
            }
            if tuning and split == 0:
                settings |= {"tuning": [[1.0], [tuning[method, hops]]], "settings": {"tuning_splits": 1}}
            rows.append(row("node-classification", method, value + noise * (method == "tanh"), **place, **settings))
    return rows


SCORES = {("relu", None): (70, 60), ("tanh", None): (79, 75), ("max-ga", 1): (80, 78), ("max-ga", 2): (90, 70)}


def test_headline_of_a_benchmark_is_against_the_pointwise_activation_that_validates_best():
    ((where, sentence),) = content(benchmark_rows(SCORES)).headlines
    assert where == "Cora"
    assert sentence.startswith("graph-adaptive max (1 hop) 80.0")
    assert "tanh 79.1" in sentence
    assert "ReLU" not in sentence
    assert "the best is graph-adaptive max (2 hops) 90.0" in sentence


def test_rivals_are_chosen_on_splits_that_are_not_reported_where_there_are_some():
    tuning = {("relu", None): 80.0, ("tanh", None): 75.0, ("max-ga", 1): 70.0, ("max-ga", 2): 71.0}
    found = content(benchmark_rows(SCORES, tuning=tuning))
    ((_, sentence),) = found.headlines
    assert sentence.startswith("graph-adaptive max (2 hops) 90.0")
    assert "ReLU 70.0" in sentence
    (shown,) = [table for table in found.tables if "Differences" in table.title]
    assert "validates best on splits that are not reported: Cora: ReLU." in shown.caption
    (shown,) = [table for table in content(benchmark_rows(SCORES)).tables if "Differences" in table.title]
    assert "validates best on the reported splits: Cora: tanh." in shown.caption


def test_a_linear_control_is_none_of_our_activations():
    """Mean G.A. validates best, and stands for nobody."""
    ((_, sentence),) = content(benchmark_rows(SCORES | {("mean-ga", None): (85, 99)})).headlines
    assert sentence.startswith("graph-adaptive max (1 hop) 80.0")


def test_where_there_is_one_split_differences_are_over_seeds():
    found = content(benchmark_rows(SCORES, protocol="kipf"))
    ((_, sentence),) = found.headlines
    assert "on the same 4 seeds (95 % interval)" in sentence
    (shown,) = [table for table in found.tables if "Differences" in table.title]
    assert shown.caption.startswith("Paired over seeds on one split")
    assert "of other test samples it tells nothing" in shown.caption


def test_activations_that_read_all_nodes_are_named_beside_their_exchanges():
    extra = {"exchanges": 3, "parameters": 10}
    rows = [one | extra for one in benchmark_rows(SCORES | {("digraf", None): (80, 70)})]
    (cost,) = [table for table in content(rows).tables if table.title.startswith("Cost")]
    assert cost.caption.endswith(
        "DiGRAF read a mean over all nodes besides, which no exchange between neighbours gives."
    )
    known = [name for name in names() if any(layer.pools for layer in described(name))]
    assert known == list(POOLING)


def described(name):
    layers = make_activation(name, features=4).layers()
    return [layer for layer in layers if isinstance(layer, Activation)]


def test_largest_number_of_features_is_the_main_one():
    found = content([denoising(features=features, value=float(features)) for features in (1, 2, 4)])
    assert titles(found) == [
        "Figure 2c in numbers: error over the filter order, F = 4",
        "Figure 2c in numbers: error over the filter order, F = 2",
        "Figure 2c in numbers: error over the filter order, F = 1",
    ]
    assert [figure.title for figure in found.figures] == ["Figure 2c: error over the filter order, F = 4"]
    assert [means(table, "ReLU") for table in (*found.tables, *found.more_tables)] == [[4.0], [2.0], [1.0]]


@pytest.mark.parametrize("usual", [None, 3.0])
def test_noise_sweep_is_at_the_lowest_order(usual):
    rows = [denoising(value=1.0, snr=usual), denoising(order=8, value=0.9, snr=usual), denoising(value=2.0, snr=0.0)]
    rows += [denoising(order=8, value=1.9, snr=0.0), baseline("denoising", "noise", 3.0, condition={"snr_db": 0.0})]
    orders, noise = content(rows).tables
    assert orders.columns == ["K = 1", "K = 8"]
    assert means(orders, "ReLU") == [1.0, 0.9]
    assert noise.title == "Figure 2d in numbers: error over the noise, K = 1, F = 4"
    assert noise.columns == ["0 dB", "3 dB"]
    assert means(noise, "ReLU") == [2.0, 1.0]
    assert means(noise, "noise") == [3.0, None]


def test_a_noise_level_that_was_run_twice_is_shown_once():
    rows = [denoising(value=1.0), denoising(value=1.1, snr=3.0), denoising(value=2.0, snr=0.0)]
    orders, noise = content(rows).tables
    assert means(orders, "ReLU") == [1.0]
    assert means(noise, "ReLU") == [2.0, 1.1]


def test_link_loss_shows_one_order_for_all_with_the_lowest_validation_error():
    rows = []
    for method, validations in (("relu", (0.5, 0.4, 0.6)), ("fir", (0.3, 0.35, 0.2))):  # 0.8, 0.75 and 0.8 in all
        for order, validation in zip((20, 25, 30), validations, strict=True):
            shared = {"order": order, "validation": validation}
            rows += [consensus(method, order / 100, **shared), consensus(method, 1 + order / 100, loss=0.05, **shared)]
    losses = content(rows).tables[1]
    assert losses.title == "Figure 2b in numbers: error over lost links, K = 25, F = 32"
    assert means(losses, "ReLU") == means(losses, "FIR") == [0.25, 1.25]


def test_link_loss_without_a_common_order_shows_each_at_its_best():
    rows = []
    for order, validation, test in ((20, 0.5, 0.1), (25, 0.4, 0.3), (30, 0.6, 0.2)):
        rows.append(consensus(order=order, validation=validation, value=test))
        rows.append(consensus(order=order, validation=validation, value=test + 1, loss=0.05))
    rows += [consensus("fir", 0.7, order=15), consensus("fir", 0.8, order=15, loss=0.05)]
    losses = content(rows).tables[1]
    assert losses.title == "Figure 2b in numbers: error over lost links, F = 32"
    assert losses.columns == ["p = 0", "p = 0.05"]
    assert means(losses, "ReLU, K = 25") == [0.3, 1.3]
    assert means(losses, "FIR, K = 15") == [0.7, 0.8]
    assert len(losses.lines) == 2


def test_best_setting_without_validation_is_by_test_error_at_no_loss():
    rows = [consensus(order=order, value=value) for order, value in ((20, 0.2), (25, 0.1))]
    rows += [consensus(order=order, value=value, loss=0.1) for order, value in ((20, 0.3), (25, 0.9))]
    assert means(content(rows).tables[1], "ReLU") == [0.1, 0.9]


def test_best_setting_of_lossy_results_alone_is_by_their_mean():
    rows = [consensus(order=order, value=value, loss=0.1) for order, value in ((20, 0.3), (25, 0.9))]
    found = content(rows)
    assert means(found.tables[1], "ReLU") == [0.3]
    assert "K = 20" in found.tables[1].title


def test_baselines_of_link_loss_say_where_they_were_measured():
    rows = [consensus(), consensus(loss=0.05), consensus(loss=0.1), baseline("consensus", "answer zero", 0.1)]
    lossy = {"condition": {"loss_probability": 0.1}}
    rows += [baseline("consensus", "FIR", 0.05, **lossy)]
    rows += [baseline("consensus", "averaging", 0.01), baseline("consensus", "averaging", 0.02, **lossy)]
    losses = content(rows).tables[1]
    assert means(losses, "answer zero, no link lost") == [0.1, 0.1, 0.1]
    assert means(losses, "FIR") == [None, None, 0.05]
    assert means(losses, "averaging") == [0.01, None, 0.02]


def test_learned_weights_over_replicas_and_features():
    shared = {"method": "max-ga", "hops": 2}
    rows = [
        row(**shared, beta=[1.0, 2.0], weights=[[[0.1, -0.3], [1.0, 1.0]], [[0.0, 0.0], [2.0, 2.0]]]),
        row(**shared, split=1, beta=[3.0, 2.0], weights=[[[0.5, 0.7], [1.0, 1.0]], [[0.0, 0.0], [2.0, 4.0]]]),
        row(),
    ]
    found = content(rows)
    weights = found.tables[-1]
    assert weights.title == "Learned activation weights, F = 8"
    assert weights.columns == ["β", "|h1| / |β|", "|h2| / |β|"]
    assert [line.label for line in weights.lines] == ["Max G.A. (2), layer 1", "Max G.A. (2), layer 2"]
    assert weights.shown(weights.lines[0].entries[0]) == "2.00 ± 1.41"
    shares = [0.1, 0.3, 0.5 / 3, 0.7 / 3]
    assert means(weights, "Max G.A. (2), layer 1") == pytest.approx([2.0, sum(shares) / 4, (1 + 1 + 1 / 3 + 1 / 3) / 4])
    assert means(weights, "Max G.A. (2), layer 2") == pytest.approx([2.0, 0.0, (1 + 1 + 1 + 2) / 4])
    assert found.more_tables == []


def test_weights_of_every_setting_are_folded_away():
    weights = {"beta": [1.0], "weights": [[[0.5]]]}
    found = content([row(method="max-l", hops=1, features=features, **weights) for features in (2, 8)])
    assert [line.label for line in found.more_tables[0].lines] == ["Max L. (1), F = 2", "Max L. (1), F = 8"]


def test_complete_results():
    assert block([row(method=method, hops=hops) for method, hops in PUBLISHED]).progress.percent == 100


def test_methods_run_with_other_hops_are_complete_too():
    methods = [(method, None if hops is None else 1) for method, hops in PUBLISHED]
    found = block([row(method=method, hops=hops) for method, hops in methods])
    assert found.progress.sentence == "Complete: no cell of the tables lacks a result."
    assert len(found.content.tables[0].lines) == 8


def test_partial_results_say_their_share():
    rows = [denoising(order=order, split=split) for order in (1, 2) for split in range(4)][:-1]
    rows += [denoising("fir", split=split) for split in range(4)]
    sentence = block(rows).progress.sentence
    assert sentence.startswith("Partial: 68 % of the results that the tables show, in 3 of 4 cells; ")


def test_repetitions_on_lossy_graphs_are_complete():
    rows = [consensus(split=split) for split in range(2)]
    rows += [
        consensus(split=split, loss=0.1, realization=realization) for split in range(2) for realization in range(3)
    ]
    assert block(rows).progress.percent == 100


def test_films_that_are_read_at_different_nodes_are_complete():
    rows = [
        row("recommendation", split=split, graph=None, node=node, condition={"film": film})
        for film, node in (("toy-story", 0), ("contact", 257), ("return-of-the-jedi", 180))
        for split in range(5)
    ]
    assert block(rows).progress.percent == 16  # 15 of 90 results of the six activations that the paper has
    rows = [made | {"method": method, "hops": hops} for made in rows for method, hops in PUBLISHED]
    assert block(rows).progress.percent == 100


def test_runs_that_diverged_are_counted():
    found = block([denoising(value=float("nan")), denoising(value=1.0, split=1)])
    assert found.progress.sentence.endswith(" 1 result is not finite and left out of the means.")


def test_a_preset_that_is_cut_short_says_so():
    assert block([row(preset="paper")]).caveat == ""
    told = block([row(preset="quick")]).caveat
    assert told == (
        "Preset “quick”: fewer runs and shorter training (40 epochs) than the paper's: lower scores are to be "
        "expected, and the marks do not tell whether the paper's come out. The preset “paper” runs all of it."
    )
    told = block([denoising(preset="quick")]).caveat
    assert "marks" not in told


def test_settings():
    rows = [
        row(graph=graph, split=split, node=node + 10 * graph) for graph in (0, 1) for split in (0, 1) for node in (3, 5)
    ]
    facts = dict(block([made | {"settings": {"learning_rate": 0.001, "bias": True, "seed": 0}} for made in rows]).facts)
    assert facts["Replicas"] == " \N{MULTIPLICATION SIGN} ".join(["2 graphs", "2 splits", "2 nodes"])
    assert facts["Learning rate"] == "0.001"
    assert facts["Bias"] == "yes"
    assert facts["Trained networks"] == "8"
    assert facts["Computing time, added up"] == "12.0 s"


def test_settings_tell_what_networks_cost_where_rows_do():
    rows = [row(features=features, parameters=100 * features, exchanges=8) for features in (2, 8)]
    rows += [row(method="max-ga", hops=2, features=8, parameters=1234, exchanges=14)]
    facts = dict(block(rows).facts)
    assert facts["Parameters of a network"] == "ReLU 200 to 800, Max G.A. (2) 1,234"
    assert facts["Exchanges for one inference"] == "ReLU 8, Max G.A. (2) 14"
    assert "Parameters of a network" not in dict(block([row()]).facts)


def test_time_of_a_network_counts_once():
    rows = [consensus(seconds=60.0), *(consensus(loss=loss, seconds=60.0) for loss in (0.05, 0.1))]
    rows += [baseline("consensus", name, 0.1, seconds=15.0) for name in ("answer zero", "least-squares FIR")]
    facts = dict(provenance(read_rows(rows)))
    assert facts["Computing time, added up"] == "1 min 15 s"
    assert facts["Results"] == "5 (3 of networks, 2 of baselines)"
    assert facts["Finished"] == "2026-11-15T10:00:00Z"


def test_names_of_files_cannot_leave_the_folder():
    assert file_name("table-1", "../../etc/passwd") == "table-1-etc-passwd"


PUBLISHED = (("relu", None), ("max-l", 1), ("max-ga", 2), ("median-l", 1), ("median-ga", 2), ("kernel-ga", 1))
