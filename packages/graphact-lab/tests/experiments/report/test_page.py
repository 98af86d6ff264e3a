import re
from html.parser import HTMLParser

import pytest

from experiments.report.conftest import COMMAND
from experiments.report.factory import baseline, row
from graphact_lab.report import write_report

WITHOUT_END = {"meta", "link"}
SCRIPT = "<script>alert('x')</script>"


class Page(HTMLParser):
    """Reads a page and notes what is wrong with it."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.elements, self.words = [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in WITHOUT_END:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def html(full_report):
    return (full_report / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(html):
    return Page(html)


def test_loads_nothing_from_anywhere(html, page):
    assert "http" not in html
    assert "@import" not in html
    assert page.all("script") == page.all("img") == page.all("iframe") == []
    assert page.all("link") == [{"rel": "icon", "href": "data:,"}]
    assert set(re.findall(r"url\((.)", html)) == {"#"}
    assert not any(name.startswith("on") for _, attributes in page.elements for name in attributes)


def test_names_are_unique_and_references_lead_somewhere(html, page):
    names = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(names) == len(set(names))
    aims = [attributes["href"] for _, attributes in page.elements if attributes.get("href", "").startswith("#")]
    aims += [f"#{name}" for name in re.findall(r"url\(#([^)]*)\)", html)]
    aims += [f"#{attributes['aria-labelledby']}" for _, attributes in page.elements if "aria-labelledby" in attributes]
    assert aims
    assert {aim.removeprefix("#") for aim in aims} <= set(names)


def test_is_accessible(page):
    assert page.all("html") == [{"lang": "en"}]
    assert len(page.all("title")) == len(page.all("h1")) == len(page.all("main")) == 1
    assert all(cell.get("scope") in ("col", "colgroup", "row") for cell in page.all("th"))
    assert len(page.all("figure")) == len(page.all("figcaption")) == len(page.all("svg")) == 9
    assert all(svg["role"] == "img" and "best is" in svg["aria-label"] for svg in page.all("svg"))
    signs = [span for span in page.all("span") if span.get("role") == "img"]
    assert {sign["aria-label"] for sign in signs} >= {"inside the paper's spread", "below the paper's spread"}


def test_says_what_was_found_and_how(page):
    text = page.text.replace("\N{NO-BREAK SPACE}", " ")
    assert re.search(r"F = 8: .* \d\d\.\d % ± \d+\.\d, ReLU \d\d\.\d % ± \d+\.\d; chance 25\.0 %\.", text)
    assert "mean ± sample standard deviation over the replicas" in text
    assert "Iancu, L. Ruiz, A. Ribeiro and E. Isufi" in text
    assert COMMAND in text
    for word in ("torch 2.13.0", "graphact 0.1.0", "Device cpu", "Finished 2026-11-15T10:00:00Z"):
        assert word in text
    for title in ("Table 1: ", "Figure 2a: ", "Figure 2b: ", "Figure 2c: ", "Figure 2d: ", "Table 2: "):
        assert title in text


def test_text_from_rows_is_escaped_everywhere(tmp_path):
    rows = [
        row(method=SCRIPT, value=60.0, preset=SCRIPT, protocol=SCRIPT, device=SCRIPT, finished=SCRIPT),
        row(method="relu", preset=SCRIPT, protocol=SCRIPT, settings={SCRIPT: SCRIPT}),
        baseline("source-localization", SCRIPT, 25.0, preset=SCRIPT, protocol=SCRIPT),
        row("recommendation", SCRIPT, 1.0, condition={"film": SCRIPT}, beta=[1.0], weights=[[[1.0]]]),
    ]
    written = write_report(rows, tmp_path, command=f"run {SCRIPT} & 'more'")
    text = written.read_text()
    page = Page(text)
    assert page.all("script") == []
    assert "<script" not in text.lower()
    assert page.text.count(SCRIPT) > 10
    files = [file for file in tmp_path.rglob("*") if file.suffix in (".md", ".svg")]
    assert files
    assert all("<script" not in file.read_text() for file in files)
    assert {file.parent.name for file in tmp_path.rglob("*") if file.is_file()} == {tmp_path.name, "tables", "figures"}


def test_one_experiment_needs_no_contents_and_command_may_be_unknown(tmp_path):
    page = Page(write_report([row()], tmp_path).read_text())
    assert page.all("nav") == []
    assert "The command was not recorded." in page.text
