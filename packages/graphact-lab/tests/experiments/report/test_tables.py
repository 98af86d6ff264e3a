import csv
import io

import numpy as np
import pytest

from experiments.report.factory import baseline, every_experiment, row
from graphact_lab.report import terminal_table
from graphact_lab.report.rows import read_rows
from graphact_lab.report.tables import MISSING, entries_of, to_csv
from graphact_lab.report.write import make_templates, sections_of

NAN, INF = float("nan"), float("inf")


def contents_of(rows):
    return [block.content for _, blocks in sections_of(read_rows(rows)).values() for block in blocks]


def main_table(rows):
    return contents_of(rows)[0].tables[0]


def to_markdown(table):
    return make_templates().get_template("table.md.j2").render(table=table)


def paper(table, label, column):
    found = entry(table, label, column)
    return found.paper_mean, found.paper_std


def line(table, label):
    (found,) = [line for line in table.lines if line.label == label]
    return found


def entry(table, label, column):
    return line(table, label).entries[table.columns.index(column)]


def select(rows, **wanted):
    return [row["value"] for row in rows if all(row[key] == value for key, value in wanted.items())]


@pytest.mark.parametrize(
    ("experiment", "label", "column", "wanted"),
    [
        ("source-localization", "Max G.A. (2)", "F = 4", {"method": "max-ga", "hops": 2, "features": 4}),
        ("consensus", "ReLU", "K = 25", {"method": "relu", "order": 25, "condition": {}}),
        ("consensus", "least-squares FIR", "K = 30", {"method": "least-squares FIR", "order": 30}),
        ("denoising", "FIR", "K = 8", {"method": "fir", "order": 8, "features": 4, "condition": {}}),
        ("recommendation", "Kernel G.A. (1)", "Contact", {"method": "kernel-ga", "condition": {"film": "contact"}}),
    ],
)
def test_cells_hold_mean_deviation_and_number_of_the_runs(experiment, label, column, wanted):
    rows = [row for row in every_experiment() if row["experiment"] == experiment and row["protocol"] == "paper"]
    values = select(rows, **wanted)
    ours = entry(main_table(rows), label, column)
    assert ours.runs == len(values) > 3
    assert ours.mean == pytest.approx(np.mean(values))
    assert ours.std == pytest.approx(np.std(values, ddof=1))


@pytest.mark.parametrize(
    ("mean", "where"), [(60.0, "inside"), (35.8, "inside"), (60.01, "above"), (35.79, "below"), (None, None)]
)
def test_marks_say_where_our_mean_lies(mean, where):
    (found,) = entries_of([{"mean": NAN if mean is None else mean, "runs": 5, "paper": (47.9, 12.1)}]).against_paper
    assert found == where


def test_no_mark_without_a_published_number():
    table = main_table([row(method="max-ga", hops=1, value=64.0), row(method="fir", value=64.0)])
    assert table.paper(entry(table, "Max G.A. (1)", "F = 8")) == MISSING
    assert entry(table, "Max G.A. (1)", "F = 8").against_paper is None
    assert entry(table, "FIR", "F = 8").against_paper is None


def test_paper_stands_beside_every_number_of_hops_where_it_states_none():
    table = main_table([row(method="max-l", hops=hops, value=70.0, features=2) for hops in (1, 2)])
    assert paper(table, "Max L. (1)", "F = 2") == paper(table, "Max L. (2)", "F = 2") == (64.5, 8.0)
    assert "Max L." not in [line.label for line in table.lines]


def test_numbers_of_the_paper_are_counted_once_however_many_cells_stand_beside_them():
    rows = [row(method="max-l", hops=hops, value=70.0, features=2) for hops in (1, 2)]
    rows.append(row(features=2, value=90.0))
    assert "Inside: 2 of 3 cells beside 2 numbers of the paper: one whose hops" in main_table(rows).caption
    assert "Inside: 1 of 2 cells that the paper has, too." in main_table(rows[1:]).caption


def test_lines_come_in_the_order_of_the_paper_and_baselines_last():
    table = main_table([row(method="kernel-ga", hops=1), row(), baseline("source-localization", "chance", 25.0)])
    labels = ["ReLU", "Max L.", "Max G.A. (2)", "Median L.", "Median G.A. (2)", "Kernel G.A. (1)", "chance"]
    assert [line.label for line in table.lines] == labels
    assert [line.is_baseline for line in table.lines] == [False] * 6 + [True]


def test_baselines_come_from_worst_to_best():
    rows = [baseline("denoising", name, value) for name, value in (("a", 0.9), ("b", 2.0), ("c", 1.1))]
    table = main_table([row("denoising", value=1.0, order=1), *rows])
    assert [line.label for line in table.lines if line.is_baseline] == ["b", "c", "a"]


def test_best_network_of_a_column_is_marked():
    rows = [row(value=50.0), row(method="max-l", hops=1, value=70.0), baseline("source-localization", "oracle", 99.0)]
    table = main_table(rows)
    assert [line.label for line in table.lines for entry in line.entries if entry.best] == ["Max L. (1)"]
    errors = main_table([row("denoising", value=1.0, order=1), row("denoising", "fir", 2.0, order=1)])
    assert [line.label for line in errors.lines for entry in line.entries if entry.best] == ["ReLU"]


