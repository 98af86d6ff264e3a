import re
import struct
import xml.etree.ElementTree as ElementTree
from itertools import combinations, pairwise

import matplotlib
import numpy as np
import pandas as pd
import pytest
import scipy.stats
from matplotlib.colors import to_hex
from matplotlib.text import Text

from experiments.report.factory import baseline, every_experiment, row
from graphact_lab.figures import WIDTH, house_style, settle
from graphact_lab.report.charts import LABELLED, draw, render, scale_of
from graphact_lab.report.rows import read_rows
from graphact_lab.report.write import sections_of
from graphact_lab.style import GREY, METHODS, ON_DARK, Variant, dark_rules

OKABE_ITO = {"#e69f00", "#56b4e9", "#009e73", "#0072b2", "#d55e00", "#cc79a7"}
SVG = "{http://www.w3.org/2000/svg}"


def figures_of(rows):
    blocks = [block for _, blocks in sections_of(read_rows(rows)).values() for block in blocks]
    return [figure for block in blocks for figure in block.content.figures]


def drawn(figure):
    with house_style():
        sheet = draw(figure)
        settle(sheet)
    return sheet


def sheet_of(rows):
    (figure,) = figures_of(rows)
    return drawn(figure)


@pytest.fixture(scope="module")
def every_figure():
    """All figures of all experiments, drawn."""
    return [(figure, drawn(figure)) for figure in figures_of(every_experiment())]


def denoising(method="relu", value=1.0, order=1, **changes):
    return row("denoising", method, value, order=order, features=4, **changes)


def networks_of(axes):
    """The lines of a line chart by their label."""
    return {line.get_label(): line for line in axes.lines if not line.get_label().startswith("_")}


def baselines_of(axes):
    """The values of the dotted lines."""
    return [list(line.get_ydata()) for line in axes.lines if line.get_label().startswith("_")]


def dots_of(axes):
    """Return each row of a dot chart: mean, ends of its bar, colour, marker, and whether that is filled."""
    labels = [label.get_text() for label in axes.get_yticklabels()]
    found = []
    for point, _, (bar,) in axes.containers:
        (x,), (y,) = point.get_data()
        ends = bar.get_segments()[0][:, 0].round(9).tolist()
        filled = point.get_markerfacecolor() != "none"
        found.append((labels[round(y)], x, ends, point.get_color(), point.get_marker(), filled))
    return found


def ticks_of(axes):
    """The labels of the ticks that are on the axes."""
    for axis in (axes.xaxis, axes.yaxis):
        low, high = sorted(axis.get_view_interval())
        yield from (tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high)


def texts_below(sheet):
    return sheet.get_supxlabel().split("\n")


def test_methods_differ_in_colour_marker_and_none_needs_colour_alone():
    styles = [*METHODS.values(), Variant("another", None).style]
    assert len({style.color for style in styles}) == len({style.marker for style in styles}) == len(styles)
    assert {style.color for style in styles} > OKABE_ITO


def test_line_chart_holds_the_means_and_deviations():
    rows = [denoising(value=1.0), denoising(value=3.0, split=1), denoising(order=2, value=1.5)]
    rows += [baseline("denoising", "noise", 2.0), denoising("fir", float("nan"))]
    (axes,) = sheet_of(rows).axes
    (line,) = networks_of(axes).values()
    assert line.get_label() == "ReLU"
    assert line.get_xydata().tolist() == [[1.0, 2.0], [2.0, 1.5]]
    (band,) = axes.collections
    corners = {tuple(corner) for corner in band.get_paths()[0].vertices.round(9).tolist()}
    assert corners == {(1.0, round(2 - 2**0.5, 9)), (1.0, round(2 + 2**0.5, 9)), (2.0, 1.5)}
    assert to_hex(band.get_facecolor()[0]) == line.get_color() == METHODS["relu"].color
    assert baselines_of(axes) == [[2.0, 2.0]]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "2"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("Filter order K", "Test RMSE (kelvin)")


