"""Moderators of gains: factors, rank correlations and tables, beside hand-made rows; homophily beside PyG's."""

import importlib
import json
from types import SimpleNamespace

import pytest
import torch
from scipy import stats

from benchmark_rows import Benchmarks, read_graphs
from evidence import PROBLEMS
from graphact.graph import Graph
from graphact_lab.data.node_sets import NodeData, read_nodes
from moderators import association, draw_moderators, factors_of, moderators_table, noise_table
from studies.test_when import SCORES, write_rows
from support.places import ROOT

BENCHMARKS = ROOT / "benchmarks"
GRAPHS = {
    name: {"nodes": 100, "edges": 50 * (number + 1), "classes": 3, "adjusted_homophily": 0.2 * number}
    for number, name in enumerate(("cora", "citeseer", "pubmed", "blogcatalog"))
}


@pytest.fixture
def benchmarks(tmp_path):
    """Four data sets whose gains fall as homophily grows, and one with two widths."""
    for number, name in enumerate(GRAPHS):
        scores = SCORES | {"max-ga": 90.0 - 3 * number}
        write_rows(tmp_path / name, number, scores, (name,))
    write_rows(tmp_path / "wide", 9, SCORES | {"max-ga": 84.0}, ("cora",))
    for file in (tmp_path / "wide" / "rows").iterdir():
        file.write_text(file.read_text().replace('"features": 64', '"features": 256'))
    (tmp_path / "graphs.json").write_text(json.dumps(GRAPHS))
    return Benchmarks(tmp_path)


def test_factors_are_those_of_graph_and_network(benchmarks):
    cells = benchmarks.comparable("node-classification")
    assert benchmarks.graphs == {
        name: {key: one[key] for key in one if key != "classes"} for name, one in GRAPHS.items()
    }
    found = {(cell.setting.level, cell.setting.width): factors_of(cell, GRAPHS) for cell in cells}
    assert found["pubmed", 64] == {
        **{"homophily": 0.4, "degree": 3.0, "width": 64, "layers": 2, "parameters": 10, "exchanges": 2}
    }
    assert found["cora", 256]["width"] == 256


def test_correlations_are_between_data_sets_and_within_them(benchmarks):
    cells = benchmarks.comparable("node-classification")
    gains = {name: [cell.gain().mean for cell in cells if cell.setting.level == name] for name in GRAPHS}
    means = [sum(own) / len(own) for own in gains.values()]
    expected = stats.spearmanr([0.0, 0.2, 0.4, 0.6], means).statistic
    assert association(cells, GRAPHS, "homophily") == (pytest.approx(expected), 4)
    assert association(cells, GRAPHS, "width") == (pytest.approx(-1.0), 2)  # Cora alone has two widths; 90, then 84
    table = moderators_table(cells, GRAPHS)
    assert f"| Adjusted homophily of the graph | 0 | 0.6 | {expected:+.2f} | 4 data sets |" in table
    assert "| Features of a layer | 64 | 256 | -1.00 | 2 settings, within data sets |" in table
    assert "Layers" not in table  # all have two


def test_what_networks_differ_in_is_compared_within_data_sets(monkeypatch):
    """Gains fall with the width on both graphs, one of which has wider networks and larger gains."""
    known = [("cora", 4, 2.0), ("cora", 16, 1.0), ("pubmed", 64, 9.0), ("pubmed", 256, 8.0), ("flickr", 512, 50.0)]
    cells = [
        SimpleNamespace(
            setting=SimpleNamespace(level=level), width=width, gain=lambda mean=mean: SimpleNamespace(mean=mean)
        )
        for level, width, mean in known
    ]
    monkeypatch.setattr("moderators.factors_of", lambda cell, _: {"width": cell.width})
    rho, count = association(cells, {}, "width")
    assert count == 4  # Flickr has one width alone
    assert rho == pytest.approx(stats.spearmanr([4, 16, 64, 256], [0.5, -0.5, 0.5, -0.5]).statistic)
    assert rho < 0


def test_the_figure_shows_every_setting(benchmarks):
    cells, sheets = benchmarks.comparable("node-classification"), []
    draw_moderators(cells, GRAPHS, sheets.append)
    (sheet,) = sheets
    for axes in sheet.axes:
        assert len(axes.containers) == len(cells) == 5
    assert sheet.axes[0].get_legend_handles_labels()[1] == ["BlogCatalog", "CiteSeer", "Cora", "PubMed"]


@pytest.mark.parametrize("text", ["{broken", "[]", '{"cora": {"nodes": 3}}', '{"cora": {"nodes": "x"}}', '{"cora": 3}'])
def test_a_damaged_file_is_said_in_a_line(tmp_path, text):
    (tmp_path / "graphs.json").write_text(text)
    with pytest.raises(
        PROBLEMS, match=r"graphs\.json is damaged; python benchmarks/graph_statistics\.py writes it again"
    ):
        read_graphs(tmp_path / "graphs.json")


def test_a_data_set_without_statistics_is_named(benchmarks):
    cells = benchmarks.comparable("node-classification")
    with pytest.raises(PROBLEMS, match=r"graphs\.json lacks blogcatalog"):
        moderators_table(cells, {name: one for name, one in GRAPHS.items() if name != "blogcatalog"})


def test_without_noise_there_is_no_table(benchmarks):
    assert noise_table(benchmarks).count("\n") == 1


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("graph_statistics")


def test_homophily_of_a_graph_by_hand(script):
    """Classes 0 0 1 1 and none; edges 0-1, 2-3 inside and 1-2 between, and one of the node without a class."""
    graph = Graph.from_edge_index(torch.tensor([[0, 1, 2, 3, 1, 2, 3, 4], [1, 0, 3, 2, 2, 1, 4, 3]]), num_nodes=5)
    data = NodeData("by hand", torch.zeros(5, 1), torch.tensor([0, 0, 1, 1, 0]), torch.arange(5) < 4, graph)
    found = script.statistics_of(data)
    assert (found["nodes"], found["edges"], found["classes"]) == (5, 4, 2)
    assert found["homophily"] == pytest.approx(2 / 3, abs=1e-4)
    assert found["adjusted_homophily"] == pytest.approx((2 / 3 - 1 / 2) / (1 - 1 / 2), abs=1e-4)


@pytest.mark.parametrize("name", ["cora", "squirrel_filtered"])
def test_published_homophily_is_that_of_pyg(script, name, results, real_data):
    from torch_geometric.utils import homophily

    data = read_nodes(name, real_data)
    found = script.statistics_of(data)
    assert found == json.loads((results / "benchmarks" / "graphs.json").read_text())[name]
    assert found["homophily"] == pytest.approx(
        homophily(data.graph.to_edge_index()[0], data.y, method="edge"), abs=1e-4
    )
