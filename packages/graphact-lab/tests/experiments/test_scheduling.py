"""Link scheduling: rules against brute force, convolutions against PyG, keys that learn, and queues served in time."""

import itertools
import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg

from graphact.graph import Graph
from graphact_lab.cli import main
from graphact_lab.experiments.scheduling.conflicts import KINDS, Conflicts, draw_random
from graphact_lab.experiments.scheduling.experiment import FULL, KeyJob, find_settings
from graphact_lab.experiments.scheduling.greedy_rules import (
    REPEATED,
    RULES,
    greedy,
    load,
    local_greedy,
    optimum,
    rounds_of,
    rule_key,
    schedules_of,
)
from graphact_lab.experiments.scheduling.keys import CONVOLUTIONS, KeyFleet, soft_load, train
from graphact_lab.experiments.scheduling.report import (
    LABELS,
    best_jobs,
    crossed,
    rule_at,
    schedulers,
    time_table,
    tried_in_time,
)
from graphact_lab.experiments.scheduling.runner import (
    LOSSES,
    Laboratory,
    best_repeats,
    matched_width,
    repeated_rule,
    rule_rows,
)
from graphact_lab.experiments.scheduling.slots import PACKETS, air_time, run_slots, usual_arrivals
from graphact_lab.store import Store

SMALL_GRAPHS = 1000


def small_graph(number):
    """A graph of 2 to 16 nodes as sets of neighbours, its utilities, some of them equal, and its conflicts."""
    rng = np.random.default_rng(number)
    nodes = int(rng.integers(2, 17))
    pairs = [pair for pair in itertools.combinations(range(nodes), 2) if rng.random() < rng.uniform(0.05, 0.6)]
    near = [{j for i, j in [*pairs, *((b, a) for a, b in pairs)] if i == node} for node in range(nodes)]
    weight = rng.integers(1, 9, nodes) / 8 if number % 2 else rng.random(nodes)
    edges = torch.tensor(pairs, dtype=torch.int64).view(-1, 2).t()
    conflicts = Conflicts.from_one_way(edges, torch.zeros(nodes, dtype=torch.int64), "cpu")
    return near, weight.astype(np.float32), conflicts


def plain_greedy(key, near):
    sends = set()
    for node in sorted(range(len(key)), key=lambda node: (key[node], node), reverse=True):
        if not near[node] & sends:
            sends.add(node)
    return sends


def plain_local_greedy(key, near, iterations):
    """Node by node, with messages as sets."""
    state = dict.fromkeys(range(len(key)), "active")
    for _ in range(iterations):
        active = {node for node in state if state[node] == "active"}
        wins = {n for n in active if all((key[n], n) > (key[j], j) for j in near[n] & active)}
        for node in active:
            state[node] = "sends" if node in wins else "silent" if near[node] & wins else "active"
    return {node for node in state if state[node] == "sends"}


def brute_force(weight, near):
    """The best independent set of all sets of nodes, each a number in binary."""
    chosen = np.arange(1 << len(weight))
    free, total = np.ones(len(chosen), dtype=bool), np.zeros(len(chosen))
    for node, others in enumerate(near):
        has = (chosen >> node & 1).astype(bool)
        total += has * float(weight[node])
        for other in others:
            free &= ~(has & (chosen >> other & 1).astype(bool))
    return total[free].max()


@pytest.mark.slow
def test_greedy_local_greedy_and_optimum_are_those_of_brute_force():
    for number in range(SMALL_GRAPHS):
        near, weight, conflicts = small_graph(number)
        own = torch.from_numpy(weight)
        for rule in ("w", "w / (1 + d)"):
            key = rule_key(rule, own, conflicts.degree)
            found = set(greedy(key, own, conflicts).nonzero().squeeze(1).tolist())
            assert found == plain_greedy(key.tolist(), near), number
            for iterations in (1, 2, 3):
                sends = local_greedy(key, own > 0, conflicts, iterations)
                assert set(sends.nonzero().squeeze(1).tolist()) == plain_local_greedy(key.tolist(), near, iterations)
                carried = load(sends, own, conflicts).item()
                assert carried == pytest.approx(own[sends].sum().item()), "local winners never collide"
        assert optimum(own, conflicts, 1).item() == pytest.approx(brute_force(weight, near), rel=1e-6)


