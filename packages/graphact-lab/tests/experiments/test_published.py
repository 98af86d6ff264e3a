"""The published results: their rows, and the reports that are made from them."""

import csv
import math
import re
from collections import defaultdict
from html import unescape
from statistics import fmean, stdev

import pyarrow
import pyarrow.parquet as pq
import pytest

from experiments.published import ON_A_DEVICE, device_rows
from graphact_lab.descriptions import STANDALONE, find_experiment
from graphact_lab.parquet import encode_cells
from graphact_lab.report.page import write_report
from graphact_lab.store import Store, find_stores
from graphact_lab.style import Variant
from support.places import ROOT

RESULTS = ROOT / "results"
EVERY = [store.directory.relative_to(RESULTS).as_posix() for store in find_stores(RESULTS, "**")]
FOLDERS = [name for name in EVERY if "/" not in name]
REPORTED = [name for name in EVERY if not name.startswith(("search/", "sweeps/", *STANDALONE))]


def is_of_a_device(name):
    return Store(RESULTS / name).commands()[0].startswith(ON_A_DEVICE)


def words_of(page):
    """The text of a page without its figures."""
    text = re.sub(r"<(svg|style)\b.*?</\1>", "", page.read_text(), flags=re.DOTALL)
    return unescape(re.sub(r"<[^>]*>", " ", text))


def means_by_line(rows):
    """Mean, standard deviation, numbers of runs, F and K of every cell, by the label of its line in tables."""
    cells = defaultdict(list)
    for row in rows:
        line = Variant(row["method"], row.get("hops")).label if row["kind"] == "model" else row["method"]
        setting = [row.get(name) for name in ("preset", "protocol", "features", "order", "condition")]
        cells[line, repr(setting), row.get("features"), row.get("order")].append(row["value"])
    found = defaultdict(list)
    for (line, _, features, order), values in cells.items():
        finite = [value for value in values if math.isfinite(value)]
        mean, spread = fmean(finite) if finite else math.nan, stdev(finite) if len(finite) > 1 else math.nan
        found[line].append((mean, spread, len(values), len(values) - len(finite), {"F": features, "K": order}))
    return found


def is_of_column(sizes, entry):
    """Return whether F and K, where an entry's table or column names them, are those of a cell that has them."""
    named = dict(re.findall(r"\b([FK]) = (\d+)", f"{entry['table']}, {entry['column']}"))
    return all(sizes[name] in (None, int(value)) for name, value in named.items())


def read_results(rows, folder):
    """The entries of all tables of results, not of differences, costs or weights, as the CSV files have them."""
    axis = find_experiment(rows[0]["experiment"]).measure.axis
    for file in (folder / "tables").glob("*.csv"):
        with file.open(newline="") as sheet:
            yield from (one for one in csv.DictReader(sheet) if one["measure"] == axis and one["runs"] != "0")


def is_same(number, text):
    """Return whether a number of a CSV file is the one expected; NaN is empty there."""
    return math.isclose(number, float(text), rel_tol=1e-9, abs_tol=1e-12) if text else math.isnan(number)


def test_there_are_some():
    assert len(FOLDERS) >= 7
    standalone = {name for name in FOLDERS if name.startswith(STANDALONE)}
    assert {*FOLDERS, "benchmarks/gcn"} - {*STANDALONE} <= {*REPORTED} | standalone
    assert len(EVERY) > len(REPORTED) > 30


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_rows_are_in_one_file_as_it_would_be_written_again(name):
    store = Store(RESULTS / name)
    assert not (store.directory / "rows").exists()
    assert not (store.directory / "checkpoints").exists()
    if not pq.read_metadata(store.published_file).created_by.endswith(f" {pyarrow.__version__}"):
        pytest.skip("other versions of pyarrow may write other bytes")
    assert encode_cells(store.cells()) == store.published_file.read_bytes()


@pytest.fixture(scope="module", params=REPORTED)
def made(request, tmp_path_factory):
    """The rows of a folder of results, and the folder of the report that is made from them."""
    store, folder = Store(RESULTS / request.param), tmp_path_factory.mktemp("made")
    rows = store.rows()
    write_report(rows, folder, command="\n".join(store.commands()))
    return rows, folder


