"""The results that are published with the code say what their rows say."""

import re
from html import unescape
from pathlib import Path

import pytest

from graphact.experiments.report import write_report
from graphact.experiments.store import Store

pytestmark = pytest.mark.slow

RESULTS = Path(__file__).parents[2] / "results"
FOLDERS = sorted(folder.parent.name for folder in RESULTS.glob("*/rows"))
PAGES = sorted(str(page.parent.relative_to(RESULTS)) for page in RESULTS.glob("**/report.html"))


def words_of(page):
    """The text of a page without its figures."""
    text = re.sub(r"<(svg|style)\b.*?</\1>", "", page.read_text(), flags=re.DOTALL)
    return unescape(re.sub(r"<[^>]*>", " ", text)).split()


def test_there_are_some():
    assert len(FOLDERS) >= 7
    assert {*FOLDERS, "benchmarks/gcn"} <= set(PAGES)


@pytest.fixture(scope="module", params=PAGES)
def published_and_made(request, tmp_path_factory):
    """A folder of results as it is published, and with the report made again from its rows."""
    store, made = Store(RESULTS / request.param), tmp_path_factory.mktemp("made")
    write_report(store.rows(), made, command="\n".join(store.commands()))
    return store.directory, made


def test_tables_come_from_the_rows(published_and_made):
    published, made = (
        {file.name: file.read_bytes() for file in (folder / "tables").iterdir()} for folder in published_and_made
    )
    assert sorted(made) == sorted(published)
    assert [name for name in made if made[name] != published[name]] == []


def test_figures_have_their_names(published_and_made):
    published, made = (sorted(file.name for file in (folder / "figures").iterdir()) for folder in published_and_made)
    assert made == published


def test_pages_say_what_the_rows_say(published_and_made):
    published, made = (words_of(folder / "report.html") for folder in published_and_made)
    assert made == published


@pytest.mark.parametrize("name", FOLDERS)
def test_rows_are_complete_and_of_the_noted_command(name):
    store = Store(RESULTS / name)
    (command,) = store.commands()
    words = command.split()
    first = int(words[words.index("--seed") + 1])
    seeds = range(first, first + (int(words[words.index("--seeds") + 1]) if "--seeds" in words else 1))
    rows = store.rows()
    assert {row["seed"] for row in rows} == set(seeds)
    for row in rows:
        assert row["experiment"] == words[2]
        assert row["preset"] == words[words.index("--preset") + 1]
    assert not (RESULTS / name / "checkpoints").exists()
