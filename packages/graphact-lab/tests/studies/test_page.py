"""The pages on the reproduction say what the rows say, and hold no number that is not computed or announced."""

import pytest

from claims import CLAIMS
from evidence import Evidence
from facts import Facts
from page import PAGES, TEMPLATES, literal_numbers, make_environment, render_pages
from quotes import STALE
from support.places import ROOT


@pytest.fixture(scope="module")
def evidence(results):
    return Evidence(results)


@pytest.fixture(scope="module")
def pages(evidence):
    return render_pages(evidence)


@pytest.mark.parametrize("path", PAGES.values())
def test_pages_are_what_templates_and_rows_give(pages, path):
    assert (ROOT / path).read_text() == pages[path], "run python studies/page.py"


@pytest.mark.parametrize("path", PAGES.values())
def test_sentences_still_hold(pages, path):
    assert STALE not in pages[path]


@pytest.mark.parametrize("name", PAGES)
def test_templates_hold_no_results(name):
    assert literal_numbers((TEMPLATES / name).read_text()) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Accuracy is 73.9 % at F = 8.", ["73.9"]),
        ("{{ mean(x, 8) }} and `0.5`, F = 2, 4 and 8, Table 1, K = 1 to 8, [there](page.md#3), (2003)", []),
        ("by 0.8±0.6 points", ["0.8±0.6"]),
        ("13 to 26", ["13", "26"]),
    ],
)
def test_literal_numbers_are_found(text, found):
    assert literal_numbers(text) == found


def test_a_changed_row_changes_the_page(evidence, pages):
    [study] = [one for one in evidence.studies() if one[:2] == ("consensus", "best")]
    changed = Evidence(evidence.directory)
    changed.cells = {key: dict(cells) for key, cells in evidence.cells.items()}
    for cell, rows in evidence.cells[study].items():
        if cell.method == "max-ga" and not cell.condition:
            changed.cells[study][cell] = [{**row, "value": row["value"] + 0.01} for row in rows]
    text = make_environment(Facts(changed).names()).get_template("reproduction.md.j2").render()
    assert "| 0.0025 |" in pages["docs/reproduction.md"]
    assert text != pages["docs/reproduction.md"]
    assert "| 0.0125 |" in text


def test_stated_numbers_have_a_source():
    assert Facts.stated("0.5", "the paper") == "0.5"
    with pytest.raises(ValueError, match="source must be one of"):
        Facts.stated("0.5", "somewhere")


def test_every_protocol_and_claim_is_on_the_page(pages):
    for claim in {one.text for one in CLAIMS if one.preset is None}:
        assert claim in pages["docs/reproduction-details.md"], claim
