"""The files of a report: its page, its figures, and what it tells of settings."""

import inspect
import re
import subprocess
import sys
from dataclasses import replace
from html import unescape
from xml.etree import ElementTree

import numpy as np
import pytest

from experiments.report.factory import baseline, every_experiment, row
from graphact_lab.data.diffused_sources import BLOCKS
from graphact_lab.descriptions import EXPERIMENTS, find_experiment, find_protocol
from graphact_lab.experiments.consensus.task import BLOCKS as CONSENSUS_BLOCKS
from graphact_lab.experiments.denoising.task import denoising_tasks
from graphact_lab.experiments.recommendation.task import Options
from graphact_lab.figures import house_style, settle
from graphact_lab.protocols import jobs_of
from graphact_lab.report.charts import draw
from graphact_lab.report.page import sections_of, terminal_table, write_report
from graphact_lab.store import Store
from graphact_lab.style import METHODS, Variant

SCRIPT = "<script>alert('x')</script>"
NAN = float("nan")


def contents(folder):
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def words_of(page):
    return " ".join(unescape(re.sub(r"<style.*?</style>|<[^>]*>", " ", page, flags=re.DOTALL)).split())


def rows_of(experiment, preset="paper", protocol=None, methods=("relu", "max-ga"), **changes):
    """Two runs of each job of a protocol, with settings changed as a command changes them."""
    found = find_protocol(experiment, preset, protocol, methods, {name: str(each) for name, each in changes.items()})
    made = []
    for job in jobs_of(replace(found, conditions=found.conditions[:1], sweep=()), 0):
        names = {name: getattr(job, name) for name in ("method", "hops", "features", "order")}
        condition = {"film": "toy-story"} if experiment == "recommendation" else {}
        place = {"preset": preset, "protocol": found.name, "condition": condition, "graph": 0}
        setting = {"settings": job.settings(), "epochs": found.training.epochs}
        values = (60.0, 62.0) if experiment == "source-localization" else (1.0, 1.1)
        made += [
            row(experiment, value=value, split=split, **names, **place, **setting) for split, value in enumerate(values)
        ]
    return made


def section(rows):
    (only,) = sections_of(rows)
    return only


@pytest.mark.slow
def test_every_experiment(tmp_path):
    """Complete, in the same bytes whatever the order of the rows, and nothing is loaded from anywhere."""
    rows = every_experiment()
    page = write_report(rows, tmp_path / "one", command="graphact-lab run consensus").read_text()
    write_report(iter(rows[::-1]), str(tmp_path / "two"), command="graphact-lab run consensus")
    found = contents(tmp_path / "one")
    assert found == contents(tmp_path / "two")
    tables = [table for one in sections_of(rows) for table in one.tables]
    assert found.keys() == {
        "report.html",
        *(f"tables/{table.name}.{ending}" for table in tables for ending in ("md", "csv")),
        *(f"figures/{table.name}.{ending}" for table in tables for ending in ("png", "svg")),
    }
    for name, content in found.items():
        if name.endswith(".svg"):
            ElementTree.fromstring(content)
    without_images = re.sub(r'src="data:image/svg\+xml;base64,[^"]*"', "", page)
    assert not re.search(r"https?:|<script|<link(?! rel=\"icon\" href=\"data:,\")|url\(|@import", without_images)
    names = re.findall(r' id="([^"]*)"', page)
    assert sorted(names) == sorted(table.name for table in tables)
    assert set(re.findall(r'aria-labelledby="([^"]*)"', page)) == set(names)
    text = words_of(page)
    for words in ("graphact-lab run consensus", "Torch 2.13.0", "Device cpu", "Finished 2026-11-15T10:00:00Z"):
        assert words in text


def test_text_from_rows_is_escaped(tmp_path):
    odd = {"preset": SCRIPT, "protocol": SCRIPT}
    rows = [
        row(method=SCRIPT, value=60.0, device=SCRIPT, finished=SCRIPT, **odd),
        row(settings={SCRIPT: SCRIPT}, **odd),
        baseline("source-localization", SCRIPT, 25.0, **odd),
        row("recommendation", SCRIPT, 1.0, condition={"film": SCRIPT}),
    ]
    page = write_report(rows, tmp_path, command=f"run {SCRIPT} & 'more'").read_text()
    assert "<script" not in page.lower()
    assert unescape(page).count(SCRIPT) > 10
    assert not [name for name, content in contents(tmp_path).items() if name.endswith(".svg") and b"<script" in content]
    assert {file.parent.name for file in tmp_path.rglob("*") if file.is_file()} == {tmp_path.name, "tables", "figures"}


