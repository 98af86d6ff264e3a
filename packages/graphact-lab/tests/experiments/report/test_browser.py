"""The page in a real browser: nothing is missing, nothing sticks out, in light and in dark."""

import pytest

from support.browser import brightness, open_browser, set_screen

pytestmark = pytest.mark.slow

WIDTHS = (360, 768, 1280)
SCHEMES = ("light", "dark")
SIZES = """
return [...document.querySelectorAll('figure svg')].map(figure => {
    const box = figure.getBoundingClientRect();
    return [box.width, box.height, box.left, box.right, figure.checkVisibility()];
});
"""
COLOURS = """
const of = (selector, name) => getComputedStyle(document.querySelector(selector))[name];
return [of('body', 'backgroundColor'), of('body', 'color'), of('figure svg text', 'fill')];
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with open_browser(tmp_path_factory.mktemp("browser")) as driver:
        yield driver


@pytest.fixture(params=[(width, scheme) for width in WIDTHS for scheme in SCHEMES], ids=str)
def shown(request, browser, full_report):
    """The page at a width and in a scheme, with everything unfolded."""
    width, scheme = request.param
    set_screen(browser, width, scheme)
    browser.get((full_report / "report.html").as_uri())
    browser.execute_script("document.querySelectorAll('details').forEach(part => part.open = true)")
    return browser, width, scheme


def test_page(shown):
    browser, width, scheme = shown
    assert browser.get_log("browser") == []
    assert browser.execute_script("return window.innerWidth") == width
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    figures = browser.execute_script(SIZES)
    assert len(figures) == 9
    for figure_width, figure_height, left, right, visible in figures:
        assert visible
        assert figure_width >= min(width - 40, 300)
        assert figure_height > 200
        assert left >= 0
        assert right <= width
    ground, ink, label = map(brightness, browser.execute_script(COLOURS))
    assert (ground < 40 and min(ink, label) > 200) if scheme == "dark" else (ground > 250 and max(ink, label) < 60)


def test_wide_tables_scroll_in_their_own_box(shown):
    browser, width, _ = shown
    boxes = browser.execute_script(
        "return [...document.querySelectorAll('.scroll')].map(box => [box.clientWidth, box.scrollWidth])"
    )
    assert all(inner <= width for inner, _ in boxes)
    if width == 360:
        assert any(whole > inner for inner, whole in boxes)
    if width == 1280:
        assert all(whole <= inner for inner, whole in boxes)