def test_one_column_is_a_chart_of_dots_and_no_axis_has_one_tick(every_figure):
    methods = ("relu", "max-ga", "fir")
    rows = [
        denoising(method, 2 + count + split, split=split) for count, method in enumerate(methods) for split in (0, 2)
    ]
    (axes,) = sheet_of(rows).axes
    assert axes.texts[0].get_text() == "K = 1"
    expected = [
        (METHODS[method].short, mean, [round(mean - 2**0.5, 9), round(mean + 2**0.5, 9)])
        for method, mean in zip(methods, (3.0, 4.0, 5.0), strict=True)
    ]
    assert [dot[:3] for dot in dots_of(axes)] == expected
    for sheet in [axes.figure, *(sheet for _, sheet in every_figure)]:
        for own in sheet.axes:
            for axis in (own.xaxis, own.yaxis):
                low, high = sorted(axis.get_view_interval())
                assert sum(low <= tick <= high for tick in axis.get_majorticklocs()) > 1


def test_bands_and_bars_do_not_leave_what_values_can_be():
    rows = [
        denoising(order=order, value=value, split=split) for order in (1, 2) for split, value in ((0, 0.1), (1, 3.0))
    ]
    (axes,) = sheet_of(rows).axes
    (band,) = axes.collections
    assert band.get_paths()[0].vertices[:, 1].min() == 0.0
    accuracies = [row(method="max-ga", hops=2, value=value, split=split) for split, value in enumerate((100.0, 80.0))]
    (axes,) = sheet_of(accuracies).axes
    (bar,) = [ends for label, _, ends, *_, filled in dots_of(axes) if filled]
    assert bar == [round(90 - 200**0.5, 9), 100.0]


def test_differences_have_their_intervals_and_a_line_at_zero():
    values = {"fir": (1.0, 1.2, 1.4), "max-ga": (0.9, 1.0, 1.3)}
    rows = [
        denoising(method, value + order, order=order, split=split, graph=None)
        for method, split_values in values.items()
        for order in (1, 2)
        for split, value in enumerate(split_values)
    ]
    _, figure = figures_of(rows)
    assert figure.title == "Figure 2c, minus FIR: error over the filter order, F = 4"
    (axes,) = drawn(figure).axes
    (line,) = networks_of(axes).values()
    gaps = np.subtract(values["max-ga"], values["fir"])
    assert line.get_ydata() == pytest.approx([gaps.mean()] * 2)
    reach = scipy.stats.t.ppf(0.975, 2) * gaps.std(ddof=1) * (1 / 3 + 1 / 8) ** 0.5
    heights = axes.collections[0].get_paths()[0].vertices[:, 1]
    assert (heights.min(), heights.max()) == pytest.approx((gaps.mean() - reach, gaps.mean() + reach))
    assert [0.0, 0.0] in baselines_of(axes)
    assert axes.get_ylabel() == "Test RMSE (kelvin), minus FIR"


def test_axis_of_doubled_orders_is_logarithmic():
    (axes,) = sheet_of([denoising(order=order) for order in (1, 2, 4, 8)]).axes
    assert axes.get_xscale() == "log"
    (axes,) = sheet_of([denoising(order=order) for order in (1, 2, 3, 4)]).axes
    assert axes.get_xscale() == "linear"


def test_baselines_are_drawn_where_they_are_known():
    rows = [denoising(order=order, value=1.5 + split, split=split) for order in (1, 2) for split in (0, 1)]
    rows += [baseline("denoising", "at one order", 2.1, order=2), baseline("denoising", "everywhere", 2.2)]
    rows += [baseline("denoising", "at both", 1.9 - order / 100, order=order) for order in (1, 2)]
    sheet = sheet_of(rows)
    (axes,) = sheet.axes
    assert baselines_of(axes) == [[2.2, 2.2], [2.1], [1.89, 1.88]]
    assert texts_below(sheet) == [""]
    names = {text.get_text(): text.xy for text in axes.texts}
    assert list(names) == ["at both", "at one order", "everywhere"]
    low, high = axes.get_ylim()
    assert names["everywhere"][1] == pytest.approx((2.2 - low) / (high - low))


