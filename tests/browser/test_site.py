"""The site in a browser that has no network: every page, on a desk and on a telephone."""

import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

import pytest
from playwright.sync_api import expect

from paperlib.papers import TITLES
from paperlib.paths import NOTEBOOKS, ROOT

WIDTHS = (1280, 390)
# What a page shows when its formulas are set: how wide it is, what failed, and what stands out of the window.
SEEN = """async () => {
    if (window.MathJax?.startup?.promise) await MathJax.startup.promise;
    const scrolls = part => part && (['auto', 'scroll'].includes(getComputedStyle(part).overflowX)
        || scrolls(part.parentElement));
    const cut = part => part.getBoundingClientRect().right > innerWidth + 1 && !scrolls(part);
    return {
        width: document.documentElement.scrollWidth,
        failed: document.querySelectorAll('mjx-merror').length,
        raw: document.querySelectorAll('.math').length && !document.querySelector('mjx-container'),
        links: [...document.querySelectorAll('a[href]')].map(link => link.href),
        broken: [...document.images].filter(image => !image.naturalWidth && image.loading !== 'lazy').map(i => i.alt),
        cut: [...document.querySelectorAll("table, img, mjx-container")].filter(cut).map(part => part.outerHTML),
    };
}"""


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    if not shutil.which("npm") or subprocess.run(["npm", "view", "mathjax", "name"], capture_output=True).returncode:
        pytest.skip("formulas are set by MathJax, which npm brings")
    folder = tmp_path_factory.mktemp("site")
    subprocess.run([sys.executable, ROOT / "docs/site.py", folder], check=True, capture_output=True, text=True)
    return folder / "html"


@pytest.fixture
def page(browser):
    context = browser.new_context(offline=True)
    yield context.new_page()
    context.close()


def test_no_page_asks_for_anything_and_everything_on_it_is_whole(site, page):
    asked, wrong, links = [], [], {}
    page.on("request", lambda request: asked.append(request.url) if request.url.startswith("http") else None)
    page.on("pageerror", lambda error: wrong.append((page.url, str(error))))
    for path in sorted(site.rglob("*.html")):
        if "_static" not in path.parts:
            page.goto(path.as_uri())
            for width in WIDTHS:  # its formulas, which take most of the time, are set once
                page.set_viewport_size({"width": width, "height": 900})
                seen = page.evaluate(SEEN)
                links |= {link: path.name for link in seen.pop("links")}
                if seen.pop("width") > width or any(seen.values()):
                    wrong.append((path.relative_to(site), width, seen))
    assert asked == [] and wrong == []
    places = {link: urlsplit(urldefrag(link)[0]) for link in links}
    gone = {link for link, url in places.items() if url.scheme == "file" and not Path(unquote(url.path)).exists()}
    assert gone == set()


def test_every_notebook_and_every_part_of_the_reference_is_a_page(site):
    notebooks = {path.relative_to(NOTEBOOKS).with_suffix("") for path in NOTEBOOKS.rglob("*.ipynb")}
    pages = {path.relative_to(site / "notebooks").with_suffix("") for path in (site / "notebooks").rglob("*.html")}
    assert pages >= {path for path in notebooks if ".ipynb_checkpoints" not in path.parts}
    reference = {path.stem: path.read_text() for path in (site / "reference").glob("*.html")}
    assert "momentum_buffer" in reference["experiment"] and "server_init" in reference["hooks"]
    assert "fedhydra" in reference["methods"] and "--budget" in reference["commands"]


def test_a_word_is_found_without_a_server(site, page):
    page.goto((site / "search.html").as_uri() + "?q=SCAFFOLD")
    expect(page.locator("#search-results li").first).to_be_visible(timeout=20_000)
    page.goto((site / "index.html").as_uri())
    for title in TITLES.values():
        expect(page.get_by_text(title).first).to_be_attached()
