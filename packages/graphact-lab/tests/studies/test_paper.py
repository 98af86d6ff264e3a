"""The reproducibility paper: LaTeX that is whole, whose numbers are computed or announced."""

import re
from collections import Counter

import pytest

from draw import draw_all
from lookup import Lookup
from page import TEMPLATES
from paper import render_paper, tabular, to_tex


@pytest.fixture(scope="module")
def known():
    return Lookup()


@pytest.fixture(scope="module")
def text(known):
    return render_paper(known)


def test_environments_and_braces_are_balanced(text):
    stack = []
    for kind, name in re.findall(r"\\(begin|end)\{(\w+)\}", text):
        if kind == "begin":
            stack.append(name)
        else:
            assert stack.pop() == name
    assert stack == []
    plain = re.sub(r"\\[{}]", "", text)
    assert plain.count("{") == plain.count("}")
    assert len(re.findall(r"(?<!\\)\$", text)) % 2 == 0


def test_references_have_labels_and_tables_their_columns(text):
    labels = Counter(re.findall(r"\\label\{(.*?)\}", text))
    assert set(labels.values()) == {1}
    assert set(re.findall(r"\\ref\{(.*?)\}", text)) == set(labels)
    for letters, body in re.findall(r"\\begin\{tabular\}\{(.*?)\}\n(.*?)\\end\{tabular\}", text, flags=re.DOTALL):
        columns = len(re.sub(r"\{.*?\}", "", letters))
        for line in body.split(r"\\")[:-1]:
            assert len(re.findall(r"(?<!\\)&", line)) == columns - 1, line


def test_it_is_ascii_so_that_any_engine_reads_it(text):
    assert [letter for letter in text if ord(letter) > 127] == []


def test_figures_are_drawn(text, known, tmp_path):
    draw_all(known, tmp_path, is_pdf=True)
    for name in re.findall(r"\\includegraphics\[.*?\]\{(.*?)\}", text):
        assert (tmp_path / name).read_bytes().startswith(b"%PDF")


def test_the_template_holds_no_results():
    template = (TEMPLATES / "paper.tex.j2").read_text()
    body = template.split(r"\end{abstract}")[1].split(r"\begin{thebibliography}")[0]
    body = re.sub(r"\\begin\{equation\}.*?\\end\{equation\}", " ", body, flags=re.DOTALL)
    body = re.sub(r"<<.*?>>|<%.*?%>|<#.*?#>|(?<!\\)\$[^$]*\$", " ", body, flags=re.DOTALL)
    body = re.sub(r"\\(?:includegraphics|begin|ref|label)(?:\[[^]]*\])?\{[^}]*\}(?:\{[^}]*\})?", " ", body)
    body = re.sub(r"(?:Tables?|Figures?)[~ ]\d[a-d]?(?: and \d?[a-d])?|\b[FK] = \d+(?:, \d+)*(?: and \d+)?", " ", body)
    body = re.sub(r"\b(?:19|20)\d\d\b|95\\,\\%", " ", body)
    assert re.findall(r"\S*\d\S*", body) == []


def test_numbers_are_those_of_the_tables(text, known):
    for cell in known.table_1()[1][1:]:
        assert to_tex(cell) in text


@pytest.mark.parametrize(
    ("plain", "latex"),
    [
        ("**+1.5 ± 0.2**", r"\textbf{$+$1.5 $\pm$ 0.2}"),
        ("a_b & 5 %", r"a\_b \& 5 \%"),
        ("ReLU - FIR: -0.1 [-0.2, +0.3]", "ReLU $-$ FIR: $-$0.1 [$-$0.2, $+$0.3]"),
        ("< 0.001", "$<$ 0.001"),
        ("preset `best`", r"preset \texttt{best}"),
    ],
)
def test_texts_become_latex(plain, latex):
    assert to_tex(plain) == latex
    assert to_tex(to_tex(plain)) == latex


def test_lines_become_tables():
    assert tabular([["", "x"], ["a", "1"]]).splitlines() == [
        r"\begin{tabular}{lr}",
        r"\toprule",
        r" & x \\",
        r"\midrule",
        r"a & 1 \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]
