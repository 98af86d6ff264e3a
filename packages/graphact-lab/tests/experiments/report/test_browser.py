"""The page in a real browser: all figures are seen, nothing sticks out."""

import pytest

from experiments.report.factory import every_experiment
from graphact_lab.report.page import write_report
from support.browser import open_browser, set_screen

pytestmark = pytest.mark.slow
SIZES = """
return [...document.images].map(image => {
    const box = image.getBoundingClientRect();
    return [image.naturalWidth, box.width, box.left, box.right];
});
"""


def test_page(tmp_path):
    page = write_report(every_experiment(), tmp_path)
    with open_browser(tmp_path) as browser:
        for width in (360, 1280):
            set_screen(browser, width, "light")
            browser.get(page.as_uri())
            assert browser.get_log("browser") == []
            assert browser.execute_script("return document.documentElement.scrollWidth") <= width
            images = browser.execute_script(SIZES)
            assert len(images) == len(list((tmp_path / "figures").glob("*.svg")))
            for natural, shown, left, right in images:
                assert natural > 0
                assert shown > 300
                assert 0 <= left < right <= width
