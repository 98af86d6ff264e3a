"""Graphs of sensors from places, correlations and named edges."""

import numpy as np
import pytest
import torch

from graphact import Graph
from graphact.graph import points_on_earth

SQUARE = np.array([[0.0, 0.0], [3.0, 0.0], [3.0, 4.0], [40.0, 0.0]])


def test_within_a_radius():
    weight = Graph.within_radius(SQUARE, 4.0, scale=2.0).to_dense().numpy()
    distance = np.linalg.norm(SQUARE[:, None] - SQUARE[None], axis=-1)
    expected = np.where((distance <= 4) & (distance > 0), np.exp(-(distance**2) / 8), 0)
    np.testing.assert_allclose(weight, expected, rtol=1e-6)
    wide = Graph.within_radius(SQUARE, 5.0)
    assert wide.num_edges == 6
    assert wide.to_dense()[0, 2].item() == pytest.approx(np.exp(-2))
    assert Graph.within_radius(SQUARE, 1.0).num_edges == 0
    with pytest.raises(ValueError, match="radius must be a finite number above 0"):
        Graph.within_radius(SQUARE, 0)
    with pytest.raises(ValueError, match=r"coordinates must have the shape \(N, D\), got \(4,\)"):
        Graph.within_radius(SQUARE[:, 0], 1.0)


def test_places_of_a_table_of_pandas(recwarn):
    """Its arrays are read-only, of which torch warns."""
    table = pytest.importorskip("pandas").DataFrame(SQUARE, columns=["x", "y"])
    for places in (table, table.to_numpy()):
        assert torch.equal(Graph.within_radius(places, 4.0).to_dense(), Graph.within_radius(SQUARE, 4.0).to_dense())
        assert Graph.nearest_neighbors(places, 1).num_edges == 6
    assert not recwarn.list


def test_correlations_over_common_times():
    rng = np.random.default_rng(0)
    wave = rng.normal(size=200)
    readings = np.stack([wave, 2 * wave + rng.normal(size=200), -wave, rng.normal(size=200), np.ones(200)], 1)
    readings[rng.random(readings.shape) < 0.1] = np.nan
    weight = Graph.from_correlations(torch.from_numpy(readings), 1).to_dense().numpy()
    common = np.isfinite(readings[:, 0]) & np.isfinite(readings[:, 1])
    first, second = (readings[:, i] - np.nanmean(readings[:, i]) for i in (0, 1))
    expected = (first * second)[common].sum() / np.sqrt((first[common] ** 2).sum() * (second[common] ** 2).sum())
    assert weight[0, 1] == weight[1, 0] == pytest.approx(expected, rel=1e-6)
    assert (weight[4] == 0).all()  # a sensor that never changes
    assert (weight >= 0).all()
    np.testing.assert_array_equal(weight, weight.T)
    with pytest.raises(ValueError, match="k must be below the number of nodes, 5, got 5"):
        Graph.from_correlations(readings, 5)
    with pytest.raises(ValueError, match="readings must be finite, or NaN where one is missing, got infinity"):
        Graph.from_correlations(np.where(readings > 1, np.inf, readings), 2)
    with pytest.raises(ValueError, match=r"readings must have the shape \(T, N\)"):
        Graph.from_correlations(readings[:, 0], 1)


@pytest.mark.parametrize("header", ["", "from,to,weight\n", "\ufeff", "\ufefffrom,to,weight\n\n"])
def test_named_edges(header, tmp_path):
    path = tmp_path / "edges.csv"
    path.write_text(f"{header}kitchen,hall,0.5\nhall,attic,2\n\nhall,kitchen,0.5\n", encoding="utf-8")
    names = ["attic", "hall", "kitchen", "cellar"]
    expected = torch.zeros(4, 4)
    expected[1, 0] = expected[0, 1] = 2.0
    expected[1, 2] = expected[2, 1] = 0.5
    assert torch.equal(Graph.from_named_edges(path, names).to_dense(), expected)
    expected[1, 0], expected[0, 1] = 0.0, 2.0
    assert torch.equal(Graph.from_named_edges(path, names, directed=True).to_dense(), expected)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\na,d\n", "edges.csv, line 2: must name two of the 3 nodes, got 'd'"),
        ("a,b\na,b,c,d\n", "edges.csv, line 2: must hold source,target or source,target,weight"),
        ("a,b,much\n", "edges.csv, line 1: weight must be a finite number, got 'much'"),
        ("a,b,nan\n", "edges.csv, line 1: weight must be a finite number, got 'nan'"),
        ("a;b;1\n", "edges.csv, line 1: must hold source,target or source,target,weight, got"),
        ("A,b\n", "edges.csv, line 1: must name two of the 3 nodes, got 'A'"),
        ("x,y,1\n", "edges.csv, line 1: must name two of the 3 nodes, got 'x'"),
        ("", "edges.csv: must hold at least one edge, got none"),
        ("source,target\n", "edges.csv: must hold at least one edge, got none"),
        ("a,b,1\nb,a,2\n", "edges.csv, line 2: must give an edge one weight, got 2.0 after 1.0"),
    ],
)
def test_edges_that_name_nothing(text, message, tmp_path):
    (tmp_path / "edges.csv").write_text(text)
    with pytest.raises(ValueError, match=message):
        Graph.from_named_edges(tmp_path / "edges.csv", ["a", "b", "c"])
    (tmp_path / "edges.csv").write_bytes("caf\u00e9,b\n".encode("latin-1"))
    with pytest.raises(ValueError, match="edges.csv: must be text in UTF-8"):
        Graph.from_named_edges(tmp_path / "edges.csv", ["a", "b", "c"])
    with pytest.raises(ValueError, match="nodes must have different names"):
        Graph.from_named_edges(tmp_path / "edges.csv", ["a", "a"])
    with pytest.raises(FileNotFoundError, match="there is no edge list"):
        Graph.from_named_edges(tmp_path / "none.csv", ["a"])


def test_degrees():
    points = points_on_earth([0.0, 0.0, 90.0], [0.0, 1.0, 45.0])
    assert np.linalg.norm(points[0] - points[1]) == pytest.approx(2 * 6371 * np.sin(np.radians(0.5)))
    np.testing.assert_allclose(points[2], [0, 0, 6371], atol=1e-9)
    with pytest.raises(ValueError, match="latitude from -90 to 90"):
        points_on_earth([91.0], [0.0])
    with pytest.raises(ValueError, match=r"one shape \(N,\)"):
        points_on_earth([1.0, 2.0], [0.0])