def test_baselines_far_away_are_named_and_not_drawn_into_the_scale():
    rows = [denoising(order=order, value=1.0 + split / 10, split=split) for order in (1, 2) for split in (0, 1)]
    sheet = sheet_of([*rows, baseline("denoising", "noise", 9.0), baseline("denoising", "oracle", 0.001)])
    assert texts_below(sheet) == ["Above the scale: noise (9.000).", "Below the scale: oracle (0.001)."]
    assert sheet.axes[0].get_ylim()[1] < 2.0
    assert not sheet.axes[0].texts


def test_small_numbers_are_not_called_zero():
    rows = [denoising(order=order, value=1.0 + split / 10, split=split) for order in (1, 2) for split in (0, 1)]
    sheet = sheet_of([*rows, baseline("denoising", "oracle", 3.2e-6)])
    assert texts_below(sheet) == ["Below the scale: oracle (3.2e-06)."]


@pytest.mark.parametrize("step", [1e-6, 0.02, 0.05, 0.1, 0.2])
@pytest.mark.parametrize("count", [2, 6, 12])
def test_names_beside_lines_keep_their_distance(step, count):
    rows = [denoising(order=order, value=1.0 + split, split=split) for order in (1, 2) for split in (0, 1)]
    rows += [
        baseline("denoising", f"baseline {number} of a few", 1.5 + step * number / count) for number in range(count)
    ]
    sheet = sheet_of(rows)
    sheet.draw_without_rendering()
    texts = sheet.axes[0].texts
    boxes = [Text.get_window_extent(text) for text in texts]  # without the line that leads to it
    assert all(above.y0 >= below.y1 - 0.5 for below, above in pairwise(boxes))
    left_out = texts_below(sheet)[0].removeprefix("Also dotted: ")
    assert len(texts) + (left_out.count("baseline") if left_out else 0) <= count
    assert "".join(texts_below(sheet)).count("(") == count - len(texts)


def test_baselines_have_rows_of_their_own_in_a_chart_of_dots():
    simple = {"chance": 25.0, "oracle": 3e-5}
    sheet = sheet_of(
        [row(value=60.0), row(value=70.0, split=1), *(baseline("source-localization", *one) for one in simple.items())]
    )
    (axes,) = sheet.axes
    assert [label.get_text() for label in axes.get_yticklabels()][-2:] == ["oracle", "chance"]
    assert [text.get_text() for text in axes.texts] == ["F = 8", "← 3.0e-05"]
    assert texts_below(sheet) == [""]


def test_names_are_shortened_and_what_all_share_is_said_once():
    rows = [row("consensus", value=1.0 + split / 10, split=split, order=5, features=8) for split in (0, 1)]
    rows += [row("consensus", value=1.1, order=5, features=8, condition={"loss_probability": 0.1}, realization=0)]
    names = ["least-squares filter of order 5 with Metropolis weights", "answer zero"]
    rows += [baseline("consensus", name, 1.05 + 0.02 * number) for number, name in enumerate(names)]
    sheet = drawn(figures_of(rows)[-1])
    assert [text.get_text().replace("\N{NO-BREAK SPACE}", " ") for text in sheet.axes[0].texts] == [
        "LS filter,\norder 5,\nMetropolis",
        "answer zero",
    ]
    assert texts_below(sheet) == ["Dotted: baselines, no link lost."]


def test_dot_chart_holds_ours_and_the_papers():
    rows = [row(method="max-ga", hops=2, value=value, split=split) for split, value in enumerate((69.0, 71.0))]
    sheet = sheet_of([*rows, baseline("source-localization", "chance", 25.0)])
    (axes,) = sheet.axes
    dots = dots_of(axes)
    ends = [round(70 - 2**0.5, 9), round(70 + 2**0.5, 9)]
    assert ("Max G.A. (2)", 70.0, ends, METHODS["max-ga"].color, "^", True) in dots
    assert ("Max G.A. (2)", 73.9, [67.1, 80.7], METHODS["max-ga"].color, "^", False) in dots
    assert ("ReLU", 47.2, [31.7, 62.7], METHODS["relu"].color, "o", False) in dots
    assert [label for label, *_, filled in dots if filled] == ["Max G.A. (2)"]
    assert axes.texts[0].get_text() == "F = 8"
    chance, mark = [line for line in axes.lines if line.get_color() == GREY]
    assert list(chance.get_xdata()) == [25.0, 25.0]
    assert list(mark.get_xdata()) == [25.0]
    assert axes.get_xlim()[0] < 25.0
    assert [text.get_text() for text in sheet.legends[0].texts] == [
        "ours, mean ± standard deviation",
        "paper, mean ± standard deviation",
    ]