def test_writing_again_replaces_what_was_there(tmp_path):
    first = write_report([row(value=50.0)], tmp_path)
    assert "50.0" in first.read_text()
    assert write_report([row(value=51.0)], tmp_path) == first
    assert "50.0" not in first.read_text()
    assert "The command was not recorded." in first.read_text()


@pytest.mark.parametrize("experiment", EXPERIMENTS)
@pytest.mark.parametrize("value", [1.0, NAN, float("inf"), None])
def test_a_single_run(experiment, value, tmp_path):
    rows = [row(experiment, "median-ga", value, hops=1)]
    page = write_report(rows, tmp_path).read_text()
    assert ("<img" in page) == (value == 1.0)
    assert ("diverged" in terminal_table(rows)) == (value != 1.0)
    assert "nan" not in re.sub(r'"data:[^"]*"', "", page)
    assert "1 run" in page


def test_baselines_alone(tmp_path):
    rows = [baseline("source-localization", "a simple answer", 25.0)]
    assert "a simple answer" in write_report(rows, tmp_path).read_text()
    assert not (tmp_path / "figures").exists()


def test_no_rows_and_protocols_that_would_share_files(tmp_path):
    for function in (terminal_table, lambda rows: write_report(rows, tmp_path)):
        with pytest.raises(ValueError, match="rows must hold at least one result, got none"):
            function([])
    with pytest.raises(ValueError, match="must differ in letters or digits"):
        write_report([row(protocol="My run"), row(protocol="my-run")], tmp_path)
    assert list(tmp_path.iterdir()) == []


def run_without(missing, program):
    """Run a program where some libraries are not installed."""
    tests = [path for path in sys.path if path.endswith("tests")]
    start = f"import sys; sys.path += {tests!r}; sys.modules.update(dict.fromkeys({missing!r}))\n"
    return subprocess.run([sys.executable, "-c", start + program], capture_output=True, text=True)


def test_tables_and_experiments_need_no_libraries_of_figures():
    program = "import graphact_lab.runner, graphact_lab.commands.run, graphact_lab.style"
    done = run_without(["jinja2", "matplotlib", "pandas"], program)
    assert done.returncode == 0, done.stderr
    program = "from graphact_lab.report.page import terminal_table; from experiments.report.factory import row"
    done = run_without(["matplotlib", "jinja2"], f"{program}; print(terminal_table([row()]))")
    assert "ReLU" in done.stdout, done.stderr


@pytest.mark.parametrize("missing", ["jinja2", "matplotlib", "pandas"])
def test_a_missing_library_is_named_in_one_line(missing, tmp_path):
    store = Store(tmp_path)
    store.create("graphact-lab run source-localization")
    store.finish("a-cell", [row()])
    done = run_without([missing], f"from graphact_lab.cli import main; sys.exit(main(['report', {str(tmp_path)!r}]))")
    remedy = "'graphact[figures]'" if missing == "matplotlib" else "graphact-lab"
    assert done.returncode == 2
    assert done.stderr == (
        f"graphact-lab: reports need the package {missing}: pip install {remedy}; "
        f"results are kept: graphact-lab report {tmp_path}\n"
    )
    assert not (tmp_path / "report.html").exists()


def drawn(rows, number=0):
    with house_style():
        sheet = draw(section(rows).tables[number])
        settle(sheet)
    return sheet


def denoising(method="relu", value=1.0, order=1, **changes):
    return row("denoising", method, value, order=order, features=4, **changes)


