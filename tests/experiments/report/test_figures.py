import re
import struct
import xml.etree.ElementTree as ElementTree

import matplotlib
import pytest
from experiments.report.factory import baseline, row

from graphact.experiments.report.cells import gather
from graphact.experiments.report.figures.charts import Point, Reference
from graphact.experiments.report.figures.render import render
from graphact.experiments.report.figures.scale import scale_of
from graphact.experiments.report.figures.svg import ON_DARK, dark_rules
from graphact.experiments.report.methods import METHODS, STYLE_OF_OTHERS
from graphact.experiments.report.rows import read_rows
from graphact.experiments.report.sections.all import sections_of

OKABE_ITO = {"#e69f00", "#56b4e9", "#009e73", "#0072b2", "#d55e00", "#cc79a7"}
SVG = "{http://www.w3.org/2000/svg}"


def figures_of(rows):
    blocks = [block for section in sections_of(gather(read_rows(rows))) for block in section.blocks]
    return [figure for block in blocks for figure in block.figures]


def denoising(method="relu", value=1.0, order=1, **changes):
    return row("denoising", method, value, order=order, features=4, **changes)


def reference(*means, constant=True):
    return Reference("a baseline", tuple(Point(float(x), mean, 0.0) for x, mean in enumerate(means)), constant)


def test_methods_differ_in_colour_marker_and_none_needs_colour_alone():
    styles = [method.style for method in METHODS.values()] + [STYLE_OF_OTHERS]
    assert len({style.color for style in styles}) == len({style.marker for style in styles}) == len(styles)
    assert {style.color for style in styles} > OKABE_ITO


def test_line_chart_holds_the_means_and_deviations():
    rows = [denoising(value=1.0), denoising(value=3.0, split=1), denoising(order=2, value=1.5)]
    rows += [baseline("denoising", "noise", 2.0), denoising("fir", float("nan"))]
    (figure,) = figures_of(rows)
    (series,) = figure.chart.series
    assert series.points == (Point(1.0, 2.0, pytest.approx(2**0.5)), Point(2.0, 1.5, 0.0))
    (simple,) = figure.chart.references
    assert [point.mean for point in simple.points] == [2.0, 2.0]
    assert simple.constant


def test_dot_chart_holds_ours_and_the_papers():
    rows = [row(method="max-ga", hops=2, value=70.0), baseline("source-localization", "chance", 25.0)]
    (figure,) = figures_of(rows)
    (panel,) = figure.chart.panels
    dots = {dot.label: dot for dot in panel.dots}
    assert panel.title == "F = 8"
    assert dots["Max G.A. (2)"].ours.mean == 70.0
    assert dots["Max G.A. (2)"].paper == (73.9, 6.8)
    assert dots["ReLU"].ours is None
    assert panel.references[0].points[0].mean == 25.0


def test_results_and_near_references_are_on_the_scale():
    scale = scale_of([(1.0, 0.1), (2.0, 0.0)], [reference(2.2), reference(9.0), reference(0.01)])
    assert scale.low < 0.9
    assert 2.2 < scale.high < 9.0
    assert [scale.position(reference(mean)) for mean in (2.2, 9.0)] == ["on", "above"]
    assert scale_of([(5.0, 0.1)], [reference(1.0)]).position(reference(1.0)) == "below"


def test_errors_never_reach_below_zero():
    assert scale_of([(1.0, 2.0)], []).low == 0.0


def test_means_of_different_magnitude_have_a_logarithmic_scale():
    assert scale_of([(1.0, 0.0), (30.0, 0.0)], []).logarithmic
    assert not scale_of([(1.0, 0.0), (29.0, 0.0)], []).logarithmic
    assert not scale_of([(0.0, 0.0), (29.0, 0.0)], []).logarithmic


@pytest.mark.parametrize("values", [(1.0, 1.0), (0.0, 0.0), (1e-3, 1e7), (-1.0, 2.0), (1.0, float("inf"))], ids=str)
def test_every_range_of_values_is_drawn(values):
    places = [(order, split, value) for order, value in enumerate(values) for split in (0, 1)]
    rows = [denoising(order=order, split=split, value=value * (1 + 2 * split)) for order, split, value in places]
    (figure,) = figures_of([*rows, *(baseline("denoising", f"baseline {count}", 1.0 + count) for count in range(28))])
    assert render(figure).png.startswith(b"\x89PNG")


def test_files_are_well_formed_and_say_what_they_show(full_report):
    files = sorted((full_report / "figures").glob("*.svg"))
    assert len(files) == 7
    for file in files:
        root = ElementTree.parse(file).getroot()
        assert root.find(f"{SVG}title").text
        assert "best is" in root.find(f"{SVG}desc").text
        content = file.read_text()
        assert "prefers-color-scheme: dark" in content
        assert "<image" not in content
        assert not re.findall(r"(?:href|src)=\"(?!#)", content)
        width, height = struct.unpack(">II", file.with_suffix(".png").read_bytes()[16:24])
        assert width == 1200
        assert 700 < height < 3000


def test_dark_colours_replace_those_that_are_drawn(full_report):
    drawn = "".join(file.read_text() for file in (full_report / "figures").glob("*.svg"))
    for light in ON_DARK:
        assert f": {light}" in drawn.split("</style>", 1)[1]
        assert f'[style*="stroke: {light}"]' in dark_rules()
    assert "#000000" not in drawn


def test_dark_colours_reach_markers_which_see_nothing_around_them():
    rules = dark_rules().removeprefix("@media (prefers-color-scheme: dark) { ").removesuffix(" }")
    selectors = [rule.split("{")[0].strip() for rule in rules.split("}") if rule.strip()]
    assert len(selectors) == 2 * len(ON_DARK)
    assert all(selector.startswith("[style*=") and " [" not in selector for selector in selectors)


def test_text_is_no_mathematics_and_no_unknown_letters():
    (figure,) = figures_of([row(method="_hidden $x$ \u6f22", value=50.0), row(value=40.0)])
    drawn = render(figure)
    assert "_hidden $x$ ?" in drawn.svg


def test_settings_of_the_reader_are_neither_used_nor_changed():
    rows = [denoising(), denoising("fir", 2.0)]
    (figure,) = figures_of(rows)
    plain = render(figure)
    with matplotlib.rc_context({"font.size": 30.0, "axes.facecolor": "red", "svg.fonttype": "path"}):
        assert render(figure) == plain
        assert matplotlib.rcParams["font.size"] == 30.0


def test_same_method_looks_the_same_in_every_figure(full_report):
    for file in sorted((full_report / "figures").glob("*.svg")):
        content = file.read_text()
        for method in ("relu", "max-l", "max-ga", "median-l", "median-ga", "kernel-ga"):
            assert METHODS[method].style.color in content, (file.name, method)


def test_thin_lines_are_explained():
    rows = [denoising("max-ga", 1.0 + hops, hops=hops) for hops in (1, 2)]
    (figure,) = figures_of(rows)
    assert figure.caption.endswith("Thin lines: the same method with fewer hops.")