def test_a_repeated_message_arrives_if_one_of_its_rounds_delivers_it():
    """As once over the union of what the rounds deliver."""
    conflicts, generator = draw_random(4, 30, torch.Generator().manual_seed(0)), torch.Generator().manual_seed(1)
    key = torch.rand(3, 120, generator=generator)
    for repeats in ((1,), (3,), (2, 1, 3)):
        delivered = [[conflicts.lossy(0.4, generator) for _ in range(times)] for times in repeats]
        dense = [sum((one.to_dense() != 0).float() for one in own).sign() for own in delivered]
        united = [Graph.from_dense(own) for own in dense]
        graphs, iterations = (one for own in delivered for one in own), (len(repeats) + 1) // 2
        found = local_greedy(key, key > 0.1, conflicts, iterations, graphs, repeats)
        assert torch.equal(found, local_greedy(key, key > 0.1, conflicts, iterations, iter(united)))


def test_rounds_are_divided_among_messages_in_every_way():
    for rounds in range(1, 7):
        products = itertools.product(range(1, 7), repeat=5)
        own = {each[:n] for each in products for n in (1, 3, 5) if sum(each[:n]) <= rounds}
        assert len(schedules_of(rounds)) == len(own)
        assert set(schedules_of(rounds)) == own


def test_validation_graphs_choose_how_often_the_rule_repeats(monkeypatch):
    laboratory = Laboratory(replace(find_settings("smoke"), rounds=(3,)), 0, "cpu")
    validation = laboratory.validation._replace(condition={"graphs": "validation", "loss": 0.2})

    def carried(repeats):
        sends = repeated_rule(laboratory, RULES[1], repeats, validation)
        return (load(sends, validation.weight, validation.conflicts) / validation.reference).mean().item()

    chosen = best_repeats(laboratory, RULES[1], 3, 0.2)
    assert carried(chosen) == max(map(carried, schedules_of(3)))
    monkeypatch.setattr("graphact_lab.experiments.scheduling.runner.in_time", lambda *_: [])
    rows = [row for row in rule_rows(laboratory) if row["method"] == RULES[1] + REPEATED]
    assert [(row["condition"]["loss"], row["rounds"]) for row in rows] == list(itertools.product(LOSSES, (2, 3)))
    assert rows[-1]["repeats"] == list(chosen)
    once = {"kind": "baseline", "method": RULES[1], "rounds": 1, "condition": rows[-1]["condition"], "ratios": [9.0]}
    assert rule_at([*rows, once | {"value": 9.0}], once["condition"], 3) == rows[-1]["ratios"]
    assert rule_at([*rows, once | {"value": 9.0}], once["condition"], 1) == [9.0]


def test_what_collides_carries_nothing():
    path = Conflicts.from_one_way(torch.tensor([[0, 1, 3], [1, 2, 4]]), torch.tensor([0, 0, 0, 1, 1]), "cpu")
    sends = torch.tensor([[True, True, False, True, False], [True, False, True, False, False]])
    assert load(sends, torch.tensor([1.0, 2.0, 4.0, 8.0, 16.0]), path).tolist() == [[0.0, 8.0], [5.0, 0.0]]


@pytest.mark.parametrize("kind", KINDS)
def test_drawn_graphs_are_undirected_and_their_own(kind):
    drawn = [KINDS[kind](6, 40, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)]
    dense = [each.graph.to_dense() != 0 for each in drawn]
    assert torch.equal(dense[0], dense[0].t())
    assert not dense[0].diagonal().any()
    assert torch.equal(dense[0], dense[1])
    assert dense[0].shape != dense[2].shape or not torch.equal(dense[0], dense[2])
    apart = drawn[0].member.unsqueeze(0) != drawn[0].member.unsqueeze(1)
    assert not (dense[0] & apart).any()
    assert drawn[0].num_graphs == 6
    assert 1 < drawn[0].degree.mean() < 20


