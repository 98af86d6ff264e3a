"""Equal rounds: what networks spend, how sources are divided, and what the report concludes."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from graphact.graph import Graph
from graphact_lab.cli import main
from graphact_lab.data.diffused_sources import (
    SOURCES,
    STEPS,
    source_localization,
    source_localization_tasks,
)
from graphact_lab.experiments.rounds import report, runner
from graphact_lab.experiments.rounds.experiment import (
    BASELINES,
    GATV2,
    LINEAR,
    LINEAR_UNIT,
    METHODS,
    NEAREST,
    NEAREST_NOISY,
    NOISE,
    RoundsJob,
    find_settings,
    orders_of,
)
from graphact_lab.store import Store, StoreError


@pytest.mark.parametrize("rounds", [1, 2, 3, 4, 6, 9])
@pytest.mark.parametrize("method", METHODS)
def test_networks_spend_all_rounds_or_are_left_out(method, rounds):
    if orders_of(method, rounds):
        model = runner.make_model(RoundsJob(method, rounds, "random"), 3)
        if method == GATV2:
            assert len(model.convolutions) == rounds
            return
        assert sum(layer.exchanges for layer in model.layers()) == rounds
    else:
        assert "max-l" in method or "median-l" in method or rounds in (1,) or rounds % 2


def test_sources_of_the_test_are_unseen():
    task = runner.with_unseen_sources(source_localization(graph=1))
    sources = [{int(sample) // STEPS for sample in part} for part in (task.train, task.validation, task.test)]
    assert [len(part) for part in sources] == [28, 4, 8]
    assert sorted(source for part in sources for source in part) == list(range(40))
    assert [len(part) for part in (task.train, task.validation, task.test)] == [840, 120, 240]
    for part, count in zip(sources, SOURCES, strict=True):  # of each community
        assert [sum(source // 10 == community for source in part) for community in range(4)] == [count] * 4


@pytest.mark.parametrize(("task", "nodes"), [("consensus", 100), ("denoising", 32)])
def test_equal_rounds_where_every_node_answers(task, nodes, real_data, tmp_path, monkeypatch):
    monkeypatch.setenv("GRAPHACT_DATA", str(real_data))
    settings = replace(
        find_settings("smoke", ["gelu"]), task=task, sources=("random",), rounds=(2,), graphs=1, splits=2
    )
    runner.run(settings, store := Store(tmp_path))
    rows = store.rows()
    assert [(row["metric"], row["method"], row["split"]) for row in rows] == [("rmse", "gelu", n) for n in range(2)]
    assert runner.make_tasks(settings, "random", 0)[0].inputs.shape[1:] == (nodes, 1)
    assert rows[0]["settings"]["task"] == task
    with pytest.raises(ValueError, match="sources must be"):
        replace(settings, sources=("random", "unseen"))


def test_sources_can_be_unseen_in_the_experiment_of_the_paper():
    (task,), (plain,) = (source_localization_tasks(1, 1, 1, sources=kind) for kind in ("unseen", "random"))
    again = runner.with_unseen_sources(plain)
    assert all(torch.equal(getattr(task, part), getattr(again, part)) for part in ("train", "validation", "test"))
    with pytest.raises(ValueError, match="other communities"):
        source_localization_tasks(1, 1, 1, sources="unseen", community_size=12)


def test_attention_has_the_residuals_of_the_other_networks():
    torch.manual_seed(0)
    graph, x = Graph.from_edge_index(torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), num_nodes=4), torch.randn(2, 4, 1)
    model = runner.make_model(RoundsJob(GATV2, 3, "random"), 5)
    first, *others = model.convolutions
    found = torch.nn.functional.gelu(first(x, graph))
    for layer in others:
        found = found + torch.nn.functional.gelu(layer(found, graph))
    assert torch.equal(model(x, graph), model.readout(found))
    first, second = (model := runner.make_model(RoundsJob(GATV2, 2, "random"), 5)).convolutions
    found = torch.nn.functional.gelu(second(torch.nn.functional.gelu(first(x, graph)), graph))
    assert torch.equal(model(x, graph), model.readout(found))


def test_a_graph_without_weights_keeps_its_neighbours():
    task = source_localization()
    (bare,) = runner.without_weights([task])
    assert torch.equal(bare.graph.degree, task.graph.degree)
    assert bare.graph.to_dense().abs().max() == 0


def test_the_nearest_neighbour_is_that_of_plain_loops():
    settings, task = find_settings("smoke"), source_localization(graph=2)
    (row,) = runner.run_baseline(settings, RoundsJob(NEAREST, 0, "random"), [task], 0)
    signals, right = task.inputs.squeeze(-1).double(), 0
    signals = signals / signals.norm(dim=1, keepdim=True)
    for sample in task.test.tolist():
        distances = [float((signals[sample] - signals[other]).norm()) for other in task.train.tolist()]
        nearest = int(task.train[distances.index(min(distances))])
        right += int(task.targets[nearest] == task.targets[sample])
    assert row["value"] == pytest.approx(100 * right / len(task.test), abs=0.5)  # rounding decides ties


def test_noise_of_the_nearest_neighbour_is_small_and_the_same_again():
    task = source_localization(graph=2)
    exact, noisy, again = (runner.nearest(method, task) for method in (NEAREST, NEAREST_NOISY, NEAREST_NOISY))
    assert torch.equal(noisy, again)
    assert not torch.equal(exact, noisy)
    assert NOISE == 1e-3


def test_least_squares_is_that_of_numpy():
    task = source_localization(graph=2)
    signals, wanted = task.inputs.squeeze(-1).double().numpy(), np.eye(4)[task.targets]
    for method, scale in ((LINEAR, 1.0), (LINEAR_UNIT, np.linalg.norm(signals, axis=1, keepdims=True))):
        own = np.column_stack([signals / scale, np.ones(len(signals))])
        weights = np.linalg.lstsq(own[task.train], wanted[task.train], rcond=None)[0]
        same = runner.least_squares(method, task).numpy() == (own[task.test] @ weights).argmax(1)
        assert same.mean() > 0.97  # nearly singular


def rows_of(seed=0, **methods):
    """Rows of one graph each, with these accuracies."""
    own = {"kind": "model", "rounds": 4, "sources": "unseen", "seed": seed}
    return [
        own
        | {"method": name.replace("_", "-"), "graph": graph}
        | {"value": value, "validation": value, "split": 0, "node": 3}
        for name, values in methods.items()
        for graph, value in enumerate(values)
    ]


def test_the_message_is_a_paired_difference_from_the_best_pointwise_network():
    rows = rows_of(relu=[30, 30, 30, 30], gelu=[40, 44, 48, 52], bank_max=[50, 53, 58, 63])
    results = report.RoundsResults(rows)
    assert results.rivals == {(4, "unseen"): "gelu"}
    gain = results.gain("bank-max", 4, "unseen")
    assert gain.mean == 10.0
    assert gain.margin == pytest.approx(3.182446 * (2 / 3) ** 0.5 / 2, abs=1e-4)  # of 10, 9, 10, 11
    said = report.message(results)
    assert "right in 56 % with unseen sources, 10.0 ± 1.3 points more than the best pointwise network (GELU)." in said
    assert "contains 0" not in said


def test_graphs_of_other_seeds_are_other_graphs():
    rows = rows_of(gelu=[40, 44], bank_max=[50, 51]) + rows_of(1, gelu=[42, 46], bank_max=[51, 62])
    gain = report.RoundsResults(rows).gain("bank-max", 4, "unseen")
    assert gain.units == 4
    assert gain.spread == pytest.approx(np.std([10, 7, 9, 16], ddof=1))
    assert "over 4 graphs" in report.terminal_table(rows).replace("\n", " ")


def test_the_rival_validates_best_and_of_equal_ones_has_fewer_parameters():
    rows = rows_of(gelu=[40, 44], prelu=[30, 34], relu=[30, 34])
    for row in rows:
        row |= {"validation": 50 - 10 * (row["method"] == "gelu"), "parameters": 9 + (row["method"] == "prelu")}
    assert report.RoundsResults(rows).rivals == {(4, "unseen"): "relu"}  # GELU tests better


def test_a_difference_within_its_interval_is_called_so():
    rows = rows_of(gelu=[40, 44, 48, 52], bank_max=[50, 40, 55, 47])
    assert "(GELU); the unadjusted 95 % interval contains 0." in report.message(report.RoundsResults(rows))
    assert "too few" in report.message(report.RoundsResults(rows[:2] + rows[4:6]))
    assert "nothing to conclude" in report.message(report.RoundsResults(rows_of(gelu=[40, 44, 48])))


def test_the_bank_is_chosen_by_validation():
    rows = rows_of(gelu=[40, 44, 48], bank_max=[70, 70, 70], bank_median=[50, 50, 50])
    for row in rows:
        row["validation"] = 100 - row["value"]
    assert report.RoundsResults(rows).best_bank == "bank-median"


def test_the_demo_says_that_its_training_is_short():
    rows = rows_of(gelu=[40, 44, 48], bank_max=[50, 54, 58])
    assert "Training is short" not in report.terminal_table(rows)
    told = report.terminal_table([row | {"preset": "quick"} for row in rows]).replace("\n", " ")
    assert "Training is short: 30 epochs instead of the 200 of --preset full." in told


def test_the_table_tells_layers_and_the_order_of_filters():
    rows = rows_of(gelu=[40, 44, 48], max_ga=[40, 44, 48], bank_max=[50, 54, 58])
    header, *lines = report.lines_of(report.RoundsResults(rows))
    assert header[:2] == ["network", "layers"]
    assert [line[:2] for line in lines] == [["GELU", "4 (1)"], ["Max G.A.", "2 (0)"], ["bank, max", "4 (1)"]]
    assert "a filter of order 0 shifts nothing" in report.terminal_table(rows).replace("\n", " ")
    several = [row | {"rounds": rounds} for row in rows for rounds in (2, 6)]
    assert report.lines_of(report.RoundsResults(several))[2][:2] == ["Max G.A.", "1 (0), 2 (1)"]


def test_a_page_and_a_table_of_80_columns(tmp_path):
    settings, store = find_settings("smoke"), Store(tmp_path)
    store.create("graphact-lab run rounds --preset smoke")
    runner.run(settings, store)
    rows = store.rows()
    assert len(rows) == 2 * 2 * (len(BASELINES) + 4)  # graphs, divisions, methods
    assert all(len(line) <= 80 for line in report.terminal_table(rows).splitlines())
    page = report.write_page(rows, tmp_path, store.commands()).read_text()
    assert "graphact-lab run rounds --preset smoke" in page
    assert "too few for an interval" in page
    runner.run(settings, store)
    assert store.rows() == rows  # nothing is trained again
    with pytest.raises(StoreError, match="epochs 2 instead of 3"):
        runner.check_settings(find_settings("smoke", (), {"epochs": "3"}), store, 0)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rounds": "0"}, "rounds must be"),
        ({"sources": "all"}, "sources must be one of"),
        ({"rates": "-1"}, "rates must be"),
        ({"hops": "2"}, "--set must be one of"),
    ],
)
def test_wrong_settings(changes, said):
    with pytest.raises(ValueError, match=said):
        find_settings("quick", (), changes)


def test_descriptions_name_the_networks_of_rounds_alone():
    from graphact.registry import FURTHER, POINTWISE
    from graphact_lab.descriptions import NETWORKS_OF_ROUNDS
    from graphact_lab.experiments.rounds.experiment import METHODS
    from graphact_lab.protocols import METHODS as OF_THE_PAPER

    others = {*OF_THE_PAPER, *POINTWISE, *FURTHER}
    assert set(NETWORKS_OF_ROUNDS) == set(METHODS) - others


def test_help_names_each_network_once(capsys):
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    named = re.search(r"--activation NAME {2,}(.*?)--import", capsys.readouterr().out, re.DOTALL)[1]
    words = re.findall(r"[\w-]+", re.sub(r"-\n *", "-", named))
    assert {name: words.count(name) for name in METHODS} == dict.fromkeys(METHODS, 1)


def test_a_new_network_goes_by_its_own_name():
    rows = rows_of(gelu=[40, 44, 48], bank_of_mine=[50, 54, 58])
    assert "bank-of-mine" in report.terminal_table(rows)