def test_lines_hold_means_deviations_and_baselines():
    rows = [denoising(value=1.0), denoising(value=3.0, split=1), denoising(order=2, value=1.5)]
    sheet = drawn([*rows, baseline("denoising", "noise", 2.0), denoising("fir", NAN)])
    (axes,) = sheet.axes
    line, dotted = axes.lines
    assert line.get_xydata().tolist() == [[1.0, 2.0], [2.0, 1.5]]
    assert dotted.get_ydata().tolist() == [2.0, 2.0]
    corners = {tuple(corner) for corner in axes.collections[0].get_paths()[0].vertices.round(9).tolist()}
    assert corners == {(1.0, round(2 - 2**0.5, 9)), (1.0, round(2 + 2**0.5, 9)), (2.0, 1.5)}
    assert line.get_color() == METHODS["relu"].color
    assert [text.get_text() for text in sheet.legends[0].get_texts()] == ["ReLU", "noise: 2.000"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("Filter order K", "Test RMSE (kelvin)")


def test_dots_hold_means_deviations_and_the_papers_numbers():
    rows = [row(method="max-ga", hops=2, value=value, split=split) for split, value in enumerate((100.0, 80.0))]
    sheet = drawn([*rows, baseline("source-localization", "chance", 25.0)])
    (axes,) = sheet.axes
    ours, paper = ((point.get_xdata()[0], bar.get_segments()[0][:, 0]) for point, _, (bar,) in axes.containers)
    assert ours[0] == 90.0
    assert ours[1].tolist() == pytest.approx([90 - 200**0.5, 100.0])  # not beyond what an accuracy can be
    assert paper[0] == 73.9
    assert paper[1].tolist() == pytest.approx([73.9 - 6.8, 73.9 + 6.8])
    assert [label.get_text() for label in axes.get_yticklabels()] == ["Max G.A. (2)"]
    assert {text.get_text() for text in sheet.legends[0].get_texts()} == {"hollow: the paper's", "chance: 25.0"}


def test_errors_that_differ_much_have_a_logarithmic_axis_with_plain_numbers():
    rows = [denoising(value=value, order=order) for order, value in ((1, 0.01), (2, 0.9))]
    (axes,) = drawn([*rows, baseline("denoising", "far", 1e-5)]).axes
    assert axes.get_yscale() == "log"
    low, high = axes.get_ylim()
    assert 1e-3 < low < 0.01 < 0.9 < high < 9
    shown = [tick.label1.get_text() for tick in axes.yaxis.get_major_ticks() if low <= tick.get_loc() <= high]
    assert len(shown) > 1
    assert all(np.isfinite(float(text)) for text in shown)


def test_no_name_is_cut_off_or_lies_on_another():
    for one in sections_of(every_experiment()):
        for table in one.tables:
            with house_style():
                sheet = draw(table)
                settle(sheet)
                boxes = [text.get_window_extent() for text in sheet.legends[0].get_texts()] if sheet.legends else []
                boxes += [label.get_window_extent() for axes in sheet.axes for label in axes.get_yticklabels()]
                boxes += [axes.xaxis.label.get_window_extent() for axes in sheet.axes if axes.get_xlabel()]
            for n, box in enumerate(boxes):
                assert box.x0 >= -1
                assert box.y0 >= -1
                assert box.x1 <= sheet.bbox.x1 + 1
                assert not [other for other in boxes[:n] if box.overlaps(other) and box.width and other.width]


def test_methods_differ_in_colour_and_in_marker():
    styles = [*METHODS.values(), Variant("another", None).style]
    assert len({style.color for style in styles}) == len({style.marker for style in styles}) == len(styles)


def test_three_communities_are_told_as_three_and_not_held_against_four(tmp_path):
    rows = rows_of("source-localization", "paper", "converged", communities=3, community_size=20)
    page = words_of(write_report(rows, tmp_path).read_text())
    assert "a graph with 3 communities" in page
    assert "right once in 3 times" in page
    told = (
        "Not the setting of the paper, so that its numbers do not stand beside these: communities 3 instead of 4, "
        "community size 20 instead of 10."
    )
    for text in (page, terminal_table(rows)):
        assert told in text
        assert not {"✓", "▲", "▼"} & set(text)
        assert "73.9" not in text


@pytest.mark.parametrize("experiment", ["source-localization", "recommendation"])
def test_papers_numbers_stand_beside_every_reading_of_its_settings(experiment):
    for name in find_experiment(experiment).protocols_at("paper"):
        found = section(rows_of(experiment, "paper", name))
        assert all(table.has_paper for table in found.tables), name
        assert not [text for text in found.caveats if "Not the setting" in text]


@pytest.mark.parametrize(
    ("experiment", "preset", "changes", "told"),
    [
        ("source-localization", "paper", {"q": 0.3}, "q 0.3 instead of 0.1"),
        ("source-localization", "quick", {}, "batch size 240 instead of 100, epochs 60 instead of 400"),
        ("source-localization", "paper", {"layers": 3, "shift": "laplacian"}, "layers 3 instead of 2, shift laplacian"),
        ("source-localization", "paper", {"preparation": "local-contrast"}, "local-contrast instead of none"),
        ("source-localization", "best", {}, "epochs 200 instead of 400, layers 3 instead of 2"),
        ("recommendation", "paper", {"test_fraction": 0.5}, "test fraction 0.5 instead of 0.1"),
        ("recommendation", "paper", {"learning_rate": 0.5}, "learning rate 0.5 instead of"),
    ],
)
def test_other_settings_stand_alone_and_are_named(experiment, preset, changes, told):
    found = section(rows_of(experiment, preset, **changes))
    assert not any(table.has_paper for table in found.tables)
    assert told in " ".join(found.caveats)


@pytest.mark.parametrize(
    ("experiment", "changes"),
    [
        ("source-localization", {"communities": 4, "p": 0.8}),
        ("source-localization", {"graphs": 3, "splits": 2, "nodes": 1, "orders": 2, "features": 8}),
        ("recommendation", {"neighbors": 10, "splits": 2}),
    ],
)
def test_settings_that_are_said_again_or_count_runs_change_nothing(experiment, changes):
    assert all(table.has_paper for table in section(rows_of(experiment, "paper", **changes)).tables)


def test_one_run_of_another_setting_is_enough():
    rows = rows_of("source-localization", methods=("relu",))
    found = section(rows + rows_of("source-localization", methods=("max-ga",), communities=3))
    assert "communities 3 instead of 4" in " ".join(found.caveats)
    assert "a graph with 3 or 4 communities" in found.explanation[0]
    assert not any(table.has_paper for table in found.tables)


def test_experiments_without_a_table_of_the_paper_name_departures_too():
    for experiment in ("consensus", "denoising"):
        assert section(rows_of(experiment)).caveats == []
        (told,) = section(rows_of(experiment, layers=3)).caveats
        assert told.startswith("Not the setting of the paper: layers 3 instead of")


def test_a_first_look_says_so():
    (told, _) = section([row(preset="quick")]).caveats
    assert told == "Preset “quick” is a first look; the preset “paper” runs all of it."


def test_settings_and_costs_in_words():
    rows = [
        row(graph=graph, split=split, node=node, parameters=100 * (node + 1), exchanges=8)
        | {"settings": {"learning_rate": 0.001, "bias": True}}
        for graph in (0, 1)
        for split in (0, 1)
        for node in (3, 5)
    ]
    rows += [row(method="max-ga", hops=2, parameters=1234, exchanges=14)]
    facts = section(rows).facts
    assert facts["Replicas"] == "2 graphs, 2 splits, 2 nodes"
    assert (facts["Learning rate"], facts["Bias"]) == ("0.001", "yes")
    assert facts["Parameters of a network"] == "ReLU 400 to 600, Max G.A. (2) 1,234"
    assert facts["Exchanges of a network"] == "ReLU 8, Max G.A. (2) 14"
    assert facts["Results"] == "9 of networks, 0 of baselines"


def test_usual_options_are_those_of_the_tasks():
    assert find_experiment("source-localization").usual_options == {**vars(BLOCKS), "sources": "random"}
    assert find_experiment("consensus").usual_options == vars(CONSENSUS_BLOCKS)
    taken = inspect.signature(denoising_tasks).parameters
    usual = {name: taken[name].default for name in find_experiment("denoising").task_options}
    assert find_experiment("denoising").usual_options == usual
    usual = {name: getattr(Options, name) for name in find_experiment("recommendation").task_options}
    assert find_experiment("recommendation").usual_options == usual
    for name in EXPERIMENTS:
        assert set(find_experiment(name).usual_options) == set(find_experiment(name).task_options)
