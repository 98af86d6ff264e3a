"""A real browser, where one is installed, and pages at a width and in a scheme."""

import shutil
from contextlib import contextmanager

import pytest

OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # what a page asks of others is an error in its log
)


@contextmanager
def open_browser(profile):
    """A driver of Chromium with a profile of its own; the test is skipped where a program is missing."""
    selenium = pytest.importorskip("selenium.webdriver", reason="the browser test needs selenium")
    from selenium.webdriver.chrome.service import Service

    programs = {name: shutil.which(name) for name in ("chromium", "chromedriver")}
    for name, path in programs.items():
        if path is None:
            pytest.skip(f"the browser test needs {name}, which is not installed")
    options = selenium.ChromeOptions()
    options.binary_location = programs["chromium"]
    for option in (*OPTIONS, f"--user-data-dir={profile}"):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = selenium.Chrome(options=options, service=Service(executable_path=programs["chromedriver"]))
    try:
        yield driver
    finally:
        driver.quit()


def set_screen(browser, width, scheme):
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)


def brightness(colour):
    """Of a colour as a computed style has it, from 0 to 255."""
    red, green, blue = (int(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(","))
    return (red + green + blue) / 3
