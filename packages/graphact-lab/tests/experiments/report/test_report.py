import random
import subprocess
import sys

import pytest

from experiments.report.factory import baseline, every_experiment, row
from graphact_lab.report import terminal_table, write_report
from graphact_lab.store import Store


def contents(folder):
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def some_rows():
    """A part of every experiment, so that a report takes a second."""
    chosen = random.Random(2).sample(every_experiment(), 300)
    return [row for row in chosen if row["protocol"] == "paper"]


def test_files(full_report):
    names = sorted(contents(full_report))
    assert names[-1].startswith("tables/")
    assert "report.html" in names
    figures = {
        "figure-2a-consensus-quick-paper",
        "figure-2b-consensus-quick-paper",
        "figure-2c-denoising-quick-paper",
        "figure-2c-denoising-quick-paper-minus-fir",
        "figure-2d-denoising-quick-paper",
        "figure-2d-denoising-quick-paper-minus-relu",
        "figure-recommendation-quick-paper",
        "figure-source-localization-quick-converged",
        "figure-source-localization-quick-paper",
    }
    assert {name for name in names if name.startswith("figures/")} == {
        f"figures/{figure}.{ending}" for figure in figures for ending in ("png", "svg")
    }
    assert "tables/table-1-source-localization-quick-converged.csv" in names
    assert "tables/table-2-recommendation-quick-paper.md" in names
    assert not [name for name in names if "/." in name or name.startswith(".")]


@pytest.mark.slow
def test_same_rows_in_another_order_give_the_same_bytes(tmp_path):
    rows = some_rows()
    shuffled = random.Random(3).sample(rows, len(rows))
    write_report(rows, tmp_path / "one", command="x")
    write_report(iter(shuffled), str(tmp_path / "two"), command="x")
    one, two = contents(tmp_path / "one"), contents(tmp_path / "two")
    assert one.keys() == two.keys()
    assert [name for name in one if one[name] != two[name]] == []
    assert terminal_table(rows) == terminal_table(shuffled)


def test_writing_again_replaces_what_was_there(tmp_path):
    first = write_report([row(value=50.0)], tmp_path)
    assert "50.0" in first.read_text()
    assert write_report([row(value=51.0)], tmp_path) == first
    assert "50.0" not in first.read_text()


@pytest.mark.parametrize("experiment", ["source-localization", "consensus", "denoising", "recommendation"])
def test_baselines_alone(experiment, tmp_path):
    rows = [baseline(experiment, "a simple answer", 25.0)]
    page = write_report(rows, tmp_path).read_text()
    assert "No network has a result yet" in page
    assert "<figure" not in page
    assert not (tmp_path / "figures").exists()
    assert "a simple answer" in terminal_table(rows)


@pytest.mark.parametrize("experiment", ["source-localization", "consensus", "denoising", "recommendation"])
@pytest.mark.parametrize("value", [1.0, float("nan"), float("inf"), None])
def test_a_single_run(experiment, value, tmp_path):
    rows = [row(experiment, "median-ga", value, hops=1, beta=[float("nan")], weights=[[[0.5, float("inf")]]])]
    page = write_report(rows, tmp_path).read_text()
    assert ("<figure" in page) == (value == 1.0)
    assert ("diverged" in terminal_table(rows)) == (value != 1.0)
    assert "nan" not in page
    assert "1 run" in page


def test_no_rows():
    with pytest.raises(ValueError, match="rows must hold at least one result, got none"):
        write_report([], "nowhere")
    with pytest.raises(ValueError, match="rows must hold at least one result, got none"):
        terminal_table([])


def test_protocols_that_would_share_files(tmp_path):
    with pytest.raises(ValueError, match="must differ in letters or digits.*'My run'.*'my-run'"):
        write_report([row(protocol="My run"), row(protocol="my-run")], tmp_path)
    assert list(tmp_path.iterdir()) == []


def run_without(missing, program):
    """Run a program where some libraries are not installed."""
    tests = [path for path in sys.path if path.endswith("tests")]
    start = f"import sys; sys.path += {tests!r}; sys.modules.update(dict.fromkeys({missing!r}))\n"
    return subprocess.run([sys.executable, "-c", start + program], capture_output=True, text=True)


def test_tables_need_no_matplotlib():
    done = run_without(
        ["matplotlib"],
        """
from graphact_lab.report import terminal_table
from experiments.report.factory import row
print(terminal_table([row()]))
""",
    )
    assert done.returncode == 0, done.stderr
    assert "ReLU" in done.stdout


@pytest.mark.parametrize("missing", ["jinja2", "matplotlib", "pandas"])
def test_a_missing_library_is_named_in_one_line(missing, tmp_path):
    store = Store(tmp_path)
    store.create("graphact-lab run source-localization")
    store.finish("a-cell", [row()])
    program = f"from graphact_lab.cli import main; sys.exit(main(['report', {str(tmp_path)!r}]))"
    done = run_without([missing], program)
    remedy = "'graphact[figures]'" if missing == "matplotlib" else "graphact-lab"
    assert done.returncode == 2
    assert done.stderr == (
        f"graphact-lab: reports need the package {missing}: pip install {remedy}; "
        f"results are kept: graphact-lab report {tmp_path}\n"
    )
    assert not (tmp_path / "report.html").exists()


def test_experiments_are_imported_without_the_libraries_of_reports():
    program = """
import graphact_lab.report, graphact_lab.descriptions, graphact_lab.runner
import graphact_lab.commands.run, graphact_lab.style
"""
    done = run_without(["jinja2", "matplotlib", "pandas"], program)
    assert done.returncode == 0, done.stderr