def test_dot_chart_has_a_panel_for_each_column():
    rows = [row(features=features, value=60.0 + features) for features in (2, 8)]
    panels = sheet_of(rows).axes
    assert [axes.texts[0].get_text() for axes in panels] == ["F = 2", "F = 8"]
    assert [dots_of(axes)[0][:2] for axes in panels] == [("ReLU", 62.0), ("ReLU", 68.0)]
    assert panels[0].get_xlim() == panels[1].get_xlim()


def series(*values):
    return pd.Series(values, dtype=float)


def test_results_and_near_references_are_on_the_scale():
    scale = scale_of(series(1.0, 2.0), series(0.1, 0.0), series(2.2, 9.0, 0.01))
    assert scale.low < 0.9
    assert 2.2 < scale.high < 9.0
    assert scale_of(series(5.0), series(0.1), series(1.0)).low > 1.0


def test_errors_never_reach_below_zero():
    assert scale_of(series(1.0), series(2.0), series()).low == 0.0


def test_means_of_different_magnitude_have_a_logarithmic_scale():
    for means, logarithmic in (((1.0, 4.0), True), ((1.0, 3.9), False), ((0.0, 29.0), False)):
        assert scale_of(series(*means), series(0.0, 0.0), series()).logarithmic == logarithmic
    scale = scale_of(series(1.0, 4.0), series(0.0, 0.0), series(0.04, 0.03, 119.0, 121.0))
    assert (scale.low, scale.high) == pytest.approx((0.04 / 1.3, 119 * 1.3))
    assert not scale_of(series(10.0, 90.0), series(0.0, 0.0), series(), (0.0, 100.0)).logarithmic  # percent
    assert not scale_of(series(0.02, 1.5), series(2.4, 3.4), series(), (-np.inf, np.inf)).logarithmic  # differences
    (axes,) = sheet_of([denoising(order=order, value=10.0**order) for order in (1, 2, 3)]).axes
    assert axes.get_yscale() == "log"


@pytest.mark.slow
@pytest.mark.parametrize("values", [(1.0, 1.0), (0.0, 0.0), (1e-3, 1e7), (-1.0, 2.0), (1.0, float("inf"))], ids=str)
def test_every_range_of_values_is_drawn(values):
    places = [(order, split, value) for order, value in enumerate(values) for split in (0, 1)]
    rows = [denoising(order=order, split=split, value=value * (1 + 2 * split)) for order, split, value in places]
    (figure,) = figures_of([*rows, *(baseline("denoising", f"baseline {count}", 1.0 + count) for count in range(28))])
    assert render(figure)[0].startswith(b"\x89PNG")
    sheet = drawn(figure)
    beside = [*sheet.axes[0].texts, *sheet.axes[0].get_yticklabels()]
    named = " ".join([*texts_below(sheet), *(text.get_text().replace("\n", " ") for text in beside)])
    assert all(f"baseline {count}" in named for count in range(28))


def test_nothing_overlaps_and_nothing_is_cut_off(every_figure):
    for figure, sheet in every_figure:
        sheet.draw_without_rendering()
        texts = [text for axes in sheet.axes for text in (*axes.texts, *ticks_of(axes))]
        texts += [axes.xaxis.label for axes in sheet.axes] + [axes.yaxis.label for axes in sheet.axes]
        texts += [*sheet.texts, *(text for legend in sheet.legends for text in legend.texts)]
        shown = [text for text in texts if text.get_text() and text.get_visible()]
        boxes = [(text.get_text(), Text.get_window_extent(text)) for text in shown]
        assert len(boxes) > 10
        for words, box in boxes:
            assert box.x0 >= 0, (figure.name, words)
            assert box.y0 >= 0, (figure.name, words)
            assert box.x1 <= sheet.bbox.x1, (figure.name, words)
            assert box.y1 <= sheet.bbox.y1, (figure.name, words)
        for (one, box), (other, another) in combinations(boxes, 2):
            width = min(box.x1, another.x1) - max(box.x0, another.x0)
            height = min(box.y1, another.y1) - max(box.y0, another.y0)
            assert width < 0.5 or height < 0.5, (figure.name, one, other)


