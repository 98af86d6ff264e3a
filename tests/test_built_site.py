"""The site, built once as `make docs` does: examples run and draw, links lead somewhere, a browser finds no fault."""

import os
import shutil
import subprocess
import sys
import threading
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from support.browser import brightness, open_browser, set_screen

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted(path.stem for path in (ROOT / "examples" / "gallery").glob("*.py"))
PAGES = sorted(path.stem for path in (ROOT / "docs").glob("*.md"))
PAGES += ["gallery/index", "gallery/hops", "api/nn", "_static/explorer"]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The pages, from a clean copy, without data sets and without a network."""
    for package in (
        "sphinx",
        "furo",
        "myst_parser",
        "sphinx_gallery",
        "sklearn",
        "torch_geometric",
        "lightning",
    ):
        pytest.importorskip(package, reason=f"the site needs {package} (extra docs)")
    folder = tmp_path_factory.mktemp("site")
    for name in ("docs", "examples"):
        built = shutil.ignore_patterns("gallery" if name == "docs" else "__pycache__")
        shutil.copytree(ROOT / name, folder / name, ignore=built)
    for name in ("CHANGELOG.md", "CONTRIBUTING.md", "README.md"):  # pages include them
        shutil.copy(ROOT / name, folder / name)
    for page in ROOT.glob("packages/*/CONTRIBUTING.md"):
        (folder / page.relative_to(ROOT)).parent.mkdir(parents=True)
        shutil.copy(page, folder / page.relative_to(ROOT))
    nobody = "http://127.0.0.1:9"
    environment = {**os.environ, "GRAPHACT_DATA": str(folder / "none"), "OMP_NUM_THREADS": "1"}
    environment |= {"http_proxy": nobody, "https_proxy": nobody, "no_proxy": "localhost,127.0.0.1"}
    options = ["--fail-on-warning", "--keep-going", "-q", "-b", "html", "-d", str(folder / "cache")]
    command = [sys.executable, "-m", "sphinx", *options, str(folder / "docs"), str(folder / "html")]
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=folder)
    assert result.returncode == 0, (result.stdout + result.stderr)[-4000:]
    return folder / "html"


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_has_run_and_drawn(site, name):
    """The build fails where an example does, or where an axis is empty."""
    image = pytest.importorskip("PIL.Image")
    figures = sorted((site / "_images").glob(f"sphx_glr_{name}_0*.png"))
    assert figures
    page = (site / "gallery" / f"{name}.html").read_text()
    for figure in figures:
        assert figure.name in page
        with image.open(figure) as opened:
            assert len(opened.convert("RGB").getcolors(maxcolors=1 << 24)) > 20


class Links(HTMLParser):
    """Links and resources of a page, and the anchors that others may link to."""

    def __init__(self, path):
        super().__init__()
        self.links, self.loads, self.places = [], [], {""}
        self.feed(path.read_text())

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.places |= {found[name] for name in ("id", "name") if found.get(name)}
        for name in ("href", "src"):
            if found.get(name):
                (self.links if tag == "a" else self.loads).append(found[name])


@pytest.fixture(scope="module")
def pages(site):
    return {path: Links(path) for path in site.rglob("*.html")}


def test_links(site, pages):
    assert len(pages) > 60
    broken = []
    for path, page in pages.items():
        for link in page.links + page.loads:
            parts = urlsplit(link)
            if parts.scheme in ("http", "https", "mailto", "data"):
                continue
            target = path if not parts.path else (path.parent / unquote(parts.path)).resolve()
            if not target.is_file() or (target in pages and unquote(parts.fragment) not in pages[target].places):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert broken == []


def test_nothing_is_loaded_from_elsewhere(pages):
    for path, page in pages.items():
        assert [link for link in page.loads if urlsplit(link).netloc] == [], path.name


@pytest.fixture(scope="module")
def address(site):
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=site))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with open_browser(tmp_path_factory.mktemp("browser")) as driver:
        yield driver


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_pages_in_a_browser(browser, address, width, scheme):
    set_screen(browser, width, scheme)
    browser.get_log("browser")
    for page in PAGES:
        browser.get(f"{address}/{page}.html")
        assert browser.get_log("browser") == [], page
        assert browser.execute_script("return window.innerWidth") == width
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width, page
        ground, ink = browser.execute_script(
            "const text = getComputedStyle(document.querySelector('h1'));"
            "return [getComputedStyle(document.body).backgroundColor, text.color]"
        )
        light, dark = (ink, ground) if scheme == "dark" else (ground, ink)
        assert brightness(light) > 150
        assert brightness(dark) < 100
        broken = "return [...document.images].filter(image => image.complete && !image.naturalWidth).map(i => i.src)"
        assert browser.execute_script(broken) == []


CUT = """
const [done] = arguments, isCut = element => element.scrollWidth > element.clientWidth + 1;
document.querySelectorAll("button.all-cards").forEach(button => button.click());
const every = document.querySelectorAll("pre, .table-wrapper");
const find = () => done([...every].filter(isCut).map(each => each.innerText));
(window.MathJax?.startup?.promise ?? Promise.resolve()).then(() => requestAnimationFrame(() => setTimeout(find)));
"""


@pytest.mark.parametrize("width", [1280, 390])
def test_no_code_and_no_table_is_cut(browser, address, site, width):
    set_screen(browser, width, "light")
    for page in sorted([*site.glob("*.html"), *site.glob("api/*.html"), *site.glob("gallery/*.html")]):
        browser.get(f"{address}/{page.relative_to(site)}")
        assert browser.execute_async_script(CUT) == [], page


@pytest.mark.parametrize("width", [1280, 390])
def test_a_long_table_on_a_phone_is_folded(browser, address, width):
    set_screen(browser, width, "light")
    browser.get(f"{address}/results.html")
    rows = "return [...document.querySelectorAll('table')].map(each => each.tBodies[0].rows)"
    rows += ".filter(rows => rows.length > 12)"
    shown = f"{rows}.map(rows => [...rows].filter(row => row.getClientRects().length).length)"
    every = browser.execute_script(f"{rows}.map(rows => rows.length)")
    is_list = browser.execute_script(f"{rows}.map(rows => rows[0].closest('table').classList.contains('stacked'))")
    assert any(is_list) == (width == 390)
    expected = [5 if stacked else count for stacked, count in zip(is_list, every, strict=True)]
    assert browser.execute_script(shown) == expected
    browser.execute_script("document.querySelectorAll('button.all-cards').forEach(button => button.click())")
    assert browser.execute_script(shown) == every


def test_the_contents_of_a_page_stand_beside_it(browser, address):
    set_screen(browser, 1280, "light")
    browser.get(f"{address}/guarantees.html")
    contents = browser.find_elements("css selector", ".toc-tree ul ul a")
    assert len(contents) > 5
    assert all(link.is_displayed() for link in contents)
    ends = browser.execute_script("return arguments[0].map(link => link.getBoundingClientRect().right)", contents)
    assert max(ends) <= browser.execute_script("return document.documentElement.clientWidth")


@pytest.mark.parametrize("width", [1280, 390])
def test_the_explorer_on_the_home_page(browser, address, width):
    """It is as high as its contents, which react, and has the colours of the site."""
    from selenium.webdriver.support.wait import WebDriverWait

    set_screen(browser, width, "dark")
    browser.get(f"{address}/index.html")
    frame = browser.find_element("id", "explorer")
    browser.execute_script("arguments[0].scrollIntoView()", frame)
    needed = "return document.documentElement.scrollHeight - innerHeight"

    def fits(driver):
        driver.switch_to.frame("explorer")
        hidden = driver.execute_script(needed)
        is_drawn = driver.find_elements("css selector", "#rounds circle")
        driver.switch_to.default_content()
        return is_drawn and hidden <= 0

    WebDriverWait(browser, 20).until(fits)
    browser.switch_to.frame("explorer")
    # the driver scrolls smoothly, as the page asks, and clicks before it arrives
    button = browser.find_element("id", "next")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", button)
    button.click()
    assert browser.find_element("id", "roundCaption").text.startswith("round 1 of 2")
    ground = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert brightness(ground) < 100
    browser.switch_to.default_content()


def test_formulas_are_set(browser, address):
    set_screen(browser, 1280, "light")
    browser.get(f"{address}/activations.html")
    browser.execute_async_script("MathJax.startup.promise.then(arguments[0])")
    assert browser.execute_script("return document.querySelectorAll('mjx-container').length") > 0
    assert browser.execute_script("return document.querySelectorAll('mjx-merror').length") == 0


def test_search_finds_median(browser, address):
    from selenium.common.exceptions import StaleElementReferenceException
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.wait import WebDriverWait

    set_screen(browser, 1280, "light")
    browser.get_log("browser")
    browser.get(f"{address}/search.html?q=median")

    def many(driver):  # results come one after another
        titles = [link.text for link in driver.find_elements(By.CSS_SELECTOR, "ul.search li a")]
        return len(titles) > 3 and " ".join(titles)

    found = WebDriverWait(browser, 30, ignored_exceptions=[StaleElementReferenceException]).until(many)
    assert "median" in found.lower()
    assert browser.get_log("browser") == []
