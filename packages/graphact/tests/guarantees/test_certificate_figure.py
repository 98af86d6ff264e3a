"""The figure of a certificate: integer node numbers, and no label on top of another."""

from itertools import combinations

import numpy as np
import pytest

from graphact.commands import certify

DEFAULT = [share * 2.7134 for share in certify.RADII]
CASES = {
    "default radii": (5, DEFAULT, certify.DECISIONS, 1.0, 0.01),
    "radii side by side": (3, [0.1, 0.101, 0.102, 0.103, 0.15, 0.1500001], certify.DECISIONS, 1.0, 1.0),
    "many nodes, wide range": (300, [0.01, 0.02], certify.OUTPUTS, 1e4, 3.0),
    "one radius": (40, [0.5], certify.OUTPUTS, 1.0, 0.2),
    "two nodes alike": (2, DEFAULT, certify.OUTPUTS, 0.37, 0.0),
    "one node": (1, [], certify.DECISIONS, 1.0, 0.0),
    "nothing moves": (4, [0.1, 1.0], certify.OUTPUTS, 0.0, 0.0),
}


def findings(nodes, radii, measure, size, spread):
    rng = np.random.default_rng(0)
    certified = (size * np.exp(spread * rng.normal(size=nodes))).tolist()
    shares = np.sort(rng.uniform(size=len(radii)))[::-1] if measure == certify.DECISIONS else 5 * np.array(radii)
    lines = [
        {"radius": radius, "certified": float(share), "found": float(share * 0.9)}
        for radius, share in zip(radii, shares, strict=True)
    ]
    found = [value * rng.uniform(0.3, 1) for value in certified]
    return {"certified_per_node": certified, "found_per_node": found, "measure": measure, "radii": lines}


@pytest.fixture(params=CASES)
def sheet(request):
    return certify.draw(findings(*CASES[request.param]))


def ticks(axis):
    """The labels that are drawn; matplotlib has more, beyond the ends of the axis."""
    low, high = sorted(axis.get_view_interval())
    inside = [tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
    return [label for label in inside if label.get_text() and label.get_visible()]


def test_no_label_lies_on_another_or_is_cut_off(sheet):
    sheet.draw_without_rendering()
    texts = [text for axes in sheet.axes for axis in (axes.xaxis, axes.yaxis) for text in (*ticks(axis), axis.label)]
    texts += [text for axes in sheet.axes for text in axes.get_legend().texts]
    boxes = [(text.get_text(), text.get_window_extent()) for text in texts]
    for words, box in boxes:
        inside = box.x0 >= 0 and box.y0 >= 0 and box.x1 <= sheet.bbox.x1 and box.y1 <= sheet.bbox.y1
        assert inside, words
    for (one, box), (other, another) in combinations(boxes, 2):
        width = min(box.x1, another.x1) - max(box.x0, another.x0)
        height = min(box.y1, another.y1) - max(box.y0, another.y0)
        assert width < 0.5 or height < 0.5, (one, other)


def test_nodes_are_whole(sheet):
    sheet.draw_without_rendering()
    axis = sheet.axes[0].xaxis
    shown = [label.get_text().replace("\N{MINUS SIGN}", "-") for label in ticks(axis)]
    assert shown
    assert all(text.isdigit() and int(text) >= 1 for text in shown), shown


def test_an_axis_of_constants_has_at_least_two_numbers(sheet):
    sheet.draw_without_rendering()
    for axes in sheet.axes:
        assert len(ticks(axes.yaxis)) >= 2