def test_equal_mean_degrees_at_every_size():
    means = [draw_random(20, nodes, torch.Generator().manual_seed(0)).degree.mean().item() for nodes in (100, 300)]
    assert means[1] == pytest.approx(means[0], rel=0.1)


def pyg_layer(name, ours):
    """PyG's convolution with our parameters, from 3 to 5 features."""
    state = dict(ours.named_parameters())
    if name == "sage-max":
        renamed = {"lin.weight": "pool.weight", "lin.bias": "pool.bias", "lin_r.weight": "own.weight"}
        renamed |= {"lin_l.weight": "last.weight", "lin_l.bias": "last.bias"}
        return pyg.SAGEConv(3, 5, aggr="max", project=True), {to: state[name] for to, name in renamed.items()}
    renamed = {"lin_l.weight": "source.weight", "lin_l.bias": "source.bias", "lin_r.weight": "target.weight"}
    renamed |= {"lin_r.bias": "target.bias", "res.weight": "own.weight", "bias": "own.bias"}
    made = {to: state[name] for to, name in renamed.items()}
    return pyg.GATv2Conv(3, 5, residual=True), made | {"att": state["score.weight"].unsqueeze(0)}


@pytest.mark.parametrize("name", ["sage-max", "gatv2"])
def test_convolutions_of_others_are_those_of_pyg(name):
    torch.manual_seed(0)
    conflicts = draw_random(3, 12, torch.Generator().manual_seed(1))
    x, ours = torch.randn(36, 3), CONVOLUTIONS[name](3, 5)
    theirs, state = pyg_layer(name, ours)
    theirs.load_state_dict({key: value.detach() for key, value in state.items()})
    torch.testing.assert_close(ours(x, conflicts.graph), theirs(x, conflicts.graph.to_edge_index()[0]))


def test_pna_is_that_of_pyg():
    """Their message is a linear map of both ends, their standard deviation has a small constant under the root."""
    torch.manual_seed(0)
    conflicts = draw_random(3, 12, torch.Generator().manual_seed(1))
    x, ours, edges = torch.randn(36, 3), CONVOLUTIONS["pna"](3, 5), conflicts.graph.to_edge_index()[0]
    lists = {"aggregators": ["mean", "max", "min", "std"], "scalers": ["identity", "amplification", "attenuation"]}
    theirs = pyg.PNAConv(3, 5, **lists, deg=torch.bincount(conflicts.degree.long()))
    theirs.aggr_module.avg_deg_log.fill_(ours.scale)
    state = {"pre_nns.0.0.weight": torch.cat([ours.own.weight, ours.sent.weight], 1)}
    state |= {"pre_nns.0.0.bias": ours.own.bias, "post_nns.0.0.weight": ours.last.weight}
    state |= {"post_nns.0.0.bias": ours.last.bias, "lin.weight": torch.eye(5), "lin.bias": torch.zeros(5)}
    theirs.load_state_dict(theirs.state_dict() | {key: value.detach() for key, value in state.items()})
    has_neighbors = conflicts.degree > 0
    found, expected = ours(x, conflicts.graph), theirs(x, edges)
    torch.testing.assert_close(found[has_neighbors], expected[has_neighbors], rtol=0, atol=5e-3)


@pytest.mark.parametrize("method", CONVOLUTIONS)
def test_a_fleet_answers_as_its_networks_and_learns(method):
    conflicts = draw_random(4, 20, torch.Generator().manual_seed(0))
    fleet = KeyFleet(method, 2, 6, [1, 2])
    weight = torch.rand(2, 80, generator=torch.Generator().manual_seed(3))
    keys = fleet(weight, conflicts)
    for number in range(2):
        state = {name: tensor[number] for name, tensor in fleet.parameters.items()}
        alone = torch.func.functional_call(
            fleet.template, state, (weight[number], conflicts.degree, [conflicts.graph] * 2)
        )
        torch.testing.assert_close(keys[number], alone)
    before = soft_load(keys, weight, conflicts, 1, 0.3)
    train(fleet, iterations=1, steps=60, rate=1e-2, graphs=4, nodes=20, seed=5, device="cpu")
    assert (soft_load(fleet(weight, conflicts), weight, conflicts, 1, 0.3) > before).all()