def test_one_run_has_no_deviation_and_a_lost_run_is_counted():
    rows = [row(value=50.0), row(method="max-ga", hops=2, value=NAN)]
    rows += [row(method="median-ga", hops=2, value=value, split=split) for split, value in enumerate((60.0, 62.0, INF))]
    table = main_table(rows)
    texts = {line.label: (table.shown(line.entries[0]), table.runs(line.entries[0])) for line in table.lines}
    assert texts["ReLU"] == ("50.0", "1 run")
    assert texts["Max G.A. (2)"] == ("diverged", "1 run, 1 not finite")
    assert texts["Median G.A. (2)"] == ("61.0 ± 1.4", "3 runs, 1 not finite")
    assert texts["Kernel G.A. (1)"] == (MISSING, "")


def test_markdown():
    rows = [row(value=50.0), row(value=52.0, split=1), baseline("source-localization", "a|b <i>", 25.0)]
    lines = to_markdown(main_table(rows)).splitlines()
    assert lines[0] == "**Table 1: source localization**, test accuracy (%)"
    assert lines[2:5] == [
        "| Activation | F = 8, ours | F = 8, paper |",
        "| --- | ---: | ---: |",
        "| ReLU | 51.0 ± 1.4 ✓ (2 runs) | 47.2 ± 15.5 |",
    ]
    assert "bold" not in lines[-1]  # the best of one
    lines = to_markdown(main_table([*rows, row(method="max-l", hops=1, value=20.0)])).splitlines()
    assert lines[4] == "| ReLU | **51.0 ± 1.4** ✓ (2 runs) | 47.2 ± 15.5 |"
    assert lines[-1].endswith("The best network of a column is in bold.")
    assert rf"| a\|b &lt;i&gt; | 25.0 (1 run) | {MISSING} |" in lines


def test_every_line_of_a_markdown_table_has_as_many_cells():
    for content in contents_of(every_experiment()):
        for table in (*content.tables, *content.more_tables):
            counts = {line.count(" | ") for line in to_markdown(table).splitlines() if line.startswith("|")}
            assert len(counts) == 1, table.title


def test_differences_stand_in_their_columns_where_a_network_lacks_one():
    orders = {"fir": (1, 2, 4), "relu": (1, 2, 4), "max-ga": (4,)}
    rows = [
        row("denoising", method, 1.0 + 0.1 * split + order, order=order, features=4, graph=None, split=split)
        for method in orders
        for order in orders[method]
        for split in range(3)
    ]
    (content,) = contents_of(rows)
    (table,) = [one for one in content.more_tables if "minus FIR" in one.title]
    (line,) = [line for line in to_markdown(table).splitlines() if line.startswith("| Max G.A.")]
    assert [cell.split(" ± ")[0] for cell in line.strip("| ").split(" | ")[1:]] == [MISSING, MISSING, "0.000"]


def test_csv_holds_full_precision():
    rows = [
        row(value=50.0),
        row(value=50.1, split=1),
        baseline("source-localization", 'with "quotes", and commas', 25.0),
    ]
    table = main_table(rows)
    records = list(csv.DictReader(io.StringIO(to_csv(table))))
    assert len(records) == len(table.lines) * len(table.columns)
    relu, missing, simple = records[0], records[1], records[-1]
    assert relu["line"] == "ReLU"
    assert float(relu["mean"]) == pytest.approx(50.05, abs=1e-12)
    assert float(relu["std"]) == pytest.approx(np.std([50.0, 50.1], ddof=1), abs=1e-12)
    assert (relu["runs"], relu["paper_mean"], relu["paper_std"], relu["against_paper"]) == (
        "2",
        "47.2",
        "15.5",
        "inside",
    )
    assert (missing["mean"], missing["runs"], missing["paper_mean"]) == ("", "0", "72.2")
    assert (simple["line"], simple["kind"], simple["std"]) == ('with "quotes", and commas', "baseline", "")


def test_terminal_table_is_aligned():
    rows = [row(value=50.0), row(value=52.0, split=1), row(method="max-ga", hops=2, value=30.0)]
    text = terminal_table([*rows, baseline("source-localization", "a baseline whose name takes two lines", 25.0)])
    lines = text.splitlines()
    assert lines[0] == "Source localization, protocol paper, preset quick"
    assert lines[1] == "Table 1: source localization, test accuracy (%)"
    header, rule = lines[3], lines[4]
    assert header.split() == ["Activation", "F", "=", "8", "paper"]
    ends = [position for position, letter in enumerate(rule + " ") if letter == " " and rule[position - 1] == "-"]
    body = lines[5 : lines.index("", 5)]
    assert body[0].split() == ["ReLU", "51.0", "±", "1.4", "(2)", "✓", "47.2", "±", "15.5"]
    assert body[2].split() == ["Max", "G.A.", "(2)", "30.0", "(1)", "▼", "73.9", "±", "6.8"]
    assert all(len(text) == ends[-1] for text in body[:-1])
    assert [text.strip() for text in body[-2:]][1] == "two lines"
    assert lines[-2].startswith("Partial: 25 % of the results that the tables show, in 2 of 6 cells")
    assert lines[-1].startswith("Preset “quick”: fewer runs")


def test_terminal_table_says_once_how_many_runs_there_are():
    text = terminal_table([row("denoising", "relu", 1.0, order=1, split=split) for split in range(3)])
    assert "1.000 ± 0.000\n" in text
    assert "3 runs of each network" in text
    assert "Complete: no cell of the tables lacks a result." in text


def test_small_numbers_are_not_shown_as_zero():
    rows = [row("denoising", method, value, order=1) for method, value in (("relu", 1.0), ("fir", 2.34e-6))]
    table = main_table(rows)
    assert [table.shown(line.entries[0]) for line in table.lines] == ["1.000", "2.3e-06"]
    assert "2.3e-06" in terminal_table(rows)