@pytest.mark.slow
def test_files_are_well_formed_and_say_what_they_show(full_report):
    files = sorted((full_report / "figures").glob("*.svg"))
    assert len(files) == 9
    for file in files:
        root = ElementTree.parse(file).getroot()
        assert root.find(f"{SVG}title").text
        assert "best is" in root.find(f"{SVG}desc").text
        content = file.read_text()
        assert "prefers-color-scheme: dark" in content
        assert "<image" not in content
        assert not re.findall(r"(?:href|src)=\"(?!#)", content)
        width, height = struct.unpack(">II", file.with_suffix(".png").read_bytes()[16:24])
        assert width in (300 * WIDTH, 300 * LABELLED)
        assert 700 < height < 3000


def test_dark_colours_replace_those_that_are_drawn(full_report):
    drawings = "".join(file.read_text() for file in (full_report / "figures").glob("*.svg"))
    for light in ON_DARK:
        assert f": {light}" in drawings.split("</style>", 1)[1]
        assert f'[style*="stroke: {light}"]' in dark_rules()
    assert "#000000" not in drawings


def test_dark_colours_reach_markers_which_see_nothing_around_them():
    rules = dark_rules().removeprefix("@media (prefers-color-scheme: dark) { ").removesuffix(" }")
    selectors = [rule.split("{")[0].strip() for rule in rules.split("}") if rule.strip()]
    assert len(selectors) == 2 * len(ON_DARK)
    assert all(selector.startswith("[style*=") and " [" not in selector for selector in selectors)


def test_text_is_no_mathematics_and_no_unknown_letters():
    (figure,) = figures_of([row(method="_hidden $x$ \u6f22", value=50.0), row(value=40.0)])
    assert "_hidden $x$ ?" in render(figure)[1]


def test_settings_of_the_reader_are_neither_used_nor_changed():
    rows = [denoising(), denoising("fir", 2.0)]
    (figure,) = figures_of(rows)
    plain = render(figure)
    with matplotlib.rc_context({"font.size": 30.0, "axes.facecolor": "red", "svg.fonttype": "path"}):
        assert render(figure) == plain
        assert matplotlib.rcParams["font.size"] == 30.0


def test_same_method_looks_the_same_in_every_figure(every_figure):
    looks = {}
    for _, sheet in every_figure:
        for axes in sheet.axes:
            for label, line in networks_of(axes).items():
                looks.setdefault(label.split(" (")[0], set()).add((line.get_color(), line.get_marker()))
            for label, _, _, color, marker, _ in dots_of(axes):
                looks.setdefault(label.split(" (")[0], set()).add((color, marker))
    assert looks == {style.short: {(style.color, style.marker)} for style in METHODS.values()}
    assert GREY not in {style.color for style in METHODS.values()}


def test_thin_lines_are_explained():
    rows = [denoising("max-ga", 1.0 + hops, hops=hops, order=order) for hops in (1, 2) for order in (1, 2)]
    (figure,) = figures_of(rows)
    assert figure.caption.endswith("Thin lines: the same method with fewer hops.")
    widths = {label: line.get_linewidth() for label, line in networks_of(drawn(figure).axes[0]).items()}
    assert widths == {"Max G.A. (1)": 0.9, "Max G.A. (2)": 1.5}


def test_every_number_of_a_table_is_in_its_figure(every_figure):
    for figure, sheet in every_figure:
        entries = figure.table.entries
        expected = sorted(entries["mean"][(entries.kind == "model")].dropna())
        if figure.axis is None:
            expected = sorted([*expected, *entries.paper_mean.dropna()])
            values = [dot[1] for axes in sheet.axes for dot in dots_of(axes)]
        else:
            values = np.concatenate([line.get_ydata() for line in networks_of(sheet.axes[0]).values()])
        assert sorted(values) == expected, figure.name