def test_the_network_of_zhao_does_not_see_utilities():
    conflicts, fleet = draw_random(2, 10, torch.Generator().manual_seed(0)), KeyFleet("topology", 2, 4, [0])
    weight = torch.rand(1, 20) + 0.1
    difference = fleet(3 * weight, conflicts) - fleet(weight, conflicts)
    torch.testing.assert_close(difference, torch.full_like(difference, np.log(3)))


@pytest.mark.parametrize("iterations", [1, 2])
def test_the_soft_rule_is_the_hard_one_when_it_is_cold(iterations):
    conflicts = draw_random(10, 30, torch.Generator().manual_seed(0))
    weight = torch.rand(300, generator=torch.Generator().manual_seed(1))
    key = rule_key("w", weight, conflicts.degree)
    sends = local_greedy(key, weight > 0, conflicts, iterations)
    expected = weight[sends].sum() / weight.sum()
    assert soft_load(key, weight, conflicts, iterations, 1e-4).item() == pytest.approx(expected.item(), abs=0.01)


def test_rounds_air_and_widths_are_counted():
    assert [KeyJob("bank", 2, 1).rounds, KeyJob("bank", 1, 2).rounds, KeyJob("topology", 3, 2).rounds] == [3, 4, 3]
    assert {job.rounds for job in FULL.jobs} == set(FULL.rounds)
    assert air_time([2, 1, 1], 4) == pytest.approx(4 * (3 * 40e-6 + 8 * 4 / 6e6) / 10e-3)
    assert rounds_of(2) == 3
    job, bank = KeyJob("pna", 2, 1), KeyFleet("bank", 2, 16, [0]).num_parameters
    width = matched_width(job, 16)
    sizes = [KeyFleet("pna", 2, each, [0]).num_parameters for each in (width, width + 1)]
    assert sizes[0] <= bank < sizes[1]


def test_a_lone_link_serves_what_the_slot_holds():
    """Without conflicts a link sends in every slot: backlog grows by what arrives beyond the useful share."""
    alone = Conflicts.from_one_way(torch.zeros(2, 0, dtype=torch.int64), torch.tensor([0, 1, 2, 3]), "cpu")
    arrivals = usual_arrivals(alone, torch.Generator().manual_seed(0))
    assert arrivals.tolist() == [PACKETS] * 4
    settings = {"loads": (0.5, 2.0), "contentions": (1, 16), "slots": 400, "seed": 1}
    rows = run_slots(lambda queue: queue > 0, [2, 1, 1], alone, arrivals, **settings)
    assert [(row["contention"], row["load"]) for row in rows] == [(1, 0.5), (1, 2.0), (16, 0.5), (16, 2.0)]
    for row in rows:
        useful, load_tried = 1 - air_time([2, 1, 1], row["contention"]), row["load"]
        assert row["throughput"] == pytest.approx(min(1, useful / load_tried), abs=0.05)
        assert row["slope"] == pytest.approx(max(0, 1 - useful / load_tried), abs=0.05)
        assert (row["slope"] - row["margin"] > 0) == (load_tried == 2.0)


def test_intervals_count_seeds_and_graphs():
    rng = np.random.default_rng(0)
    seeds, graphs = rng.normal(0, 1, (5, 1)), rng.normal(0, 1, (1, 30))
    found = crossed((1 + seeds + graphs).tolist())
    expected = np.var(seeds, ddof=1) / 5 + np.var(graphs, ddof=1) / 30
    assert found.standard_error**2 == pytest.approx(expected)
    assert 4 < found.degrees < 33
    assert crossed((1 + graphs).tolist()).degrees == pytest.approx(29)


