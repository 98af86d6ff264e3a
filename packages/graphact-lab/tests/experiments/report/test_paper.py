"""The published numbers against the text of the paper's tables."""

import re

import pytest

from graphact_lab.experiments.recommendation.experiment import TABLE_2
from graphact_lab.experiments.source_localization.experiment import TABLE_1
from graphact_lab.report.tables import published
from graphact_lab.style import Variant

METHODS = {
    "ReLU": "relu",
    "Max L.": "max-l",
    "Max G.A.": "max-ga",
    "Median L.": "median-l",
    "Median G.A.": "median-ga",
    "Kernel G.A.": "kernel-ga",
}
TEXT_1 = r"""
ReLU & $\mathbf{47.9 (\pm 12.1)\%}$ & $44.9 (\pm 15.6)\%$  & $47.2 (\pm 15.5)\%$\\
Max L. & $64.5 (\pm 8.0)\%$ & $69.7 (\pm 8.6)\%$ & $\mathbf{72.2 (\pm 7.7)\%}$ \\
Max G.A. (2) & $64.9 (\pm 7.6)\%$ & $69.2 (\pm 7.0)\%$ & $\mathbf{73.9 (\pm 6.8)\%}$ \\
Median L. & $61.6 (\pm 7.4)\%$ & $65.1 (\pm 8.3)\%$  &  $\mathbf{69.6 (\pm 7.2)\%}$ \\
Median G.A. (2) & $65.4 (\pm 7.5)\%$ & $65.6 (\pm 7.6)\%$  & $\mathbf{71.3 (\pm 7.1)\%}$ \\
Kernel G.A. (1) & $58.6 (\pm 9.5)\%$ & $57.4 (\pm 10.2)\%$ & $\mathbf{61.9 (\pm 10.7)\%}$ \\
"""
TEXT_2 = r"""
ReLU & ${0.976 (\pm 0.158)}$ & $1.022 (\pm 0.042)$  & $1.018 (\pm 0.177)$\\
Max L. & $0.999 (\pm 0.166)$ & $1.028 (\pm 0.029)$ & ${1.001 (\pm 0.162)}$ \\
Max G.A. & $\mathbf{0.968 (\pm 0.168)}$ & $\mathbf{1.018 (\pm 0.038)}$ & $\mathbf{0.998 (\pm 0.172)}$ \\
Median L. & $0.987 (\pm 0.156)$ & $1.039 (\pm 0.055)$  &  ${1.020 (\pm 0.177)}$ \\
Median G.A. & $0.989 (\pm 0.160)$ & $1.020 (\pm 0.038)$  & ${1.021 (\pm 0.181)}$ \\
Kernel G.A. & $0.977 (\pm 0.152)$ & $1.021 (\pm 0.037)$ & ${1.014 (\pm 0.177)}$ \\
"""


def lines_of(text):
    for line in text.strip().splitlines():
        name, *cells = line.split("&")
        numbers = [tuple(map(float, re.findall(r"\d+\.\d+", cell))) for cell in cells]
        hops = re.search(r"\((\d)\)", name)
        yield METHODS[re.sub(r"\(.*", "", name).strip()], int(hops.group(1)) if hops else None, numbers


@pytest.mark.parametrize(("method", "hops", "numbers"), list(lines_of(TEXT_1)))
def test_table_1(method, hops, numbers):
    assert [TABLE_1[method, hops][features] for features in (2, 4, 8)] == numbers


@pytest.mark.parametrize(("method", "hops", "numbers"), list(lines_of(TEXT_2)))
def test_table_2_of_one_hop_activations(method, hops, numbers):
    films = ("toy-story", "contact", "return-of-the-jedi")
    assert [TABLE_2[method, None if method == "relu" else 1][film] for film in films] == numbers


def test_there_are_no_further_lines():
    assert len(TABLE_1) == len(TABLE_2) == 6


def test_hops_that_the_paper_does_not_print_have_no_number():
    assert published(TABLE_1, Variant("max-ga", 2))[8] == (73.9, 6.8)
    assert published(TABLE_1, Variant("median-ga", 1)) == {}
    assert published(TABLE_1, Variant("median-l", 3)) == TABLE_1["median-l", None]