@pytest.mark.slow
def test_results_are_means_of_the_rows(made):
    rows, folder = made
    expected, seen = means_by_line(rows), set()
    for entry in read_results(rows, folder):
        seen.add(entry["line"])
        assert any(
            is_same(mean, entry["mean"])
            and is_same(spread, entry["std"])
            and (runs, not_finite) == (int(entry["runs"]), int(entry["not_finite"]))
            and is_of_column(sizes, entry)
            for mean, spread, runs, not_finite, sizes in expected[entry["line"].removesuffix(", no link lost")]
        ), entry
    assert {Variant(row["method"], row.get("hops")).label for row in rows if row["kind"] == "model"} <= seen


@pytest.mark.slow
def test_pages_show_results_and_figures(made):
    rows, folder = made
    page, digits = words_of(folder / "report.html"), find_experiment(rows[0]["experiment"]).measure.digits
    for entry in read_results(rows, folder):
        assert entry["line"] in page
        if entry["mean"] and entry["kind"] == "model":  # baselines may be near 0, and have more digits then
            assert f"{float(entry['mean']):.{digits}f}" in page, entry
    named = rf"\bgraphact(-lab)? run\b|{re.escape(ON_A_DEVICE)}"  # rows of before the division: the command of then
    assert re.search(named, page)
    images = sorted(file.stem for file in (folder / "figures").glob("*.png"))
    assert images == sorted(file.stem for file in (folder / "figures").glob("*.svg")) != []


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in FOLDERS if not is_of_a_device(name)])
def test_rows_are_complete_and_of_the_noted_command(name):
    store = Store(RESULTS / name)
    command = store.commands()[0]
    words = command.split()
    first = int(words[words.index("--seed") + 1])
    seeds = range(first, first + (int(words[words.index("--seeds") + 1]) if "--seeds" in words else 1))
    rows = store.rows()
    assert {row["seed"] for row in rows} == set(seeds)
    for row in rows:
        assert row["experiment"] == words[2]
        assert row["preset"] == words[words.index("--preset") + 1]


TRAINED_ON_A_CPU = {"rounds-denoising"}  # by the script for a GPU, as results/README.md says


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in FOLDERS if is_of_a_device(name)])
def test_rows_of_a_device_are_alike(name):
    rows = Store(RESULTS / name).rows()
    assert {row["preset"] for row in rows} <= {"full", "paper"}
    device = "cpu" if name in TRAINED_ON_A_CPU else "NVIDIA H200"
    assert {row["device"] for row in rows if row["kind"] == "model"} == {device}


def test_a_list_of_cells_is_trained_in_its_order(tmp_path, capsys):
    script = device_rows()
    cells = [cell for cell in script.all_cells() if cell.group == "a1"]
    script.show(cells, 2)
    (tmp_path / "cells.txt").write_text(printed := capsys.readouterr().out)
    assert script.listed(cells, tmp_path / "cells.txt") == cells
    assert f"# a1: {len(cells)} cells, {sum(cell.seconds for cell in cells) / 120:.1f} minutes" in printed
    (tmp_path / "cells.txt").write_text("\n".join(reversed(printed.splitlines())))
    assert script.listed(cells, tmp_path / "cells.txt") == cells[::-1]
    (tmp_path / "cells.txt").write_text("a1 10s nothing rounds: gelu")
    with pytest.raises(SystemExit, match="names 1 cells that do not exist, such as nothing"):
        script.listed(cells, tmp_path / "cells.txt")


def test_nothing_is_trained_without_a_choice(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["device_rows.py"])
    assert device_rows().main() == 2
    assert "give --smoke, --list, --only or --cells FILE" in capsys.readouterr().err


@pytest.mark.slow
def test_cells_that_are_published_are_not_listed():
    script = device_rows()
    cells = [cell for cell in script.all_cells() if cell.folder == "rounds"]
    known = script.published(cells, RESULTS)
    assert {key for cell in known for key in cell.titles} == {
        key for key, rows in Store(RESULTS / "rounds").cells().items() if rows[0]["kind"] == "model"
    }
    assert len(cells) > len(known) > 20