def test_validation_chooses_between_layers_and_iterations():
    common = {"kind": "model", "setting": "usual", "method": "bank", "rounds": 3}
    rows = [
        {**common, "layers": layers, "iterations": 2 - layers // 2, "validation": validation, "value": value}
        for layers, validation, value in ((1, 0.8, 0.95), (1, 0.9, 0.95), (2, 0.9, 0.5))
    ]
    assert best_jobs(rows, "usual") == {("bank", 3): rows[2:]}


def test_choices_in_time_are_counted():
    common = {"kind": "slots", "contention": 1, "slope": 0.0, "margin": 1.0}
    rows = [
        {**common, "method": method, "rounds": rounds, "layers": layers, "load": load, "throughput": 0.1 * rounds}
        for method, rounds, layers in (("bank", 1, 1), ("bank", 3, 1), ("bank", 3, 3), ("w", 1, None))
        for load in (0.7, 1.2)
    ]
    assert tried_in_time(rows) == {LABELS["bank"]: 3, "rule w": 1}
    assert {row["rounds"] for row in schedulers(rows)[LABELS["bank"]][1]} == {3}


def test_what_is_carried_in_overload_is_told_at_the_largest_load_that_was_run():
    common = {"kind": "slots", "method": "w", "rounds": 1, "layers": None, "contention": 1, "margin": 1.0}
    rows = [
        {**common, "load": load, "slope": 0.0, "throughput": 0.5 / load, "delay": 9 * load} for load in (0.6, 0.8, 1.0)
    ]
    header, _, line = time_table(schedulers(rows)).splitlines()
    assert "carried at 1 | delay at 0.6" in header
    assert line.split("|")[4].strip() == "0.500"


@pytest.mark.slow
def test_from_command_to_report(tmp_path, capsys):
    arguments = ["run", "scheduling", "--preset", "smoke", "--device", "cpu", "--out", str(tmp_path)]
    assert main(arguments) == 0
    page = (tmp_path / "report.md").read_text()
    assert re.search(r"numbers\s+of choices: .*rule w \d, ", page)
    assert "rule w / (1 + d)" in page
    rows = Store(tmp_path).rows()
    assert {row["kind"] for row in rows} == {"model", "baseline", "tuning", "slots"}
    scored = [row for row in rows if row["kind"] in ("model", "baseline")]
    assert {(len(row["ratios"]), "nodes" in row["condition"]) for row in scored} == {(3, False), (1, True)}
    assert max(row["value"] for row in rows if row.get("method") == "optimum") >= 1
    before = {path: path.read_bytes() for path in (tmp_path / "rows").iterdir()}
    assert main(arguments) == 0
    assert {path: path.read_bytes() for path in (tmp_path / "rows").iterdir()} == before
    assert (tmp_path / "report.md").read_text() == page
    capsys.readouterr()
    assert main([*arguments, "--set", "steps=4"]) == 2
    assert "holds results of other settings (steps 3 instead of 4)" in capsys.readouterr().err
    assert main([*arguments, "--seeds", "2"]) == 2, "keys of one seed and the rule of another are not paired"
    assert "holds results of other settings (seed 0 instead of 1)" in capsys.readouterr().err
    assert json.loads((tmp_path / "run.json").read_text())["commands"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("steps=0", "steps must be at least 1, got 0"),
        ("stepps=3", "got 'stepps'; did you mean 'steps'?"),
        ("rounds=0", "rounds must be at least 1, got 0"),
        ("nodes=many", "nodes must be an integer, got 'many'"),
    ],
)
def test_a_wrong_setting_is_one_line(change, words, capsys, tmp_path):
    assert main(["run", "scheduling", "--set", change, "--out", str(tmp_path / "out")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line
    assert not (tmp_path / "out").exists()


def test_presets_name_methods_that_exist():
    assert {job.method for job in FULL.jobs} <= set(CONVOLUTIONS)
    with pytest.raises(ValueError, match="activation must be one of"):
        find_settings("quick", ("relu",))
